"""Ops that move elements: shapes, slices, padding, concatenation; and tensors from nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.export.onnx.registry import Call, translate_by, translates, untranslated
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.graph.symbolic import OpenSize
from kerasish.ops import communication, dtypes, random
from kerasish.ops.basic import creation, movement, printing

_END = 2**31 - 1


translate_by(lambda w, call: w.reshape(call.x, call.attrs["newshape"]), movement.reshape)
translate_by(lambda w, call: w.transpose(call.x, call.attrs["axes"]), movement.transpose)


@translates(movement.broadcast_to)
def _broadcast_to(w: OnnxWriter, call: Call) -> Item:
    shape = call.attrs["shape"]
    return w.op("Expand", [call.x, w.shape(shape)], shape=shape)


def _ends(sizes: Any, slices: Any) -> tuple[list[int], list[Any], list[Any], list[int]]:
    """Return (axes, starts, stops, steps) of the axes that a slice changes.

    Slices are (start, stop, step) as Python's `slice` takes them, None or -1 - size meaning the
    end of the axis.
    """
    axes, starts, stops, steps = [], [], [], []
    for axis, (size, (start, stop, step)) in enumerate(zip(sizes, slices)):
        if (start, step) == (0, 1) and stop == size and size is not None:
            continue
        axes.append(axis)
        starts.append((0 if step > 0 else _END) if start is None else start)
        stops.append((_END if step > 0 else -_END) if stop is None else stop)
        steps.append(step)
    return axes, starts, stops, steps


def _is_last(size: Any, start: Any, stop: Any) -> bool:
    """Return whether a slice takes the last place of an axis."""
    if type(size) is int:
        return start == size - 1 and stop == size
    if not isinstance(size, OpenSize) or not isinstance(start, OpenSize) or stop != size:
        return False
    return {p: f for f, p in start.terms} == {**{p: f for f, p in size.terms}, (): -1}


@translates(movement.strided_slice)
def _strided_slice(w: OnnxWriter, call: Call) -> Item:
    axes, starts, stops, steps = _ends(call.x.shape, call.attrs["slices"])
    if not axes:
        return call.x
    if call.x.last is not None and axes == [0] and _is_last(call.x.shape[0], starts[0], stops[0]):
        return call.x.last
    inputs = [call.x, w.shape(starts), w.shape(stops), w.numbers(axes), w.numbers(steps)]
    return w.op("Slice", inputs, shape=call.out.shape)


@translates(movement.unslice)
def _unslice(w: OnnxWriter, call: Call) -> Item:
    x, pads = call.x, []
    for axis, (size, (start, stop, step)) in enumerate(
        zip(call.attrs["shape"], call.attrs["slices"])
    ):
        count = x.shape[axis]
        if step != 1:
            x, start, stop = _spread(w, x, axis, size, start, step)
        elif isinstance(count, OpenSize) and start != 0:
            raise ValueError("places in an open size cannot be said")
        pads.append((start, 0 if stop == size else size - stop))
    return pad(w, x, pads, 0, call.out.shape)


def _spread(
    w: OnnxWriter, x: Item, axis: int, size: Any, start: Any, step: int
) -> tuple[Item, int, int]:
    """Return (x with zeros between its places along an axis, the first place, that of the end)."""
    count, gap = x.shape[axis], abs(step)
    if not all(type(n) is int for n in (size, count)):
        raise ValueError("strides of a slice's gradient over an open size cannot be said")
    if not count:
        return x, 0, 0
    if step < 0:
        x = w.slice(x, axis, -1, -_END, count, -1)
        start = (size - 1 if start is None else start) + (count - 1) * step
    wide = w.unsqueeze(x, [axis + 1])
    pairs = [(0, gap - 1 if i == axis + 1 else 0) for i in range(len(wide.shape))]
    apart = (*x.shape[: axis + 1], gap, *x.shape[axis + 1 :])
    flat = (*x.shape[:axis], count * gap, *x.shape[axis + 1 :])
    x = w.reshape(pad(w, wide, pairs, 0, apart), flat)
    end = (count - 1) * gap + 1
    return w.slice(x, axis, 0, end, end), start, start + end


@translates(movement.constant_pad)
def _constant_pad(w: OnnxWriter, call: Call) -> Item:
    return pad(w, call.x, call.attrs["pad_width"], call.attrs["value"], call.out.shape)


def pad(w: OnnxWriter, x: Item, pairs: Any, value: Any, shape: Any) -> Item:
    """Return x with `value` put (before, after) it along each axis."""
    if not any(n != 0 for pair in pairs for n in pair):
        return x
    pads = w.shape([*(a for a, _ in pairs), *(b for _, b in pairs)])
    if x.dtype != "bool":
        return w.op("Pad", [x, pads, w.like(value, x.dtype)], shape=shape, mode="constant")
    y = w.op("Pad", [w.cast(x, "int32"), pads, w.like(value, "int32")], shape=shape)
    return w.cast(y, "bool")


translate_by(
    lambda w, call: w.op("Concat", call.inputs, shape=call.out.shape, axis=call.attrs["axis"]),
    movement.concatenate,
)


# --- tensors from nothing -----------------------------------------------------------------------


@translates(creation.fill)
def _fill(w: OnnxWriter, call: Call) -> Item:
    return w.filled(call.attrs["value"], call.out.dtype, call.attrs["shape"])


@translates(creation.count_up)
def _count_up(w: OnnxWriter, call: Call) -> Item:
    dtype = call.out.dtype
    own = dtype if dtype in ("float32", "float64", "int32", "int64") else "float32"
    bounds = [call.attrs[name] for name in ("start", "stop", "step")]
    if all(not isinstance(b, OpenSize) for b in bounds):
        return w.initializer(np.arange(*bounds).astype(dtypes.array_dtype(dtype)))
    items = [w.as_scalar(b, own) for b in bounds]
    return w.cast(w.op("Range", items, own, call.out.shape), dtype)


untranslated(
    "ONNX's random operators draw other numbers; random layers do nothing in inference",
    random.random_bits,
)
untranslated(
    "it exchanges tensors between processes, which only distributed training does",
    communication.all_gather,
    communication.all_sum,
)
untranslated("exported models print nothing: no trace for an export has it", printing.print_values)
