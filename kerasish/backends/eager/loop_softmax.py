"""Softmax and its loss along the last axis: by compiled loops, by NumPy for small arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.eager.native_loops import FLOAT, CompiledLoop, empty_like, fits_fused
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


def _moments(k: LoopBuilder) -> None:
    x = k.input("float32")
    top = k.op("row_max", x)
    k.output(top)
    k.output(k.op("log", k.op("row_sum", k.op("exp", x - top))))


def _scaled(k: LoopBuilder) -> None:
    x, top, total, g = k.input("float32"), *(k.input("float32", "row") for _ in range(3))
    k.output(k.op("exp", x - top - total) * g)


_MOMENTS, _SCALED = CompiledLoop(_moments), CompiledLoop(_scaled)
_FORWARD = {False: CompiledLoop(_softmax), True: CompiledLoop(_log_softmax)}
_BACKWARD = {False: CompiledLoop(_softmax_gradient), True: CompiledLoop(_log_softmax_gradient)}


def _run(loop: CompiledLoop, *arrays: Array) -> Array | None:
    x = arrays[0]
    run = loop.find() if fits_fused(*arrays) else None
    if run is None:
        return None
    y = empty_like(x)
    run((*arrays, y), x.size // x.shape[-1], x.shape[-1])
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
    """Return the gradient by x of y = softmax(x, logarithm), given that of y."""
    result = _run(_BACKWARD[logarithm], g, y)
    if result is not None:
        return result
    if logarithm:
        return g - np.exp(y) * np.add.reduce(g, axis=-1, keepdims=True)
    return y * (g - np.add.reduce(g * y, axis=-1, keepdims=True))


class _Parts(NamedTuple):
    """Classes and logits as arguments of kernels.

    Attributes:
        rows: the logits as a matrix.
        places: of the logit of each row's class, in the flat matrix; the first if there is none.
        known: which rows have a class; None: all.
    """

    rows: Array
    places: Array
    known: Array | None

    def kept(self, values: Array) -> Array:
        """Return values, one per row, with 0 if there is no class."""
        return values if self.known is None else np.where(self.known, values, FLOAT.type(0))


def _parts(classes: Array, x: Array) -> _Parts:
    n = x.shape[-1]
    rows = np.ascontiguousarray(x).reshape(-1, n)
    given = np.ascontiguousarray(classes).reshape(-1)
    if given.dtype.char == "i":
        known = given.view(np.uint32) < n  # a negative number becomes a large one
    else:
        known = (given >= 0) & (given < n)
    count = len(rows)
    starts = _few_starts(count, n) if count <= _FEW else np.arange(0, count * n, n)
    if known.all():
        return _Parts(rows, starts + given, None)
    return _Parts(rows, starts + np.where(known, given, 0), known)


_FEW = 4096


@lru_cache(maxsize=16)
def _few_starts(count: int, n: int) -> Array:
    """Return the starts of rows of n numbers; the array is shared and read-only."""
    result = np.arange(0, count * n, n)
    result.flags.writeable = False
    return result


def class_loss(classes: Array, logits: Array) -> tuple[Array, Array]:
    """Return -log softmax(logits)[class], 0 for no class; and statistics for the gradient.

    Shape: (...) int32, (..., n) -> (...), (2, rows).
    """
    parts = _parts(classes, logits)
    rows = parts.rows
    statistics = np.empty((2, len(rows)), FLOAT)
    loop = _MOMENTS.find() if fits_fused(rows) else None
    if loop is not None:
        loop((rows, *statistics), *rows.shape)
    else:
        np.maximum.reduce(rows, axis=-1, out=statistics[0])
        powers = np.subtract(rows, statistics[0][:, None])
        np.exp(powers, out=powers)
        np.log(np.add.reduce(powers, axis=-1), out=statistics[1])
    chosen = rows.reshape(-1)[parts.places]
    loss = parts.kept(statistics[1] - (chosen - statistics[0]))
    return loss.reshape(classes.shape), statistics


def class_loss_gradient(g: Array, classes: Array, logits: Array, statistics: Array) -> Array:
    """Return the gradient by the logits, given that of the loss, and its `statistics`.

    Shape: (...), (...) int32, (..., n), (2, rows) -> (..., n).
    """
    parts = _parts(classes, logits)
    rows, arriving = parts.rows, parts.kept(np.ascontiguousarray(g).reshape(-1))
    dx = empty_like(rows)
    loop = _SCALED.find() if fits_fused(rows, arriving) else None
    if loop is not None:
        loop((rows, *statistics, arriving, dx), *rows.shape)
    else:
        np.subtract(rows, statistics[0][:, None], out=dx)
        np.subtract(dx, statistics[1][:, None], out=dx)
        np.exp(dx, out=dx)
        np.multiply(dx, arriving[:, None], out=dx)
    dx.reshape(-1)[parts.places] -= arriving
    return dx.reshape(logits.shape)
