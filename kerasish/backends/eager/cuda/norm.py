"""Layer, RMS, group and batch normalization, their gradients, and sums down columns.

`kerasish.ops.networks.normalization` composes these of ops; the engine of a GPU looks them up in
`fused_functions`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import cast, compact, empty, filled
from kerasish.backends.eager.cuda.kernels import (
    NOTHING,
    check,
    launch,
    launch_elements,
    launch_rows,
    packed,
)
from kerasish.backends.eager.cuda.window import divisor
from kerasish.typing import Array

SOURCE = "norm"
# The least rows of a chunk, and the most chunks, of sums down columns: they depend only on shapes,
# so the order of additions is the same everywhere.
CHUNK_ROWS, MOST_CHUNKS = 64, 256
TILE, BRANCHES = 32, 16  # the threads of a block that adds up chunks: see norm.cu


def _factors(v: Array) -> Array:
    """Return gamma or beta as a kernel's argument: float32, or nothing."""
    return NOTHING if v is None else compact(cast(v, np.float32)).reshape(-1)


def _given(*values: Any) -> list[Any]:
    return [v for v in values if v is not NOTHING]


class _RowLayout:
    """The division of x into rows that share their moments: see norm.cu."""

    def __init__(self, x: Array, groups: int) -> None:
        self.channels = x.shape[-1]
        self.width = self.channels // groups
        inner = x.shape[1:-1] if groups > 1 or x.ndim > 2 else ()
        self.places = math.prod(inner)
        self.n = self.places * self.width
        self.rows = x.size // self.n if self.n else 0

    def args(self) -> tuple[Any, ...]:
        return tuple(np.int64(k) for k in (self.rows, self.n, self.width, self.channels))


def _by_last(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _normalize(
    x: Array, rows: _RowLayout, gamma: Array, beta: Array, epsilon: float, centered: bool
) -> tuple[Any, Any, Any]:
    y = empty(x.shape, x.dtype)
    mean, scale = empty(rows.rows, np.float32), empty(rows.rows, np.float32)
    by, add = _factors(gamma), _factors(beta)
    flags = (np.int32(centered), np.int32(gamma is not None), np.int32(beta is not None))
    together = _together(rows, x, y, by, add)
    args = (x, by, add, y, mean, scale, *rows.args(), np.float32(epsilon), *flags, together)
    launch_rows(SOURCE, "normalize", x.dtype, rows.rows, rows.n, *args)
    return y, mean, scale


def _together(rows: _RowLayout, x: Array, other: Array, *factors: Any) -> Array:
    # Packs have this many scalars of x; gamma's and beta's are then of whole 16 bytes, too.
    aligned = all(a.data.ptr % 16 == 0 for a in _given(other, *factors))
    return np.int32(packed(rows.width, x) and packed(rows.channels, x) and aligned)


def _normalize_gradient(
    g: Any, x: Any, rows: _RowLayout, gamma: Any, mean: Any, scale: Any, centered: bool
) -> Any:
    dx = empty(x.shape, x.dtype)
    by = _factors(gamma)
    together = np.int32(_together(rows, x, dx, by) and _together(rows, g, dx))
    flags = (np.int32(centered), np.int32(gamma is not None))
    args = (g, x, by, mean, scale, dx, *rows.args(), *flags, together)
    launch_rows(SOURCE, "normalize_gradient", x.dtype, rows.rows, rows.n, *args)
    return dx


def layer_norm(
    x: Array, gamma: Array = None, beta: Array = None, epsilon: float = 1e-3, centered: bool = True
) -> tuple[Any, Any, Any]:
    """Return ((x - mean) * scale * gamma + beta, mean, scale) along the last axis.

    Args:
        centered: False: RMS normalization, with a mean of 0.

    Shape: (..., n), (n,), (n,) -> (..., n), and (rows,) float32 twice.
    """
    check("layer_norm", x)
    x = compact(x)
    return _normalize(x, _RowLayout(_by_last(x), 1), gamma, beta, epsilon, centered)


def layer_norm_gradient(
    g: Array, x: Array, gamma: Array, mean: Array, scale: Array, centered: bool = True
) -> tuple[Any, Any, Any]:
    """Return the gradients by x, gamma and beta (the latter two float32).

    Args:
        mean, scale: the other results of the forward pass.
    """
    check("layer_norm_gradient", g, x)
    g, x = compact(g), compact(x)
    dx = _normalize_gradient(g, x, _RowLayout(_by_last(x), 1), gamma, mean, scale, centered)
    sums = column_sums(_by_last(g), _by_last(x), mean, scale, (1, 1, x.shape[-1]))
    return dx, sums[1], sums[0]


def group_norm(
    x: Array, groups: int, gamma: Array = None, beta: Array = None, epsilon: float = 1e-3
) -> tuple[Any, Any, Any]:
    """Return ((x - mean) * scale * gamma + beta, mean, scale) for each group of channels.

    Shape: (n, *spatial, c), (c,), (c,) -> (n, *spatial, c), and (n * groups,) float32 twice.
    """
    check("group_norm", x)
    x = compact(x)
    return _normalize(x, _RowLayout(x, groups), gamma, beta, epsilon, True)


def group_norm_gradient(
    g: Array, x: Array, groups: int, gamma: Array, mean: Array, scale: Array
) -> tuple[Any, Any, Any]:
    """Return the gradients by x, gamma and beta (the latter two float32)."""
    check("group_norm_gradient", g, x)
    g, x = compact(g), compact(x)
    rows = _RowLayout(x, groups)
    dx = _normalize_gradient(g, x, rows, gamma, mean, scale, True)
    lying = (rows.places, groups, rows.width)
    sums = column_sums(_by_last(g), _by_last(x), mean, scale, lying)
    return dx, sums[1], sums[0]


# --- down the columns ----------------------------------------------------------------------------


def _chunks(rows: int) -> tuple[int, int]:
    """Return (rows of a chunk, number of chunks)."""
    chunk = max(CHUNK_ROWS, -(-rows // MOST_CHUNKS))
    return chunk, -(-rows // chunk)


def column_sums(
    g: Array, x: Array = None, mean: Array = None, scale: Array = None, lying: Array = (1, 1, 1)
) -> Any:
    """Return the sums of g down its columns (float32), and with x also those of g * h.

    h = (x - mean[s]) * scale[s], s = row // lying[0] * lying[1] + column // lying[2].

    Shape: (..., columns) -> (columns,), or (2, columns) with x.
    """
    g = compact(g)
    columns = g.shape[-1]
    rows, many = (g.size // columns if columns else 0), 1 if x is None else 2
    if not rows or not columns:
        totals = filled(empty((many, columns), np.float32), 0)
        return totals if many == 2 else totals[0]
    chunk, chunks = _chunks(rows)
    parts = empty((many, chunks, columns), np.float32)
    totals = empty((many, columns), np.float32)
    more = (NOTHING, NOTHING, NOTHING) if x is None else (compact(x), mean, scale)
    each = (divisor(lying[0]), divisor(lying[2]))
    sizes = (np.int64(rows), np.int64(columns), *each, *map(np.int64, (lying[1], chunk, chunks)))
    work = -(-columns // 32) * chunks
    args = (g, *more, parts, *sizes, np.int32(many - 1))
    launch(SOURCE, "column_parts", g.dtype, work, (32, 8), *args)
    add_chunks(g.dtype, parts, totals)
    return totals if many == 2 else totals[0]


def add_chunks(dtype: Any, parts: Any, totals: Any) -> None:
    """Write the sums over the second axis of parts.

    Args:
        dtype: of the summed numbers, so that one compiled source is enough.

    Shape: (count, chunks, columns) -> (count, columns), float32.
    """
    count, _, columns = parts.shape
    sizes = tuple(np.int64(k) for k in parts.shape)
    blocks = count * -(-columns // TILE)
    launch(SOURCE, "column_totals", dtype, blocks, (TILE, BRANCHES), parts, totals, *sizes)


def _moment_parts(x: Array) -> Any:
    """Return the moments of chunks of rows: counts, means, squared distances."""
    columns = x.shape[-1]
    rows = x.size // columns
    chunk, chunks = _chunks(rows)
    parts = empty((3, chunks, columns), np.float32)
    sizes = [np.int64(k) for k in (rows, columns, chunk, chunks)]
    work = -(-columns // 32) * chunks
    launch(SOURCE, "moment_parts", x.dtype, work, (32, 8), x, parts, *sizes)
    return parts


def column_moments(x: Any) -> tuple[Any, Any]:
    """Return the mean of each column, and its mean squared distance from it, as float32.

    Shape: (..., columns) -> (columns,), (columns,).
    """
    check("column_moments", x)
    x = compact(x)
    columns = x.shape[-1]
    rows = x.size // columns if columns else 0
    mean, variance = empty(columns, np.float32), empty(columns, np.float32)
    if not rows:
        return filled(mean, np.nan), filled(variance, np.nan)  # of nothing
    parts = _moment_parts(x)
    counts = (np.int64(parts.shape[1]), np.int64(columns))
    args = (parts, mean, variance, *counts)
    launch(SOURCE, "moment_totals", x.dtype, -(-columns // TILE), (TILE, BRANCHES), *args)
    return mean, variance


def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array = None,
    beta: Array = None,
    epsilon: float = 1e-3,
) -> tuple[Any, Any]:
    """Return ((x - mean) * scale * gamma + beta, scale), scale = 1 / sqrt(variance + epsilon).

    Shape: (..., c) and (c,) four times -> (..., c), (c,) float32.
    """
    check("batch_norm", x)
    x, center = compact(x), _factors(mean)
    y, scale = empty(x.shape, x.dtype), empty(mean.shape, np.float32)
    factor, shift = empty(mean.shape, np.float32), empty(mean.shape, np.float32)
    given = (np.int32(gamma is not None), np.int32(beta is not None))
    more = (np.int64(mean.size), np.float32(epsilon), *given)
    factors = (_factors(variance), _factors(gamma), _factors(beta), scale, factor, shift)
    launch_elements(SOURCE, "column_factors", x.dtype, mean.size, *factors, *more)
    _scale_shift(x, center, factor, shift, y)
    return y, scale


def _scale_shift(x: Array, center: Array, factor: Array, shift: Array, y: Array) -> None:
    """Write (x - center) * factor + shift into y; the three are float32, one number per column."""
    columns = x.shape[-1]
    aligned = all(v.data.ptr % 16 == 0 for v in (center, factor, shift))
    together = np.int32(packed(columns, x, y) and aligned)
    pieces = x.size // (16 // x.dtype.itemsize) if together else x.size
    args = (x, center, factor, shift, y, np.int64(x.size), np.int64(max(columns, 1)), together)
    launch_elements(SOURCE, "scale_shift", x.dtype, pieces, *args)


def batch_norm_training(
    x: Array, gamma: Array, beta: Array, moving_mean: Array, moving_variance: Array,
    momentum: float, epsilon: float,
) -> tuple[Any, ...]:  # fmt: skip
    """Return (y, moved mean, moved variance, the batch's mean, its scale) by three launches.

    y = (x - mean) * scale * gamma + beta, scale = 1 / sqrt(variance + epsilon), of x's columns;
    moving values become moving * momentum + the batch's * (1 - momentum).

    Args:
        x: not empty, of a dtype among SCALARS; the others are float32.

    Shape: (..., c) and (c,) four times -> (..., c), and (c,) float32 four times.
    """
    check("batch_norm_training", x)
    x, columns = compact(x), x.shape[-1]
    parts, shift = _moment_parts(x), _factors(beta)
    mean, scale, factor, moved_mean, moved_variance = (empty(columns, np.float32) for _ in range(5))
    given = (parts, *(_factors(v) for v in (gamma, moving_mean, moving_variance)))
    sizes = (np.int64(parts.shape[1]), np.int64(columns))
    numbers = tuple(np.float32(v) for v in (epsilon, momentum, 1.0 - momentum))
    args = (*given, mean, scale, factor, moved_mean, moved_variance, *sizes, *numbers)
    launch(SOURCE, "batch_totals", x.dtype, -(-columns // TILE), (TILE, BRANCHES), *args)
    y = empty(x.shape, x.dtype)
    _scale_shift(x, mean, factor, shift, y)
    return y, moved_mean, moved_variance, mean, scale


def batch_norm_gradient(
    g: Array, x: Array, mean: Array, scale: Array, gamma: Array = None
) -> tuple[Any, Any, Any]:
    """Return the gradients by x (through the batch's moments), gamma and beta (float32)."""
    check("batch_norm_gradient", g, x)
    g, x, mean = compact(g), compact(x), _factors(mean)
    columns = x.shape[-1]
    rows = x.size // columns if columns else 0
    sums = column_sums(_by_last(g), _by_last(x), mean, scale, (1, 0, 1))
    dx = empty(x.shape, x.dtype)
    by, sizes = _factors(gamma), (np.int64(rows), np.int64(columns))
    aligned = all(v.data.ptr % 16 == 0 for v in _given(mean, scale, sums, by))
    together = np.int32(packed(columns, g, x, dx) and aligned)
    args = (g, x, mean, scale, by, sums, dx, *sizes, np.int32(gamma is not None), together)
    pieces = x.size // (16 // x.dtype.itemsize) if together else x.size
    launch_elements(SOURCE, "batch_gradient", x.dtype, pieces, *args)
    return dx, sums[1], sums[0]
