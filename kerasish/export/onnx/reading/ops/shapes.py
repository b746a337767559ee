"""Operators that make, cut and join tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.ops.arithmetic import dtype_named
from kerasish.export.onnx.reading.record import decode
from kerasish.export.onnx.reading.registry import (
    OnnxNode,
    axis_of,
    check_size,
    dtype_of,
    rank_of,
    read_by,
    reads,
    tensor,
)
from kerasish.ops import dtypes
from kerasish.typing import Structure


@reads("Shape")
def _shape(n: OnnxNode) -> Structure:
    sizes = n.x.shape
    return np.array(sizes[n.attr("start", 0) : n.attr("end", len(sizes))], "int64")


read_by(lambda n: np.array(math.prod(n.x.shape), "int64"), "Size")


@reads("Constant")
def _constant(n: OnnxNode) -> Structure:
    for name, dtype in (
        ("value_float", "float32"), ("value_floats", "float32"), ("value_int", "int64"),
        ("value_ints", "int64"),
    ):  # fmt: skip
        if name in n.attrs:
            return np.array(n.attrs[name], dtype)
    if "value" not in n.attrs:
        raise ValueError(f"a constant of {sorted(n.attrs)} is not read")
    return decode(n.attrs["value"]["tensor"])


@reads("ConstantOfShape", constants=(0,))
def _constant_of_shape(n: OnnxNode) -> Structure:
    value = n.attr("value")
    number = np.zeros(1, "float32") if value is None else decode(value["tensor"])
    return np.full(check_size(n.known(0)), number.reshape(-1)[0], number.dtype)


@reads("Range", constants=(0, 1, 2))
def _range(n: OnnxNode) -> Structure:
    start, limit, delta = (n.known(i).reshape(()) for i in range(3))
    dtype = start.dtype
    count = math.ceil((float(limit) - float(start)) / float(delta))
    check_size([max(count, 0)])
    wide = np.arange(max(count, 0)).astype("int64" if dtype.kind in "iu" else "float64")
    return (start.astype(wide.dtype) + wide * delta.astype(wide.dtype)).astype(dtype)


@reads("EyeLike")
def _eye_like(n: OnnxNode) -> Structure:
    x = n.x
    dtype = dtype_named(n.attr("dtype")) if "dtype" in n.attrs else dtype_of(x)
    rows, columns = check_size(x.shape)
    return np.eye(rows, columns, k=n.attr("k", 0)).astype(dtypes.array_dtype(dtype))


@reads("Reshape", constants=(1,))
def _reshape(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    wanted = [int(s) for s in n.ints(1, "shape") or []]
    if not n.attr("allowzero", 0):
        wanted = [x.shape[i] if s == 0 else s for i, s in enumerate(wanted)]
    return ops.reshape(x, wanted)


@reads("Flatten")
def _flatten(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    axis = n.attr("axis", 1)
    axis = axis if axis >= 0 else axis + rank_of(x)
    return ops.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


read_by(lambda n: ops.transpose(tensor(n.x), n.attr("perm")), "Transpose")


@reads("Squeeze", constants=(1,))
def _squeeze(n: OnnxNode) -> Structure:
    x, axes = tensor(n.x), n.ints(1, "axes")
    if axes is None:
        axes = [i for i, s in enumerate(x.shape) if s == 1]
    axes = [axis_of(a, rank_of(x)) for a in axes]
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"axes {axes} of shape {tuple(x.shape)} are not of size 1")
    return ops.reshape(x, [s for i, s in enumerate(x.shape) if i not in axes])


@reads("Unsqueeze", constants=(1,))
def _unsqueeze(n: OnnxNode) -> Structure:
    x, axes = tensor(n.x), n.ints(1, "axes") or []
    rank = rank_of(x) + len(axes)
    places = {axis_of(a, rank) for a in axes}
    left = iter(x.shape)
    return ops.reshape(x, [1 if i in places else next(left) for i in range(rank)])


@reads("Concat")
def _concat(n: OnnxNode) -> Structure:
    parts = [tensor(x) for x in n.inputs]
    return ops.concatenate(parts, axis_of(n.attr("axis", 1), rank_of(parts[0])))


@reads("Split", constants=(1,))
def _split(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    axis = axis_of(n.attr("axis", 0), rank_of(x))
    sizes = n.ints(1, "split")
    if sizes is None:
        count = n.attr("num_outputs", n.count)
        step = -(-x.shape[axis] // count)
        sizes = [step] * (count - 1)
        sizes.append(x.shape[axis] - sum(sizes))
    if sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise ValueError(f"{x.shape[axis]} places are not split into {sizes}")
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [_part(x, axis, end - size, end, 1) for size, end in zip(sizes, ends)]


def _part(x: Any, axis: int, start: int, stop: int | None, step: int) -> Any:
    key = [slice(None)] * rank_of(x)
    key[axis] = slice(start, stop, step)
    return x[tuple(key)]


@reads("Slice", constants=(1, 2, 3, 4))
def _slice(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    starts, stops = n.ints(1, "starts") or [], n.ints(2, "ends") or []
    axes = n.ints(3, "axes")
    axes = list(range(len(starts))) if axes is None else axes
    steps = n.ints(4, "steps") or [1] * len(starts)
    key = [slice(None)] * rank_of(x)
    for axis, start, stop, step in zip(axes, starts, stops, steps):
        axis = axis_of(axis, rank_of(x))
        key[axis] = slice(*_ends(int(x.shape[axis]), start, stop, step))
    return x[tuple(key)]


def _ends(size: int, start: int, stop: int, step: int) -> tuple[int, int | None, int]:
    """Return Python's slice of ONNX's numbers, which are bounded by the axis."""
    if step == 0:
        raise ValueError("a step of 0")
    start = start + size if start < 0 else start
    stop = stop + size if stop < 0 else stop
    if step > 0:
        return min(max(start, 0), size), min(max(stop, 0), size), step
    stop = max(stop, -1)
    return min(max(start, 0), size - 1), None if stop < 0 else min(stop, size), step


@reads("Expand", constants=(1,))
def _expand(n: OnnxNode) -> Structure:
    x, wanted = tensor(n.x), n.ints(1, "shape") or []
    shape = np.broadcast_shapes(tuple(int(s) for s in x.shape), tuple(wanted))
    return ops.broadcast_to(x, check_size(shape))


@reads("Tile", constants=(1,))
def _tile(n: OnnxNode) -> Structure:
    x, repeats = tensor(n.x), n.ints(1, "repeats") or []
    check_size([s * r for s, r in zip(x.shape, repeats)])
    return ops.tile(x, repeats)


@reads("Pad", constants=(1, 3))
def _pad(n: OnnxNode) -> Structure:
    x, mode = tensor(n.x), n.attr("mode", "constant")
    pads = n.ints(1, "pads") or []
    rank = rank_of(x)
    axes = n.ints(3, "axes")
    axes = list(range(rank)) if axes is None else [axis_of(a, rank) for a in axes]
    pairs = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pairs[axis] = (pads[i], pads[i + len(axes)])
    check_size([max(s + a + b, 0) for s, (a, b) in zip(x.shape, pairs)])
    cut = tuple(slice(max(-a, 0), int(s) - max(-b, 0)) for s, (a, b) in zip(x.shape, pairs))
    x = x[cut] if any(a < 0 or b < 0 for a, b in pairs) else x
    pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if mode == "constant":
        value = n.get(2) if n.opset >= 11 else n.attr("value", 0.0)
        return _padded(x, pairs, value)
    if mode == "wrap":
        return _wrapped(x, pairs)
    return ops.pad(x, pairs, mode={"edge": "edge", "reflect": "reflect"}[mode])


def _padded(x: Any, pairs: list[tuple[int, int]], value: Any) -> Any:
    if value is None or isinstance(value, float):
        return ops.pad(x, pairs, constant_values=value or 0)
    if isinstance(value, np.ndarray):
        return ops.pad(x, pairs, constant_values=value.reshape(()).item())
    inside = ops.pad(ops.ones(x.shape, "bool"), pairs, constant_values=0)
    return ops.where(inside, ops.pad(x, pairs), ops.reshape(tensor(value), ()))


def _wrapped(x: Any, pairs: list[tuple[int, int]]) -> Any:
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            places = np.arange(-before, int(x.shape[axis]) + after) % int(x.shape[axis])
            x = ops.take(x, places, axis=axis)
    return x


@reads("CenterCropPad", constants=(1,))
def _center_crop_pad(n: OnnxNode) -> Structure:
    x, sizes = tensor(n.x), n.ints(1, "shape") or []
    axes = n.attr("axes", list(range(rank_of(x))))
    for axis, wanted in zip(axes, sizes):
        axis = axis_of(axis, rank_of(x))
        size = int(x.shape[axis])
        check_size([wanted if i == axis else s for i, s in enumerate(x.shape)])
        if wanted <= size:
            start = (size - wanted) // 2
            x = _part(x, axis, start, start + wanted, 1)
        else:
            pairs = [(0, 0)] * rank_of(x)
            before = (wanted - size) // 2
            pairs[axis] = (before, wanted - size - before)
            x = ops.pad(x, pairs)
    return x


@reads("Trilu", constants=(1,))
def _trilu(n: OnnxNode) -> Structure:
    k, x = n.number(1) or 0, tensor(n.x)
    rows, columns = check_size(x.shape[-2:])
    # int32 places: a k beyond the matrix keeps all or nothing.
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    kept = distance >= k if n.attr("upper", 1) else distance <= k
    return ops.where(kept, x, ops.zeros_like(x))


@reads("OneHot", constants=(1,))
def _one_hot(n: OnnxNode) -> Structure:
    indices, values = tensor(n.x), tensor(n.need(2))
    depth = int(n.number(1))
    check_size([*indices.shape, depth])
    rank = rank_of(indices) + 1
    axis = axis_of(n.attr("axis", -1), rank)
    places = ops.cast(indices, "int64")
    places = ops.where(ops.less(places, 0), ops.add(places, depth), places)
    along = [depth if i == axis else 1 for i in range(rank)]
    each = np.arange(depth, dtype="int64").reshape(along)
    hot = ops.equal(ops.expand_dims(places, axis), each)
    return ops.where(hot, values[1], values[0])


@reads("ReverseSequence", constants=(1,))
def _reverse_sequence(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    along, batch = n.attr("time_axis", 0), n.attr("batch_axis", 1)
    size = int(x.shape[along])
    lengths = ops.cast(tensor(n.need(1)), "int32")
    time = np.arange(size, dtype="int32")[:, None]
    turned = ops.subtract(ops.subtract(ops.reshape(lengths, (1, -1)), 1), time)
    places = ops.where(ops.greater_equal(turned, 0), turned, time)
    if along > batch:
        places = ops.transpose(places)
    shape = [int(s) if i in (along, batch) else 1 for i, s in enumerate(x.shape)]
    index = ops.broadcast_to(ops.reshape(places, shape), x.shape)
    return ops.take_along_axis(x, index, axis=along)
