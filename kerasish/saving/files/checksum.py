"""CRC-32 of arrays and of files: computed while reading and writing."""

from __future__ import annotations

import queue
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.typing import Array

LARGE = 2**20  # bytes from which a separate thread pays
_PIECE = 2**20  # bytes read at once: still in the cache when they are summed up


def described(array: Any) -> int:
    """Return the CRC-32 of an array's dtype and shape, from which that of its bytes continues."""
    return zlib.crc32(f"{array.dtype.str}{array.shape}".encode())


def checksum(array: Any) -> int:
    """Return the CRC-32 of a contiguous array's dtype, shape and bytes.

    Example:
        >>> zeros = np.zeros(3, "uint8")
        >>> checksum(zeros) == zlib.crc32(bytes(3), described(zeros))
        True
    """
    start = described(array)
    return zlib.crc32(bytes_of(array), start) if array.nbytes else start


def bytes_of(array: Array) -> memoryview:
    """Return the bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data


class Digest:
    """The CRC-32 of bytes that follow each other, computed in a separate thread.

    Args:
        start: the CRC-32 of what precedes them.

    Example:
        >>> with Digest() as digest:
        ...     digest.add(memoryview(b"ab"))
        ...     digest.add(memoryview(b"cde"))
        >>> digest.result() == zlib.crc32(b"abcde")
        True
    """

    def __init__(self, start: int = 0) -> None:
        self._checksum = start
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
                self._checksum = zlib.crc32(data, self._checksum)
                return
            self._thread = threading.Thread(target=self._compute, daemon=True)
            self._thread.start()
        self._parts.put(data)

    def _compute(self) -> None:
        while (data := self._parts.get()) is not None:
            self._checksum = zlib.crc32(data, self._checksum)

    def result(self) -> int:
        """Return the CRC-32 of all that was added, waiting for it."""
        if self._thread is not None:
            self._parts.put(None)
            self._thread.join()
            self._thread = None
        return self._checksum


def fill(array: Array, readinto: Callable[[memoryview], int | None], start: int | None = 0) -> int:
    """Read a contiguous array's bytes; return their CRC-32, computed behind the reading.

    Args:
        array: what is filled.
        readinto: fills a buffer from its beginning on and returns the number of bytes.
        start: the CRC-32 of what precedes; None: no checksum is requested, and 0 is returned.

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
