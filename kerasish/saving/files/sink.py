"""Where HDF5 files are written to: a part of an open file that never fails halfway.

The HDF5 library does not survive a full disk: it cannot close its file, and may take the process
down. So it is told that all is well; the first error is kept and raised once the library is done.
"""

from __future__ import annotations

import bisect
import io
import os
import zlib
from typing import Any

from kerasish.saving.files.checksum import LARGE, Digest, combine


class Sink(io.RawIOBase):
    """The rest of an open binary file, from `start` on, as a file of its own.

    Args:
        raw: the file, open for reading and writing, unbuffered.
        start: where the part begins.
    """

    def __init__(self, raw: Any, start: int = 0) -> None:
        super().__init__()
        self._raw, self._start, self._at = raw, start, 0
        self.size = 0
        self.error: OSError | None = None
        self._known: list[tuple[int, int, int]] = []  # start, length, CRC-32 of large writes

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def write(self, data: Any) -> int:
        """Write, or after an error pretend to; return the number of bytes."""
        view = memoryview(data).cast("B")
        count = len(view)
        self._forget(self._at, count)
        if self.error is None:
            if count < LARGE:
                self._write(view)
            else:
                with Digest() as digest:
                    digest.add(view)
                    self._write(view)
                bisect.insort(self._known, (self._at, count, digest.result()))
        self._at += count
        self.size = max(self.size, self._at)
        return count

    def _write(self, view: memoryview) -> None:
        try:
            self._raw.seek(self._start + self._at)
            while view:
                view = view[self._raw.write(view) :]
        except OSError as error:
            self.error = error

    def _forget(self, start: int, length: int) -> None:
        """What is written over has another checksum."""
        first = bisect.bisect_left(self._known, (start, 0, 0))
        if first and sum(self._known[first - 1][:2]) > start:
            first -= 1
        while first < len(self._known) and self._known[first][0] < start + length:
            del self._known[first]

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with what comes next, zeros where nothing is; return its length."""
        view = memoryview(buffer).cast("B")
        self._raw.seek(self._start + self._at)
        got = self._raw.readinto(view) or 0
        view[got:] = bytes(len(view) - got)
        self._at += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Give the part a size."""
        self.size = self._at if size is None else size
        self._forget(self.size, 2**63)
        if self.error is None:
            try:
                self._raw.truncate(self._start + self.size)
            except OSError as error:
                self.error = error
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self.error is not None:
            raise self.error

    def checksum_at(self, start: int, length: int) -> int | None:
        """Return the CRC-32 of what one large write put at `start`, None where that is unknown."""
        place = bisect.bisect_left(self._known, (start, length, 0))
        if place < len(self._known) and self._known[place][:2] == (start, length):
            return self._known[place][2]
        return None

    def checksum(self) -> int:
        """Return the CRC-32 of the part's bytes; only small writes are read again."""
        at = found = 0
        for start, length, own in self._known:
            found = combine(self._read_checksum(at, start, found), own, length)
            at = start + length
        return self._read_checksum(at, self.size, found)

    def _read_checksum(self, start: int, stop: int, found: int) -> int:
        self._raw.seek(self._start + start)
        left = stop - start
        while left:
            data = self._raw.read(min(left, 2**22))
            if not data:
                raise OSError("a file that was just written has become shorter")
            found = zlib.crc32(data, found)
            left -= len(data)
        return found


def open_raw(path: str) -> Any:
    """Return a new file, open for writing and reading, unbuffered."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)
    return os.fdopen(number, "wb+", buffering=0)
