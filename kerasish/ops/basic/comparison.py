"""Comparison and logic: results are truth values, and `select` chooses by them."""

from __future__ import annotations

from typing import Any

from kerasish.ops.basic.examples import PAIRS, SINGLE, bools
from kerasish.ops.op import op
from kerasish.ops.shapes import Spec, broadcast, broadcast_bool
from kerasish.typing import Array, ArrayModule

__all__ = [
    "equal", "greater", "greater_equal", "isfinite", "isinf", "isnan", "less", "less_equal",
    "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal", "signbit",
]  # fmt: skip


@op(
    "comparison",
    broadcast_bool,
    None,
    "same",
    examples=PAIRS,
    commutative=True,
    symbol="==",
    cheap=True,
)
def equal(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 == x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> equal([1, 2], [1, 3]).tolist()
        [True, False]
    """
    return xp.equal(x1, x2)


@op(
    "comparison",
    broadcast_bool,
    None,
    "same",
    examples=PAIRS,
    commutative=True,
    symbol="!=",
    cheap=True,
)
def not_equal(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 != x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> not_equal([1, 2], [1, 3]).tolist()
        [False, True]
    """
    return xp.not_equal(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS, symbol="<", cheap=True)
def less(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 < x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> less([1, 3], [2, 2]).tolist()
        [True, False]
    """
    return xp.less(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS, symbol="<=", cheap=True)
def less_equal(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 <= x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> less_equal([1, 2], [2, 2]).tolist()
        [True, True]
    """
    return xp.less_equal(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS, symbol=">", cheap=True)
def greater(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 > x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> greater([1, 3], [2, 2]).tolist()
        [False, True]
    """
    return xp.greater(x1, x2)


@op("comparison", broadcast_bool, None, "same", examples=PAIRS, symbol=">=", cheap=True)
def greater_equal(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 >= x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> greater_equal([1, 2], [2, 2]).tolist()
        [False, True]
    """
    return xp.greater_equal(x1, x2)


def _as_bool(x: Spec, **attrs: Any) -> Spec:
    return Spec(x.shape, "bool")


@op("comparison", _as_bool, None, "float", examples=SINGLE)
def isnan(xp: ArrayModule, x: Array) -> Array:
    """Whether x is not a number.

    Args:
        x: tensor or array.

    Example:
        >>> isnan([1.0, float("nan")]).tolist()
        [False, True]
    """
    return xp.isnan(x)


@op("comparison", _as_bool, None, "float", examples=SINGLE)
def isinf(xp: ArrayModule, x: Array) -> Array:
    """Whether x is infinite.

    Args:
        x: tensor or array.

    Example:
        >>> isinf([1.0, float("inf")]).tolist()
        [False, True]
    """
    return xp.isinf(x)


@op("comparison", _as_bool, None, "float", examples=SINGLE)
def isfinite(xp: ArrayModule, x: Array) -> Array:
    """Whether x is neither infinite nor NaN.

    Args:
        x: tensor or array.

    Example:
        >>> isfinite([1.0, float("inf")]).tolist()
        [True, False]
    """
    return xp.isfinite(x)


@op("comparison", _as_bool, None, "float", examples=SINGLE)
def signbit(xp: ArrayModule, x: Array) -> Array:
    """Whether the sign bit of x is set (it is for -0.0).

    Args:
        x: tensor or array.

    Example:
        >>> signbit([-1.0, 2.0]).tolist()
        [True, False]
    """
    return xp.signbit(x)


BOOLS = [((bools(), bools()), {}), ((bools(2, 1), bools(3)), {})]


@op("logic", broadcast_bool, None, None, examples=BOOLS, commutative=True)
def logical_and(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """Whether both are true (non-zero).

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> logical_and([True, False], [True, True]).tolist()
        [True, False]
    """
    return xp.logical_and(x1, x2)


@op("logic", broadcast_bool, None, None, examples=BOOLS, commutative=True)
def logical_or(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """Whether either is true (non-zero).

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> logical_or([True, False], [False, False]).tolist()
        [True, False]
    """
    return xp.logical_or(x1, x2)


@op("logic", broadcast_bool, None, None, examples=BOOLS, commutative=True)
def logical_xor(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """Whether just one is true (non-zero).

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> logical_xor([True, False], [True, True]).tolist()
        [False, True]
    """
    return xp.logical_xor(x1, x2)


@op("logic", _as_bool, None, None, examples=[((bools(),), {})])
def logical_not(xp: ArrayModule, x: Array) -> Array:
    """Whether x is false (zero).

    Args:
        x: tensor or array.

    Example:
        >>> logical_not([True, False]).tolist()
        [False, True]
    """
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
    cheap=True,
)
def select(xp: ArrayModule, condition: Array, x1: Array, x2: Array) -> Array:
    """x1 where the condition holds (is not zero), x2 elsewhere."""
    return xp.where(condition, x1, x2)
