"""Rows picked by index, and rows added at their index in a fixed order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import by_cupy, cast, compact, cupy, empty, filled
from kerasish.backends.eager.cuda.kernels import (
    fits,
    launch,
    launch_elements,
    launch_rows,
    packed,
)
from kerasish.backends.eager.cuda.window import divisor
from kerasish.typing import Array

SOURCE = "embedding"
CHUNK = 64  # sorted rows that one block adds up
SORTED = 1024  # places that one block sorts, as in embedding.cu
MOST_AXES = 8
SIZES = np.dtype([("sizes", "i8", MOST_AXES), ("axes", "i4")], align=True)


def _whole(indices: Array) -> tuple[Any, str]:
    """Return the indices as kernels take them, and the end of these kernels' names."""
    if indices.dtype == np.int32:
        return compact(indices), "int"
    return compact(cast(indices, np.int64)), "long"


def take_rows(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """Return x's slices along `axis` at `indices`; NaN if there is no such slice."""
    if axis != 0 or not fits(x):
        return cupy().take(x, indices, axis=axis)
    x, (indices, kind) = compact(x), _whole(indices)
    y = empty((*indices.shape, *x.shape[1:]), x.dtype)
    n = math.prod(x.shape[1:])
    sizes = (np.int64(indices.size), np.int64(x.shape[0]), np.int64(n))
    args = (x, indices, y, *sizes, packed(n, x, y))
    launch_rows(SOURCE, f"gather_{kind}", x.dtype, indices.size, n, *args)
    return y


def _sorted(places: Array, dtype: str, size: int = 0) -> tuple[Any, Any]:
    """Return (order, places in ascending order): equal ones keep theirs.

    Blocks are sorted separately, and then merged.

    Args:
        places: int64; with `size`, int32 as well.
        size: > 0: `places` are indices of that number of rows: negative ones count from the end,
            and those out of range become -1.
    """
    count = places.size
    lists = [empty(count, np.int64) for _ in range(4)]
    keys, order, new_keys, new_order = lists
    blocks = -(-count // SORTED)
    kernel = "sort_chunks_int" if places.dtype == np.int32 else "sort_chunks"
    sizes = (np.int64(count), np.int64(size))
    launch(SOURCE, kernel, dtype, blocks, (256,), places, keys, order, *sizes)
    width = SORTED
    while width < count:
        args = (keys, order, new_keys, new_order, np.int64(count), np.int64(width.bit_length() - 1))
        launch_elements(SOURCE, "sort_merge", dtype, count, *args)
        keys, order, new_keys, new_order = new_keys, new_order, keys, order
        width *= 2
    return order, keys


def _add(rows: Array, places: Array, size: int, indices: bool = False) -> Array:
    """Return (size, n): the rows (count, n) added at their places; negative ones are ignored.

    Args:
        indices: whether negative places count from the end; places out of range are ignored.
    """
    count, n = rows.shape
    y = filled(empty((size, n), rows.dtype), 0)
    if not count or not n or not size:
        return y
    order, places = _sorted(places, rows.dtype, size if indices else 0)
    chunks = -(-count // CHUNK)
    edges = empty((chunks, 2, n), np.float32)
    threads = 32 * min(8, -(-n // 32))
    work = chunks * -(-n // threads)
    sizes = tuple(np.int64(k) for k in (count, size, n, CHUNK))
    args = (compact(rows), order, places, y, edges, *sizes)
    launch(SOURCE, "scatter_chunks", rows.dtype, work, (threads,), *args)
    if chunks > 1:  # otherwise no run continues in the next chunk
        launch(SOURCE, "scatter_runs", rows.dtype, work, (threads,), places, edges, y, *sizes)
    return y


def _places(indices: Array, dtype: Any, along: int, inner: int, size: int) -> Array:
    """Return the target of each element in a flat (outer, size, inner); -1: none.

    Args:
        indices: (outer, along, inner), negative ones count from the end.
    """
    indices, kind = _whole(indices)
    places = empty(indices.size, np.int64)
    sizes = (np.int64(indices.size), divisor(along), divisor(inner), np.int64(size))
    args = (indices, places, *sizes)
    launch_elements(SOURCE, f"places_along_{kind}", dtype, indices.size, *args)
    return places


def add_rows(x: Any, indices: Any, *, size: int, axis: int = 0) -> Any:
    """Return zeros with `size` slices along `axis`, to which x's are added at `indices`.

    Slices with the same target are added in order: runs repeat bit for bit.
    """
    if not fits(x):
        return by_cupy("add_rows", x, indices, size=size, axis=axis)
    count = indices.ndim
    order = (*range(axis, axis + count), *range(axis), *range(axis + count, x.ndim))
    rows = x.transpose(*order)
    rest = rows.shape[count:]
    flat = compact(rows).reshape(indices.size, math.prod(rest))
    places, _ = _whole(indices)
    y = _add(flat, places.reshape(-1), size, indices=True).reshape(size, *rest)
    # Move the axis of places, which is first, back to its position.
    return compact(y.transpose(*range(1, axis + 1), 0, *range(axis + 1, y.ndim)))


def add_along_axis(x: Any, indices: Any, *, shape: Any, axis: int = -1) -> Any:
    """Return zeros of `shape` with x added at `indices` along `axis`, in a fixed order."""
    axis = axis % len(shape)
    if (
        not fits(x)
        or any(a != b for i, (a, b) in enumerate(zip(indices.shape, shape)) if i != axis)
        or x.shape != indices.shape
    ):
        return by_cupy("add_along_axis", x, indices, shape=shape, axis=axis)
    inner = math.prod(shape[axis + 1 :])
    places = _places(indices, x.dtype, indices.shape[axis], inner, shape[axis])
    return _add(compact(x).reshape(-1, 1), places, math.prod(shape)).reshape(shape)


def add_at(x: Any, indices: Any, *, shape: Any) -> Any:
    """Return zeros of `shape` with x added at the positions `indices`, in a fixed order."""
    count = indices.shape[-1]
    if not fits(x) or count > MOST_AXES:
        return by_cupy("add_at", x, indices, shape=shape)
    sizes = np.zeros((), SIZES)
    sizes["sizes"][:count], sizes["axes"] = shape[:count], count
    many = math.prod(indices.shape[:-1])
    indices, kind = _whole(indices)
    places = empty(many, np.int64)
    launch_elements(
        SOURCE, f"places_at_{kind}", x.dtype, many, indices, places, sizes, np.int64(many)
    )
    flat = compact(x).reshape(many, math.prod(shape[count:]))
    return _add(flat, places, math.prod(shape[:count])).reshape(shape)


KERNELS: dict[str, Any] = {
    "take_rows": take_rows,
    "add_rows": add_rows,
    "add_along_axis": add_along_axis,
    "add_at": add_at,
}
