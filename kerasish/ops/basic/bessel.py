"""The modified Bessel functions i0 and i1, by series whose terms all have one sign.

Below `SPLIT`, Taylor's series in (x / 2)**2; above it, the asymptotic series in 1 / x times
exp(x) / sqrt(2 pi x). No term cancels another, so that both lose a few roundings only. Native code
uses the same coefficients. Source: Abramowitz & Stegun, 9.6.10 and 9.7.1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kerasish.ops.basic.arithmetic import divide, multiply, subtract
from kerasish.ops.basic.comparison import equal, select
from kerasish.ops.basic.elementwise import elementwise
from kerasish.typing import Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["i0"]

SPLIT = 22.0  # from here on the asymptotic series is exact to float64
LARGEST = 714.0  # both are infinite in float64 from here on
_TAYLOR_TERMS, _ASYMPTOTIC_TERMS = 42, 34


def taylor(order: int) -> tuple[float, ...]:
    """Return the coefficients of i_order(x) / (x / 2)**order in powers of (x / 2)**2."""
    return tuple(1 / (math.factorial(k) * math.factorial(k + order)) for k in range(_TAYLOR_TERMS))


def asymptotic(order: int) -> tuple[float, ...]:
    """Return the coefficients of sqrt(2 pi x) exp(-x) i_order(x) in powers of 1 / x."""
    results = [1.0]
    for k in range(1, _ASYMPTOTIC_TERMS):
        results.append(results[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k))
    return tuple(results)


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    result = x * 0 + coefficients[-1]
    for c in coefficients[-2::-1]:
        result = result * x + c
    return result


def _bessel(xp: ArrayModule, x: Array, order: int) -> Array:
    wide = x.astype(xp.float64)
    a = xp.absolute(wide)
    half = xp.minimum(a, SPLIT) / 2
    near = _horner(taylor(order), half * half) * half**order
    outer = xp.clip(a, SPLIT, LARGEST)
    root = xp.exp(outer / 2)  # its square may be infinite where the result is not
    far = root * (_horner(asymptotic(order), 1 / outer) / xp.sqrt(2 * math.pi * outer)) * root
    value = xp.where(a < SPLIT, near, far)
    value = xp.where(xp.isnan(wide), wide, value)
    return (xp.copysign(value, wide) if order else value).astype(x.dtype)


@elementwise(lambda g, y, x: (multiply(g, i1(x)),))
def i0(xp: ArrayModule, x: Array) -> Array:
    """The modified Bessel function of the first kind and order 0.

    Args:
        x: tensor or array.

    Example:
        >>> i0([0.5, 1.0]).tolist()
        [1.0634..., 1.2660...]
    """
    return _bessel(xp, x, 0)


@elementwise(lambda g, y, x: (multiply(g, _i1_slope(y, x)),))
def i1(xp: ArrayModule, x: Array) -> Array:
    """The modified Bessel function of the first kind and order 1."""
    return _bessel(xp, x, 1)


def _i1_slope(y: Tensor, x: Tensor) -> Tensor:
    small = equal(x, 0)
    return subtract(i0(x), select(small, 0.5, divide(y, select(small, 1, x))))
