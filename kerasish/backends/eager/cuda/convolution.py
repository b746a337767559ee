"""Convolution: by cuDNN, or windows laid out as rows and one product; depthwise separately.

Memory is bounded: large batches are processed in chunks of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda import cudnn_convolution
from kerasish.backends.eager.cuda.arrays import (
    by_cupy,
    cast,
    compact,
    copy_into,
    cupy,
    empty,
    filled,
)
from kerasish.backends.eager.cuda.blas import matrix_product
from kerasish.backends.eager.cuda.kernels import (
    fits,
    launch,
    launch_elements,
    packed,
)
from kerasish.backends.eager.cuda.norm import add_chunks
from kerasish.backends.eager.cuda.window import divisor, fits_window, window
from kerasish.ops.basic.window import window_counts
from kerasish.typing import Array

SOURCE = "columns"
ROWS_BYTES = 256 << 20  # of the rows of a chunk of samples
CHUNK_WINDOWS, MOST_CHUNKS = 256, 64  # of the sums that a depthwise kernel's gradient is


class _Setting:
    """A convolution's sizes, and the records for its kernels."""

    def __init__(
        self, sizes: Any, window_size: Any, channels: int, strides: Any, padding: Any,
        dilation: Any, groups: int,
    ) -> None:  # fmt: skip
        self.sizes, self.window, self.channels, self.groups = sizes, window_size, channels, groups
        self.counts = window_counts(sizes, window_size, strides, padding, dilation, "convolution")
        self.record = window(sizes, self.counts, window_size, strides, padding, dilation)
        self.part = channels // groups
        self.places = math.prod(window_size)
        self.plain = (
            self.places == 1 and max(strides) == 1 and not any(map(any, padding)) and groups == 1
        )

    def chunks(self, samples: int, itemsize: int) -> Iterator[slice]:
        each = math.prod(self.counts) * self.places * self.part * itemsize
        step = max(1, ROWS_BYTES // max(each, 1))
        return (slice(i, min(i + step, samples)) for i in range(0, samples, step))

    def rows(self, x: Array, group: int) -> Array:
        """Return the windows of x's channels of the group: (windows, places * part)."""
        windows = x.shape[0] * math.prod(self.counts)
        rows = empty((windows, self.places * self.part), x.dtype)
        first = group * self.part
        together = _packs(self.part, self.channels, first, x, rows)
        width = 16 // x.dtype.itemsize if together else 1
        sizes = tuple(np.int64(k) for k in (windows, self.channels, first))
        args = (x, rows, self.record, divisor(self.part // width), *sizes, together)
        pieces = rows.size // width
        launch_elements(SOURCE, "windows_to_rows", x.dtype, pieces, *args)
        return rows

    def back(self, rows: Array, x: Array, group: int) -> None:
        """Write into x's channels of the group the sums of the rows at each place."""
        places = x.shape[0] * math.prod(self.sizes)
        first = group * self.part
        together = _packs(self.part, self.channels, first, x, rows)
        width = 16 // x.dtype.itemsize if together else 1
        sizes = tuple(np.int64(k) for k in (places, self.channels, first))
        pieces = places * self.part // width
        args = (rows, x, self.record, divisor(self.part // width), *sizes, together)
        launch_elements(SOURCE, "rows_to_places", x.dtype, pieces, *args)


def _packs(part: int, channels: int, first: int, *arrays: Any) -> Any:
    return np.int32(packed(part, *arrays) and packed(channels, *arrays) and packed(first, *arrays))


def _matrix(kernel: Array, group: int, groups: int) -> Array:
    """Return the group's kernel as (places * part, results of the group)."""
    each = kernel.shape[-1] // groups
    part = kernel[..., group * each : (group + 1) * each]
    return compact(part).reshape(-1, each)


def _usable(*arrays: Any) -> bool:
    return fits(*arrays) and fits_window(*(a.shape for a in arrays))


def _is_depthwise(setting: _Setting) -> bool:
    return setting.part == 1 and setting.groups > 1


def convolution(x: Any, kernel: Any, **attrs: Any) -> Any:
    """Return the convolution of x with the kernel."""
    if not _usable(x, kernel):
        return by_cupy("convolution", x, kernel, **attrs)
    result = cudnn_convolution.convolution(x, kernel, **attrs)
    if result is not None:
        return result
    x, results = compact(x), kernel.shape[-1]
    s = _Setting(x.shape[1:-1], kernel.shape[:-2], x.shape[-1], **attrs)
    y = empty((x.shape[0], *s.counts, results), x.dtype)
    if not y.size:
        return y
    if _is_depthwise(s):
        many = results // s.channels
        sizes = (np.int64(y.size // results), np.int64(s.channels))
        args = (x, compact(kernel), y, s.record, divisor(results), divisor(many), *sizes)
        launch_elements(SOURCE, "depthwise", x.dtype, y.size, *args)
        return y
    each = results // s.groups
    for part in s.chunks(x.shape[0], x.dtype.itemsize):
        for group in range(s.groups):
            rows = x[part].reshape(-1, s.channels) if s.plain else s.rows(x[part], group)
            result = matrix_product(rows, _matrix(kernel, group, s.groups))
            to = y[part][..., group * each : (group + 1) * each]
            copy_into(to, result.reshape(to.shape))
    return y


def convolution_data_gradient(g: Any, kernel: Any, *, size: Any, **attrs: Any) -> Any:
    """Return the gradient of a convolution by its data, given that of its result."""
    if not _usable(g, kernel):
        return by_cupy("convolution_data_gradient", g, kernel, size=size, **attrs)
    result = cudnn_convolution.convolution_data_gradient(g, kernel, size=size, **attrs)
    if result is not None:
        return result
    g, groups = compact(g), attrs["groups"]
    s = _Setting(size, kernel.shape[:-2], kernel.shape[-2] * groups, **attrs)
    dx = empty((g.shape[0], *size, s.channels), g.dtype)
    if not dx.size:
        return dx
    if not g.size:
        return filled(dx, 0)
    if _is_depthwise(s):
        sizes = (np.int64(dx.size // s.channels), np.int64(kernel.shape[-1] // s.channels))
        args = (g, compact(kernel), dx, s.record, divisor(s.channels), *sizes)
        launch_elements(SOURCE, "depthwise_data", g.dtype, dx.size, *args)
        return dx
    each = kernel.shape[-1] // groups
    for part in s.chunks(g.shape[0], g.dtype.itemsize):
        for group in range(groups):
            arriving = compact(g[part][..., group * each : (group + 1) * each])
            rows = matrix_product(arriving.reshape(-1, each), _matrix(kernel, group, groups).T)
            if s.plain:
                copy_into(dx[part], rows.reshape(dx[part].shape))
            else:
                s.back(rows, dx[part], group)
    return dx


def convolution_kernel_gradient(x: Any, g: Any, *, size: Any, **attrs: Any) -> Any:
    """Return the gradient of a convolution by its kernel, given that of its result."""
    if not _usable(x, g):
        return by_cupy("convolution_kernel_gradient", x, g, size=size, **attrs)
    result = cudnn_convolution.convolution_kernel_gradient(x, g, size=size, **attrs)
    if result is not None:
        return result
    x, g = compact(x), compact(g)
    s = _Setting(x.shape[1:-1], size, x.shape[-1], **attrs)
    results, groups = g.shape[-1], s.groups
    if not x.size or not g.size:
        return filled(empty((*size, s.part, results), x.dtype), 0)
    if _is_depthwise(s):
        return _depthwise_kernel(x, g, s)
    each = results // groups
    created = empty((s.places * s.part, results), x.dtype)
    chunks = list(s.chunks(x.shape[0], x.dtype.itemsize))
    for group in range(groups):
        to = created[:, group * each : (group + 1) * each]
        total = None if len(chunks) == 1 else filled(empty(to.shape, np.float32), 0)
        for part in chunks:
            rows = x[part].reshape(-1, s.channels) if s.plain else s.rows(x[part], group)
            arriving = compact(g[part][..., group * each : (group + 1) * each])
            result = matrix_product(rows.T, arriving.reshape(-1, each))
            if total is None:
                copy_into(to, result)
            else:
                cupy().add(total, cast(result, np.float32), out=total)
        if total is not None:
            copy_into(to, total)
    return created.reshape(*size, s.part, results)


def _depthwise_kernel(x: Array, g: Array, s: _Setting) -> Array:
    results = g.shape[-1]
    windows = g.size // results
    chunk = max(CHUNK_WINDOWS, -(-windows // MOST_CHUNKS))
    chunks = -(-windows // chunk)
    parts = empty((1, chunks, s.places * results), np.float32)
    total = empty((1, s.places * results), np.float32)
    sizes = tuple(np.int64(k) for k in (windows, s.channels, chunk, chunks))
    args = (x, g, parts, s.record, divisor(results // s.channels), *sizes)
    work = -(-results // 32) * s.places * chunks
    launch(SOURCE, "depthwise_kernel_parts", x.dtype, work, (32, 8), *args)
    add_chunks(x.dtype, parts, total)
    return cast(total, x.dtype).reshape(*s.window, 1, results)


KERNELS: dict[str, Any] = {
    f.__name__: f for f in (convolution, convolution_data_gradient, convolution_kernel_gradient)
}
