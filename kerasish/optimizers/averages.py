"""Running averages of the variables (`use_ema`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kerasish import ops
from kerasish.tensor import Tensor, Variable

Pairs = Iterable[tuple[Variable, Variable]]  # a variable, its average


def update_averages(
    pairs: Pairs,
    new: dict[Variable, Any],
    iterations: Tensor | Variable,
    share: float,
    frequency: int | None,
) -> None:
    """Add the new values of the averages to `new`.

    Args:
        pairs: each variable with its average.
        new: the new values of this step; a variable without one keeps its value.
        iterations: how many updates were made before.
        share: of itself that an average keeps, 0 <= share <= 1.
        frequency: the averages become the variables' values every this many steps; None: never.
    """
    # The first step takes the variables as they are; the iteration counts before this step.
    first = ops.equal(iterations, 0)
    due = frequency and ops.equal(ops.mod(ops.add(iterations, 1), frequency), 0)
    for v, slot in pairs:
        value = new.get(v)
        value = v.value if value is None else value
        momentum = ops.where(first, 0.0, share)
        kept = ops.multiply(slot.value, ops.cast(momentum, v.dtype))
        fresh = ops.multiply(value, ops.cast(ops.subtract(1.0, momentum), v.dtype))
        new[slot] = ops.add(kept, fresh)
        if due is not None:
            new[v] = ops.where(due, new[slot], value)


def put_averages(pairs: Pairs, swapped: bool) -> None:
    """Put the averages into the variables; `swapped`: they hold them already."""
    for v, average in pairs:
        if swapped:  # the weights that training moved are not needed again
            average.assign(v.value)
        else:
            v.assign(average.value)


def swap_averages(pairs: Pairs) -> None:
    """Exchange the variables with their averages."""
    for v, average in pairs:
        kept = v.numpy().copy()
        v.assign(average.value)
        average.assign(kept)
