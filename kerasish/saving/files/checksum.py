"""CRC-32 of arrays and of files: computed beside the writing, put together from parts."""

from __future__ import annotations

import queue
import threading
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

LARGE = 2**20  # bytes from which a thread of its own pays
_PIECE = 2**20  # bytes read at once: still in the cache when they are summed up
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
    """The CRC-32 of bytes that follow each other, computed in a thread beside their way.

    Args:
        start: the CRC-32 of what comes before them.

    Example:
        >>> with Digest() as digest:
        ...     digest.add(memoryview(b"ab"))
        ...     digest.add(memoryview(b"cde"))
        >>> digest.result() == zlib.crc32(b"abcde")
        True
    """

    def __init__(self, start: int = 0) -> None:
        self._found = start
        self._parts: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Digest:
        return self

    def __exit__(self, *error: object) -> None:
        self.result()  # the thread ends

    def add(self, data: memoryview) -> None:
        """Add bytes; they must not change before `result`."""
        if self._thread is None:
            if len(data) < LARGE:
                self._found = zlib.crc32(data, self._found)
                return
            self._thread = threading.Thread(target=self._compute, daemon=True)
            self._thread.start()
        self._parts.put(data)

    def _compute(self) -> None:
        while (data := self._parts.get()) is not None:
            self._found = zlib.crc32(data, self._found)

    def result(self) -> int:
        """Return the CRC-32 of all that was added, waiting for it."""
        if self._thread is not None:
            self._parts.put(None)
            self._thread.join()
            self._thread = None
        return self._found


def fill(array: Any, readinto: Callable[[memoryview], int | None], start: int | None = 0) -> int:
    """Read a contiguous array's bytes; return their CRC-32, computed behind the reading.

    Args:
        array: what is filled.
        readinto: fills a buffer from its beginning on and returns the number of bytes.
        start: the CRC-32 of what comes before; None: none is wanted, and 0 is returned.

    Raises:
        EOFError: there are fewer bytes.
    """
    view = bytes_of(array) if array.nbytes else memoryview(b"")
    with Digest(start or 0) as digest:
        while view:
            count = readinto(view[:_PIECE])
            if not count:
                raise EOFError(f"{len(view)} bytes are missing")
            if start is not None:
                digest.add(view[:count])
            view = view[count:]
    return digest.result()


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
