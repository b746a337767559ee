"""ShardScope: what variables hold while one shard of a batch is computed, and the results.

Each shard of a batch starts from the variables as they were before the batch. What the shards
assign becomes one value per variable, by the variable's kind:

- a random sequence (`holds_seed`): each shard draws from its own sequence, whose seed follows
  from the shard's number; the counter of draws is that of any shard, since all draw equally often;
- `aggregation="sum"` (the sums of metrics): a shard starts from 0, and what it gathers is added;
- `aggregation="stack"` (metrics whose numbers are not sums): a shard starts from 0, and the metric
  gets the values of all shards (`Metric.merge_shards`);
- `aggregation="only_first_replica"`: the first shard's value;
- all others (moving averages): the mean of the shards' values, weighted by their rows.
"""

from __future__ import annotations

from kerasish import ops
from kerasish.ops import dtypes
from kerasish.tensor import Tensor, Variable, VariableScope, convert

GOLDEN = 0x9E3779B9  # 2**32 divided by the golden ratio: multiples of it are far apart


def _seed_offset(shard: int, sign: int = 1) -> Tensor:
    return convert([sign * shard * GOLDEN & 0xFFFFFFFF, 0], "uint32")


class ShardScope(VariableScope):
    """Variables as one shard sees them.

    Args:
        shard: the number of the shard in the batch.
        shards: how many shards the batch has.
        share: rows of the shard / rows of the batch.
    """

    keeps_assignments = True  # the shards' values are merged, then cut

    def __init__(self, shard: int, shards: int, share: float) -> None:
        super().__init__()
        self.shard, self.shards, self.share = shard, shards, share

    def read(self, variable: Variable) -> Tensor:
        """Return what was assigned here, or what the shard starts from."""
        for known in (self.written, self.given):
            if variable in known:
                return known[variable]
        start = self.start_of(variable)
        return super().read(variable) if start is None else start

    def start_of(self, variable: Variable) -> Tensor | None:
        """Return what the shard starts from; None: the value before the batch."""
        if variable.aggregation in ("sum", "stack") and not variable.trainable:
            start = ops.zeros(variable.shape, variable.stored_dtype)
        elif variable.holds_seed and self.shard:
            start = ops.add(super().read(variable), _seed_offset(self.shard))
        else:
            return None
        self.given[variable] = start
        return start

    def contributions(self) -> dict[Variable, Tensor]:
        """Return what this shard adds to the exchanged value of each variable it has assigned."""
        return {v: self._contribution(v, t) for v, t in self.written.items() if exchanged(v)}

    def _contribution(self, variable: Variable, value: Tensor) -> Tensor:
        if variable.aggregation == "sum":
            return value
        if variable.aggregation == "stack":
            empty = ops.zeros_like(value)
            return ops.stack([value if i == self.shard else empty for i in range(self.shards)])
        if variable.aggregation == "only_first_replica" or not dtypes.is_float(value.dtype):
            return value if self.shard == 0 else ops.zeros_like(value)
        return ops.multiply(value, convert(self.share, value.dtype))

    def seeds(self) -> dict[Variable, Tensor]:
        """Return the states of the random sequences after the draws of this shard."""
        return {
            v: ops.add(t, _seed_offset(self.shard, -1)) if self.shard else t
            for v, t in self.written.items()
            if v.holds_seed
        }


def exchanged(variable: Variable) -> bool:
    """Return whether a variable's new value is made of the shards' contributions."""
    return not variable.holds_seed


def merged(variable: Variable, total: Tensor) -> Tensor:
    """Return the new value of a variable, given the sum of the shards' contributions."""
    return ops.add(variable.value, total) if variable.aggregation == "sum" else total
