"""Row readers: one array-like object of `count` rows, read by index without touching the others."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from kerasish.engine.data.convert import cast, to_array
from kerasish.engine.data.file_rows import file_rows
from kerasish.engine.data.parts import entries_of
from kerasish.engine.data.structures import StructureRows, Structures
from kerasish.typing import Array, Structure

_LOADED = ("__dlpack__", "__cuda_array_interface__", "numpy", "to_numpy", "detach")


class Rows(Protocol):
    """What the data adapters need of an array-like object."""

    in_memory: bool
    count: int
    shape: tuple[int, ...]

    def part(self, start: int, stop: int) -> Any:
        """Return the rows start .. stop - 1."""

    def take(self, indices: np.ndarray) -> Any:
        """Return the rows at `indices`, in that order."""


class RowsAhead(NamedTuple):
    """What a source gives next, where that is rows of arrays in memory.

    Attributes:
        columns: array or `MappedRows`, or tuple or dict of such.
        order: the numbers of the rows in turn, int64.
        size: rows per batch, each batch an element of the source; 0: each row is an element.
    """

    columns: Structure
    order: Array
    size: int = 0

    def first(self, elements: int) -> RowsAhead:
        """Return what the first elements are."""
        return self._replace(order=self.order[: elements * (self.size or 1)])


class ArrayRows:
    """Rows of a contiguous NumPy array in memory; parts are views, nothing is copied."""

    in_memory = True

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.ascontiguousarray(array)
        self.shape = self.array.shape
        self.count = self.shape[0]

    def part(self, start: int, stop: int) -> np.ndarray:
        return self.array[start:stop]

    def take(self, indices: np.ndarray) -> np.ndarray:
        return self.array.take(indices, axis=0)


class SparseRows:
    """Rows of a SciPy sparse matrix, made dense a batch at a time.

    Args:
        matrix: the matrix.
        name: how errors call it.
        exact: whether the rows keep the matrix's dtype.

    Attributes:
        stays_sparse: whether batches are `SparseEntries` instead of dense arrays.
    """

    in_memory = False
    stays_sparse = False

    def __init__(self, matrix: Any, name: str, exact: bool = False) -> None:
        self.source = matrix.tocsr()
        self._name, self._exact = name, exact
        self.shape, self.dtype = tuple(matrix.shape), matrix.dtype
        self.count = self.shape[0]

    def part(self, start: int, stop: int) -> Any:
        return self._batch(self.source[start:stop])

    def take(self, indices: np.ndarray) -> Any:
        return self._batch(self.source[indices])

    def _batch(self, rows: Any) -> Any:
        if self.stays_sparse:
            return entries_of(cast(rows.data, self._name), rows.indices, rows.indptr, rows.shape)
        return rows.toarray() if self._exact else cast(rows.toarray(), self._name)


class StoredRows:
    """Rows stored elsewhere: an h5py dataset, a memory map, any sliceable object.

    Scattered rows are read in ascending order, each once, which is what HDF5 demands and what
    disks like, and are put into the order asked for afterwards.

    Args:
        source: what is read.
        name: how errors call it.
        strings: whether strings may pass.
        exact: whether the rows keep the source's dtype.

    Attributes:
        file: the rows as stored in a file, where h5py is not needed to read them; else None.
        any_thread: whether any thread may read: h5py and memory maps allow it.
    """

    in_memory = False

    def __init__(self, source: Any, name: str, strings: bool = False, exact: bool = False) -> None:
        self.source = source
        self.dtype = getattr(source, "dtype", None)
        self._name = name
        self._strings, self._exact = strings, exact
        self._one_by_one = False
        self._mapped, self.file = _plain(source), file_rows(source)
        kind = type(source).__module__.partition(".")[0]
        self.any_thread = isinstance(source, np.memmap) or kind == "h5py"
        self.shape = tuple(source.shape)
        self.count = self.shape[0] if self.shape else 0

    def part(self, start: int, stop: int) -> np.ndarray:
        source = self.source[start:stop] if self.file is None else self.file.part(start, stop)
        return self._array(source)

    def take(self, indices: np.ndarray) -> np.ndarray:
        if not len(indices):
            return self.part(0, 0)
        if len(indices) > 1 and (np.diff(indices) == 1).all():  # a batch of consecutive rows
            rows = self.part(int(indices[0]), int(indices[-1]) + 1)
            return rows if rows.base is None else rows.copy()
        if self.file is not None:
            return self._array(self.file.take(indices))
        if self._mapped is not None:
            self._mapped.reshape(self.count, -1)[np.sort(indices), 0]  # touches the pages
            return self._array(np.take(self._mapped, indices, axis=0))
        unique, inverse = np.unique(indices, return_inverse=True)
        if unique[-1] - unique[0] + 1 == unique.size:
            rows = self.part(int(unique[0]), int(unique[-1]) + 1)
        else:
            rows = self._array(self._read(unique))
        return np.take(rows, inverse, axis=0)

    def _array(self, rows: Any) -> np.ndarray:
        return np.asarray(rows) if self._exact else to_array(rows, self._name, self._strings)

    def _read(self, ascending: np.ndarray) -> Array:
        if not self._one_by_one:
            try:
                return self.source[ascending]
            except (TypeError, IndexError):
                self._one_by_one = True  # it supports only integers and slices
        return np.stack([np.asarray(self.source[int(i)]) for i in ascending])


def _plain(source: Any) -> Array | None:
    """Return a memory map in C order as a plain array, or None."""
    if not isinstance(source, np.memmap):
        return None
    plain = source.view(np.ndarray)
    return plain if plain.flags.c_contiguous and plain.size else None


class RowRange:
    """The rows start .. stop - 1 of a stored source, itself sliceable; nothing is read yet."""

    def __init__(self, source: Any, start: int, stop: int) -> None:
        self._source = source
        self._start = start
        self.shape = (stop - start, *source.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice) -> Array:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._source[start + self._start : stop + self._start : step]
        return self._source[key + self._start]


def is_stored(value: object) -> bool:
    """Return whether `value` is read row by row rather than taken into memory at once."""
    if isinstance(value, np.ndarray):
        return isinstance(value, np.memmap) and value.ndim > 0
    if isinstance(value, Structures):
        return False  # Python objects in memory
    return (
        hasattr(value, "shape")
        and hasattr(value, "__getitem__")
        and not any(hasattr(value, mark) for mark in _LOADED)
        and not isinstance(value, np.generic)
    )


def is_sparse(value: object) -> bool:
    """Return whether `value` is a SciPy sparse matrix or array."""
    return hasattr(value, "tocsr") and hasattr(value, "toarray")


def as_rows(value: object, name: str, strings: bool = False) -> Rows:
    """Return the reader that fits `value`.

    Raises:
        ValueError: `value` is no array, or has no rows.
    """
    rows: Rows
    if isinstance(value, Structures):
        return StructureRows(value)
    if isinstance(value, np.ndarray) and not isinstance(value, np.memmap):
        array = to_array(value, name, strings)
    elif is_sparse(value):
        return SparseRows(value, name)
    elif is_stored(value):
        rows = StoredRows(value, name, strings)
        if rows.shape:
            return rows
        array = np.asarray(value)
    else:
        array = to_array(value, name, strings)
    if array.ndim == 0:
        raise ValueError(
            f"{name}: expected an array whose first axis counts the samples, got the single value "
            f"{array.item()!r} ({type(value).__name__}). Wrap one sample as [value]."
        )
    return ArrayRows(array)
