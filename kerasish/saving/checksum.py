"""CRC-32 of arrays and of files: computed beside the writing, put together from parts."""

from __future__ import annotations

import threading
import zlib
from functools import cache
from typing import Any

import numpy as np

LARGE = 2**20  # bytes from which a thread of its own pays
_POLYNOMIAL = 0xEDB88320  # CRC-32's, the bits mirrored
_ONE, _X = 1 << 31, 1 << 30


def checksum(array: Any, of_bytes: int | None = None) -> int:
    """Return the CRC-32 of an array's dtype, shape and bytes.

    Args:
        array: the array, contiguous.
        of_bytes: the CRC-32 of the bytes alone, where it is known already.

    Example:
        >>> zeros = np.zeros(3, "uint8")
        >>> checksum(zeros) == checksum(zeros, zlib.crc32(bytes(3)))
        True
    """
    start = zlib.crc32(f"{array.dtype.str}{array.shape}".encode())
    if array.nbytes == 0:
        return start
    if of_bytes is not None:
        return combine(start, of_bytes, array.nbytes)
    return zlib.crc32(bytes_of(array), start)


def bytes_of(array: Any) -> memoryview:
    """Return the bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data  # type: ignore[no-any-return]


class Digest:
    """The CRC-32 of some bytes, computed in a thread while they are written.

    Args:
        data: the bytes; they must not change before `result`.
    """

    def __init__(self, data: memoryview) -> None:
        self._found = 0
        self._thread: threading.Thread | None = None
        if len(data) < LARGE:
            self._found = zlib.crc32(data)
            return
        self._thread = threading.Thread(target=self._compute, args=(data,), daemon=True)
        self._thread.start()

    def _compute(self, data: memoryview) -> None:
        self._found = zlib.crc32(data)

    def result(self) -> int:
        """Return the CRC-32, waiting for it."""
        if self._thread is not None:
            self._thread.join()
        return self._found


def combine(first: int, second: int, length: int) -> int:
    """Return the CRC-32 of two pieces of data in a row, from those of each.

    CRC-32 is a remainder of polynomials over GF(2): to put `length` bytes behind the first piece
    multiplies its remainder by x^(8 length).

    Args:
        first: CRC-32 of the first piece.
        second: CRC-32 of the second piece.
        length: number of bytes of the second piece.

    Example:
        >>> combine(zlib.crc32(b"ab"), zlib.crc32(b"cde"), 3) == zlib.crc32(b"abcde")
        True
    """
    power, factor = 3, _ONE  # x^(2^3) is one byte
    while length:
        if length & 1:
            factor = _product(factor, _square(power))
        length >>= 1
        power += 1
    return _product(factor, first) ^ second


@cache
def _square(power: int) -> int:
    """x^(2^power), modulo the polynomial."""
    if power == 0:
        return _X
    below = _square(power - 1)
    return _product(below, below)


def _product(a: int, b: int) -> int:
    """a * b, modulo the polynomial; bit 31 stands for x^0."""
    found = 0
    for i in range(31, -1, -1):
        if a >> i & 1:
            found ^= b
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return found
