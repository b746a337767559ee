"""Reductions, running sums, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.registry import (
    OnnxNode,
    axis_of,
    check_size,
    rank_of,
    reads,
    tensor,
)
from kerasish.ops import dtypes
from kerasish.ops.signals.signal import fourier
from kerasish.typing import Structure


def _reduction(kind: str, f: Callable[..., Any]) -> None:
    @reads(kind, constants=(1,))
    def read(n: OnnxNode) -> Structure:
        x, axes = tensor(n.x), n.ints(1, "axes")
        keepdims = bool(n.attr("keepdims", 1))
        if not axes and n.attr("noop_with_empty_axes", 0):
            # Each element is reduced by itself.
            return ops.cast(f(ops.expand_dims(x, 0), (0,), False), x.dtype)
        rank = rank_of(x)
        every = tuple(axis_of(a, rank) for a in axes) if axes else tuple(range(rank))
        return ops.cast(f(x, every, keepdims), x.dtype)


def _extreme(x: Any, axes: Any, keepdims: bool, f: Any, empty: str) -> Any:
    if any(x.shape[a] == 0 for a in axes):
        low, high = dtypes.limits(x.dtype) or (False, True)
        value = low if empty == "low" else high
        if dtypes.is_float(x.dtype):
            value = -np.inf if empty == "low" else np.inf
        shape = [1 if i in axes else s for i, s in enumerate(x.shape) if keepdims or i not in axes]
        return ops.full(shape, value, x.dtype)
    return f(x, axes, keepdims)


def _logsumexp(x: Any, axes: Any, keepdims: bool) -> Any:
    if any(x.shape[a] == 0 for a in axes):
        return ops.log(ops.sum(x, axes, keepdims))
    return ops.logsumexp(x, axes, keepdims)


_reduction("ReduceSum", ops.sum)
_reduction("ReduceProd", ops.prod)
_reduction("ReduceMean", lambda x, a, k: ops.mean(x, a, k))
_reduction("ReduceMax", lambda x, a, k: _extreme(x, a, k, ops.max, "low"))
_reduction("ReduceMin", lambda x, a, k: _extreme(x, a, k, ops.min, "high"))
_reduction("ReduceL1", lambda x, a, k: ops.sum(ops.absolute(x), a, k))
_reduction("ReduceL2", lambda x, a, k: ops.sqrt(ops.sum(ops.square(x), a, k)))
_reduction("ReduceSumSquare", lambda x, a, k: ops.sum(ops.square(x), a, k))
_reduction("ReduceLogSum", lambda x, a, k: ops.log(ops.sum(x, a, k)))
_reduction("ReduceLogSumExp", _logsumexp)


def _running(kind: str, f: Callable[..., Any], first: int) -> None:
    @reads(kind, constants=(1,))
    def read(n: OnnxNode) -> Structure:
        x = tensor(n.x)
        axis = axis_of(int(n.number(1)), rank_of(x))
        x = ops.flip(x, axis) if n.attr("reverse", 0) else x
        y = ops.cast(f(x, axis), x.dtype)
        if n.attr("exclusive", 0):
            pairs = [(1, 0) if i == axis else (0, 0) for i in range(rank_of(x))]
            key = tuple(slice(0, -1) if i == axis else slice(None) for i in range(rank_of(x)))
            y = ops.pad(y, pairs, constant_values=first)[key]
        return ops.flip(y, axis) if n.attr("reverse", 0) else y


_running("CumSum", lambda x, axis: ops.cumsum(x, axis), 0)
_running("CumProd", lambda x, axis: ops.cumprod(x, axis), 1)


# --- Fourier transforms -------------------------------------------------------------------------


@reads("DFT", constants=(1, 2))
def _dft(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    rank = rank_of(x)
    if n.opset >= 20:
        given = n.known(2)
        axis = -2 if given is None else int(given)
    else:
        axis = n.attr("axis", 1)
    axis = axis_of(axis, rank)
    length = n.number(1)
    size = int(x.shape[axis] if length is None else length)
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    if inverse and onesided:
        return _real_inverse(x, axis, size if length is not None else 2 * (size - 1))
    y = _transformed(_fitted(x, axis, size), axis, inverse)
    if inverse:
        y = ops.divide(y, size)
    if onesided:
        y = _fitted(y, axis, size // 2 + 1)
    return ops.cast(y, x.dtype)


def _transformed(x: Any, axis: int, inverse: bool = False) -> Any:
    """Return the transform of (..., 1 or 2): real parts, and imaginary parts if there are any."""
    a = x[..., 0]
    b = x[..., 1] if x.shape[-1] == 2 else ops.zeros_like(a)
    return ops.stack(fourier(a, b, axes=(axis,), inverse=inverse), axis=-1)


def _real_inverse(x: Any, axis: int, size: int) -> Any:
    """Return the real signal of a half spectrum."""
    half = size // 2 + 1
    x = _fitted(x, axis, half)
    rest = size - half
    places = np.arange(rest, 0, -1, dtype="int32")
    mirrored = ops.take(x, places, axis=axis)
    mirrored = ops.multiply(mirrored, np.array([1, -1], "float32").astype(str(x.dtype)))
    whole = ops.concatenate([x, mirrored], axis=axis)
    real, _ = fourier(whole[..., 0], whole[..., 1], axes=(axis,), inverse=True)
    return ops.expand_dims(ops.divide(real, size), -1)


def _fitted(x: Any, axis: int, size: int) -> Any:
    """Return x cut, or padded by 0, to `size` places along an axis."""
    have = int(x.shape[axis])
    check_size([size])
    if have >= size:
        return x[tuple(slice(0, size) if i == axis else slice(None) for i in range(rank_of(x)))]
    return ops.pad(x, [(0, size - have) if i == axis else (0, 0) for i in range(rank_of(x))])


@reads("STFT", constants=(1, 3))
def _stft(n: OnnxNode) -> Structure:
    signal = tensor(n.x)
    step, window, given = int(n.number(1)), n.get(2), n.number(3)
    length = int(window.shape[0] if given is None else given)
    onesided = bool(n.attr("onesided", 1))
    count = (int(signal.shape[1]) - length) // step + 1
    check_size([count, length])
    places = np.arange(count)[:, None] * step + np.arange(length)[None, :]
    frames = ops.take(signal, places.astype("int32"), axis=1)  # (batch, frames, length, 1 or 2)
    if window is not None:
        frames = ops.multiply(frames, ops.reshape(tensor(window), (length, 1)))
    y = _transformed(frames, 2)
    return _fitted(y, 2, length // 2 + 1) if onesided else y
