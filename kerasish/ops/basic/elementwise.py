"""Element-wise ops: arithmetic, functions of one number, comparison, logic, bits, casts."""

from __future__ import annotations

import math
from typing import Any

from kerasish.errors import DTypeError
from kerasish.ops import dtypes
from kerasish.ops.op import Spec, broadcast, broadcast_bool, op, same

# Pairs of shapes that try broadcasting; single shapes that try ranks 0 to 3 and no elements.
PAIRS = [(((2, 3), (2, 3)), {}), (((2, 3), (3,)), {}), (((2, 1), (1, 4)), {}), (((), (2,)), {})]
SINGLE = [(((2, 3),), {}), (((),), {}), (((0, 2),), {})]


def numbers(low: float, high: float, *shape: int) -> Any:
    """Return an example input: uniform numbers in [low, high) of the given shape."""
    return lambda rng: rng.uniform(low, high, shape or (2, 3))


def integers(low: int, high: int, *shape: int, dtype: str = "int32") -> Any:
    """Return an example input: whole numbers in [low, high) of the given shape."""
    return lambda rng: rng.integers(low, high, shape or (2, 3)).astype(dtype)


def bools(*shape: int) -> Any:
    """Return an example input: truth values of the given shape."""
    return lambda rng: rng.integers(0, 2, shape or (2, 3)).astype(bool)


def between(low: float, high: float) -> list[Any]:
    """Return examples for a function of one number that is smooth in (low, high)."""
    return [((numbers(low, high),), {}), ((numbers(low, high, 1, 2, 2),), {}), (((0, 2),), {})]


# --- arithmetic -----------------------------------------------------------------------------


@op("elementwise", broadcast, lambda g, y, a, b: (g, g), "same", examples=PAIRS, commutative=True)
def add(xp, x1, x2):
    """x1 + x2."""
    return xp.add(x1, x2)


def _no_bool(what: str) -> None:
    raise DTypeError(f"{what} of truth values has no meaning; use ops.logical_xor or logical_not.")


def _subtract_shape(x1: Spec, x2: Spec) -> Spec:
    if x1.dtype == "bool":
        _no_bool("subtract")
    return broadcast(x1, x2)


def _negative_shape(x: Spec) -> Spec:
    if x.dtype == "bool":
        _no_bool("negative")
    return x


@op(
    "elementwise",
    _subtract_shape,
    (lambda g, y, a, b: g, lambda g, y, a, b: negative(g)),
    "same",
    examples=PAIRS,
)
def subtract(xp, x1, x2):
    """x1 - x2."""
    return xp.subtract(x1, x2)


@op(
    "elementwise",
    broadcast,
    (lambda g, y, a, b: multiply(g, b), lambda g, y, a, b: multiply(g, a)),
    "same",
    examples=PAIRS,
    commutative=True,
)
def multiply(xp, x1, x2):
    """x1 * x2."""
    return xp.multiply(x1, x2)


_divide_grad = (
    lambda g, y, a, b: divide(g, b),
    lambda g, y, a, b: negative(multiply(divide(g, b), y)),
)


@op(
    "elementwise",
    broadcast,
    _divide_grad,
    "float",
    examples=[(((2, 3), numbers(0.5, 2.0)), {}), (((2, 1), numbers(-2.0, -0.5, 3)), {})],
)
def divide(xp, x1, x2):
    """x1 / x2, in floating point."""
    return xp.true_divide(x1, x2)


@op("elementwise", broadcast, None, "number", examples=[((integers(-9, 9), integers(1, 5)), {})])
def floor_divide(xp, x1, x2):
    """floor(x1 / x2)."""
    return xp.floor_divide(x1, x2)


@op(
    "elementwise",
    broadcast,
    lambda g, y, a, b: (g, negative(multiply(g, floor(divide(a, b))))),
    "number",
    examples=[
        ((numbers(1.1, 1.9), numbers(2.1, 2.9)), {}),
        ((integers(-9, 9), integers(1, 5)), {}),
    ],
)
def mod(xp, x1, x2):
    """x1 - floor(x1 / x2) * x2, with the sign of x2."""
    return xp.remainder(x1, x2)


def _base_grad(g, y, base, exponent):
    return multiply(multiply(g, exponent), power(base, subtract(exponent, 1)))


def _exponent_grad(g, y, base, exponent):
    positive = greater(base, 0)
    return multiply(g, select(positive, multiply(y, log(select(positive, base, 1))), 0))


@op(
    "elementwise",
    broadcast,
    (_base_grad, _exponent_grad),
    "number",
    examples=[((numbers(0.5, 2.0), (2, 3)), {}), ((numbers(0.5, 2.0, 3), (2, 1)), {})],
)
def power(xp, x1, x2):
    """x1 ** x2; whole numbers with a negative exponent lose their fraction."""
    if x2.dtype.kind != "i":
        if xp.__name__ == "numpy" and x2.ndim == 0 and x2.dtype.kind == "f" and x2 == 0.5:
            # Some versions of NumPy take the square root here, which is NaN at -Inf.
            root = xp.sqrt(x1 + x2.dtype.type(0))
            return xp.where(x1 == -xp.inf, x2.dtype.type(xp.inf), root)
        return xp.power(x1, x2)
    whole = xp.power(x1, xp.maximum(x2, 0))
    unit = xp.where(x1 == 1, 1, xp.where(x1 == -1, 1 - 2 * (x2 & 1), 0))
    return xp.where(x2 < 0, unit, whole).astype(x1.dtype)


def _chosen_grad(first):
    def grad(g, y, a, b):
        # A tie shares the gradient, as the limit of the smooth maximum does.
        mine, other = (a, b) if first else (b, a)
        half = multiply(cast(equal(mine, other), dtype=g.dtype), 0.5)
        won = cast(equal(mine, y), dtype=g.dtype)
        return multiply(g, subtract(won, half))

    return grad


_CHOSEN = (_chosen_grad(True), _chosen_grad(False))


@op(
    "elementwise",
    broadcast,
    _CHOSEN,
    "same",
    examples=PAIRS,
)
def maximum(xp, x1, x2):
    """The larger of x1 and x2; NaN if either is."""
    return xp.maximum(x1, x2)


@op("elementwise", broadcast, _CHOSEN, "same", examples=PAIRS)
def minimum(xp, x1, x2):
    """The smaller of x1 and x2; NaN if either is."""
    return xp.minimum(x1, x2)


def _arctan2_grad(g, y, a, b):
    scaled = divide(g, add(square(a), square(b)))
    return multiply(scaled, b), negative(multiply(scaled, a))


@op("elementwise", broadcast, _arctan2_grad, "float", examples=[((numbers(0.5, 2), (2, 3)), {})])
def arctan2(xp, x1, x2):
    """The angle of the point (x2, x1), in radians in [-pi, pi]."""
    return xp.arctan2(x1, x2)


# --- functions of one number ------------------------------------------------------------------


@op(
    "elementwise", _negative_shape, lambda g, y, x: (negative(g),), examples=SINGLE, keeps_zero=True
)
def negative(xp, x):
    """-x."""
    return xp.negative(x)


@op("elementwise", same, lambda g, y, x: (multiply(g, sign(x)),), examples=SINGLE, keeps_zero=True)
def absolute(xp, x):
    """|x|."""
    return xp.absolute(x)


@op("elementwise", same, None, examples=SINGLE, keeps_zero=True)
def sign(xp, x):
    """-1, 0 or 1 with the sign of x; NaN stays."""
    return xp.sign(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, multiply(x, 2)),),
    "number",
    examples=SINGLE,
    keeps_zero=True,
)
def square(xp, x):
    """x * x."""
    return xp.square(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (divide(multiply(g, 0.5), y),),
    "float",
    examples=between(0.5, 2),
    keeps_zero=True,
)
def sqrt(xp, x):
    """The square root of x."""
    return xp.sqrt(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(multiply(g, -0.5), divide(y, x)),),
    "float",
    examples=between(0.5, 2),
)
def rsqrt(xp, x):
    """1 / sqrt(x)."""
    return xp.reciprocal(xp.sqrt(x))


@op(
    "elementwise",
    same,
    lambda g, y, x: (negative(multiply(g, square(y))),),
    "float",
    examples=between(0.5, 2),
)
def reciprocal(xp, x):
    """1 / x."""
    return xp.reciprocal(x)


@op("elementwise", same, lambda g, y, x: (multiply(g, y),), "float", examples=SINGLE)
def exp(xp, x):
    """e ** x."""
    return xp.exp(x)


@op("elementwise", same, lambda g, y, x: (multiply(g, add(y, 1)),), "float", examples=SINGLE)
def expm1(xp, x):
    """exp(x) - 1, exact near 0."""
    return xp.expm1(x)


@op("elementwise", same, lambda g, y, x: (divide(g, x),), "float", examples=between(0.5, 2))
def log(xp, x):
    """The natural logarithm of x."""
    return xp.log(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (divide(g, add(x, 1)),),
    "float",
    examples=between(-0.5, 2),
)
def log1p(xp, x):
    """log(1 + x), exact near 0."""
    return xp.log1p(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (divide(multiply(g, 1 / math.log(2)), x),),
    "float",
    examples=between(0.5, 2),
)
def log2(xp, x):
    """The logarithm of x to base 2."""
    return xp.log2(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (divide(multiply(g, 1 / math.log(10)), x),),
    "float",
    examples=between(0.5, 2),
)
def log10(xp, x):
    """The logarithm of x to base 10."""
    return xp.log10(x)


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
)
def arctan(xp, x):
    """The angle in (-pi/2, pi/2) whose tangent is x."""
    return xp.arctan(x)


@op("elementwise", same, lambda g, y, x: (multiply(g, cosh(x)),), "float", examples=SINGLE)
def sinh(xp, x):
    """(exp(x) - exp(-x)) / 2."""
    return xp.sinh(x)


@op("elementwise", same, lambda g, y, x: (multiply(g, sinh(x)),), "float", examples=SINGLE)
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
)
def arctanh(xp, x):
    """The number whose hyperbolic tangent is x; |x| < 1."""
    return xp.arctanh(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, multiply(y, subtract(1, y))),),
    "float",
    examples=SINGLE,
)
def sigmoid(xp, x):
    """1 / (1 + exp(-x)), in [0, 1]."""
    # exp(-|x|) neither overflows nor loses the digits of a small result.
    if x.dtype.kind == "c":
        return 1 / (1 + xp.exp(-x))
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, xp.ones((), x.dtype), small) / (small + 1)


@op("elementwise", same, lambda g, y, x: (multiply(g, sigmoid(x)),), "float", examples=SINGLE)
def softplus(xp, x):
    """log(1 + exp(x))."""
    return xp.logaddexp(x, xp.zeros((), dtype=x.dtype))


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, cast(greater(y, 0), dtype=g.dtype)),),
    examples=SINGLE,
)
def relu(xp, x):
    """max(x, 0). Source: Nair & Hinton, ICML 2010."""
    return xp.maximum(x, xp.zeros((), dtype=x.dtype))


@op("elementwise", same, None, "float", examples=SINGLE)
def floor(xp, x):
    """The largest whole number <= x."""
    return xp.floor(x)


@op("elementwise", same, None, "float", examples=SINGLE)
def ceil(xp, x):
    """The smallest whole number >= x."""
    return xp.ceil(x)


@op("elementwise", same, None, "float", examples=SINGLE)
def rint(xp, x):
    """The nearest whole number, halves to even."""
    return xp.rint(x)


@op("elementwise", same, None, examples=SINGLE)
def trunc(xp, x):
    """x without its fraction."""
    if x.dtype.kind in "biu":  # NumPy before 2.1 would make floats of them
        return x.copy()
    return xp.trunc(x)


# --- comparison and logic -----------------------------------------------------------------------


@op("comparison", broadcast_bool, None, "same", examples=PAIRS, commutative=True)
def equal(xp, x1, x2):
    """x1 == x2."""
    return xp.equal(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS, commutative=True)
def not_equal(xp, x1, x2):
    """x1 != x2."""
    return xp.not_equal(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS)
def less(xp, x1, x2):
    """x1 < x2."""
    return xp.less(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS)
def less_equal(xp, x1, x2):
    """x1 <= x2."""
    return xp.less_equal(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS)
def greater(xp, x1, x2):
    """x1 > x2."""
    return xp.greater(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS)
def greater_equal(xp, x1, x2):
    """x1 >= x2."""
    return xp.greater_equal(x1, x2)


def _as_bool(x: Spec, **attrs: Any) -> Spec:
    return Spec(x.shape, "bool")


@op("comparison", _as_bool, None, "float", examples=SINGLE)
def isnan(xp, x):
    """Whether x is not a number."""
    return xp.isnan(x)


@op("comparison", _as_bool, None, "float", examples=SINGLE)
def isinf(xp, x):
    """Whether x is infinite."""
    return xp.isinf(x)


@op("comparison", _as_bool, None, "float", examples=SINGLE)
def isfinite(xp, x):
    """Whether x is neither infinite nor NaN."""
    return xp.isfinite(x)


@op("comparison", _as_bool, None, "float", examples=SINGLE)
def signbit(xp, x):
    """Whether the sign bit of x is set (it is for -0.0)."""
    return xp.signbit(x)


BOOLS = [((bools(), bools()), {}), ((bools(2, 1), bools(3)), {})]


@op("logic", broadcast_bool, None, None, examples=BOOLS, commutative=True)
def logical_and(xp, x1, x2):
    """Whether both are true (non-zero)."""
    return xp.logical_and(x1, x2)


@op("logic", broadcast_bool, None, None, examples=BOOLS, commutative=True)
def logical_or(xp, x1, x2):
    """Whether either is true (non-zero)."""
    return xp.logical_or(x1, x2)


@op("logic", broadcast_bool, None, None, examples=BOOLS, commutative=True)
def logical_xor(xp, x1, x2):
    """Whether just one is true (non-zero)."""
    return xp.logical_xor(x1, x2)


@op("logic", _as_bool, None, None, examples=[((bools(),), {})])
def logical_not(xp, x):
    """Whether x is false (zero)."""
    return xp.logical_not(x)


def _where_shape(condition: Spec, x1: Spec, x2: Spec) -> Spec:
    return Spec(broadcast(condition, x1, x2).shape, x1.dtype)


_where_grad = (
    lambda g, y, condition, x1, x2: None,
    lambda g, y, condition, x1, x2: select(condition, g, 0),
    lambda g, y, condition, x1, x2: select(condition, 0, g),
)


@op(
    "elementwise",
    _where_shape,
    _where_grad,
    "same",
    1,
    examples=[((bools(), (2, 3), (2, 3)), {}), ((bools(2, 1), (), (3,)), {})],
    name="select",
)
def select(xp, condition, x1, x2):
    """x1 where the condition holds (is not zero), x2 elsewhere."""
    return xp.where(condition, x1, x2)


# --- bits ---------------------------------------------------------------------------------------

BITS = [((integers(0, 99), integers(0, 99)), {}), ((integers(0, 99, 2, 1), integers(0, 99, 3)), {})]
SHIFTS = [((integers(0, 99), integers(0, 5)), {})]


@op("bits", broadcast, None, "same", examples=BITS, commutative=True)
def bitwise_and(xp, x, y):
    """The bits set in both."""
    return xp.bitwise_and(x, y)


@op("bits", broadcast, None, "same", examples=BITS, commutative=True)
def bitwise_or(xp, x, y):
    """The bits set in either."""
    return xp.bitwise_or(x, y)


@op("bits", broadcast, None, "same", examples=BITS, commutative=True)
def bitwise_xor(xp, x, y):
    """The bits set in just one."""
    return xp.bitwise_xor(x, y)


@op("bits", same, None, examples=[((integers(0, 99),), {})])
def bitwise_not(xp, x):
    """Every bit turned round."""
    return xp.invert(x)


@op("bits", broadcast, None, "number", examples=SHIFTS)
def left_shift(xp, x, y):
    """x * 2 ** y."""
    return xp.left_shift(x, y)


@op("bits", broadcast, None, "number", examples=SHIFTS)
def right_shift(xp, x, y):
    """floor(x / 2 ** y)."""
    return xp.right_shift(x, y)


# --- dtype --------------------------------------------------------------------------------------


def _cast_shape(x: Spec, dtype: str) -> Spec:
    return Spec(x.shape, dtype)


def _cast_grad(g, y, x, dtype):
    smooth = dtypes.is_inexact(x.dtype) and dtypes.is_inexact(dtype)
    return (cast(g, dtype=x.dtype) if smooth else None,)


@op(
    "elementwise",
    _cast_shape,
    _cast_grad,
    canonical=lambda shapes, attrs: {"dtype": dtypes.name_of(attrs["dtype"])},
    examples=[(((2, 3),), {"dtype": "float64"}), (((2, 3),), {"dtype": "int32"})],
    keeps_zero=True,
    flops=lambda inputs, results: 0,
)
def cast(xp, x, *, dtype):
    """x as `dtype`; floats lose their fraction on the way to integers."""
    return x.astype(dtypes.array_dtype(dtype))


@op("elementwise", same, None, examples=SINGLE, native=None, aliases=True)
def stop_gradient(xp, variable):
    """The same value, through which no gradient flows."""
    return variable


@op(
    "elementwise",
    same,
    lambda g, y, x: (g,),
    examples=SINGLE,
    native=None,
    aliases=True,
    keeps_zero=True,
)
def alias(xp, x):
    """The same value: what turns arrays, lists, numbers and variables into tensors."""
    return x


@op("movement", same, lambda g, y, x: (g,), examples=SINGLE, aliases=True)
def anew(xp, x):
    """The same value, for computing once more: passes do not see that the results are known."""
    return x


def as_tensor(x: Any) -> Any:
    """Return x (tensor, variable, array, list, number) as a tensor, uncopied if it can be."""
    return x if hasattr(x, "maker") else alias(x)
