"""Inputs that are several arrays per batch, and what a step's layers get for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kerasish import ops, tree
from kerasish.engine.data.ladder import next_size
from kerasish.tensor import SparseTensor, Tensor
from kerasish.typing import Array, Structure


class PaddedRows(NamedTuple):
    """Sequences of different lengths in a batch: padded at the end, with their lengths.

    Attributes:
        values: (n, steps, ...), zeros behind the end of each row.
        lengths: (n,) int32.
    """

    values: Any
    lengths: Any

    @property
    def checked(self) -> Array:
        """The array that the checks of inputs look at."""
        return self.values

    def assembled(self) -> Tensor:
        """Return the values as a tensor that carries the mask of the real steps."""
        values = ops.convert_to_tensor(self.values)
        steps = ops.expand_dims(ops.arange(values.shape[1], dtype="int32"), 0)
        mask = ops.less(steps, ops.expand_dims(self.lengths, 1))
        mask.of_lengths = True
        values._keras_mask = mask
        return values


class SparseEntries(NamedTuple):
    """Rows of a sparse matrix in a batch: the entries, and zeros up to one of a few sizes.

    Attributes:
        values: (entries,) numbers.
        columns: (entries,) int32.
        rows: (entries,) int32, ascending.
        counts: (n,) int32, the entries of each row.
        width: the number of columns.
    """

    values: Any
    columns: Any
    rows: Any
    counts: Any
    width: int

    @property
    def checked(self) -> None:
        """Nothing: the checks of inputs look at dense arrays."""

    def assembled(self) -> SparseTensor:
        """Return the matrix as layers take it."""
        shape = (self.counts.shape[0], self.width)
        return SparseTensor(self.values, self.columns, self.rows, shape)


def holds_entries(x: Structure) -> bool:
    """Return whether a batch's x holds rows of a sparse matrix, which have no rows to cut.

    Example:
        >>> holds_entries({"x": np.ones(2)})
        False
    """
    if isinstance(x, SparseEntries):
        return True
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return any(map(holds_entries, parts))


def entries_of(
    values: Array, columns: Array, starts: Array, shape: tuple[int, int]
) -> SparseEntries:
    """Return rows in CSR form as entries, with zeros added up to a size of `next_size`.

    Args:
        values: (entries,).
        columns: (entries,).
        starts: (n + 1,), where each row starts among the entries.
        shape: (n, width).

    Example:
        >>> entries = entries_of(np.ones(3), np.array([0, 4, 1]), np.array([0, 2, 3]), (2, 5))
        >>> entries.values.shape, entries.rows[:4].tolist(), entries.width
        ((64,), [0, 0, 1, 1], 5)
    """
    counts = np.diff(starts)
    count = len(values)
    missing = next_size(count, 64) - count
    rows = np.repeat(np.arange(shape[0], dtype=np.int32), counts)
    # Added entries are 0, at the last place: an entry of another column would touch its row.
    last = (int(columns[-1]), int(rows[-1])) if count else (0, 0)
    return SparseEntries(
        np.concatenate([values, np.zeros(missing, values.dtype)]),
        np.concatenate([columns.astype(np.int32), np.full(missing, last[0], np.int32)]),
        np.concatenate([rows, np.full(missing, last[1], np.int32)]),
        counts.astype(np.int32),
        int(shape[1]),
    )


def assemble(x: Structure) -> Structure:
    """Return a batch's x as the model takes it: padded rows become tensors with masks,
    entries become sparse matrices.

    Args:
        x: a batch's inputs, as a data adapter gave them to the step.

    Example:
        >>> rows = PaddedRows(ops.ones((2, 3)), ops.array([1, 3], "int32"))
        >>> assemble({"x": rows})["x"]._keras_mask.tolist()
        [[True, False, False], [True, True, True]]
    """
    if type(x) is Tensor or type(x) is np.ndarray:
        return x
    if hasattr(x, "assembled"):
        return x.assembled()
    if tree.is_nested(x) and _holds_parts(x):
        if isinstance(x, dict):
            return {key: assemble(part) for key, part in x.items()}
        parts = [assemble(part) for part in x]
        return type(x)(*parts) if tree.is_namedtuple(x) else type(x)(parts)
    return x


def _holds_parts(x: Structure) -> bool:
    parts = x.values() if isinstance(x, dict) else x
    return any(hasattr(p, "assembled") or tree.is_nested(p) and _holds_parts(p) for p in parts)
