"""Rows of a dataset stored contiguously in an HDF5 file, read from the file itself."""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np

from kerasish.typing import Array

_MOST_PARTS = 512  # of one read: the system may allow 1,024
_ADJACENT_SHARE = 0.25  # of the rows that follow another one: fewer are read one by one


class FileRows:
    """Rows of numbers at a place of a file, one after the other.

    Scattered rows are read in a tenth of the time that h5py takes for them. The file is not mapped
    into memory: where it becomes shorter, reading raises an error.

    Args:
        descriptor: of the file; it is the caller's.
        offset: where the first row begins, in bytes.
        dtype: of the numbers.
        shape: of all rows.
        name: the file's, for errors.
    """

    def __init__(
        self, descriptor: int, offset: int, dtype: np.dtype, shape: tuple[int, ...], name: str
    ) -> None:
        self._descriptor = os.dup(descriptor)  # the caller may close the file
        weakref.finalize(self, os.close, self._descriptor)
        self._offset, self._dtype, self._shape, self._name = offset, dtype, shape, name
        self._width = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))

    def part(self, start: int, stop: int) -> Array:
        """Return adjacent rows, those of `[start:stop]`."""
        start, stop, _ = slice(start, stop).indices(self._shape[0])
        rows = np.empty((max(0, stop - start), *self._shape[1:]), self._dtype)
        self._read(memoryview(rows.reshape(-1)).cast("B"), self._offset + start * self._width)
        return rows

    def take(self, indices: Array) -> Array:
        """Return some rows, in order."""
        rows = np.empty((len(indices), *self._shape[1:]), self._dtype)
        content, width = memoryview(rows.reshape(-1)).cast("B"), self._width
        descriptor, preadv = self._descriptor, os.preadv
        order = np.argsort(indices, kind="stable")
        ascending = indices[order]
        places, starts = (order * width).tolist(), (ascending * width + self._offset).tolist()
        if np.count_nonzero(np.diff(ascending) == 1) < _ADJACENT_SHARE * len(places):
            for place, start in zip(places, starts):
                part = content[place : place + width]
                if preadv(descriptor, (part,), start) != width:
                    self._read(part, start)
            return rows
        first = np.flatnonzero(np.diff(ascending, prepend=ascending[0] - 2) != 1).tolist()
        for begin, end in zip(first, [*first[1:], len(places)]):  # rows that lie in sequence
            for at in range(begin, end, _MOST_PARTS):
                parts = [content[p : p + width] for p in places[at : min(at + _MOST_PARTS, end)]]
                if preadv(descriptor, parts, starts[at]) != len(parts) * width:
                    for part, start in zip(parts, starts[at:]):
                        self._read(part, start)
        return rows

    def _read(self, content: Any, at: int) -> None:
        done = 0
        while done < len(content):
            count = os.preadv(self._descriptor, [content[done:]], at + done)
            if not count:
                raise OSError(f"{self._name} has become shorter while its rows were read.")
            done += count


def file_rows(source: Any) -> FileRows | None:
    """Return the rows of an HDF5 dataset as stored in its file, or None.

    The file must be read-only and the dataset contiguous: no chunks, no external storage.
    """
    if type(source).__module__.partition(".")[0] != "h5py" or not hasattr(source, "chunks"):
        return None
    file, offset = source.file, source.id.get_offset()
    plain = source.dtype.kind in "fiu" and source.dtype.isnative and source.size
    read_only = file.mode == "r" and file.driver == "sec2" and not file.swmr_mode
    if not plain or not read_only or offset is None or source.external or source.is_virtual:
        return None
    if file.userblock_size or not hasattr(os, "preadv"):
        return None
    descriptor = file.id.get_vfd_handle()
    if os.fstat(descriptor).st_size < offset + source.nbytes:
        return None  # h5py says what is missing
    return FileRows(descriptor, offset, source.dtype, source.shape, file.filename)
