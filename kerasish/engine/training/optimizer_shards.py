"""OptimizerShards: each rank keeps the slots of its part of the variables, and updates that part.

After the sum over ranks every rank has all gradients. It updates one segment of each variable, for
which it keeps momenta and the like, and takes the other segments from the other ranks. So the
optimizer's memory is divided by the number of ranks; the bits are those of whole updates, since
these optimizers compute each element by itself.

Source: Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models,
SC 2020 (its first stage).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer
from kerasish.ranks import Sharding
from kerasish.ranks.group import segments
from kerasish.tensor import Tensor, Variable, convert, no_gradient

WHOLE = 64  # variables of fewer elements per rank are updated by every rank


class _Part(NamedTuple):
    """This rank's segment of a variable; the variable itself, if it is small."""

    variable: Variable
    start: int
    stop: int
    whole: bool

    def of(self, tensor: Tensor) -> Tensor:
        """Return this segment of a tensor of the variable's shape."""
        return tensor if self.whole else ops.reshape(tensor, (-1,))[self.start : self.stop]


class OptimizerShards:
    """The segments of variables that this rank updates.

    Args:
        optimizer: not built yet; it is built on the segments.
        variables: the trainable variables.
        sharding: the ranks.

    Raises:
        ValueError: the optimizer needs whole variables, or has been built.
    """

    def __init__(
        self, optimizer: Optimizer, variables: Sequence[Variable], sharding: Sharding
    ) -> None:
        _check(optimizer)
        group = sharding.group
        self._parts: dict[Variable, _Part] = {}
        for v in variables:
            counts, starts = segments(v.value.size, group.size)
            start = starts[group.rank]
            whole = v.value.size < WHOLE * group.size
            own = v if whole else _segment(v, counts[group.rank])
            self._parts[v] = _Part(own, start, start + counts[group.rank], whole)
        optimizer.build([p.variable for p in self._parts.values()])
        optimizer.divided = True

    def apply(
        self, optimizer: Optimizer, gradients: Sequence[Any], variables: Sequence[Variable],
        **signals: Any,
    ) -> None:  # fmt: skip
        """Change the variables by their gradients: see `Optimizer.apply`."""
        parts = [self._parts[v] for v in variables]
        with no_gradient():
            own = [None if g is None else p.of(convert(g)) for p, g in zip(parts, gradients)]
            for v, part in zip(variables, parts):
                if not part.whole:
                    part.variable.assign(part.of(v.value))
            optimizer.apply(own, [p.variable for p in parts], **signals)
            for v, part in zip(variables, parts):
                if not part.whole:
                    flat = ops.all_gather(part.variable.value, v.value.size)
                    new = ops.reshape(flat, v.shape)
                    v.assign(new if v.constraint is None else v.constraint(new))


def _segment(variable: Variable, size: int) -> Variable:
    result = Variable("zeros", shape=(size,), dtype=variable.dtype, name=variable.name)
    result.path = variable.path
    return result


def _check(optimizer: Optimizer) -> None:
    who = f"DataParallel(shard_optimizer=True): {type(optimizer).__name__}"
    if not optimizer.elementwise:
        raise ValueError(
            f"{who} computes more than element by element, so it needs whole variables. Use one "
            "of SGD, Adam, AdamW, RMSprop, Adagrad, Lion and the like, or shard_optimizer=False."
        )
    for option in ("clipnorm", "global_clipnorm", "use_ema"):
        if getattr(optimizer, option):
            raise ValueError(
                f"{who} has {option}, which needs whole variables. Use clipvalue, or "
                "shard_optimizer=False."
            )
    if optimizer.built:
        raise ValueError(
            f"{who} has the slots of whole variables already. Set the distribution before the "
            "first step, and compile() again with a new optimizer."
        )
