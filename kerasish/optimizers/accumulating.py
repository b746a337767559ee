"""Gradients gathered over several steps, of which the last one updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.tensor import Tensor, Variable


def is_due(iterations: Tensor, steps: int) -> Tensor:
    """Return whether the step after `iterations` others is the last of its `steps`."""
    return ops.equal(ops.mod(ops.add(iterations, 1), steps), 0)


def gather(
    gradients: Sequence[Tensor],
    slots: Sequence[Variable],
    due: Tensor,
    steps: int,
    new: dict[Variable, Any],
) -> list[Tensor]:
    """Return the means of what was gathered; `new` gets the sums, 0 where they are used up."""
    means = []
    for g, slot in zip(gradients, slots):
        total = ops.add(slot.value, ops.cast(g, slot.dtype))
        new[slot] = ops.where(due, ops.zeros_like(total), total)
        means.append(ops.multiply(total, 1.0 / float(steps)))
    return means


def overwrite(
    variable: Variable, gradient: Tensor, slot: Variable, due: Tensor, new: dict[Variable, Any]
) -> None:
    """Let the largest gradient gathered be the variable's value, when it is due."""
    largest = ops.maximum(gradient, slot.value)
    new[variable] = ops.where(due, largest, variable.value)
    new[slot] = ops.where(due, ops.zeros_like(largest), largest)
