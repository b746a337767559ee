"""Convolutions and pooling; ONNX's data has its channels second, the ops' last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.registry import (
    OnnxNode,
    check_size,
    rank_of,
    read_by,
    reads,
    tensor,
)
from kerasish.ops import dtypes
from kerasish.ops.basic.convolution import convolution, convolution_data_gradient
from kerasish.ops.basic.indexing import add_at
from kerasish.ops.basic.pool import pool_average, pool_max
from kerasish.typing import Structure


def channels_last(x: Any) -> Any:
    """Return (n, c, *spatial) as (n, *spatial, c)."""
    return ops.transpose(x, (0, *range(2, rank_of(x)), 1))


def channels_second(x: Any) -> Any:
    """Return (n, *spatial, c) as (n, c, *spatial)."""
    rank = rank_of(x)
    return ops.transpose(x, (0, rank - 1, *range(1, rank - 1)))


class Geometry:
    """The places of the windows of a node.

    Attributes:
        window, strides, dilations: a number for each spatial axis.
        pads: (before, after) for each spatial axis.
    """

    def __init__(self, n: OnnxNode, sizes: Sequence[Any], window: Sequence[Any]) -> None:
        count = len(sizes)
        self.window = [int(k) for k in window]
        self.strides = n.attr("strides") or [1] * count
        self.dilations = n.attr("dilations") or [1] * count
        if not len(self.window) == len(self.strides) == len(self.dilations) == count:
            raise ValueError(f"a window {self.window} over {count} spatial axes")
        check_size(self.window)
        if min([*self.window, *self.strides, *self.dilations], default=1) < 1:
            raise ValueError("sizes, strides and dilations of windows are at least 1")
        pads = n.attr("pads") or [0] * 2 * count
        self.pads = [(int(pads[i]), int(pads[i + count])) for i in range(count)]
        auto = n.attr("auto_pad", "NOTSET")
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            self.pads = [self._same(i, int(s), auto) for i, s in enumerate(sizes)]
        elif auto == "VALID":
            self.pads = [(0, 0)] * count
        self.ceil = bool(n.attr("ceil_mode", 0))

    def span(self, i: int) -> int:
        """Return how many places a window covers along an axis."""
        return int(self.dilations[i] * (self.window[i] - 1) + 1)

    def _same(self, i: int, size: int, auto: str) -> tuple[int, int]:
        total = max((-(-size // self.strides[i]) - 1) * self.strides[i] + self.span(i) - size, 0)
        half = total // 2
        return (half, total - half) if auto == "SAME_UPPER" else (total - half, half)

    def beyond(self, sizes: Sequence[Any]) -> list[int]:
        """Return how far rounding up makes the last windows reach beyond the padding."""
        results = []
        for i, size in enumerate(sizes):
            padded = int(size) + sum(self.pads[i])
            stride, span = self.strides[i], self.span(i)
            count = (
                -(-(padded - span) // stride) + 1 if self.ceil else (padded - span) // stride + 1
            )
            # A window that begins in the padding after the data is none.
            if self.ceil and (count - 1) * stride >= int(size) + self.pads[i][0]:
                count -= 1
            results.append(max((count - 1) * stride + span - padded, 0))
        return results


def convolved(n: OnnxNode, x: Any, kernel: Any, bias: Any) -> Any:
    """Return the convolution of (n, c, *spatial) with (o, c / groups, *window)."""
    g = Geometry(n, x.shape[2:], n.attr("kernel_shape") or kernel.shape[2:])
    return _convolution(convolution, n, g, x, kernel, bias, padding=tuple(g.pads))


def _convolution(
    op: Any, n: OnnxNode, g: Geometry, x: Any, kernel: Any, bias: Any, **settings: Any
) -> Any:
    """Return the result of an op of data and kernel with the channels last, plus a bias."""
    y = op(
        channels_last(x), ops.transpose(kernel, (*range(2, rank_of(x)), 1, 0)),
        strides=tuple(g.strides), dilation=tuple(g.dilations), groups=n.attr("group", 1),
        **settings,
    )  # fmt: skip
    if bias is not None:
        y = ops.add(y, tensor(bias))
    return channels_second(y)


read_by(lambda n: convolved(n, tensor(n.x), tensor(n.need(1)), n.get(2)), "Conv")


@reads("ConvTranspose")
def _conv_transpose(n: OnnxNode) -> Structure:
    x, kernel, bias = tensor(n.x), tensor(n.need(1)), n.get(2)
    count = rank_of(x) - 2
    g = Geometry(n, x.shape[2:], n.attr("kernel_shape") or kernel.shape[2:])
    extra = n.attr("output_padding") or [0] * count
    wanted = n.attr("output_shape")
    sizes, pairs = [], []
    auto = n.attr("auto_pad", "NOTSET")
    for i in range(count):
        full = (int(x.shape[2 + i]) - 1) * g.strides[i] + g.span(i)
        before, after = g.pads[i]
        if wanted or auto.startswith("SAME"):
            size = int(wanted[-count:][i]) if wanted else int(x.shape[2 + i]) * g.strides[i]
            total = max(full + extra[i] - size, 0)
            half = total // 2
            before = half if auto != "SAME_LOWER" else total - half
            after = full - before - size
        else:
            size = full + extra[i] - before - after
            after -= extra[i]
        if -g.strides[i] < after < 0:
            after = 0  # The last places meet no window.
        sizes.append(size)
        pairs.append((before, after))
    settings = {"size": tuple(sizes), "padding": tuple(pairs)}
    return _convolution(convolution_data_gradient, n, g, x, kernel, bias, **settings)


# --- pooling ------------------------------------------------------------------------------------


def taps(x: Any, g: Geometry, fill: float) -> list[Any]:
    """Return for each place of the window, in C order, the elements that it meets.

    Args:
        x: (n, c, *spatial).
        g: the windows.
        fill: the value of the padding.
    """
    sizes = [int(s) for s in x.shape[2:]]
    extra = g.beyond(sizes)
    pairs = [(0, 0), (0, 0), *((a, b + e) for (a, b), e in zip(g.pads, extra))]
    data = ops.pad(x, pairs, constant_values=fill)
    counts = [
        (size + a + b + e - g.span(i)) // g.strides[i] + 1
        for i, (size, (a, b), e) in enumerate(zip(sizes, g.pads, extra))
    ]
    if math.prod(g.window) > 4096:
        raise ValueError(f"a window of {g.window} places")
    parts = []
    for at in itertools.product(*map(range, g.window)):
        key = [slice(None), slice(None)]
        for i, place in enumerate(at):
            start, step = place * g.dilations[i], g.strides[i]
            key.append(slice(start, start + (counts[i] - 1) * step + 1, step))
        parts.append(data[tuple(key)])
    return parts


def lowest(dtype: str) -> float:
    """Return the least number of a dtype."""
    if dtypes.is_float(dtype):
        return -math.inf
    limits = dtypes.limits(dtype)
    return 0 if limits is None else limits[0]


def _pooled(op: Any, x: Any, g: Geometry) -> Any:
    """Return the result of a pooling op; None: it has no such windows."""
    if max(g.dilations) > 1 or any(g.beyond(x.shape[2:])):
        return None
    place = {"size": tuple(g.window), "strides": tuple(g.strides), "padding": tuple(g.pads)}
    return channels_second(op(channels_last(x), **place))


@reads("MaxPool")
def _max_pool(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    g = Geometry(n, x.shape[2:], n.attr("kernel_shape"))
    pooled = _pooled(pool_max, x, g) if n.count == 1 else None
    if pooled is not None:
        return pooled
    # The position in the flattened input travels with each element.
    shape = [int(s) for s in x.shape]
    parts = ops.stack(taps(x, g, lowest(x.dtype)), axis=0)
    y = ops.max(parts, axis=0)
    if n.count == 1:
        return y
    number = np.arange(math.prod(shape), dtype="int64").reshape(shape)
    if n.attr("storage_order", 0):
        spatial = shape[2:]
        order = np.arange(math.prod(spatial)).reshape(spatial[::-1]).T.reshape(spatial)
        lead = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * len(spatial))
        number = (lead * math.prod(spatial) + order).astype("int64")
    places = ops.stack(taps(ops.convert_to_tensor(number), g, -1), axis=0)
    first = ops.expand_dims(ops.argmax(parts, axis=0), 0)
    return [y, ops.take_along_axis(places, first, axis=0)[0]]


@reads("AveragePool")
def _average_pool(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    g = Geometry(n, x.shape[2:], n.attr("kernel_shape"))
    include = bool(n.attr("count_include_pad", 0))
    pooled = None if include else _pooled(pool_average, x, g)
    if pooled is not None:
        return pooled
    total = _summed(taps(x, g, 0))
    ones = np.ones([1, 1, *(int(s) for s in x.shape[2:])])
    if include:  # the padding counts, what rounding up adds does not
        ones = np.pad(ones, [(0, 0), (0, 0), *g.pads], constant_values=1)
        g.pads, g.ceil = [(0, e) for e in g.beyond(x.shape[2:])], False
    counts = _summed(taps(ops.convert_to_tensor(ones), g, 0))
    return ops.divide(total, ops.cast(counts, x.dtype))


def _summed(parts: Sequence[Any]) -> Any:
    return ops.sum(ops.stack(list(parts), axis=0), axis=0)


@reads("LpPool")
def _lp_pool(n: OnnxNode) -> Structure:
    x, p = tensor(n.x), n.attr("p", 2)
    g = Geometry(n, x.shape[2:], n.attr("kernel_shape"))
    powers = ops.power(ops.absolute(x), float(p))
    return ops.power(_summed(taps(powers, g, 0)), 1 / p)


def _over_space(f: Callable[..., Any], x: Any) -> Any:
    return f(x, tuple(range(2, rank_of(x))), keepdims=True)


read_by(lambda n: _over_space(ops.mean, tensor(n.x)), "GlobalAveragePool")
read_by(lambda n: _over_space(ops.max, tensor(n.x)), "GlobalMaxPool")


@reads("GlobalLpPool")
def _global_lp(n: OnnxNode) -> Structure:
    p = n.attr("p", 2)
    powers = ops.power(ops.absolute(tensor(n.x)), float(p))
    return ops.power(_over_space(ops.sum, powers), 1 / p)


@reads("MaxUnpool", constants=(2,))
def _max_unpool(n: OnnxNode) -> Structure:
    x, places = tensor(n.x), tensor(n.need(1))
    g = Geometry(n, x.shape[2:], n.attr("kernel_shape"))
    natural = [
        (int(s) - 1) * g.strides[i] - sum(g.pads[i]) + g.window[i]
        for i, s in enumerate(x.shape[2:])
    ]
    wanted = n.ints(2, "output_shape")
    inner = [int(s) for s in x.shape[:2]] + natural
    flat = ops.zeros((math.prod(inner),), x.dtype)
    index = ops.reshape(ops.cast(places, "int32"), (-1, 1))
    y = ops.reshape(ops.scatter_update(flat, index, ops.reshape(x, (-1,))), inner)
    if wanted is None or wanted == inner:
        return y
    # Positions were those of the wanted shape, whose rows may be longer.
    flat = ops.zeros((math.prod(wanted),), x.dtype)
    return ops.reshape(ops.scatter_update(flat, index, ops.reshape(x, (-1,))), wanted)


@reads("Col2Im", constants=(1, 2))
def _col2im(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    sizes, window = n.ints(1, "image_shape") or [], n.ints(2, "block_shape") or []
    g = Geometry(n, sizes, window)
    counts = [
        (size + sum(g.pads[i]) - g.span(i)) // g.strides[i] + 1 for i, size in enumerate(sizes)
    ]
    places = math.prod(window)
    channels = int(x.shape[1]) // places
    check_size([*window, *counts, len(sizes)])
    columns = ops.reshape(x, (x.shape[0], channels, *window, *counts))
    whole = [size + sum(pair) for size, pair in zip(sizes, g.pads)]
    index = np.zeros((*window, *counts, len(sizes)), "int32")
    for i in range(len(sizes)):
        at = np.arange(window[i])[:, None] * g.dilations[i]
        at = at + np.arange(counts[i])[None, :] * g.strides[i]
        shape = [1] * (2 * len(sizes))
        shape[i], shape[i + len(sizes)] = window[i], counts[i]
        index[..., i] = at.reshape(shape)
    rows = ops.transpose(columns, (*range(2, rank_of(columns)), 0, 1))
    y = add_at(rows, index, shape=(*whole, int(x.shape[0]), channels))
    y = y[tuple(slice(a, a + size) for size, (a, _) in zip(sizes, g.pads))]
    return ops.transpose(y, (rank_of(y) - 2, rank_of(y) - 1, *range(rank_of(y) - 2)))
