"""Rows picked by index, and rows added at their index in a fixed order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.kernels import (
    compact,
    cupy,
    fits,
    launch,
    launch_rows,
    packed,
)
from kerasish.ops.op import REGISTRY

SOURCE = "embedding"
CHUNK = 64  # sorted rows that one block adds up


def take_rows(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """Return x's slices along `axis` at `indices`; NaN where there is no such slice."""
    xp = cupy()
    if axis != 0 or not fits(x):
        return xp.take(x, indices, axis=axis)
    x = compact(x)
    kernel = "gather_int" if indices.dtype == np.int32 else "gather_long"
    if kernel == "gather_long":
        indices = indices.astype(xp.int64, copy=False)
    indices = compact(indices)
    y = xp.empty((*indices.shape, *x.shape[1:]), x.dtype)
    n = math.prod(x.shape[1:])
    sizes = (np.int64(indices.size), np.int64(x.shape[0]), np.int64(n))
    launch_rows(SOURCE, kernel, x.dtype, indices.size, n, x, indices, y, *sizes, packed(n, x, y))
    return y


def _add(rows: Any, places: Any, size: int) -> Any:
    """Return (size, n): the rows (count, n) added at their places; places outside drop out."""
    xp = cupy()
    count, n = rows.shape
    y = xp.zeros((size, n), rows.dtype)
    if not count or not n or not size:
        return y
    places = xp.where(places < 0, places + size, places).astype(xp.int64, copy=False)
    order = xp.argsort(places, kind="stable").astype(xp.int64, copy=False)
    places = compact(places[order])
    chunks = -(-count // CHUNK)
    edges = xp.empty((chunks, 2, n), xp.float32)
    threads = 32 * min(8, -(-n // 32))
    work = chunks * -(-n // threads)
    sizes = tuple(np.int64(k) for k in (count, size, n, CHUNK))
    args = (compact(rows), order, places, y, edges, *sizes)
    launch(SOURCE, "scatter_chunks", rows.dtype, work, (threads,), *args)
    launch(SOURCE, "scatter_runs", rows.dtype, work, (threads,), places, edges, y, *sizes)
    return y


def add_rows(x: Any, indices: Any, *, size: int, axis: int = 0) -> Any:
    """Return zeros with `size` slices along `axis`, to which x's are added at `indices`.

    Slices that meet are added in the order in which they stand: runs repeat bit for bit.
    """
    if not fits(x):
        return REGISTRY["add_rows"].kernel(cupy(), x, indices, size=size, axis=axis)
    count = indices.ndim
    order = (*range(axis, axis + count), *range(axis), *range(axis + count, x.ndim))
    rows = cupy().transpose(x, order)
    rest = rows.shape[count:]
    flat = compact(rows).reshape(indices.size, math.prod(rest))
    y = _add(flat, indices.reshape(-1), size).reshape(size, *rest)
    return cupy().moveaxis(y, 0, axis)


def add_along_axis(x: Any, indices: Any, *, shape: Any, axis: int = -1) -> Any:
    """Return zeros of `shape` with x added at `indices` along `axis`, in a fixed order."""
    xp = cupy()
    axis = axis % len(shape)
    if (
        not fits(x)
        or any(a != b for i, (a, b) in enumerate(zip(indices.shape, shape)) if i != axis)
        or x.shape != indices.shape
    ):
        return REGISTRY["add_along_axis"].kernel(xp, x, indices, shape=shape, axis=axis)
    # Where each element goes in the flat result.
    places = xp.where(indices < 0, indices + shape[axis], indices).astype(xp.int64)
    inner = math.prod(shape[axis + 1 :])
    outer = xp.arange(math.prod(shape[:axis])).reshape(-1, 1, 1) * (shape[axis] * inner)
    middle = places.reshape(-1, indices.shape[axis], inner) * inner
    flat = outer + middle + xp.arange(inner)
    return _add(compact(x).reshape(-1, 1), flat.reshape(-1), math.prod(shape)).reshape(shape)


def add_at(x: Any, indices: Any, *, shape: Any) -> Any:
    """Return zeros of `shape` with x added at the positions `indices`, in a fixed order."""
    xp = cupy()
    if not fits(x):
        return REGISTRY["add_at"].kernel(xp, x, indices, shape=shape)
    count = indices.shape[-1]
    rest = math.prod(shape[count:])
    places = xp.zeros(indices.shape[:-1], xp.int64)
    for axis in range(count):
        at = indices[..., axis].astype(xp.int64)
        places = places * shape[axis] + xp.where(at < 0, at + shape[axis], at)
    flat = compact(x).reshape(-1, rest)
    return _add(flat, places.reshape(-1), math.prod(shape[:count])).reshape(shape)


KERNELS: dict[str, Any] = {
    "take_rows": take_rows,
    "add_rows": add_rows,
    "add_along_axis": add_along_axis,
    "add_at": add_at,
}
