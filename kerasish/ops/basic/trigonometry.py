"""Trigonometric and hyperbolic functions and their inverses; angles in radians."""

from __future__ import annotations

from kerasish.ops.basic.arithmetic import add, divide, multiply, negative, square, subtract
from kerasish.ops.basic.examples import SINGLE, between, numbers
from kerasish.ops.basic.exponentials import rsqrt
from kerasish.ops.op import c_function, op
from kerasish.ops.shapes import broadcast, same

__all__ = [
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cos", "cosh",
    "sin", "sinh", "tan", "tanh",
]  # fmt: skip


def _arctan2_grad(g, y, a, b):
    scaled = divide(g, add(square(a), square(b)))
    return multiply(scaled, b), negative(multiply(scaled, a))


@op(
    "elementwise",
    broadcast,
    _arctan2_grad,
    "float",
    examples=[((numbers(0.5, 2), (2, 3)), {})],
    native=c_function("atan2"),
)
def arctan2(xp, x1, x2):
    """The angle of the point (x2, x1), in radians in [-pi, pi]."""
    return xp.arctan2(x1, x2)


@op("elementwise", same, lambda g, y, x: (multiply(g, cos(x)),), "float", examples=SINGLE)
def sin(xp, x):
    """The sine of x radians."""
    return xp.sin(x)


@op("elementwise", same, lambda g, y, x: (negative(multiply(g, sin(x))),), "float", examples=SINGLE)
def cos(xp, x):
    """The cosine of x radians."""
    return xp.cos(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, add(square(y), 1)),),
    "float",
    examples=between(-1, 1),
    native=c_function("tan"),
)
def tan(xp, x):
    """The tangent of x radians."""
    return xp.tan(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, rsqrt(subtract(1, square(x)))),),
    "float",
    examples=between(-0.7, 0.7),
    native=c_function("asin"),
)
def arcsin(xp, x):
    """The angle in [-pi/2, pi/2] whose sine is x."""
    return xp.arcsin(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (negative(multiply(g, rsqrt(subtract(1, square(x))))),),
    "float",
    examples=between(-0.7, 0.7),
    native=c_function("acos"),
)
def arccos(xp, x):
    """The angle in [0, pi] whose cosine is x."""
    return xp.arccos(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (divide(g, add(square(x), 1)),),
    "float",
    examples=SINGLE,
    native=c_function("atan"),
)
def arctan(xp, x):
    """The angle in (-pi/2, pi/2) whose tangent is x."""
    return xp.arctan(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, cosh(x)),),
    "float",
    examples=SINGLE,
    native=c_function("sinh"),
)
def sinh(xp, x):
    """(exp(x) - exp(-x)) / 2."""
    return xp.sinh(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, sinh(x)),),
    "float",
    examples=SINGLE,
    native=c_function("cosh"),
)
def cosh(xp, x):
    """(exp(x) + exp(-x)) / 2."""
    return xp.cosh(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, subtract(1, square(y))),),
    "float",
    examples=SINGLE,
)
def tanh(xp, x):
    """The hyperbolic tangent of x, in [-1, 1]."""
    return xp.tanh(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, rsqrt(add(square(x), 1))),),
    "float",
    examples=SINGLE,
    native=c_function("asinh"),
)
def arcsinh(xp, x):
    """The number whose hyperbolic sine is x."""
    return xp.arcsinh(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, rsqrt(subtract(square(x), 1))),),
    "float",
    examples=between(1.5, 3),
    native=c_function("acosh"),
)
def arccosh(xp, x):
    """The number >= 0 whose hyperbolic cosine is x; x >= 1."""
    return xp.arccosh(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (divide(g, subtract(1, square(x))),),
    "float",
    examples=between(-0.7, 0.7),
    native=c_function("atanh"),
)
def arctanh(xp, x):
    """The number whose hyperbolic tangent is x; |x| < 1."""
    return xp.arctanh(x)
