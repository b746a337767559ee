"""Constraints on new values, with the same rounding on all engines and paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish.ops.basic.conversion import optimization_barrier
from kerasish.tensor import Tensor, convert

NARROW = ("float16", "bfloat16")


def constrained(
    constraint: Any, value: Tensor, join: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return a variable's new value within its constraint.

    Values of 16 bits are rounded before and after: an engine may fuse the neighboring ops, and
    leave roundings out. The bits would depend on what else the step does with them.

    Args:
        constraint: of the variable.
        value: a new value.
        join: returns the whole of a value of which this rank has a segment; None: it is whole.
    """
    narrow = value.dtype in NARROW
    given = optimization_barrier(value) if narrow else value
    result = convert(constraint(given if join is None else join(given)))
    return optimization_barrier(result) if narrow else result
