"""Rarer functions of one or two numbers: ops and compositions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.errors import DTypeError
from kerasish.ops import dtypes
from kerasish.ops.basic.activation import as_float, meeting
from kerasish.ops.basic.arithmetic import (
    absolute,
    add,
    divide,
    maximum,
    minimum,
    multiply,
    negative,
    square,
    subtract,
    trunc,
)
from kerasish.ops.basic.comparison import equal, greater, isinf, isnan, less, logical_or, select
from kerasish.ops.basic.conversion import alias, as_tensor, cast
from kerasish.ops.basic.elementwise import elementwise
from kerasish.ops.basic.error_function import _erfc_positive, erf
from kerasish.ops.basic.examples import PAIRS, integers, numbers
from kerasish.ops.basic.exponentials import exp, power, sqrt
from kerasish.ops.basic.nonlinearity import sigmoid
from kerasish.ops.basic.trigonometry import sin
from kerasish.ops.op import Op, c_function, function, op
from kerasish.ops.shapes import broadcast
from kerasish.typing import Array, ArrayModule, DTypeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [  "array", "cbrt", "copy", "deg2rad", "divide_no_nan", "exp2", "fabs", "fmax",
    "fmin", "fmod", "gcd", "heaviside", "hypot",  "lcm",
    "ldexp", "logaddexp", "logaddexp2",  "nextafter", "rad2deg", "sinc",
]  # fmt: skip

# --- ops ------------------------------------------------------------------------------------


@elementwise(
    lambda g, y, x: (divide(g, multiply(square(y), 3)),),
    examples=[((numbers(0.5, 2),), {}), ((numbers(-2, -0.5),), {}), (((0, 2),), {})],
    native=c_function("cbrt"),
)
def cbrt(xp: ArrayModule, x: Array) -> Array:
    """The cube root of x.

    Args:
        x: tensor or array.

    Example:
        >>> [round(float(v), 3) for v in cbrt([8.0, -27.0])]
        [2.0, -3.0]
    """
    return xp.cbrt(x).astype(x.dtype)


@elementwise(
    lambda g, y, x: (multiply(multiply(g, -2 / math.sqrt(math.pi)), exp(negative(square(x)))),),
    native=c_function("erfc"),
)
def erfc(xp: ArrayModule, x: Array) -> Array:
    """1 - erf(x), exact where that is small. Source: Cody, Math. Comp. 1969.

    Args:
        x: tensor or array.

    Example:
        >>> erfc([0.0]).tolist()
        [1.0]
    """
    wide = x.astype(xp.float64)
    far = _erfc_positive(xp, xp.minimum(xp.absolute(wide), 30.0))
    far = xp.where(wide < 0, 2 - far, far)
    return xp.where(xp.absolute(wide) <= 0.5, 1 - erf.kernel(xp, wide), far).astype(x.dtype)


def _logaddexp_grad(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, ...]:
    share = sigmoid(subtract(a, b))
    return multiply(g, share), multiply(g, subtract(1, share))


@elementwise(_logaddexp_grad, shape=broadcast, examples=PAIRS)
def logaddexp(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """log(exp(x1) + exp(x2)), without overflow.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> [round(float(v), 4) for v in logaddexp([0.0, 10.0], [0.0, 10.0])]
        [0.6931, 10.6931]
    """
    return xp.logaddexp(x1, x2)


@elementwise(
    lambda g, y, a, b: (g, negative(multiply(g, trunc(divide(a, b))))),
    "number",
    shape=broadcast,
    examples=[
        ((numbers(-1.9, -1.1), numbers(2.1, 2.9)), {}),
        ((integers(-9, 9), integers(1, 5)), {}),
    ],
)
def fmod(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 - trunc(x1 / x2) * x2, with the sign of x1.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> fmod([5.0, -5.0], 3.0).tolist()
        [2.0, -2.0]
    """
    return xp.fmod(x1, x2)


WHOLE = [((integers(-12, 13), integers(1, 9)), {}), ((integers(0, 9, 2, 1), integers(1, 9, 3)), {})]


@op("bits", broadcast, None, "number", examples=WHOLE)
def gcd(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The greatest number that divides both integers.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> gcd([12, 9], [8, 6]).tolist()
        [4, 3]
    """
    return xp.gcd(x1, x2)


@op("bits", broadcast, None, "number", examples=WHOLE)
def lcm(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The least number that both integers divide.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> lcm([4, 6], [6, 9]).tolist()
        [12, 18]
    """
    return xp.lcm(x1, x2)


@elementwise(None, shape=broadcast, examples=PAIRS, exact_storage=True)
def nextafter(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The number next to x1 in its dtype, on the way to x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> nextafter([6.0, 7.0], [2.0, 3.0]).tolist()
        [5.9999..., 6.9999...]
    """
    return xp.nextafter(x1, x2).astype(x1.dtype)


# --- compositions ---------------------------------------------------------------------------


@function
def logaddexp2(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return log2(2 ** x1 + 2 ** x2), without overflow.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> logaddexp2([6.0, 7.0], [2.0, 3.0]).tolist()
        [6.0874..., 7.0874...]
    """
    ln2 = math.log(2)
    x1, x2 = meeting(x1, x2)
    return divide(logaddexp(multiply(x1, ln2), multiply(x2, ln2)), ln2)


@function
def exp2(x: TensorLike) -> Tensor:
    """Return 2 ** x.

    Args:
        x: tensor or array.

    Example:
        >>> exp2([1.0, 3.0]).tolist()
        [2.0, 8.0]
    """
    x = as_float(x)
    return power(2.0, x)


@function
def deg2rad(x: TensorLike) -> Tensor:
    """Return the angle x, in degrees, in radians.

    Args:
        x: tensor or array.

    Example:
        >>> deg2rad([180.0]).tolist()
        [3.1415...]
    """
    return multiply(as_float(x), math.pi / 180)


@function
def rad2deg(x: TensorLike) -> Tensor:
    """Return the angle x, in radians, in degrees.

    Args:
        x: tensor or array.

    Example:
        >>> rad2deg([3.14159265]).tolist()
        [180.0]
    """
    return multiply(as_float(x), 180 / math.pi)


@function
def fabs(x: TensorLike) -> Tensor:
    """Return |x| in floating point.

    Args:
        x: tensor or array.

    Example:
        >>> fabs([-1.0, 2.0]).tolist()
        [1.0, 2.0]
    """
    return absolute(as_float(x))


def _around_nan(x1: TensorLike, x2: TensorLike, pick: Op) -> Tensor:
    x1, x2 = meeting(x1, x2, floating=False)
    if not any(dtypes.is_float(x.dtype) for x in (x1, x2)):
        return pick(x1, x2)
    return select(isnan(x1), x2, select(isnan(x2), x1, pick(x1, x2)))


@function
def fmax(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the larger of x1 and x2; the other one where one is NaN.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> fmax([1.0, float("nan")], [3.0, 2.0]).tolist()
        [3.0, 2.0]
    """
    return _around_nan(x1, x2, maximum)


@function
def fmin(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the smaller of x1 and x2; the other one where one is NaN.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> fmin([1.0, float("nan")], [3.0, 2.0]).tolist()
        [1.0, 2.0]
    """
    return _around_nan(x1, x2, minimum)


@function
def heaviside(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return 0 where x1 < 0, x2 where x1 = 0, 1 where x1 > 0.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> heaviside([-1.0, 0.0, 2.0], 0.5).tolist()
        [0.0, 0.5, 1.0]
    """
    x1, x2 = meeting(x1, x2)
    step = select(isnan(x1), x1, cast(greater(x1, 0), x1.dtype))
    return select(equal(x1, 0), x2, step)


@function
def hypot(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return sqrt(x1² + x2²), without overflow.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> hypot([3.0], [4.0]).tolist()
        [5.0]
    """
    x1, x2 = map(absolute, meeting(x1, x2))
    big, small = maximum(x1, x2), minimum(x1, x2)
    zero = equal(big, 0)
    ratio = divide(select(zero, 0, small), select(zero, 1, big))
    infinite = logical_or(isinf(x1), isinf(x2))
    return select(infinite, math.inf, multiply(big, sqrt(add(square(ratio), 1))))


@function
def ldexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return x1 * 2 ** x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> ldexp([1.0, 2.0], [3, 4]).tolist()
        [8.0, 32.0]
    """
    x1, x2 = as_float(x1), as_tensor(x2)
    if not dtypes.is_integer(x2.dtype):
        raise DTypeError(f"ldexp: x2 must be integers, got {x2.dtype}.")
    return multiply(x1, power(2.0, cast(x2, x1.dtype)))


@function
def sinc(x: TensorLike) -> Tensor:
    """Return sin(pi * x) / (pi * x), 1 at 0.

    Args:
        x: tensor or array.

    Example:
        >>> [abs(round(float(v), 4)) for v in sinc([0.0, 0.5, 1.0])]
        [1.0, 0.6366, 0.0]
    """
    x = as_float(x)
    small = less(absolute(x), 1e-3)
    angle = multiply(x, math.pi)
    safe = select(small, 1, angle)
    # Near 0 the first terms of the series, whose derivatives are right there too.
    near = subtract(1, divide(square(angle), 6))
    return select(small, near, divide(sin(safe), safe))


@function
def divide_no_nan(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return x1 / x2, and 0 where x2 is 0.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> divide_no_nan([6.0, 7.0], [2.0, 0.0]).tolist()
        [3.0, 0.0]
    """
    zero = equal(x2, 0)
    return select(zero, 0, divide(x1, select(zero, 1, x2)))


@function
def copy(x: TensorLike) -> Tensor:
    """Return the same values as a separate tensor.

    Args:
        x: tensor or array.

    Example:
        >>> copy([1.0, 2.0]).tolist()
        [1.0, 2.0]
    """
    return alias(x)


def array(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return x as a tensor, of `dtype` if one is given.

    Args:
        x: tensor or array.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> array([1, 2]).tolist()
        [1, 2]
    """
    x = as_tensor(x)
    return x if dtype is None else cast(x, dtype)
