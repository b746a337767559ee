"""A few rows that represent all: cheap checks of large arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.typing import Array

FEW, MANY = 2**14, 2**20  # elements


def some_rows(array: Array, limit: int = MANY) -> Array:
    """Return an array, or evenly spaced rows of it with about `limit` elements."""
    array = np.asarray(array)
    if array.size <= limit or not array.ndim:
        return array
    keep = max(1, limit // max(1, array.size // len(array)))
    return array[:: -(-len(array) // keep)]


def all_finite(array: Array) -> bool:
    """Return whether an array holds neither NaN nor Inf; arrays of no floats do not."""
    array = np.asarray(array)
    if array.dtype.kind != "f" or not array.size:
        return True
    with np.errstate(all="ignore"):  # a sum that overflows is looked at again, number by number
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def first_odd(array: Array) -> str:
    """Say what and where the first number is that is not finite: "NaN in row 3, column 1"."""
    array = np.asarray(array)
    odd = ~np.isfinite(array)
    place = np.unravel_index(int(odd.argmax()), array.shape)
    what = "NaN" if np.isnan(array[place]) else "Inf"
    where = f"row {int(place[0])}" if place else "the number"
    if len(place) > 1:
        where += f", column {', '.join(str(int(i)) for i in place[1:])}"
    return f"{what} in {where}"


def span(array: Array) -> tuple[Any, Any]:
    """Return the least and the largest number of an array."""
    return array.min().item(), array.max().item()


def number(x: float) -> str:
    """Return a number as people write it: 3, not 3.0.

    Example:
        >>> number(3.0), number(0.25)
        ('3', '0.25')
    """
    return f"{x:g}"
