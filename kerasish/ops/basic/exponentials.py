"""Powers, roots, exponentials and logarithms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.ops.basic.arithmetic import add, divide, multiply, subtract
from kerasish.ops.basic.comparison import equal, greater, logical_and, select
from kerasish.ops.basic.elementwise import elementwise
from kerasish.ops.basic.examples import between, numbers
from kerasish.ops.shapes import broadcast
from kerasish.typing import Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["exp", "expm1", "log", "log10", "log1p", "log2", "power", "sqrt"]


def _base_grad(g: Tensor, y: Tensor, base: Any, exponent: Any) -> Any:
    # 0 * 0 ** -1 is NaN, and the derivative of x ** 0 is 0. Where the exponent varies, all other
    # bases keep their power: the derivative by both is 1 / x.
    flat = equal(exponent, 0)
    if exponent.tracked:
        flat = logical_and(flat, equal(base, 0))
    return multiply(multiply(g, exponent), power(base, select(flat, 0, subtract(exponent, 1))))


def _exponent_grad(g: Tensor, y: Tensor, base: Any, exponent: Any) -> Any:
    positive = greater(base, 0)
    return multiply(g, select(positive, multiply(y, log(select(positive, base, 1))), 0))


@elementwise(
    (_base_grad, _exponent_grad),
    "number",
    shape=broadcast,
    examples=[((numbers(0.5, 2.0), (2, 3)), {}), ((numbers(0.5, 2.0, 3), (2, 1)), {})],
    symbol="**",
)
def power(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 ** x2; integers with a negative exponent lose their fraction.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> power([2.0, 3.0], [3.0, 2.0]).tolist()
        [8.0, 9.0]
    """
    if x2.dtype.kind != "i":
        if xp.__name__ == "numpy" and x2.ndim == 0 and x2.dtype.kind == "f" and x2 == 0.5:
            # Some versions of NumPy take the square root here, which is NaN at -Inf.
            root = xp.sqrt(x1 + x2.dtype.type(0))
            return xp.where(x1 == -xp.inf, x2.dtype.type(xp.inf), root)
        return xp.power(x1, x2)
    whole = xp.power(x1, xp.maximum(x2, 0))
    unit = xp.where(x1 == 1, 1, xp.where(x1 == -1, 1 - 2 * (x2 & 1), 0))
    return xp.where(x2 < 0, unit, whole).astype(x1.dtype)


@elementwise(
    lambda g, y, x: (divide(multiply(g, 0.5), y),),
    examples=between(0.5, 2),
    keeps_zero=True,
    cheaper_than_memory=True,
    exact=True,
)
def sqrt(xp: ArrayModule, x: Array) -> Array:
    """The square root of x.

    Args:
        x: tensor or array.

    Example:
        >>> sqrt([4.0, 9.0]).tolist()
        [2.0, 3.0]
    """
    return xp.sqrt(x)


@elementwise(
    lambda g, y, x: (multiply(multiply(g, -0.5), divide(y, x)),),
    examples=between(0.5, 2),
    cheaper_than_memory=True,
)
def rsqrt(xp: ArrayModule, x: Array) -> Array:
    """1 / sqrt(x).

    Args:
        x: tensor or array.

    Example:
        >>> rsqrt([4.0, 16.0]).tolist()
        [0.5, 0.25]
    """
    return xp.reciprocal(xp.sqrt(x))


@elementwise(
    lambda g, y, x: (multiply(g, y),),
    cheaper_than_memory=True,
)
def exp(xp: ArrayModule, x: Array) -> Array:
    """e ** x.

    Args:
        x: tensor or array.

    Example:
        >>> exp([0.0, 1.0]).tolist()
        [1.0, 2.7182...]
    """
    return xp.exp(x)


@elementwise(
    lambda g, y, x: (multiply(g, add(y, 1)),),
    cheaper_than_memory=True,
)
def expm1(xp: ArrayModule, x: Array) -> Array:
    """exp(x) - 1, exact near 0.

    Args:
        x: tensor or array.

    Example:
        >>> expm1([0.5, 1.0]).tolist()
        [0.6487..., 1.7182...]
    """
    return xp.expm1(x)


@elementwise(
    lambda g, y, x: (divide(g, x),),
    examples=between(0.5, 2),
    cheaper_than_memory=True,
)
def log(xp: ArrayModule, x: Array) -> Array:
    """The natural logarithm of x.

    Args:
        x: tensor or array.

    Example:
        >>> log([1.0, 2.0]).tolist()
        [0.0, 0.6931...]
    """
    return xp.log(x)


@elementwise(
    lambda g, y, x: (divide(g, add(x, 1)),),
    examples=between(-0.5, 2),
    cheaper_than_memory=True,
)
def log1p(xp: ArrayModule, x: Array) -> Array:
    """log(1 + x), exact near 0.

    Args:
        x: tensor or array.

    Example:
        >>> log1p([0.0, 1.0]).tolist()
        [0.0, 0.6931...]
    """
    return xp.log1p(x)


@elementwise(lambda g, y, x: (divide(multiply(g, 1 / math.log(2)), x),), examples=between(0.5, 2))
def log2(xp: ArrayModule, x: Array) -> Array:
    """The logarithm of x to base 2.

    Args:
        x: tensor or array.

    Example:
        >>> log2([1.0, 8.0]).tolist()
        [0.0, 3.0]
    """
    return xp.log2(x)


@elementwise(lambda g, y, x: (divide(multiply(g, 1 / math.log(10)), x),), examples=between(0.5, 2))
def log10(xp: ArrayModule, x: Array) -> Array:
    """The logarithm of x to base 10.

    Args:
        x: tensor or array.

    Example:
        >>> log10([1.0, 100.0]).tolist()
        [0.0, 2.0000...]
    """
    return xp.log10(x)
