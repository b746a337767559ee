"""NumPy kernels of convolution: windows laid out as rows (im2col) and one BLAS product.

Depthwise convolution loops over the window's places instead, 1x1 convolution is a plain product.
Memory is bounded: large batches are processed in chunks. Loops run over window places, groups and
chunks, never over pixels or samples.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from kerasish.ops.basic.window import padding_widths, window_places
from kerasish.ops.op import REGISTRY
from kerasish.typing import Array

Shape = tuple[int, ...]

# Bytes of the rows of a chunk; for depthwise, of a chunk that should stay in the cache.
ROWS_BYTES = 32 << 20
CACHE_BYTES = 1 << 19
# With fewer channels than this, the rows are written place by place: longer runs to copy.
FEW_CHANNELS = 5


def _chunks(n: int, bytes_each: int, limit: int) -> Iterator[slice]:
    step = max(1, limit // max(bytes_each, 1))
    return (slice(i, min(i + step, n)) for i in range(0, n, step))


def padded(
    x: Array,
    window: Shape,
    counts: Shape,
    strides: Sequence[int],
    padding: Sequence[Any],
    dilation: Sequence[int],
) -> Array:
    """Return x padded with zeros for every window; x itself if it needs no padding."""
    widths = padding_widths(x.shape[1:-1], counts, window, strides, padding, dilation)
    if not any(map(any, widths)):
        return np.ascontiguousarray(x)
    width = [(0, 0), *widths, (0, 0)]
    padded = np.zeros([n + a + b for n, (a, b) in zip(x.shape, width)], x.dtype)
    padded[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, width))] = x
    return padded


def _rows(x: Array, window: Shape, counts: Shape, strides: Shape, dilation: Shape) -> Array:
    """Return the windows of the padded x as a matrix: (n * windows, places * channels)."""
    n, channels = x.shape[0], x.shape[-1]
    shape = (n * math.prod(counts), math.prod(window) * channels)
    if channels < FEW_CHANNELS:
        columns = np.empty((*window, channels, n, *counts), x.dtype)
        by_channel = np.moveaxis(x, -1, 0)
        for place, cuts in window_places(window, counts, strides, dilation):
            columns[place] = by_channel[(slice(None), *cuts)]
        return columns.reshape(shape[::-1]).T
    own = x.strides
    view = as_strided(
        x,
        (n, *counts, *window, channels),
        (
            own[0],
            *(b * s for b, s in zip(own[1:-1], strides)),
            *(b * d for b, d in zip(own[1:-1], dilation)),
            own[-1],
        ),
        writeable=False,
    )
    return np.ascontiguousarray(view).reshape(shape)


def _is_plain(window: Shape, padding: tuple[Any, ...]) -> bool:
    return max(window) == 1 and not any(map(any, padding))


def _strided(x: Array, counts: Shape, strides: Shape) -> Array:
    if max(strides) == 1:
        return x
    return x[(slice(None), *(slice(0, (c - 1) * s + 1, s) for c, s in zip(counts, strides)))]


def window_counts(
    x: Array, window: Shape, strides: Sequence[int], padding: Any, dilation: Sequence[int]
) -> Shape:
    """Return the number of windows along each spatial axis of x."""
    return tuple(
        (n + a + b - d * (w - 1) - 1) // s + 1
        for n, w, s, (a, b), d in zip(x.shape[1:-1], window, strides, padding, dilation)
    )


def _dense(
    x: Array,
    kernel: Array,
    counts: Shape,
    strides: tuple[int, ...],
    padding: tuple[Any, ...],
    dilation: tuple[int, ...],
) -> Array:
    window, results = kernel.shape[:-2], kernel.shape[-1]
    matrix = kernel.reshape(-1, results)
    if _is_plain(window, padding):
        rows = _strided(x, counts, strides).reshape(-1, x.shape[-1])
        return np.matmul(rows, matrix).reshape(x.shape[0], *counts, results)
    x = padded(x, window, counts, strides, padding, dilation)
    y = np.empty((x.shape[0], *counts, results), x.dtype)
    each = math.prod(counts) * matrix.shape[0] * x.itemsize
    for part in _chunks(x.shape[0], each, ROWS_BYTES):
        rows = _rows(x[part], window, counts, strides, dilation)
        np.matmul(rows, matrix, out=y[part].reshape(-1, results))
    return y


def _dense_data(
    g: Array,
    kernel: Array,
    size: Shape,
    strides: tuple[int, ...],
    padding: tuple[Any, ...],
    dilation: tuple[int, ...],
) -> Array:
    window, counts, channels = kernel.shape[:-2], g.shape[1:-1], kernel.shape[-2]
    spans = [d * (w - 1) for w, d in zip(window, dilation)]
    if max(strides) == 1 and all(a <= span for (a, _), span in zip(padding, spans)):
        # Without strides: the convolution of g with the reversed kernel.
        turned = np.flip(kernel, tuple(range(len(window)))).swapaxes(-1, -2)
        before = tuple((span - a, 0) for (a, _), span in zip(padding, spans))
        return _dense(g, np.ascontiguousarray(turned), size, strides, before, dilation)
    padded_sizes = [
        max(n + a, (count - 1) * s + span + 1)
        for n, (a, _), count, s, span in zip(size, padding, counts, strides, spans)
    ]
    x = np.zeros((g.shape[0], *padded_sizes, channels), g.dtype)
    matrix = kernel.reshape(-1, kernel.shape[-1]).T
    each = math.prod(counts) * matrix.shape[1] * g.itemsize
    for part in _chunks(g.shape[0], each, ROWS_BYTES):
        rows = g[part].reshape(-1, g.shape[-1])
        columns = np.matmul(rows, matrix).reshape(-1, *counts, *window, channels)
        keep = (slice(None),) * (len(counts) + 1)
        for place, cuts in window_places(window, counts, strides, dilation):
            x[part][cuts] += columns[(*keep, *place)]
    return x[(slice(None), *(slice(a, a + n) for (a, _), n in zip(padding, size)))]


def _dense_kernel(
    x: Array,
    g: Array,
    size: Shape,
    strides: tuple[int, ...],
    padding: tuple[Any, ...],
    dilation: tuple[int, ...],
) -> Array:
    counts, results, channels = g.shape[1:-1], g.shape[-1], x.shape[-1]
    if _is_plain(size, padding):
        rows = _strided(x, counts, strides).reshape(-1, channels)
        return np.matmul(rows.T, g.reshape(-1, results)).reshape(*size, channels, results)
    x = padded(x, size, counts, strides, padding, dilation)
    total: Any = None
    each = math.prod(counts) * math.prod(size) * channels * x.itemsize
    for part in _chunks(x.shape[0], each, ROWS_BYTES):
        rows = _rows(x[part], size, counts, strides, dilation)
        product = np.matmul(rows.T, g[part].reshape(-1, results))
        total = product if total is None else np.add(total, product, out=total)
    if total is None:
        return np.zeros((*size, channels, results), x.dtype)
    return total.reshape(*size, channels, results)


# --- depthwise: one multiplication and one addition for each place of the window --------------


def _spread_weight(weight: Array, count: int) -> Array:
    """Return each place's weights repeated along the last axis: long runs to multiply."""
    return np.ascontiguousarray(np.broadcast_to(weight, (count, *weight.shape)))


def _each_channel(
    x: Array,
    kernel: Array,
    counts: Shape,
    strides: tuple[int, ...],
    padding: tuple[Any, ...],
    dilation: tuple[int, ...],
) -> Array:
    window, channels = kernel.shape[:-2], x.shape[-1]
    many = kernel.shape[-1] // channels
    weight = kernel.reshape(*window, channels, many)
    x = padded(x, window, counts, strides, padding, dilation)
    y = np.empty((x.shape[0], *counts, channels, many), x.dtype)
    each = math.prod(counts) * channels * x.itemsize
    for j in range(many):
        spread = {
            place: _spread_weight(weight[(*place, slice(None), j)], counts[-1])
            for place in itertools.product(*map(range, window))
        }
        for part in _chunks(x.shape[0], each, CACHE_BYTES):
            seen, total = x[part], np.zeros((part.stop - part.start, *counts, channels), x.dtype)
            scratch = np.empty(total.shape, x.dtype)
            for place, cuts in window_places(window, counts, strides, dilation):
                np.multiply(seen[cuts], spread[place], out=scratch)
                np.add(total, scratch, out=total)
            y[part][..., j] = total
    return y.reshape(x.shape[0], *counts, channels * many)


def _each_channel_data(
    g: Array,
    kernel: Array,
    size: Shape,
    strides: tuple[int, ...],
    padding: tuple[Any, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    window, counts = kernel.shape[:-2], g.shape[1:-1]
    many = kernel.shape[-1] // groups
    weight = kernel.reshape(*window, groups, many)
    padded_sizes = [
        max(n + a, (count - 1) * s + d * (w - 1) + 1)
        for n, (a, _), count, s, w, d in zip(size, padding, counts, strides, window, dilation)
    ]
    x = np.zeros((g.shape[0], *padded_sizes, groups), g.dtype)
    arriving = g.reshape(*g.shape[:-1], groups, many)
    each = math.prod(counts) * groups * g.itemsize
    for j in range(many):
        given = np.ascontiguousarray(arriving[..., j])
        spread = {
            place: _spread_weight(weight[(*place, slice(None), j)], counts[-1])
            for place in itertools.product(*map(range, window))
        }
        for part in _chunks(g.shape[0], each, CACHE_BYTES):
            scratch = np.empty(given[part].shape, g.dtype)
            for place, cuts in window_places(window, counts, strides, dilation):
                np.multiply(given[part], spread[place], out=scratch)
                target = x[part][cuts]
                np.add(target, scratch, out=target)
    return x[(slice(None), *(slice(a, a + n) for (a, _), n in zip(padding, size)))]


def _each_channel_kernel(
    x: Array,
    g: Array,
    size: Shape,
    strides: tuple[int, ...],
    padding: tuple[Any, ...],
    dilation: tuple[int, ...],
) -> Array:
    counts, channels = g.shape[1:-1], x.shape[-1]
    many = g.shape[-1] // channels
    x = padded(x, size, counts, strides, padding, dilation)
    arriving = g.reshape(*g.shape[:-1], channels, many)
    kernel = np.zeros((*size, channels, many), x.dtype)
    each = math.prod(counts) * channels * x.itemsize
    for part in _chunks(x.shape[0], each, CACHE_BYTES):
        scratch = np.empty((part.stop - part.start, *counts, channels), x.dtype)
        rows = scratch.reshape(-1, channels)
        ones = np.ones(len(rows), x.dtype)
        for j in range(many):
            given = arriving[part][..., j]
            for place, cuts in window_places(size, counts, strides, dilation):
                np.multiply(x[part][cuts], given, out=scratch)
                kernel[(*place, slice(None), j)] += ones @ rows
    return kernel.reshape(*size, 1, channels * many)


# --- the kernels of the table --------------------------------------------------------------------


def _in_blas_dtype(kernel: Callable[..., Any], reference: Callable[..., Any]) -> Callable[..., Any]:
    """Run half precision in float32, and integers by the reference (BLAS has neither)."""

    def run(a: Array, b: Array, **settings: Any) -> Array:
        if a.dtype.char in "fd":
            return kernel(a, b, **settings)
        if a.dtype.kind in "biu":
            return reference(np, a, b, **settings)
        wide = kernel(a.astype(np.float32), b.astype(np.float32), **settings)
        return wide.astype(a.dtype)

    return functools.wraps(kernel)(run)


def _grouped(
    dense: Callable[..., Array], each_channel: Callable[..., Array], x: Array, other: Array,
    groups: int, place: tuple[Any, ...],
) -> Array:  # fmt: skip
    """Return the results of `dense` for each group, of `each_channel` where groups are channels."""
    if groups == 1:
        return dense(x, other, *place)
    if groups == x.shape[-1]:
        return each_channel(x, other, *place)
    return _by_group(dense, x, other, groups, place)


def _by_group(
    function: Callable[..., Array], a: Array, b: Array, groups: int, place: tuple[Any, ...]
) -> Array:
    """Return the results of a function for each group of the last axes of a and b, joined."""
    parts = zip(np.split(a, groups, axis=-1), np.split(b, groups, axis=-1))
    return np.concatenate([function(x, y, *place) for x, y in parts], axis=-1)


def convolution(
    x: Array,
    kernel: Array,
    *,
    strides: tuple[int, ...],
    padding: Any,
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """Return the convolution; see `kerasish.ops.conv`."""
    counts = window_counts(x, kernel.shape[:-2], strides, padding, dilation)
    if min(counts) < 1:
        return REGISTRY["convolution"].kernel(
            np, x, kernel, strides=strides, padding=padding, dilation=dilation, groups=groups
        )
    place = (counts, strides, padding, dilation)
    return _grouped(_dense, _each_channel, x, kernel, groups, place)


def convolution_data_gradient(
    g: Array, kernel: Array, *, size: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Return the transpose of the convolution in its data; see `kerasish.ops.conv`."""
    place = (size, strides, padding, dilation)
    if groups == 1:
        return _dense_data(g, kernel, *place)
    if kernel.shape[-2] == 1:
        return _each_channel_data(g, kernel, *place, groups)
    return _by_group(_dense_data, g, kernel, groups, place)


def convolution_kernel_gradient(
    x: Array, g: Array, *, size: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Return the transpose of the convolution in its kernel; see `kerasish.ops.conv`."""
    place = (size, strides, padding, dilation)
    return _grouped(_dense_kernel, _each_channel_kernel, x, g, groups, place)


KERNELS: dict[str, Any] = {
    f.__name__: _in_blas_dtype(f, REGISTRY[f.__name__].kernel)
    for f in (convolution, convolution_data_gradient, convolution_kernel_gradient)
}
