"""Rows taken from an array and added to one, by their places; the kernels of embeddings."""

from __future__ import annotations

import numpy as np

from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT
from kerasish.backends.loops import RowSums, compile_row_sums
from kerasish.backends.onednn.native import fork_safe_lock
from kerasish.typing import Array

LEAST = 1 << 14  # elements; NumPy adds fewer as fast

_lock = fork_safe_lock(globals(), "_lock")
_compiled: list[RowSums | None] = []


def add_rows(places: Array, rows: Array, size: int) -> Array | None:
    """Return the sums of the rows of each of `size` places; None if NumPy must compute them.

    Args:
        places: integers from 0 to size, one for each row.
        rows: a matrix in C order.
        size: the rows of the result.
    """
    if rows.dtype != FLOAT or rows.size < LEAST:
        return None
    if not _compiled:
        with _lock:
            if not _compiled:
                _compiled.append(compile_row_sums())
    run = _compiled[0]
    if run is None:
        return None
    y = empty((size, rows.shape[1]), FLOAT)
    run(np.ascontiguousarray(places, np.int64), rows, y)
    return y


def take_rows(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Return x's slices along an axis at indices; see `kerasish.ops`."""
    n = x.shape[axis]
    if indices.size * (x.size // n if n else 0) < LEAST:
        return np.take(x, indices, axis=axis)
    if indices.min() < -n or indices.max() >= n:
        return np.take(x, indices, axis=axis)  # raises
    out = empty((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    # NumPy buffers the whole result if it checks the indices.
    return np.take(x, indices, axis=axis, out=out, mode="wrap")
