"""Bits of integers."""

from __future__ import annotations

from kerasish.ops.basic.examples import integers
from kerasish.ops.op import op
from kerasish.ops.shapes import broadcast, same
from kerasish.typing import Array, ArrayModule

__all__ = [
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "left_shift", "right_shift",
]  # fmt: skip

BITS = [((integers(0, 99), integers(0, 99)), {}), ((integers(0, 99, 2, 1), integers(0, 99, 3)), {})]


SHIFTS = [((integers(0, 99), integers(0, 5)), {})]


@op("bits", broadcast, None, "same", examples=BITS, commutative=True, symbol="&")
def bitwise_and(xp: ArrayModule, x: Array, y: Array) -> Array:
    """The bits set in both.

    Args:
        x: tensor or array.
        y: tensor or array.

    Example:
        >>> bitwise_and([6, 5], [3, 4]).tolist()
        [2, 4]
    """
    return xp.bitwise_and(x, y)


@op("bits", broadcast, None, "same", examples=BITS, commutative=True, symbol="|")
def bitwise_or(xp: ArrayModule, x: Array, y: Array) -> Array:
    """The bits set in either.

    Args:
        x: tensor or array.
        y: tensor or array.

    Example:
        >>> bitwise_or([6, 5], [3, 4]).tolist()
        [7, 5]
    """
    return xp.bitwise_or(x, y)


@op("bits", broadcast, None, "same", examples=BITS, commutative=True, symbol="^")
def bitwise_xor(xp: ArrayModule, x: Array, y: Array) -> Array:
    """The bits set in just one.

    Args:
        x: tensor or array.
        y: tensor or array.

    Example:
        >>> bitwise_xor([6, 5], [3, 4]).tolist()
        [5, 1]
    """
    return xp.bitwise_xor(x, y)


@op("bits", same, None, examples=[((integers(0, 99),), {})])
def bitwise_not(xp: ArrayModule, x: Array) -> Array:
    """Every bit turned round.

    Args:
        x: tensor or array.

    Example:
        >>> bitwise_not([6, 5]).tolist()
        [-7, -6]
    """
    return xp.invert(x)


@op("bits", broadcast, None, "number", examples=SHIFTS)
def left_shift(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x * 2 ** y.

    Args:
        x: tensor or array.
        y: tensor or array.

    Example:
        >>> left_shift([1, 2], 3).tolist()
        [8, 16]
    """
    return xp.left_shift(x, y)


@op("bits", broadcast, None, "number", examples=SHIFTS)
def right_shift(xp: ArrayModule, x: Array, y: Array) -> Array:
    """floor(x / 2 ** y).

    Args:
        x: tensor or array.
        y: tensor or array.

    Example:
        >>> right_shift([8, 16], 3).tolist()
        [1, 2]
    """
    return xp.right_shift(x, y)


# Second names, as Keras has them.
bitwise_invert = bitwise_not
bitwise_left_shift = left_shift
bitwise_right_shift = right_shift
