"""NumPy kernels of pooling: one axis after the other, by strided views, without padding copies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasish.backends.eager.numpy_conv import _chunks
from kerasish.ops.basic.pool import shares
from kerasish.typing import Array

Shape = tuple[int, ...]
# Bytes of a chunk of samples that should stay in the cache.
CACHE_BYTES = 1 << 20


def _count(n: int, w: int, s: int, pair: tuple[int, int]) -> int:
    return (n + pair[0] + pair[1] - w) // s + 1


def _meeting(k: int, n: int, s: int, before: int, count: int) -> tuple[slice, slice]:
    """Return (windows, places of x): the windows whose place k is inside x, and its position."""
    first = max(0, -((k - before) // s))
    last = min(count - 1, (n - 1 + before - k) // s)
    if last < first:
        return slice(0, 0), slice(0, 0)
    start = first * s + k - before
    return slice(first, last + 1), slice(start, start + (last - first) * s + 1, s)


def _along(axis: int, cut: slice) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, cut)


def _reduce(
    x: Array, size: Any, strides: Sequence[int], padding: Any, ufunc: Any, start: float
) -> Array:
    """Fold the windows with `ufunc`, axis by axis."""
    for axis, (w, s, pair) in enumerate(zip(size, strides, padding), 1):
        n = x.shape[axis]
        if w == s == 1 and pair == (0, 0):
            continue
        count = _count(n, w, s, pair)
        y: Any = None
        if pair != (0, 0):
            y = np.full((*x.shape[:axis], count, *x.shape[axis + 1 :]), start, x.dtype)
        for k in range(w):
            to, of = _meeting(k, n, s, pair[0], count)
            seen = x[_along(axis, of)]
            if y is None:
                y = seen.copy() if w == 1 else seen
            elif k == 1 and pair == (0, 0):
                y = ufunc(y, seen)
            else:
                target = y[_along(axis, to)]
                ufunc(target, seen, out=target)
        x = y
    return x


def pool_max(
    x: Array, *, size: Sequence[int], strides: Sequence[int], padding: Sequence[Any]
) -> Array:
    """Return the largest element of each window."""
    low = False if x.dtype.kind == "b" else -math.inf
    if x.dtype.kind in "iu":
        low = np.iinfo(x.dtype).min
    return _reduce(x, size, strides, padding, np.maximum, low)


def _places(x: Array, size: Any, strides: Sequence[int], padding: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (windows, places of x) for each place of the window, in C order."""
    spatial = x.shape[1:-1]
    counts = [_count(*part) for part in zip(spatial, size, strides, padding)]
    for at in itertools.product(*map(range, size)):
        cuts = [
            _meeting(k, n, s, before, count)
            for k, n, s, (before, _), count in zip(at, spatial, strides, padding, counts)
        ]
        yield (slice(None), *(c[0] for c in cuts)), (slice(None), *(c[1] for c in cuts))


def _is_first(seen: Array, best: Array, free: Array, nan: bool) -> Array:
    """Return where `seen` is the first largest element, and remove these from `free`."""
    hit = np.equal(seen, best)
    if nan:
        np.logical_or(hit, np.isnan(seen), out=hit)
    np.logical_and(hit, free, out=hit)
    np.logical_xor(free, hit, out=free)
    return hit


def _has_nan(best: Array) -> bool:
    return best.dtype.kind not in "biu" and bool(np.isnan(best).any())


def pool_max_gradient(
    g: Array, x: Array, *, size: Sequence[int], strides: Sequence[int], padding: Sequence[Any]
) -> Array:
    """Add each window's g at its first largest element."""
    g = np.ascontiguousarray(g)
    out = np.zeros(x.shape, g.dtype)
    # Bits times a mask: g * False would turn an infinite g into NaN.
    bits = np.dtype(f"i{g.itemsize}")
    apart = all(w <= s for w, s in zip(size, strides))
    for part in _chunks(x.shape[0], x[:1].nbytes, CACHE_BYTES):
        data, arriving, result = x[part], g[part].view(bits), out[part]
        best = pool_max(data, size=size, strides=strides, padding=padding)
        free, nan = np.ones(best.shape, bool), _has_nan(best)
        for windows, places in _places(data, size, strides, padding):
            hit = _is_first(data[places], best[windows], free[windows], nan)
            mask = np.negative(hit.view(np.int8)).astype(bits)
            if apart:
                np.bitwise_and(arriving[windows], mask, out=result.view(bits)[places])
            else:
                np.bitwise_and(arriving[windows], mask, out=mask)
                result[places] += mask.view(g.dtype)
    return out


def pool_max_select(
    h: Array, x: Array, *, size: Any, strides: Sequence[Any], padding: Any
) -> Array:
    """Return h where x has each window's first largest element."""
    best = pool_max(x, size=size, strides=strides, padding=padding)
    y = np.zeros(best.shape, h.dtype)
    free, nan = np.ones(best.shape, bool), _has_nan(best)
    for windows, places in _places(x, size, strides, padding):
        hit = _is_first(x[places], best[windows], free[windows], nan)
        np.copyto(y[windows], h[places], where=hit)
    return y


def _share(
    size: Any, strides: Sequence[int], padding: Any, sizes: Shape, counts: Shape, dtype: Any
) -> Array:
    numbers = shares(size, strides, padding, sizes, counts)
    if all(set(line) == {w} for line, w in zip(numbers, size)):
        return dtype.type(1 / math.prod(size))
    total: Any = 1.0
    for axis, line in enumerate(numbers):
        shape = [1] * (len(sizes) + 2)
        shape[axis + 1] = -1
        total = total * np.reshape(line, shape)
    return (1 / total).astype(dtype)


def pool_average(x: Array, *, size: Any, strides: Sequence[Any], padding: Any) -> Array:
    """Return the mean of each window's places inside x."""
    wide = x if x.dtype.itemsize > 2 else x.astype(np.float32)
    total = _reduce(wide, size, strides, padding, np.add, 0)
    share = _share(size, strides, padding, x.shape[1:-1], total.shape[1:-1], wide.dtype)
    y = np.multiply(total, share, out=None if np.may_share_memory(total, x) else total)
    return y.astype(x.dtype, copy=False)


def pool_average_gradient(
    g: Array, *, sizes: Any, size: Any, strides: Sequence[Any], padding: Any
) -> Array:
    """Add each window's g in equal parts to its places."""
    wide = g if g.dtype.itemsize > 2 else g.astype(np.float32)
    part = wide * _share(size, strides, padding, sizes, g.shape[1:-1], wide.dtype)
    # The last axis first: the arrays grow as late as possible.
    for axis in range(len(sizes), 0, -1):
        n, w, s, pair = (q[axis - 1] for q in (sizes, size, strides, padding))
        if w == s == 1 and pair == (0, 0):
            continue
        result = np.zeros((*part.shape[:axis], n, *part.shape[axis + 1 :]), part.dtype)
        for k in range(w):
            windows, places = _meeting(k, n, s, pair[0], part.shape[axis])
            target = result[_along(axis, places)]
            np.add(target, part[_along(axis, windows)], out=target)
        part = result
    return part.astype(g.dtype, copy=False)


KERNELS: dict[str, Any] = {
    f.__name__: f
    for f in (pool_max, pool_max_gradient, pool_max_select, pool_average, pool_average_gradient)
}
