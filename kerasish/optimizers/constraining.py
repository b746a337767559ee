"""Constraints on new values, with the same rounding wherever they are computed."""

from __future__ import annotations

from typing import Any

from kerasish.ops.basic.conversion import optimization_barrier
from kerasish.tensor import Tensor, convert

_NARROW = ("float16", "bfloat16")


def constrained(constraint: Any, value: Tensor) -> Tensor:
    """Return a variable's new value within its constraint.

    Values of 16 bits are rounded before and after: an engine may join what stands beside them, and
    leave roundings out. The bits would depend on what else the step does with them.

    Args:
        constraint: of the variable.
        value: a whole new value.
    """
    if value.dtype not in _NARROW:
        return convert(constraint(value))
    return optimization_barrier(convert(constraint(optimization_barrier(value))))
