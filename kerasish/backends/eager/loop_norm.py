"""Normalizations of large float32 arrays by compiled loops.

Each function computes the same as the one with the same name in `numpy_norm`, or returns None if
NumPy must compute it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import (
    FLOAT,
    CompiledLoop,
    Frame,
    empty_like,
    fits_fused,
    frame_of,
    run,
)
from kerasish.backends.loops import ArrayLoop, LoopBuilder
from kerasish.typing import Array


def _inputs(k: LoopBuilder, *levels: str) -> list[Any]:
    return [k.input("float32", level) for level in levels]


# --- batch normalization --------------------------------------------------------------------------


def _column_sum(k: LoopBuilder) -> None:
    k.output(k.op("column_sum", k.input("float32")))


def _column_spread(k: LoopBuilder) -> None:
    x, mean = _inputs(k, "element", "column")
    away = x - mean
    k.output(k.op("column_sum", away * away))


def _standardized(k: LoopBuilder) -> None:
    x, mean, factor, beta = _inputs(k, "element", "column", "column", "column")
    k.output((x - mean) * factor + beta)


def _batch_sums(k: LoopBuilder) -> None:
    g, x, mean = _inputs(k, "element", "element", "column")
    k.output(k.op("column_sum", (x - mean) * g))
    k.output(k.op("column_sum", g))


def _batch_slope(k: LoopBuilder) -> None:
    g, x, mean, center, slope, factor = _inputs(k, "element", "element", *["column"] * 4)
    k.output((g - center - (x - mean) * slope) * factor)


_MEAN, _SPREAD, _STANDARDIZED = (
    CompiledLoop(_column_sum),
    CompiledLoop(_column_spread),
    CompiledLoop(_standardized),
)
_SUMS, _SLOPE = CompiledLoop(_batch_sums), CompiledLoop(_batch_slope)


def _compiled(*loops: CompiledLoop) -> list[ArrayLoop] | None:
    results = [loop.find() for loop in loops]
    return None if None in results else results  # type: ignore[return-value]


def _frame(x: Array) -> Frame:
    return frame_of(x.size // x.shape[-1], x.shape[-1])


def batch_norm_training(
    x: Array, gamma: Array, beta: Array, epsilon: float
) -> tuple[Array, Array, Array, Array] | None:
    """Return (y, the batch's mean, its variance, its scale); see `numpy_norm`."""
    loops = _compiled(_MEAN, _SPREAD, _STANDARDIZED) if fits_fused(x, gamma, beta) else None
    if loops is None:
        return None
    frame, one = _frame(x), FLOAT.type
    count, parts = one(x.size // x.shape[-1]), frame.parts()
    run(loops[0], (x, parts), frame, reducing=True)
    mean = frame.total(parts) / count
    center = frame.spread(mean)
    run(loops[1], (x, center, parts), frame, reducing=True)
    variance = frame.total(parts) / count
    scale = one(1) / np.sqrt(variance + one(epsilon))
    y = empty_like(x)
    columns = (center, frame.spread(scale * gamma), frame.spread(beta))
    run(loops[2], (x, *columns, y), frame)
    return y, mean, variance, scale


def batch_norm_gradient(
    g: Array, x: Array, mean: Array, scale: Array, gamma: Array
) -> tuple[Array, Array, Array] | None:
    """Return the gradients by x, by gamma and by beta; see `numpy_norm`."""
    loops = _compiled(_SUMS, _SLOPE) if fits_fused(x, g, mean, scale, gamma) else None
    if loops is None:
        return None
    frame = _frame(x)
    center, by_gamma, by_beta = frame.spread(mean), frame.parts(), frame.parts()
    run(loops[0], (g, x, center, by_gamma, by_beta), frame, reducing=True)
    by_gamma, by_beta = frame.total(by_gamma) * scale, frame.total(by_beta)
    share = FLOAT.type(x.shape[-1] / x.size)
    columns = (by_beta * share, scale * by_gamma * share, gamma * scale)
    dx = empty_like(x)
    run(loops[1], (g, x, center, *map(frame.spread, columns), dx), frame)
    return dx, by_gamma, by_beta


# --- layer normalization --------------------------------------------------------------------------


def _layer_norm(centered: bool) -> CompiledLoop:
    def describe(k: LoopBuilder) -> None:
        x, epsilon, gamma, *beta = _inputs(k, "element", "scalar", *["column"] * (1 + centered))
        size = k.op("columns", dtype="float32")
        away = x
        if centered:
            mean = k.op("row_sum", x) / size
            away = x - mean
        spread = k.op("row_sum", away * away) / size
        scale = 1.0 / k.op("sqrt", spread + epsilon)
        y = away * scale * gamma
        k.output(y + beta[0] if centered else y)
        if centered:
            k.output(mean)
        k.output(scale)

    return CompiledLoop(describe)


def _layer_gradient(centered: bool) -> CompiledLoop:
    def describe(k: LoopBuilder) -> None:
        levels = ("element", "element", *["row"] * (1 + centered), "column")
        g, x, scale, *mean, gamma = _inputs(k, *levels)
        size = k.op("columns", dtype="float32")
        away = ((x - mean[0]) if centered else x) * scale
        h = g * gamma
        inner = k.op("row_sum", h * away) / size
        if centered:
            h = h - k.op("row_sum", h) / size
        k.output((h - away * inner) * scale)
        k.output(k.op("column_sum", away * g))
        if centered:
            k.output(k.op("column_sum", g))

    return CompiledLoop(describe)


_LAYER = {centered: _layer_norm(centered) for centered in (False, True)}
_LAYER_GRADIENT = {centered: _layer_gradient(centered) for centered in (False, True)}


def layer_norm(
    x: Array, gamma: Array, beta: Array | None, epsilon: float, centered: bool
) -> tuple[Array, Array | None, Array] | None:
    """Return (y, mean, scale) of rows, the mean None without `centered`; see `numpy_norm`."""
    given = (x, gamma) if beta is None else (x, gamma, beta)
    if (beta is None) == centered or not fits_fused(*given):
        return None
    loop = _LAYER[centered].find()
    if loop is None:
        return None
    columns = x.shape[-1]
    rows = x.size // columns
    y, scale = empty_like(x), empty((rows,), FLOAT)
    small = np.full(1, epsilon, FLOAT)
    mean = empty((rows,), FLOAT) if centered else None
    results = (y, scale) if mean is None else (y, mean, scale)
    loop((x, small, *given[1:], *results), rows, columns)
    return y, mean, scale


def layer_norm_gradient(
    g: Array, x: Array, gamma: Array, mean: Array, scale: Array, centered: bool
) -> tuple[Array, Array, Array | None] | None:
    """Return the gradients by x, gamma and beta, that None without `centered`."""
    if not fits_fused(x, g, gamma, mean, scale):
        return None
    loop = _LAYER_GRADIENT[centered].find()
    if loop is None:
        return None
    columns = x.shape[-1]
    frame = frame_of(x.size // columns, columns, joining=False)
    dx, sums = empty_like(x), [frame.parts() for _ in range(1 + centered)]
    rows = (scale, mean) if centered else (scale,)
    run(loop, (g, x, *rows, gamma, dx, *sums), frame, reducing=True)
    by_gamma, *by_beta = (frame.total(part) for part in sums)
    return dx, by_gamma, by_beta[0] if centered else None
