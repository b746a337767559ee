"""Ops that pick and put elements by computed positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.export.onnx.registry import Call, translate_by, translates
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.ops.arrays import scatter, searching
from kerasish.ops.basic import indexing, sparse

_INDICES = ("int32", "int64")


def _places(w: OnnxWriter, indices: Item) -> Item:
    return indices if indices.dtype in _INDICES else w.cast(indices, "int64")


@translates(indexing.take_rows)
def _take_rows(w: OnnxWriter, call: Call) -> Item:
    x, indices = call.inputs
    inputs = [x, _places(w, indices)]
    return w.op("Gather", inputs, shape=call.out.shape, axis=call.attrs["axis"])


@translates(indexing.pick_along_axis)
def _pick_along_axis(w: OnnxWriter, call: Call) -> Item:
    x, indices = call.inputs
    axis = call.attrs["axis"]
    places = _places(w, indices)
    # GatherElements does not broadcast.
    shape = list(call.out.shape)
    places = _expanded(w, places, shape)
    around = [n if i != axis else x.shape[axis] for i, n in enumerate(shape)]
    return w.op(
        "GatherElements", [_expanded(w, x, around), places], shape=call.out.shape, axis=axis
    )


def _expanded(w: OnnxWriter, x: Item, shape: list[object]) -> Item:
    if list(x.shape) == shape and None not in shape:
        return x
    return w.op("Expand", [x, w.shape(shape)], shape=tuple(shape))


@translates(indexing.read_at)
def _read_at(w: OnnxWriter, call: Call) -> Item:
    x, indices = call.inputs
    return w.op("GatherND", [x, w.cast(indices, "int64")], shape=call.out.shape)


@translates(indexing.write_at, scatter.combine_at)
def _write_at(w: OnnxWriter, call: Call) -> Item:
    x, indices, updates = call.inputs
    count = indices.shape[-1]
    full = [*indices.shape[:-1], *x.shape[count:]]
    inputs = [x, w.cast(indices, "int64"), _expanded(w, w.cast(updates, x.dtype), full)]
    return w.op("ScatterND", inputs, shape=call.out.shape, reduction=call.attrs.get("how"))


def _added(w: OnnxWriter, x: Item, indices: Item, shape: Sequence[Any]) -> Item:
    """Return zeros of a shape to which x is added at index vectors."""
    zeros = w.op("Expand", [w.like(0, x.dtype), w.shape(shape)], shape=shape)
    inputs = [zeros, w.cast(indices, "int64"), x]
    return w.op("ScatterND", inputs, shape=shape, reduction="add")


translate_by(lambda w, call: _added(w, call.x, call.inputs[1], call.out.shape), indexing.add_at)


@translates(indexing.add_rows)
def _add_rows(w: OnnxWriter, call: Call) -> Item:
    x, indices = call.inputs
    axis, count = call.attrs["axis"], len(indices.shape)
    rank = len(x.shape)
    order = (*range(axis, axis + count), *range(axis), *range(axis + count, rank))
    rows = w.transpose(x, order)
    shape = (call.attrs["size"], *rows.shape[count:])
    y = _added(w, rows, w.unsqueeze(w.cast(indices, "int64"), [count]), shape)
    back = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
    return w.transpose(y, back)


@translates(sparse.add_scaled_rows)
def _add_scaled_rows(w: OnnxWriter, call: Call) -> Item:
    indices, places, factors, table = call.inputs
    shape = (*indices.shape, table.shape[1])
    rows = w.op("Gather", [table, _places(w, indices)], shape=shape, axis=0)
    rows = w.op("Mul", [w.unsqueeze(factors, [1]), rows], shape=shape)
    return _added(w, rows, w.unsqueeze(w.cast(places, "int64"), [1]), call.out.shape)


@translates(indexing.add_along_axis)
def _add_along_axis(w: OnnxWriter, call: Call) -> Item:
    x, indices = call.inputs
    shape = call.attrs["shape"]
    zeros = w.op("Expand", [w.like(0, x.dtype), w.shape(shape)], shape=shape)
    inputs = [zeros, _expanded(w, _places(w, indices), list(x.shape)), x]
    return w.op("ScatterElements", inputs, shape=shape, axis=call.attrs["axis"], reduction="add")


@translates(scatter.write_slice)
def _write_slice(w: OnnxWriter, call: Call) -> Item:
    """Write along one axis after the other: the part, and what is before and after it."""
    x, updates = call.inputs
    return _written(w, x, updates, list(call.attrs["starts"]), 0)


def _written(w: OnnxWriter, x: Item, updates: Item, starts: list[int], axis: int) -> Item:
    if axis == len(starts):
        return updates
    size, count, start = x.shape[axis], updates.shape[axis], starts[axis]
    if size == count:
        return _written(w, x, updates, starts, axis + 1)
    if not all(type(n) is int for n in (size, count, start)):
        raise ValueError("a part of an open size is written")
    inner = _written(w, w.slice(x, axis, start, start + count, count), updates, starts, axis + 1)
    parts = [w.slice(x, axis, 0, start, start), inner]
    parts.append(w.slice(x, axis, start + count, size, size - start - count))
    return w.concat([p for p in parts if p.shape[axis] != 0], axis, size)


@translates(searching.searchsorted)
def _searchsorted(w: OnnxWriter, call: Call) -> Item:
    """Count the elements before each value."""
    ordered, values = call.inputs
    kind = "Less" if call.attrs["side"] == "left" else "LessOrEqual"
    rank = len(values.shape)
    each = w.unsqueeze(values, [rank])
    before = w.op(kind, [ordered, each], "bool", (*values.shape, ordered.shape[0]))
    counts = w.cast(before, "int32")
    y = w.op("ReduceSum", [counts, w.numbers([rank])], "int32", call.out.shape, keepdims=0)
    return w.cast(y, call.out.dtype)
