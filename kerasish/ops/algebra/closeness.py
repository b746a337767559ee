"""Which numbers are infinite, NaN, or near to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerasish.ops import dtypes
from kerasish.ops.basic.activation import meeting
from kerasish.ops.basic.arithmetic import absolute, add, multiply, subtract
from kerasish.ops.basic.comparison import (
    equal,
    greater,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_or,
    select,
)
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.reduce import reduce_all
from kerasish.ops.op import function
from kerasish.typing import TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["allclose", "isclose", "isneginf", "isposinf", "nan_to_num"]


@function
def isposinf(x: TensorLike) -> Tensor:
    """Return whether x is +infinity.

    Args:
        x: tensor or array.

    Example:
        >>> isposinf([float("-inf"), float("inf")]).tolist()
        [False, True]
    """
    return logical_and(isinf(x), greater(x, 0))


@function
def isneginf(x: TensorLike) -> Tensor:
    """Return whether x is -infinity.

    Args:
        x: tensor or array.

    Example:
        >>> isneginf([float("-inf"), float("inf")]).tolist()
        [True, False]
    """
    return logical_and(isinf(x), less(x, 0))


@function
def isclose(
    x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Return whether |x1 - x2| <= atol + rtol * |x2|; infinities are close to themselves.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.
        rtol: relative tolerance, >= 0.
        atol: absolute tolerance, >= 0.
        equal_nan: whether NaN is close to NaN.

    Example:
        >>> isclose([1.0, 2.0], [1.0, 2.1]).tolist()
        [True, False]
    """
    x1, x2 = meeting(x1, x2)
    tolerance = add(multiply(absolute(x2), rtol), atol)
    near = logical_and(less_equal(absolute(subtract(x1, x2)), tolerance), isfinite(x2))
    near = logical_or(near, equal(x1, x2))
    return logical_or(near, logical_and(isnan(x1), isnan(x2))) if equal_nan else near


@function
def allclose(
    x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Return whether all elements are close; see `isclose`.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.
        rtol: relative tolerance, >= 0.
        atol: absolute tolerance, >= 0.
        equal_nan: whether NaN is close to NaN.

    Example:
        >>> allclose([1.0, 2.0], [1.0, 2.0000001]).tolist()
        True
    """
    return reduce_all(isclose(x1, x2, rtol, atol, equal_nan))


@function
def nan_to_num(
    x: TensorLike, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Return x with numbers for NaN and infinities (None: the dtype's largest and least).

    Args:
        x: tensor or array.
        nan: what replaces NaN.
        posinf: what replaces Inf; None: the largest number of the dtype.
        neginf: what replaces -Inf; None: the least number of the dtype.

    Example:
        >>> nan_to_num([float("nan"), 1.0], nan=7.0).tolist()
        [7.0, 1.0]
    """
    x = as_tensor(x)
    if not dtypes.is_float(x.dtype):
        return x
    low, high = dtypes.limits(x.dtype) or (0.0, 0.0)
    x = select(isnan(x), nan, x)
    x = select(isposinf(x), high if posinf is None else posinf, x)
    return select(isneginf(x), low if neginf is None else neginf, x)
