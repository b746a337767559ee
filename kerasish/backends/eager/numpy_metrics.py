"""The sums of metrics, and the mean and its gradient, by one Python call each: NumPy's bits."""

from __future__ import annotations

import math

import numpy as np

from kerasish.backends.eager.numpy_kernels import KERNELS
from kerasish.typing import Array

_FEW = 1 << 12  # elements of a gradient that are written; more are a view of one number
_single = np.float32


def class_hits(classes: Array, x: Array) -> Array:
    """Return 1 if the first largest number of a row is that of its class, else 0.

    Shape: (...) int32, (..., n) -> (...) float32.
    """
    return np.equal(classes, x.argmax(-1)).astype(np.float32)


def running_sums(
    total: Array, count: Array, values: Array, factor: float, number: float
) -> tuple[Array, Array]:
    """Return (total + sum(values) * factor, count + number).

    Shape: (), (), (...) -> (), ().
    """
    if values.ndim:
        values = _sum(values, tuple(range(values.ndim)), False)
    if factor != 1:
        values = np.multiply(values, _single(factor))
    return np.add(total, values), np.add(count, _single(number))


def mean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Return the mean over axes."""
    return np.divide(_sum(x, axes, keepdims), _single(math.prod([x.shape[a] for a in axes])))


def _sum(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    result: Array = KERNELS["reduce_sum"](x, axis=axes, keepdims=keepdims)
    return result


def shares(g: Array, shape: tuple[int, ...], count: float) -> Array:
    """Return g / count in a shape that g broadcasts to."""
    each = np.divide(g, _single(count))
    if each.size != 1 or math.prod(shape) > _FEW:
        return np.broadcast_to(each, shape)
    result = np.empty(shape, each.dtype)
    result.fill(each.item())
    return result
