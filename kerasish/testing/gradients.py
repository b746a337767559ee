"""Gradients against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import autodiff, ops, tree
from kerasish.ops import dtypes
from kerasish.tensor import Tensor, convert


def gradient_check(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    order: int = 2,
    eps: float = 1e-5,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    seed: int = 0,
) -> None:
    """Compare derivatives of `function(*inputs)` with central differences, in float64.

    What the function returns is weighted by fixed random numbers and summed; the derivative of
    that sum by each element of each floating input must equal (f(x + eps) - f(x - eps)) / 2 eps.
    The second order does the same with a weighted sum of the first derivatives.

    Args:
        function: takes the inputs as tensors, returns a tensor or a structure of tensors.
        inputs: the arguments, each an array or a structure of arrays.
        order: 1, or 2 to check second derivatives too.
        eps: half the distance between the two points.
        rtol: relative tolerance.
        atol: absolute tolerance.
        seed: of the weights.

    Raises:
        AssertionError: the worst element is out of tolerance; says which, and by how much.

    Example:
        >>> gradient_check(lambda x: x * ops.sin(x), [[0.5, 1.0]])
    """
    rng = np.random.default_rng(seed)
    flat = [np.asarray(convert(leaf)) for leaf in tree.flatten(list(inputs))]
    moving = [i for i, a in enumerate(flat) if dtypes.is_inexact(dtypes.name_of(a.dtype))]
    paths = [path for path, _ in tree.flatten_with_path(list(inputs))]
    points = [np.array(flat[i], dtype="float64") for i in moving]
    if not points:
        raise ValueError("gradient_check: none of the inputs is floating.")
    weights: list[Any] = []

    def total(*xs: Any) -> Tensor:
        leaves: list[Any] = list(flat)
        for place, x in zip(moving, xs):
            leaves[place] = x
        outputs = tree.flatten(function(*tree.pack_sequence_as(list(inputs), leaves)))
        return _weighted([o for o in outputs if dtypes.is_inexact(o.dtype)], weights, rng)

    names = [f"input {'/'.join(map(str, paths[i]))}" for i in moving]
    slopes = autodiff.grad(total, argnums=tuple(range(len(points))))
    _compare(total, slopes, points, names, 1, (eps, rtol, atol))
    if order < 2:
        return
    others: list[Any] = []

    def slope(*xs: Any) -> Tensor:
        return _weighted(slopes(*xs), others, rng)

    bends = autodiff.grad(slope, argnums=tuple(range(len(points))))
    _compare(slope, bends, points, names, 2, (eps, rtol, atol))


def _weighted(tensors: Sequence[Any], weights: list[Any], rng: np.random.Generator) -> Tensor:
    """Return the sum of all elements, each times its weight, drawn at the first call."""
    if not weights:
        weights.extend(rng.uniform(0.5, 1.5, t.shape) for t in tensors)
    parts = [ops.sum(ops.multiply(t, w)) for t, w in zip(tensors, weights)]
    if not parts:
        raise ValueError("gradient_check: the function returns nothing floating.")
    return sum(parts[1:], parts[0])


def _compare(
    value: Callable[..., Any],
    slopes: Callable[..., Any],
    points: list[Any],
    names: list[str],
    order: int,
    tolerances: tuple[float, float, float],
) -> None:
    eps, rtol, atol = tolerances
    worst: tuple[float, str] = (0.0, "")
    for number, (point, result) in enumerate(zip(points, slopes(*points))):
        got = np.asarray(result)
        for index in np.ndindex(point.shape):
            expected = _difference(value, points, number, index, eps)
            miss = abs(got[index] - expected) / (atol + rtol * abs(expected))
            if not miss <= worst[0]:
                where = f"{names[number]}{list(index) if index else ''}"
                worst = (miss, f"{where}: expected {expected:.9g}, got {got[index]:.9g}")
                if np.isnan(miss):
                    break
    if not worst[0] <= 1:
        raise AssertionError(
            f"gradient_check, order {order}: worst at {worst[1]} "
            f"({worst[0]:.3g} times the tolerance)."
        )


def _difference(
    value: Callable[..., Any], points: list[Any], number: int, index: tuple[int, ...], eps: float
) -> float:
    ends = []
    for step in (eps, -eps):
        moved = [p.copy() for p in points]
        moved[number][index] += step
        ends.append(float(value(*moved)))
    return (ends[0] - ends[1]) / (2 * eps)
