"""One update of all variables at once, where the engine in charge has a kernel for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.ops.op import current_engine
from kerasish.optimizers.clipping import norm_factor
from kerasish.tensor import Variable


def fused_update(
    optimizer: Any, gradients: Sequence[Any], variables: Sequence[Variable], rate: Any
) -> dict[Variable, Any] | None:
    """Return the new values of variables and slots, or None where no kernel does all at once.

    Args:
        optimizer: a built `Optimizer`.
        gradients: not clipped yet; by the norm of all of them they are clipped in passing.
    """
    engine = current_engine()
    rule = optimizer.fused_rule() if engine.fuses_updates else None
    if rule is None:
        return None
    # For each variable the share of it, times the rate, that is taken off first.
    decays = [optimizer._decay_of(v) if optimizer._decays(v) else 0.0 for v in variables]
    limit = optimizer.global_clipnorm
    factor = None if limit is None else norm_factor(gradients, limit)
    if limit is None:
        gradients = optimizer._clipped(gradients)
    slots = [optimizer._slots[optimizer._places[v]] for v in variables]
    values = [v.value for v in variables]
    # In the order of their making: all first slots, all second ones.
    by_slot = [[s.value for s in many] for many in zip(*slots)]
    fitting = [
        g if g.dtype == value.dtype else ops.cast(g, value.dtype)
        for g, value in zip(gradients, values)
    ]
    steps = ops.cast(optimizer.iterations, "int32")
    name, settings = rule
    found = engine.fused_update(
        name, settings, values, fitting, by_slot, rate, steps, decays, factor
    )
    if found is None:
        return None
    new_values, *new_slots = found
    new = dict(zip(variables, new_values))
    for place, many in enumerate(new_slots):
        new.update((slots[i][place], value) for i, value in enumerate(many))
    return new
