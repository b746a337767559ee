"""NumPy kernels of whole normalizations: few passes over memory, in blocks that stay in the cache.

They compute the same as the kernels of `cuda.norm`, with the same arguments and results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kerasish.backends.eager import loop_norm
from kerasish.typing import Array

# Bytes of a block of rows: two or three of them stay in the second-level cache.
BLOCK_BYTES = 1 << 18


def _by_column(x: Array) -> Array:
    """Return x as rows of its last axis."""
    return np.ascontiguousarray(x).reshape(-1, x.shape[-1])


def _blocks(rows: Array) -> Iterator[slice]:
    step = max(1, BLOCK_BYTES // max(rows[:1].nbytes, 1))
    return (slice(i, i + step) for i in range(0, len(rows), step))


def _ones(rows: Array) -> Array:
    """Return ones, one per row of a block: a product by them is the fastest sum of rows."""
    step = max(1, BLOCK_BYTES // max(rows[:1].nbytes, 1))
    return np.ones(min(step, len(rows)), rows.dtype)


def _column_moments(x: Array) -> tuple[Array, Array]:
    """Return the mean of each column and its mean squared distance from it."""
    ones = _ones(x)
    total = np.zeros(x.shape[-1], x.dtype)
    for part in _blocks(x):
        rows = x[part]
        total += ones[: len(rows)] @ rows
    mean = total / x.dtype.type(len(x))
    spread = np.zeros_like(mean)
    scratch = np.empty((len(ones), x.shape[-1]), x.dtype)
    for part in _blocks(x):
        rows = x[part]
        away = np.subtract(rows, mean, out=scratch[: len(rows)])
        np.multiply(away, away, out=away)
        spread += ones[: len(rows)] @ away
    return mean, spread / x.dtype.type(len(x))


def batch_norm_training(
    x: Array, gamma: Array, beta: Array, moving_mean: Array, moving_variance: Array,
    momentum: float, epsilon: float,
) -> tuple[Any, ...]:  # fmt: skip
    """Return (y, moved mean, moved variance, the batch's mean, its scale).

    y = (x - mean) * scale * gamma + beta, scale = 1 / sqrt(variance + epsilon), of x's columns;
    moving values become moving * momentum + the batch's * (1 - momentum).
    """
    one = x.dtype.type
    result = loop_norm.batch_norm_training(x, gamma, beta, epsilon)
    y, mean, variance, scale = result or _batch_norm(x, gamma, beta, epsilon)
    old, new = one(momentum), one(1.0 - momentum)
    moved = (moving_mean * old + mean * new, moving_variance * old + variance * new)
    return y, *moved, mean, scale


def _batch_norm(
    x: Array, gamma: Array, beta: Array, epsilon: float
) -> tuple[Array, Array, Array, Array]:
    rows = _by_column(x)
    mean, variance = _column_moments(rows)
    one = x.dtype.type
    scale = one(1) / np.sqrt(variance + one(epsilon))
    factor = scale * gamma
    y = np.empty_like(rows)
    for part in _blocks(rows):
        block = np.subtract(rows[part], mean, out=y[part])
        np.multiply(block, factor, out=block)
        np.add(block, beta, out=block)
    return y.reshape(x.shape), mean, variance, scale


def batch_norm_gradient(
    g: Array, x: Array, mean: Array, scale: Array, gamma: Array
) -> tuple[Any, Any, Any]:
    """Return the gradients by x (through the batch's moments), by gamma and by beta."""
    result = loop_norm.batch_norm_gradient(g, x, mean, scale, gamma)
    if result is not None:
        return result
    arriving, rows = _by_column(g), _by_column(x)
    ones = _ones(rows)
    scratch = np.empty((len(ones), x.shape[-1]), x.dtype)
    by_beta, by_gamma = np.zeros_like(mean), np.zeros_like(mean)
    for part in _blocks(rows):
        given = arriving[part]
        some = ones[: len(given)]
        away = np.subtract(rows[part], mean, out=scratch[: len(given)])
        np.multiply(away, given, out=away)
        by_gamma += some @ away
        by_beta += some @ given
    by_gamma *= scale
    # dx = gamma * scale * (g - by_beta / n - (x - mean) * scale * by_gamma / n)
    share = x.dtype.type(1 / len(rows))
    factor, center, slope = gamma * scale, by_beta * share, scale * by_gamma * share
    dx = np.empty_like(rows)
    for part in _blocks(rows):
        block = np.subtract(arriving[part], center, out=dx[part])
        away = np.subtract(rows[part], mean, out=scratch[: len(block)])
        np.multiply(away, slope, out=away)
        np.subtract(block, away, out=block)
        np.multiply(block, factor, out=block)
    return dx.reshape(x.shape), by_gamma, by_beta


def layer_norm(
    x: Array, gamma: Array, beta: Array | None, epsilon: float, centered: bool = True
) -> tuple[Any, Any, Any]:
    """Return (y, mean, scale) of rows: y = (x - mean) * scale * gamma + beta.

    Without `centered` the mean is 0 in the formula, and the scale is that of the mean square.
    """
    result = loop_norm.layer_norm(x, gamma, beta, epsilon, centered)
    if result is not None:
        y, mean, scale = result
        return y, np.zeros_like(scale) if mean is None else mean, scale
    rows = _by_column(x)
    size, one = rows.shape[-1], x.dtype.type
    mean, scale = np.zeros(len(rows), x.dtype), np.empty(len(rows), x.dtype)
    y = np.empty_like(rows)
    for part in _blocks(rows):
        block, from_ = y[part], rows[part]
        if centered:
            np.divide(np.add.reduce(from_, axis=-1), one(size), out=mean[part])
            np.subtract(from_, mean[part, None], out=block)
        else:
            np.copyto(block, from_)
        spread = np.einsum("ij,ij->i", block, block) / one(size)
        np.divide(one(1), np.sqrt(spread + one(epsilon)), out=scale[part])
        np.multiply(block, scale[part, None], out=block)
        np.multiply(block, gamma, out=block)
        if beta is not None:
            np.add(block, beta, out=block)
    return y.reshape(x.shape), mean, scale


def layer_norm_gradient(
    g: Array, x: Array, gamma: Array, mean: Array, scale: Array, centered: bool = True
) -> tuple[Any, Any, Any]:
    """Return the gradients by x, gamma and beta (0 without `centered`)."""
    result = loop_norm.layer_norm_gradient(g, x, gamma, mean, scale, centered)
    if result is not None:
        dx, by_gamma, by_beta = result
        return dx, by_gamma, np.zeros_like(gamma) if by_beta is None else by_beta
    arriving, rows = _by_column(g), _by_column(x)
    ones, share = _ones(rows), x.dtype.type(1 / rows.shape[-1])
    by_gamma, by_beta = np.zeros_like(gamma), np.zeros_like(gamma)
    dx = np.empty_like(rows)
    scratch = np.empty((len(ones), x.shape[-1]), x.dtype)
    for part in _blocks(rows):
        given, block = arriving[part], dx[part]
        some = ones[: len(given)]
        away = np.subtract(rows[part], mean[part, None], out=scratch[: len(given)])
        np.multiply(away, scale[part, None], out=away)  # the standardized rows
        by_gamma += some @ np.multiply(away, given, out=block)
        if centered:
            by_beta += some @ given
        # dx = scale * (h - mean(h) - away * mean(h * away)), h = g * gamma
        np.multiply(given, gamma, out=block)
        slope = np.einsum("ij,ij->i", block, away) * share
        if centered:
            np.subtract(block, (np.add.reduce(block, axis=-1) * share)[:, None], out=block)
        np.multiply(away, slope[:, None], out=away)
        np.subtract(block, away, out=block)
        np.multiply(block, scale[part, None], out=block)
    return dx.reshape(x.shape), by_gamma, by_beta
