"""Element-wise ops: arithmetic, functions of one number, comparison, logic, bits, casts."""

from __future__ import annotations

import math
from typing import Any

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


@op("elementwise", broadcast, lambda g, y, a, b: (g, g), "same", examples=PAIRS)
def add(xp, x1, x2):
    """x1 + x2."""
    return xp.add(x1, x2)


@op(
    "elementwise",
    broadcast,
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


@op("elementwise", same, lambda g, y, x: (negative(g),), examples=SINGLE)
def negative(xp, x):
    """-x."""
    return xp.negative(x)


@op("elementwise", same, lambda g, y, x: (multiply(g, sign(x)),), examples=SINGLE)
def absolute(xp, x):
    """|x|."""
    return xp.absolute(x)


@op("elementwise", same, None, examples=SINGLE)
def sign(xp, x):
    """-1, 0 or 1 with the sign of x; NaN stays."""
    return xp.sign(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, multiply(x, 2)),),
    "number",
    examples=SINGLE,
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
    # By tanh: no overflow for large |x|, and one pass.
    half = xp.asarray(0.5, dtype=x.dtype)
    return xp.tanh(x * half) * half + half


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


# Coefficients of rational approximations, J. Cody, Math. Comp. 22 (1969), 631-637: erf within
# 1e-16 relative on |x| <= 0.5, erfc by scaled exp(-x*x) beyond.
_ERF_P = (3.209377589138469472562e03, 3.774852376853020208137e02, 1.138641541510501556495e02,
          3.161123743870565596947e00, 1.857777061846031526730e-01)  # fmt: skip
_ERF_Q = (2.844236833439170622273e03, 1.282616526077372275645e03, 2.440246379344441733056e02,
          2.360129095234412093499e01)  # fmt: skip
_ERFC_P = (1.23033935479799725272e03, 2.05107837782607146532e03, 1.71204761263407058314e03,
           8.81952221241769090411e02, 2.98635138197400131132e02, 6.61191906371416294775e01,
           8.88314979438837594118e00, 5.64188496988670089180e-01,
           2.15311535474403846343e-08)  # fmt: skip
_ERFC_Q = (1.23033935480374942043e03, 3.43936767414372163696e03, 4.36261909014324715820e03,
           3.29079923573345962678e03, 1.62138957456669018874e03, 5.37181101862009857509e02,
           1.17693950891312499305e02, 1.57449261107098347253e01)  # fmt: skip
_TAIL_P = (6.58749161529837803157e-04, 1.60837851487422766278e-02, 1.25781726111229246204e-01,
           3.60344899949804439429e-01, 3.05326634961232344035e-01,
           1.63153871373020978498e-02)  # fmt: skip
_TAIL_Q = (2.33520497626869185443e-03, 6.05183413124413191178e-02, 5.27905102951428412248e-01,
           1.87295284992346047209e00, 2.56852019228982242072e00)  # fmt: skip


def _polynomial(coefficients, x, leading=None):
    result = x * 0 + (coefficients[-1] if leading is None else leading)
    for c in coefficients[-2::-1] if leading is None else coefficients[::-1]:
        result = result * x + c
    return result


def _erfc_positive(xp, a):
    middle = _polynomial(_ERFC_P, a) / _polynomial(_ERFC_Q, a, 1.0)
    inverse = 1 / xp.square(xp.maximum(a, 1.0))
    ratio = inverse * _polynomial(_TAIL_P, inverse) / _polynomial(_TAIL_Q, inverse, 1.0)
    tail = (1 / math.sqrt(math.pi) - ratio) / xp.maximum(a, 1.0)
    return xp.exp(-xp.square(a)) * xp.where(a <= 4, middle, tail)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(multiply(g, 2 / math.sqrt(math.pi)), exp(negative(square(x)))),),
    "float",
    examples=SINGLE,
)
def erf(xp, x):
    """2/sqrt(pi) * the integral of exp(-t*t) from 0 to x. Source: Cody, Math. Comp. 1969."""
    wide = x if x.dtype.itemsize >= 8 else x.astype(xp.float64)
    a = xp.minimum(xp.absolute(wide), 30.0)
    s = xp.square(xp.minimum(a, 0.5))
    near = wide * (_polynomial(_ERF_P, s) / _polynomial(_ERF_Q, s, 1.0))
    far = xp.sign(wide) * (1 - _erfc_positive(xp, a))
    return xp.where(a <= 0.5, near, far).astype(x.dtype)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(multiply(g, math.sqrt(math.pi) / 2), exp(square(y))),),
    "float",
    examples=between(-0.8, 0.8),
)
def erfinv(xp, x):
    """The number whose erf is x; |x| < 1. Source: Giles, GPU Computing Gems 2011, and Newton."""
    wide = x.astype(xp.float64)
    w = -xp.log((1 - wide) * (1 + wide))
    near, far = w - 2.5, xp.sqrt(xp.maximum(w, 5.0)) - 3
    p = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
         -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
    q = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
         -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
    y = wide * xp.where(w < 5, _polynomial(p[::-1], near), _polynomial(q[::-1], far))
    for _ in range(2):
        sure = xp.where(xp.isfinite(y), y, 0.0)
        near_erf = erf.kernel(xp, sure)
        y = y - xp.where(
            xp.absolute(wide) < 1,
            (near_erf - wide) * (math.sqrt(math.pi) / 2) * xp.exp(xp.square(sure)),
            0.0,
        )
    edge = xp.where(xp.absolute(wide) == 1, xp.sign(wide) * math.inf, math.nan)
    return xp.where(xp.absolute(wide) < 1, y, edge).astype(x.dtype)


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


@op("comparison", broadcast_bool, None, "same", examples=PAIRS)
def equal(xp, x1, x2):
    """x1 == x2."""
    return xp.equal(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS)
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


@op("logic", broadcast_bool, None, None, examples=BOOLS)
def logical_and(xp, x1, x2):
    """Whether both are true (non-zero)."""
    return xp.logical_and(x1, x2)


@op("logic", broadcast_bool, None, None, examples=BOOLS)
def logical_or(xp, x1, x2):
    """Whether either is true (non-zero)."""
    return xp.logical_or(x1, x2)


@op("logic", broadcast_bool, None, None, examples=BOOLS)
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


@op("bits", broadcast, None, "same", examples=BITS)
def bitwise_and(xp, x, y):
    """The bits set in both."""
    return xp.bitwise_and(x, y)


@op("bits", broadcast, None, "same", examples=BITS)
def bitwise_or(xp, x, y):
    """The bits set in either."""
    return xp.bitwise_or(x, y)


@op("bits", broadcast, None, "same", examples=BITS)
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
)
def cast(xp, x, *, dtype):
    """x as `dtype`; floats lose their fraction on the way to integers."""
    return x.astype(dtypes.array_dtype(dtype))


@op("elementwise", same, None, examples=SINGLE)
def stop_gradient(xp, variable):
    """The same value, through which no gradient flows."""
    return variable


@op("elementwise", same, lambda g, y, x: (g,), examples=SINGLE)
def alias(xp, x):
    """The same value: what turns arrays, lists, numbers and variables into tensors."""
    return x


def as_tensor(x: Any) -> Any:
    """Return x (tensor, variable, array, list, number) as a tensor, uncopied if it can be."""
    return x if hasattr(x, "maker") else alias(x)
