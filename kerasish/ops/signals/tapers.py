"""Tapers (window functions): weights that fade a stretch of samples in and out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.ops.basic.arithmetic import absolute, add, divide, multiply, square, subtract
from kerasish.ops.basic.bessel import i0
from kerasish.ops.basic.creation import arange, ones
from kerasish.ops.basic.exponentials import sqrt
from kerasish.ops.basic.trigonometry import cos

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]


def _count(x: int) -> int:
    return int(x)


def _phases(x: int) -> Tensor:
    """Return the angles from 0 to 2 pi of x samples."""
    count = _count(x)
    return multiply(arange(count, dtype=float), 2 * math.pi / max(count - 1, 1))


def _cosines(x: int, first: float, *others: float) -> Tensor:
    if _count(x) == 1:
        return ones((1,))
    phases = _phases(x)
    y: Any = first
    for order, weight in enumerate(others, 1):
        y = add(multiply(cos(multiply(phases, order)), weight), y)
    return y


def hanning(x: int) -> Tensor:
    """Return the Hann window of x samples: 0.5 - 0.5 cos(2 pi n / (x - 1)).

    Args:
        x: tensor or array.

    Example:
        >>> hanning(3).shape
        (3,)
    """
    return _cosines(x, 0.5, -0.5)


def hamming(x: int) -> Tensor:
    """Return the Hamming window of x samples: 0.54 - 0.46 cos(2 pi n / (x - 1)).

    Args:
        x: tensor or array.

    Example:
        >>> hamming(3).tolist()
        [0.0800..., 1.0, 0.0800...]
    """
    return _cosines(x, 0.54, -0.46)


def blackman(x: int) -> Tensor:
    """Return the Blackman window of x samples: 0.42 - 0.5 cos(t) + 0.08 cos(2 t).

    Args:
        x: tensor or array.

    Example:
        >>> blackman(5)[1].item()
        0.3400...
    """
    return _cosines(x, 0.42, -0.5, 0.08)


def _from_minus_one(count: int) -> Tensor:
    """Return `count` numbers that rise evenly from -1 to 1."""
    return subtract(divide(arange(count, dtype=float), (count - 1) / 2), 1)


def bartlett(x: int) -> Tensor:
    """Return the triangular window of x samples, 0 at both ends.

    Args:
        x: tensor or array.

    Example:
        >>> bartlett(3).tolist()
        [0.0, 1.0, 0.0]
    """
    count = _count(x)
    if count == 1:
        return ones((1,))
    return subtract(1, absolute(_from_minus_one(count)))


def kaiser(x: int, beta: float) -> Tensor:
    """Return the Kaiser window of x samples: i0(beta sqrt(1 - t²)) / i0(beta), t from -1 to 1.

    Args:
        x: tensor or array.
        beta: the shape of the window, >= 0: larger is narrower.

    Example:
        >>> kaiser(3, 5.0).shape
        (3,)
    """
    count = _count(x)
    if count == 1:
        return ones((1,))
    # Rounding may leave |t| slightly above 1.
    rest = absolute(subtract(1, square(_from_minus_one(count))))
    return divide(i0(multiply(sqrt(rest), beta)), i0(multiply(ones(()), beta)))
