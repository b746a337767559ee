"""Pooling over one to three spatial axes; gradients are gathered, so that they repeat."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import by_cupy, compact, empty
from kerasish.backends.eager.cuda.kernels import (
    NOTHING,
    fits,
    launch_elements,
    packed,
)
from kerasish.backends.eager.cuda.window import divisor, fits_window, window
from kerasish.ops.basic.window import window_counts
from kerasish.typing import Array

SOURCE = "pooling"


def _window(
    x_shape: tuple[int, ...], size: tuple[Any, ...], strides: tuple[int, ...], padding: Any
) -> tuple[Any, tuple[int, ...]]:
    """Return the record of the window, and the shape of a result with a place for each window."""
    sizes = x_shape[1:-1]
    counts = window_counts(sizes, size, strides, padding, (1,) * len(size), "pooling")
    result = window(sizes, counts, size, strides, padding)
    return result, (x_shape[0], *counts, x_shape[-1])


def _split(count: int, channels: int, together: Array, x: Array) -> tuple[Any, Any, int]:
    """Return (the divisor by packs of channels, places), and the pieces of work of a kernel."""
    width = 16 // x.dtype.itemsize if together else 1
    places = count // channels if channels else 0
    return divisor(channels // width), np.int64(places), count // width


def _largest(x: Array, attrs: dict[str, Any], values: bool, places: bool) -> tuple[Any, Any]:
    """Return the largest of each window, and its place there (each only if requested)."""
    w, shape = _window(x.shape, **attrs)
    y = empty(shape, x.dtype) if values else NOTHING
    chosen = empty(shape, np.int32) if places else NOTHING
    together = packed(x.shape[-1], x, *([y] if values else []))
    count = int(np.prod(shape, dtype=np.int64))
    packs, windows, pieces = _split(count, x.shape[-1], together, x)
    flags = (np.int32(values), np.int32(places), together)
    args = (x, y, chosen, w, packs, windows, *flags)
    launch_elements(SOURCE, "pool_largest", x.dtype, pieces, *args)
    return y, chosen


def pool_max(x: Any, **attrs: Any) -> Any:
    """Return the largest element of each window."""
    if not fits(x) or not fits_window(x.shape):
        return by_cupy("pool_max", x, **attrs)
    return _largest(compact(x), attrs, True, False)[0]


def pool_max_gradient(g: Any, x: Any, **attrs: Any) -> Any:
    """Return zeros like x with each window's g added at its first largest element."""
    if not fits(g, x) or not fits_window(x.shape):
        return by_cupy("pool_max_gradient", g, x, **attrs)
    g, x = compact(g), compact(x)
    _, chosen = _largest(x, attrs, False, True)
    dx = empty(x.shape, g.dtype)
    w, _ = _window(x.shape, **attrs)
    packs, places, pieces = _split(x.size, x.shape[-1], 0, x)
    args = (g, chosen, dx, w, packs, places)
    launch_elements(SOURCE, "pool_largest_gradient", g.dtype, pieces, *args)
    return dx


def pool_max_select(h: Any, x: Any, **attrs: Any) -> Any:
    """Return h where x has each window's first largest element."""
    if not fits(h, x) or not fits_window(x.shape):
        return by_cupy("pool_max_select", h, x, **attrs)
    h, x = compact(h), compact(x)
    _, chosen = _largest(x, attrs, False, True)
    w, shape = _window(x.shape, **attrs)
    y = empty(shape, h.dtype)
    packs, windows, pieces = _split(y.size, x.shape[-1], 0, x)
    launch_elements(SOURCE, "pool_pick", h.dtype, pieces, h, chosen, y, w, packs, windows)
    return y


def pool_average(x: Any, **attrs: Any) -> Any:
    """Return the mean of each window's places inside x."""
    if not fits(x) or not fits_window(x.shape):
        return by_cupy("pool_average", x, **attrs)
    x = compact(x)
    w, shape = _window(x.shape, **attrs)
    y = empty(shape, x.dtype)
    together = packed(x.shape[-1], x, y)
    packs, windows, pieces = _split(y.size, x.shape[-1], together, x)
    launch_elements(SOURCE, "pool_mean", x.dtype, pieces, x, y, w, packs, windows, together)
    return y


def pool_average_gradient(g: Any, *, sizes: Any, **attrs: Any) -> Any:
    """Return each window's g added in equal parts to its places."""
    shape = (g.shape[0], *sizes, g.shape[-1])
    if not fits(g) or not fits_window(shape):
        return by_cupy("pool_average_gradient", g, sizes=sizes, **attrs)
    g = compact(g)
    w, _ = _window(shape, **attrs)
    dx = empty(shape, g.dtype)
    together = packed(shape[-1], g, dx)
    packs, places, pieces = _split(dx.size, shape[-1], together, g)
    args = (g, dx, w, packs, places, together)
    launch_elements(SOURCE, "pool_mean_gradient", g.dtype, pieces, *args)
    return dx


KERNELS: dict[str, Any] = {
    f.__name__: f
    for f in (pool_max, pool_max_gradient, pool_max_select, pool_average, pool_average_gradient)
}
