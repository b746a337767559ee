"""Softmax along the last axis of float32 arrays: by compiled loops, by NumPy for small arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.backends.eager.native_loops import Loop, empty_like, fits
from kerasish.backends.loops import LoopBuilder
from kerasish.typing import Array


def _softmax(k: LoopBuilder) -> None:
    x = k.input("float32")
    powers = k.op("exp", x - k.op("row_max", x))
    k.output(powers / k.op("row_sum", powers))


def _log_softmax(k: LoopBuilder) -> None:
    x = k.input("float32")
    shifted = x - k.op("row_max", x)
    k.output(shifted - k.op("log", k.op("row_sum", k.op("exp", shifted))))


def _softmax_gradient(k: LoopBuilder) -> None:
    g, y = k.input("float32"), k.input("float32")
    k.output(y * (g - k.op("row_sum", g * y)))


def _log_softmax_gradient(k: LoopBuilder) -> None:
    g, y = k.input("float32"), k.input("float32")
    k.output(g - k.op("exp", y) * k.op("row_sum", g))


_FORWARD = {False: Loop(_softmax), True: Loop(_log_softmax)}
_BACKWARD = {False: Loop(_softmax_gradient), True: Loop(_log_softmax_gradient)}


def _run(loop: Loop, *arrays: Array) -> Array | None:
    x = arrays[0]
    found = loop.find() if fits(*arrays) else None
    if found is None:
        return None
    y = empty_like(x)
    found((*arrays, y), x.size // x.shape[-1], x.shape[-1])
    return y


def softmax(x: Array, logarithm: bool = False) -> Any:
    """Return softmax(x) along the last axis, or its logarithm."""
    result = _run(_FORWARD[logarithm], x)
    if result is not None:
        return result
    y = np.subtract(x, np.maximum.reduce(x, axis=-1, keepdims=True))
    powers = np.exp(y) if logarithm else np.exp(y, out=y)
    total = np.add.reduce(powers, axis=-1, keepdims=True)
    return np.subtract(y, np.log(total), out=y) if logarithm else np.divide(y, total, out=y)


def softmax_gradient(g: Array, y: Array, logarithm: bool = False) -> Any:
    """Return the gradient by x where y = softmax(x, logarithm), g arriving at y."""
    result = _run(_BACKWARD[logarithm], g, y)
    if result is not None:
        return result
    if logarithm:
        return g - np.exp(y) * np.add.reduce(g, axis=-1, keepdims=True)
    return y * (g - np.add.reduce(g * y, axis=-1, keepdims=True))
