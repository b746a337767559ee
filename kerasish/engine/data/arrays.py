"""Arrays as data: in memory, on disk (h5py, memory maps) or sparse, cut into batches of rows."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import tree
from kerasish.engine.data.batch import Batch, row_counts
from kerasish.engine.data.convert import map_leaves
from kerasish.engine.data.data import MOST_AHEAD, Data, random_order
from kerasish.engine.data.reading import DiskReader
from kerasish.engine.data.rows import ArrayRows, Rows, SparseRows, StoredRows, as_rows
from kerasish.engine.data.structures import StructureRows
from kerasish.engine.data.weights import class_weights_of, combine
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.functional.host_stage import HostInputs

DEFAULT_BATCH_SIZE = 32
_SAMPLED_ROWS = 64


def rows_per_batch(batch_size: int | None, rows: int, steps: int | None) -> int:
    """Return the rows per batch: as given, or so that an epoch has `steps` batches, or 32."""
    if batch_size is not None:
        return batch_size
    return DEFAULT_BATCH_SIZE if steps is None else -(-rows // steps)


class ArrayData(Data):
    """Batches of rows of equally long arrays.

    In memory, `arrays` is the flat list of contiguous arrays (the user's own where dtype and
    layout allow), `order(epoch)` the rows of an epoch in turn, `pack` puts gathered rows into
    (x, y, sample_weight): what an engine needs that gathers the batches itself.

    Args:
        x: array or nested structure of arrays; the first axis counts samples.
        y: targets likewise, or None.
        sample_weight: weights likewise, or None.
        class_weight: weight of each class in `y`; multiplies `sample_weight`.
        batch_size: rows per batch; default 32, or what `steps_per_epoch` batches need to hold all.
        steps_per_epoch: batches per epoch; default all.
        shuffle: True for a new order of rows each epoch, "batch" for a new order of whole batches.
        seed: the orders are a function of it and of the epoch's number.
        training: whether errors name `steps_per_epoch` (else `steps`).
    """

    def __init__(
        self,
        x: Structure,
        y: Structure = None,
        sample_weight: Structure = None,
        *,
        class_weight: Structure = None,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        shuffle: bool | str = False,
        seed: int = 0,
        training: bool = True,
    ) -> None:
        super().__init__(steps_per_epoch, training)
        self._shuffle = shuffle
        self._seed = seed
        self._class_weight = class_weight
        parts = tuple(
            map_leaves(part, lambda leaf, at: as_rows(leaf, at, at[0] == "x"), name)
            for name, part in (("x", x), ("y", y), ("sample_weight", sample_weight))
        )
        self.num_samples = _count(parts)
        if class_weight is not None and _is_array(parts[1]) and _is_array(parts[2] or parts[1]):
            parts = (*parts[:2], self._weighted(parts))
            self._class_weight = None
        self._structure = parts
        self._simple = not any(tree.is_nested(part) for part in parts)
        self._rows: list[Rows] = [leaf for leaf in tree.flatten(parts) if leaf is not None]
        self.in_memory = self._class_weight is None and all(r.in_memory for r in self._rows)
        self.reads_ahead = 0 if self.in_memory else MOST_AHEAD
        on_disk = [rows.any_thread for rows in self._rows if isinstance(rows, StoredRows)]
        self._reader = DiskReader() if on_disk and all(on_disk) else None
        self.batch_size: int = rows_per_batch(batch_size, self.num_samples, steps_per_epoch)
        self._length = self._all_batches = -(-self.num_samples // self.batch_size)

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arrays of x, y and sample_weight in one flat list (only if `in_memory`)."""
        return [rows.array for rows in self._rows if isinstance(rows, ArrayRows)]

    def pack(self, flat: Sequence[Array]) -> Batch:
        """Return (x, y, sample_weight) with the entries of `flat` at the places of `arrays`."""
        rest = iter(flat)
        if self._simple:
            x, y, w = (None if part is None else next(rest) for part in self._structure)
            return x, y, w
        leaves = [None if leaf is None else next(rest) for leaf in tree.flatten(self._structure)]
        return tree.pack_sequence_as(self._structure, leaves)

    @property
    def holds_structures(self) -> bool:
        """Whether a column holds Python structures."""
        return any(isinstance(rows, StructureRows) for rows in self._rows)

    def structures(self) -> Structure:
        """Return x with its columns of Python structures, and None for its arrays."""
        return tree.map_structure(
            lambda rows: rows.source if isinstance(rows, StructureRows) else None,
            self._structure[0],
        )

    def with_x(self, x: HostInputs) -> ArrayData:
        """Return the same data with other arrays, of as many rows, as x."""
        result = copy.copy(self)
        rows = map_leaves(x, lambda leaf, at: as_rows(leaf, at, True), "x")
        result._structure = (rows, *self._structure[1:])
        result._simple = not any(tree.is_nested(part) for part in result._structure)
        result._rows = [leaf for leaf in tree.flatten(result._structure) if leaf is not None]
        return result

    def keep_sparse(self, inputs: dict[str, bool]) -> None:
        """Let the sparse matrices of x that are for sparse inputs stay so in the batches.

        Args:
            inputs: key -> whether the model's input is sparse, in the order of a flat list.
        """
        x = self._structure[0]
        if isinstance(x, dict):
            pairs = [(x.get(key), sparse) for key, sparse in inputs.items()]
        else:
            pairs = list(zip(tree.flatten(x), inputs.values()))
        for rows, sparse in pairs:
            if isinstance(rows, SparseRows):
                rows.stays_sparse = sparse

    def order(self, epoch: int = 0) -> np.ndarray:
        """Return the indices of the rows of an epoch in turn, int64; batches are cut from it."""
        whole, first, stop = self._window(epoch, self._all_batches)
        start, end = first * self.batch_size, min(stop * self.batch_size, self.num_samples or 0)
        if not self._shuffle:
            return np.arange(start, end, dtype=np.int64)
        return self._permutation(whole)[start:end]

    def facts(self) -> dict[str, str]:
        """Return rows, batches, order, and the arrays' shapes, dtypes and a checksum of rows."""
        kinds = [getattr(getattr(rows, "array", None), "dtype", "") for rows in self._rows]
        arrays = [f"{kind} {[*rows.shape[1:]]}" for kind, rows in zip(kinds, self._rows)]
        return {
            "data": f"{self.num_samples} rows of {', '.join(arrays)}",
            "batches": f"{self.num_batches} of {self.batch_size} rows per epoch",
            "shuffle": str(self._shuffle),
            "contents": contents_of(self.arrays),
        }

    def peek(self, epoch: int = 0) -> Batch:
        return self._weigh(self.pack([rows.part(0, self.batch_size) for rows in self._rows]))

    def _permutation(self, whole: int) -> np.ndarray:
        count = self.num_samples or 0
        if self._shuffle != "batch":
            return random_order(count, self._seed, whole)
        full = count // self.batch_size  # the short last batch stays the last
        chunks = random_order(full, self._seed, whole)
        rows = chunks[:, None] * self.batch_size + np.arange(self.batch_size)
        return np.concatenate([rows.ravel(), np.arange(full * self.batch_size, count)])

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        whole, first, stop = self._window(epoch, self._all_batches)
        order = self._permutation(whole) if self._shuffle else None
        size, count = self.batch_size, self.num_samples or 0

        def read(number: int) -> Batch:
            low, high = number * size, min((number + 1) * size, count)
            if order is None:
                flat = [rows.part(low, high) for rows in self._rows]
            else:
                flat = [rows.take(order[low:high]) for rows in self._rows]
            return self._weigh(self.pack(flat))

        numbers = range(first + start, stop)
        if self._reader is None:
            yield from map(read, numbers)
        else:
            yield from self._reader.batches(read, numbers)
        if self._steps is not None and stop - first < self._steps:
            self._warn_short(f"x ({count} rows in batches of {size})", epoch, stop - first)

    def _weigh(self, batch: Batch) -> Batch:
        if self._class_weight is None:
            return batch
        x, y, sample_weight = batch
        return x, y, combine(sample_weight, class_weights_of(y, self._class_weight))

    def _weighted(self, parts: tuple[Any, Any, Any]) -> ArrayRows:
        y, weight = (None if rows is None else rows.array for rows in parts[1:])
        return ArrayRows(combine(weight, class_weights_of(y, self._class_weight)))


def _is_array(rows: ArrayRows | StoredRows | dict[str, Any] | None) -> bool:
    return isinstance(rows, ArrayRows)


def _count(parts: tuple[Any, Any, Any]) -> int:
    leaves = [leaf for leaf in tree.flatten(parts) if leaf is not None]
    if not any(leaf is not None for leaf in tree.flatten(parts[0])):
        raise ValueError("x: expected an array or a structure of arrays, got none.")
    counts = {leaf.count for leaf in leaves}
    if len(counts) > 1:
        raise ValueError(
            f"All arrays must have the same number of samples (rows), got {row_counts(parts)}. "
            "Give each row of x its row of y (and its sample_weight)."
        )
    count = counts.pop()
    if count == 0:
        raise ValueError(f"x: expected at least one sample, got none (shape {leaves[0].shape}).")
    return count


def contents_of(arrays: list[np.ndarray]) -> str:
    """Return a checksum of some rows, evenly spread, of each array of numbers.

    Example:
        >>> contents_of([np.zeros((5, 2))]) == contents_of([np.zeros((5, 2))])
        True
    """
    result = 0
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OSUV" or not array.ndim:
            continue
        rows = np.unique(np.linspace(0, len(array) - 1, _SAMPLED_ROWS).astype(np.int64))
        result = zlib.crc32(np.ascontiguousarray(array[rows]).view(np.uint8).data, result)
    return f"{result:08x}"
