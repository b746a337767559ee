"""Trigonometric and hyperbolic functions and their inverses; angles in radians."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.ops.basic.arithmetic import add, divide, multiply, negative, square, subtract
from kerasish.ops.basic.elementwise import elementwise
from kerasish.ops.basic.examples import between, numbers
from kerasish.ops.basic.exponentials import rsqrt
from kerasish.ops.op import c_function
from kerasish.ops.shapes import broadcast
from kerasish.typing import Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cos", "cosh",
    "sin", "sinh", "tan", "tanh",
]  # fmt: skip


def _arctan2_grad(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, ...]:
    scaled = divide(g, add(square(a), square(b)))
    return multiply(scaled, b), negative(multiply(scaled, a))


@elementwise(
    _arctan2_grad,
    shape=broadcast,
    examples=[((numbers(0.5, 2), (2, 3)), {})],
    native=c_function("atan2"),
)
def arctan2(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The angle of the point (x2, x1), in radians in [-pi, pi].

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> arctan2([6.0, 7.0], [2.0, 3.0]).tolist()
        [1.2490..., 1.1659...]
    """
    return xp.arctan2(x1, x2)


@elementwise(lambda g, y, x: (multiply(g, cos(x)),))
def sin(xp: ArrayModule, x: Array) -> Array:
    """The sine of x radians.

    Args:
        x: tensor or array.

    Example:
        >>> sin([0.5, 1.0]).tolist()
        [0.4794..., 0.8414...]
    """
    return xp.sin(x)


@elementwise(lambda g, y, x: (negative(multiply(g, sin(x))),))
def cos(xp: ArrayModule, x: Array) -> Array:
    """The cosine of x radians.

    Args:
        x: tensor or array.

    Example:
        >>> cos([0.5, 1.0]).tolist()
        [0.8775..., 0.5403...]
    """
    return xp.cos(x)


@elementwise(
    lambda g, y, x: (multiply(g, add(square(y), 1)),),
    examples=between(-1, 1),
    native=c_function("tan"),
)
def tan(xp: ArrayModule, x: Array) -> Array:
    """The tangent of x radians.

    Args:
        x: tensor or array.

    Example:
        >>> tan([0.5, 1.0]).tolist()
        [0.5463..., 1.5574...]
    """
    return xp.tan(x)


@elementwise(
    lambda g, y, x: (multiply(g, rsqrt(subtract(1, square(x)))),),
    examples=between(-0.7, 0.7),
    native=c_function("asin"),
)
def arcsin(xp: ArrayModule, x: Array) -> Array:
    """The angle in [-pi/2, pi/2] whose sine is x.

    Args:
        x: tensor or array.

    Example:
        >>> arcsin([0.5, 1.0]).tolist()
        [0.5235..., 1.5707...]
    """
    return xp.arcsin(x)


@elementwise(
    lambda g, y, x: (negative(multiply(g, rsqrt(subtract(1, square(x))))),),
    examples=between(-0.7, 0.7),
    native=c_function("acos"),
)
def arccos(xp: ArrayModule, x: Array) -> Array:
    """The angle in [0, pi] whose cosine is x.

    Args:
        x: tensor or array.

    Example:
        >>> arccos([0.5, 1.0]).tolist()
        [1.0471..., 0.0]
    """
    return xp.arccos(x)


@elementwise(lambda g, y, x: (divide(g, add(square(x), 1)),), native=c_function("atan"))
def arctan(xp: ArrayModule, x: Array) -> Array:
    """The angle in (-pi/2, pi/2) whose tangent is x.

    Args:
        x: tensor or array.

    Example:
        >>> arctan([0.5, 1.0]).tolist()
        [0.4636..., 0.7853...]
    """
    return xp.arctan(x)


@elementwise(lambda g, y, x: (multiply(g, cosh(x)),), native=c_function("sinh"))
def sinh(xp: ArrayModule, x: Array) -> Array:
    """(exp(x) - exp(-x)) / 2.

    Args:
        x: tensor or array.

    Example:
        >>> sinh([0.5, 1.0]).tolist()
        [0.5210..., 1.1752...]
    """
    return xp.sinh(x)


@elementwise(lambda g, y, x: (multiply(g, sinh(x)),), native=c_function("cosh"))
def cosh(xp: ArrayModule, x: Array) -> Array:
    """(exp(x) + exp(-x)) / 2.

    Args:
        x: tensor or array.

    Example:
        >>> cosh([0.5, 1.0]).tolist()
        [1.1276..., 1.5430...]
    """
    return xp.cosh(x)


@elementwise(
    lambda g, y, x: (multiply(g, subtract(1, square(y))),),
    cheaper_than_memory=True,
)
def tanh(xp: ArrayModule, x: Array) -> Array:
    """The hyperbolic tangent of x, in [-1, 1].

    Args:
        x: tensor or array.

    Example:
        >>> tanh([0.5, 1.0]).tolist()
        [0.4621..., 0.7615...]
    """
    return xp.tanh(x)


@elementwise(lambda g, y, x: (multiply(g, rsqrt(add(square(x), 1))),), native=c_function("asinh"))
def arcsinh(xp: ArrayModule, x: Array) -> Array:
    """The number whose hyperbolic sine is x.

    Args:
        x: tensor or array.

    Example:
        >>> arcsinh([0.5, 1.0]).tolist()
        [0.4812..., 0.8813...]
    """
    return xp.arcsinh(x)


@elementwise(
    lambda g, y, x: (multiply(g, rsqrt(subtract(square(x), 1))),),
    examples=between(1.5, 3),
    native=c_function("acosh"),
)
def arccosh(xp: ArrayModule, x: Array) -> Array:
    """The number >= 0 whose hyperbolic cosine is x; x >= 1.

    Args:
        x: tensor or array.

    Example:
        >>> arccosh([1.0, 2.0]).tolist()
        [0.0, 1.3169...]
    """
    return xp.arccosh(x)


@elementwise(
    lambda g, y, x: (divide(g, subtract(1, square(x))),),
    examples=between(-0.7, 0.7),
    native=c_function("atanh"),
)
def arctanh(xp: ArrayModule, x: Array) -> Array:
    """The number whose hyperbolic tangent is x; |x| < 1.

    Args:
        x: tensor or array.

    Example:
        >>> arctanh([0.0, 0.5]).tolist()
        [0.0, 0.5493...]
    """
    return xp.arctanh(x)
