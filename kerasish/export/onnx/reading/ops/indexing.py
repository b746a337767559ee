"""Operators that pick and put elements at positions, sort and search."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.registry import OnnxNode, axis_of, rank_of, reads, tensor
from kerasish.ops.arrays.scatter import combine_at
from kerasish.ops.basic.indexing import add_at, read_at, write_at
from kerasish.typing import Structure


def wrapped(indices: Any, sizes: Any) -> Any:
    """Return positions, or index vectors; parts counted from the end become positive.

    Args:
        indices: the positions.
        sizes: the size of their axis; of index vectors, the size for each part.
    """
    places = ops.cast(tensor(indices), "int32")
    return ops.where(ops.less(places, 0), ops.add(places, np.array(sizes, "int32")), places)


@reads("Gather")
def _gather(n: OnnxNode) -> Structure:
    x = n.x
    axis = axis_of(n.attr("axis", 0), rank_of(x))
    if isinstance(x, np.ndarray) and isinstance(n.need(1), np.ndarray):
        return np.take(x, n.need(1), axis=axis)
    x = tensor(x)
    return ops.take(x, wrapped(n.need(1), x.shape[axis]), axis=axis)


@reads("GatherElements")
def _gather_elements(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    axis = axis_of(n.attr("axis", 0), rank_of(x))
    indices = wrapped(n.need(1), x.shape[axis])
    key = tuple(slice(None) if i == axis else slice(0, int(s)) for i, s in enumerate(indices.shape))
    return ops.take_along_axis(x[key], indices, axis=axis)


@reads("GatherND")
def _gather_nd(n: OnnxNode) -> Structure:
    x, indices, batch = tensor(n.x), tensor(n.need(1)), n.attr("batch_dims", 0)
    count = int(indices.shape[-1])
    if not batch:
        return read_at(x, wrapped(indices, x.shape[:count]))
    lead = [int(s) for s in x.shape[:batch]]
    grids = np.meshgrid(*(np.arange(s, dtype="int32") for s in lead), indexing="ij")
    around = [1] * (rank_of(indices) - batch - 1)
    parts = [
        ops.broadcast_to(np.reshape(g, [*lead, *around, 1]), [*indices.shape[:-1], 1])
        for g in grids
    ]
    own = wrapped(indices, x.shape[batch : batch + count])
    return read_at(x, ops.concatenate([*parts, own], axis=-1))


def _put(x: Any, places: Any, updates: Any, how: str) -> Any:
    if how == "none":
        return write_at(x, places, updates)
    if how == "add":
        return ops.add(x, add_at(updates, places, shape=x.shape))
    return combine_at(x, places, updates, how=how)


@reads("ScatterND")
def _scatter_nd(n: OnnxNode) -> Structure:
    x, indices, updates = tensor(n.x), n.need(1), tensor(n.need(2))
    count = int(indices.shape[-1])
    return _put(x, wrapped(indices, x.shape[:count]), updates, n.attr("reduction", "none"))


@reads("ScatterElements", "Scatter")
def _scatter_elements(n: OnnxNode) -> Structure:
    x, updates = tensor(n.x), tensor(n.need(2))
    axis = axis_of(n.attr("axis", 0), rank_of(x))
    indices = wrapped(n.need(1), x.shape[axis])
    shape = [int(s) for s in indices.shape]
    grids = np.indices(shape, dtype="int32") if shape else []
    columns = [
        ops.expand_dims(indices if i == axis else ops.convert_to_tensor(grids[i]), -1)
        for i in range(len(shape))
    ]
    places = ops.concatenate(columns, axis=-1)
    return _put(x, places, updates, n.attr("reduction", "none"))


@reads("TensorScatter")
def _tensor_scatter(n: OnnxNode) -> Structure:
    past, update = tensor(n.x), tensor(n.need(1))
    axis = axis_of(n.attr("axis", -2), rank_of(past))
    size, count = int(past.shape[axis]), int(update.shape[axis])
    starts = n.get(2)
    batch = int(past.shape[0])
    starts = np.zeros(batch, "int32") if starts is None else starts
    places = ops.add(
        ops.reshape(ops.cast(tensor(starts), "int32"), (batch, 1)),
        np.arange(count, dtype="int32")[None, :],
    )
    if n.attr("mode", "linear") == "circular":
        places = ops.mod(places, size)
    rows = ops.moveaxis(past, axis, 1)
    new = ops.moveaxis(update, axis, 1)
    lead = np.broadcast_to(np.arange(batch, dtype="int32")[:, None, None], (batch, count, 1))
    index = ops.concatenate([lead, ops.expand_dims(places, -1)], axis=-1)
    return ops.moveaxis(write_at(rows, index, new), 1, axis)


# --- sorting and searching ----------------------------------------------------------------------


@reads("TopK", constants=(1,))
def _top_k(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    axis = axis_of(n.attr("axis", -1), rank_of(x))
    k = int((n.ints(1, "k") or [0])[0])
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"{k} of {x.shape[axis]} elements are asked for")
    if n.attr("largest", 1):
        # Equal elements in their order: the positions of the reversed array, from the end.
        turned = ops.flip(x, axis)
        order = ops.subtract(int(x.shape[axis]) - 1, ops.argsort(turned, axis=axis))
        order = ops.flip(order, axis)
    else:
        order = ops.argsort(x, axis=axis)
    key = tuple(slice(0, k) if i == axis else slice(None) for i in range(rank_of(x)))
    places = order[key]
    return [ops.take_along_axis(x, places, axis=axis), ops.cast(places, "int64")]


def _extreme(kind: str) -> None:
    f = ops.argmax if kind == "ArgMax" else ops.argmin

    @reads(kind)
    def read(n: OnnxNode) -> Structure:
        x = tensor(n.x)
        axis = axis_of(n.attr("axis", 0), rank_of(x))
        if n.attr("select_last_index", 0):
            places = ops.subtract(int(x.shape[axis]) - 1, f(ops.flip(x, axis), axis=axis))
        else:
            places = f(x, axis=axis)
        places = ops.cast(places, "int64")
        return ops.expand_dims(places, axis) if n.attr("keepdims", 1) else places


_extreme("ArgMax")
_extreme("ArgMin")


# What follows gives tensors whose sizes are known when they are computed: on the eager engine, or
# from numbers that are known.


@reads("NonZero", constants=(0,))
def _non_zero(n: OnnxNode) -> Structure:
    x = n.known(0)
    return np.stack(np.nonzero(x)).astype("int64") if x.ndim else np.zeros((0, 1), "int64")


@reads("Compress", constants=(1,))
def _compress(n: OnnxNode) -> Structure:
    x, condition = tensor(n.x), n.known(1)
    places = np.nonzero(condition)[0].astype("int32")
    if n.attr("axis") is None:
        return ops.take(ops.reshape(x, (-1,)), places, axis=0)
    return ops.take(x, places, axis=axis_of(n.attr("axis"), rank_of(x)))


@reads("Unique", constants=(0,))
def _unique(n: OnnxNode) -> Structure:
    x, axis = n.known(0), n.attr("axis")
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not n.attr("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return [values, *(a.astype("int64") for a in (first, inverse, counts))]


@reads("NonMaxSuppression", constants=(0, 1, 2, 3, 4))
def _non_max_suppression(n: OnnxNode) -> Structure:
    boxes, scores = n.known(0), n.known(1)
    count, limit, floor = int(n.number(2) or 0), float(n.number(3) or 0.0), n.number(4)
    corners = _corners(boxes, n.attr("center_point_box", 0))
    kept: list[list[int]] = []
    for batch in range(scores.shape[0]):
        for kind in range(scores.shape[1]):
            kept += [
                [batch, kind, i]
                for i in _suppressed(corners[batch], scores[batch, kind], count, limit, floor)
            ]
    return np.array(kept, "int64").reshape(-1, 3)


def _corners(boxes: Any, center: int) -> Any:
    """Return boxes as (low y, low x, high y, high x)."""
    if center:
        x, y, width, height = np.moveaxis(boxes, -1, 0)
        parts = (y - height / 2, x - width / 2, y + height / 2, x + width / 2)
        return np.stack(parts, -1)
    a, b = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], -1)


def _suppressed(
    boxes: Any, scores: Any, count: int, limit: float, floor: float | None
) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    kept: list[int] = []
    for i in order:
        if len(kept) >= count:
            break
        if floor is not None and scores[i] <= floor:
            continue
        others = boxes[kept]
        low = np.maximum(others[:, :2], boxes[i, :2])
        high = np.minimum(others[:, 2:], boxes[i, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=-1)
        union = areas[kept] + areas[i] - shared
        if not (shared > limit * union).any():
            kept.append(int(i))
    return kept
