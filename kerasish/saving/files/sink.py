"""Where HDF5 files and archives are written to.

The HDF5 library cannot handle a full disk: it cannot close its file, and the process may crash. So
every write reports success; the first error is kept, and raised once the library is done.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FilePart(io.RawIOBase):
    """A part of an open binary file, as a separate file with its own position.

    Args:
        raw: the file, unbuffered.
        start: where the part begins.
        size: its size in bytes.
    """

    def __init__(self, raw: Any, start: int, size: int) -> None:
        super().__init__()
        self._raw, self._start, self._at = raw, start, 0
        self.size = size

    def readable(self) -> bool:
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


class Sink(FilePart):
    """The rest of an open binary file, whose errors wait until they are asked for.

    Args:
        raw: the file, open for reading and writing, unbuffered.
        start: where the part begins.
    """

    def __init__(self, raw: Any, start: int = 0) -> None:
        super().__init__(raw, start, 0)
        self.error: OSError | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Buffer) -> int:
        """Write, or after an error pretend to; return the number of bytes."""
        view = memoryview(data).cast("B")
        count = len(view)
        if self.error is None:
            try:
                self._raw.seek(self._start + self._at)
                while view:
                    view = view[self._raw.write(view) :]
            except OSError as error:
                self.error = error
        self._at += count
        self.size = max(self.size, self._at)
        return count

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes, zeros where nothing is; return its length."""
        view = memoryview(buffer).cast("B")
        self._raw.seek(self._start + self._at)
        got = self._raw.readinto(view) or 0
        view[got:] = bytes(len(view) - got)
        self._at += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Give the part a size."""
        self.size = self._at if size is None else size
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


class Overlay:
    """An open binary file for `zipfile`, which may be shown bytes that the file holds already.

    Args:
        raw: the file, open for reading and writing, unbuffered.
    """

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self._present = False

    def write(self, data: Any) -> int:
        """Write, unless the bytes are those of `pieces`; return the number of bytes."""
        view = memoryview(data).cast("B")
        count = len(view)
        while view and not self._present:
            view = view[self.raw.write(view) :]
        return count

    def pieces(self) -> Iterator[memoryview]:
        """Yield the bytes from here to the file's end; to write them again changes nothing."""
        buffer = memoryview(bytearray(2**18))
        self._present = True
        try:
            while count := self.raw.readinto(buffer):
                yield buffer[:count]
        finally:
            self._present = False

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place and return it."""
        return int(self.raw.seek(offset, whence))

    def tell(self) -> int:
        """Return the place."""
        return int(self.raw.tell())

    def flush(self) -> None:
        """Nothing is held back."""


def open_raw(path: str) -> Any:
    """Return a new file, open for writing and reading, unbuffered."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)
    return os.fdopen(number, "wb+", buffering=0)
