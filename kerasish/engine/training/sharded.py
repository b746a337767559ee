"""The training and evaluation steps over shards of a batch, here and on the other ranks.

Every rank is given the same batches and takes its own rows. It computes loss and gradients shard by
shard; what the shards give is added in a fixed binary tree: first over the shards of a rank, then
over the ranks, by `ops.all_sum`. So after each step all ranks hold the same bits in all variables,
and with the same number of shards another number of ranks holds them, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kerasish import ops, tree
from kerasish.autodiff import gradients_of
from kerasish.engine.data.parts import assemble
from kerasish.engine.training import step
from kerasish.engine.training.interface import StepProgram
from kerasish.engine.training.shard_scope import ShardScope, merged
from kerasish.losses.shares import Shares, using_shares
from kerasish.ops import dtypes
from kerasish.ops.basic.conversion import optimization_barrier
from kerasish.optimizers.optimizer import Optimizer
from kerasish.ranks import Sharding, tree_sum
from kerasish.tensor import Tensor, Variable, convert, no_gradient, using_scope
from kerasish.typing import Structure

ALONE = 1 << 18  # bytes of an array that is summed by itself, without a copy into a bucket
BUCKET = 1 << 20  # bytes of smaller arrays that are summed together
# The last large gradient is computed and summed in pieces: nothing else is computed by then, so its
# first pieces are summed while the others are computed. How many depends on no number of ranks.
PIECES = 4
_SUMMED = ("float32", "float64", "int32", "int64", "uint32")


class _Shard(NamedTuple):
    """What one shard gives; all is multiplied by the shard's share of the rows already."""

    gradients: list[Tensor | None]
    loss: Tensor
    contributions: dict[Variable, Tensor]
    seeds: dict[Variable, Tensor]  # the same for each shard: all draw equally often


def train(
    program: StepProgram,
    variables: Sequence[Variable],
    sharding: Sharding,
    x: Structure,
    y: Structure,
    sample_weight: Structure,
    rows: int,
) -> None:
    """One training step on this rank's block of a batch; see `step.train`.

    Args:
        program: what is trained.
        variables: its trainable variables.
        sharding: how the batch is cut.
        x, y, sample_weight: this rank's rows of the batch.
        rows: of the whole batch; 0: x holds all of it, every rank computes the same.
    """
    if not rows:
        return step.train(program, variables, x, y, sample_weight)
    step.note_uses(program)
    optimizer = program.require_optimizer()
    shards = _run_shards(program, variables, optimizer, sharding, (x, y, sample_weight), rows)
    program.check_all_known()
    totals = _add_shards(shards)
    gradients = _sum_over_ranks(program, sharding, totals)
    if variables:
        step.check_connected(program.model, gradients)
        signals = {"loss": sum_all([totals.loss])[0]} if optimizer.needs_loss else {}
        program.apply_gradients(gradients, variables, **signals)
    return None


def test(
    program: StepProgram,
    sharding: Sharding,
    x: Structure,
    y: Structure,
    sample_weight: Structure,
    rows: int,
) -> None:
    """One evaluation step on this rank's block of a batch; see `train`."""
    if not rows:
        return step.test(program, x, y, sample_weight)
    step.note_uses(program)
    shards = _run_shards(program, (), None, sharding, (x, y, sample_weight), rows)
    _sum_over_ranks(program, sharding, _add_shards(shards))
    return None


# --- one rank's shards ------------------------------------------------------------------------


def _run_shards(
    program: StepProgram,
    variables: Sequence[Variable],
    optimizer: Optimizer | None,
    sharding: Sharding,
    batch: tuple[Structure, Structure, Structure],
    rows: int,
) -> list[_Shard]:
    parts = sharding.parts(rows)
    own = [batch if len(parts) == 1 else tree.map_structure(_rows(*p), batch) for p in parts]
    factors = [rows / (stop - start) for start, stop in parts]

    def run(i: int, shares: Shares, training: bool = True) -> _Shard:
        what = (variables, optimizer) if training else ((), None)
        return _run_shard(program, *what, sharding, sharding.first + i, own[i], shares)

    shards: list[_Shard] = []
    for i, factor in enumerate(factors):
        shares = Shares(factor)
        shards.append(run(i, shares))
        if not shares.complete:
            break
    else:
        return shards
    # A mask or weights: the shards' parts of the divisors first, then all with their sums.
    per_shard: list[list[Tensor]] = []
    with no_gradient():
        for i, factor in enumerate(factors):
            shares = Shares(factor)
            run(i, shares, training=False)
            per_shard.append([t.detach() for t in shares.own])
        totals = sum_all([tree_sum(column, ops.add) for column in zip(*per_shard)])
    return [run(i, Shares(factor, totals)) for i, factor in enumerate(factors)]


def _rows(start: int, stop: int) -> Callable[[Any], Any]:
    return lambda leaf: None if leaf is None else leaf[start:stop]


def _run_shard(
    program: StepProgram,
    variables: Sequence[Variable],
    optimizer: Optimizer | None,
    sharding: Sharding,
    number: int,
    batch: tuple[Structure, Structure, Structure],
    shares: Shares,
) -> _Shard:
    """Return one shard's gradients, loss and contributions to variables."""
    x, y, sample_weight = assemble(batch[0]), *batch[1:]
    training, share = optimizer is not None, 1.0 / shares.factor
    scope = ShardScope(number, sharding.shards, share)
    with using_scope(scope), using_shares(shares):
        predictions = program.model(x, training=training)
        loss = step.loss_of(program.model, x, y, predictions, sample_weight, training)
        step.track_loss(program, loss, x)
        loss = ops.multiply(loss, convert(share, loss.dtype))
        gradients: list[Tensor | None] = []
        if variables and optimizer is not None:
            gradients = gradients_of(optimizer.scale_loss(loss), variables)
        with no_gradient(), using_shares(None):
            program.update_metrics(x, y, predictions, sample_weight)
    with no_gradient():
        # Behind barriers: how a shard is computed must not depend on what else this rank does.
        last = next((g for g in gradients if g is not None and _is_divided(g)), None)
        return _Shard(
            [
                None if g is None else _behind_barrier(g, PIECES if g is last else 1)
                for g in gradients
            ],
            _behind_barrier(loss),
            {v: _behind_barrier(t) for v, t in scope.contributions().items()},
            scope.seeds(),
        )


def _behind_barrier(tensor: Tensor, pieces: int = 1) -> Tensor:
    return optimization_barrier(tensor.detach(), pieces=pieces)


def _is_divided(tensor: Tensor) -> bool:
    return _nbytes(tensor, _summed_as(tensor.dtype)) >= PIECES * ALONE


def _add_shards(shards: Sequence[_Shard]) -> _Shard:
    """Return the sums over one rank's shards."""
    if len(shards) == 1:
        return shards[0]
    with no_gradient():
        gradients = [
            None if column[0] is None else tree_sum(column, ops.add)
            for column in zip(*(s.gradients for s in shards))
        ]
        contributions = {
            v: tree_sum([s.contributions[v] for s in shards], ops.add)
            for v in shards[0].contributions
        }
        loss = tree_sum([s.loss for s in shards], ops.add)
        return _Shard(gradients, loss, contributions, shards[0].seeds)


# --- the sums over ranks ----------------------------------------------------------------------


def _sum_over_ranks(program: StepProgram, sharding: Sharding, own: _Shard) -> list[Tensor | None]:
    """Assign the variables that the shards contribute to; return the gradients of the batch."""
    with no_gradient():
        present = [g for g in own.gradients if g is not None]
        given = [*present, *own.contributions.values()]
        sharding.agree("sum over ranks", tuple((t.shape, t.dtype) for t in given))
        # The reverse pass gives the last variables' gradients first: their sums can start first.
        summed = sum_all([*reversed(present), *own.contributions.values()])
        gradients = iter(summed[: len(present)][::-1])
        totals = dict(zip(own.contributions, summed[len(present) :]))
        for variable, total in totals.items():
            if variable.aggregation != "stack":
                variable.assign(merged(variable, total))
        for metric in program.model.metrics:
            stacked = {v: totals[v] for v in metric.variables if v.aggregation == "stack"}
            if stacked:
                metric.merge_shards(stacked)
        for variable, state in own.seeds.items():
            variable.assign(state)
        return [None if g is None else next(gradients) for g in own.gradients]


def sum_all(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the sums over ranks of several tensors, small ones together.

    Args:
        tensors: of any shapes and dtypes; 16-bit floats are added in float32.
    """
    results: list[Any] = [None] * len(tensors)
    waiting: dict[str, list[int]] = {}
    last = max((i for i, tensor in enumerate(tensors) if _is_divided(tensor)), default=-1)
    for i, tensor in enumerate(tensors):
        dtype = _summed_as(tensor.dtype)
        if _nbytes(tensor, dtype) >= ALONE:
            flat = ops.reshape(ops.cast(tensor, dtype), (-1,))
            total = ops.all_sum(optimization_barrier(flat, pieces=PIECES) if i == last else flat)
            results[i] = _restored(total, tensor)
            continue
        places = waiting.setdefault(dtype, [])
        places.append(i)
        if sum(_nbytes(tensors[p], dtype) for p in places) >= BUCKET:
            _sum_bucket(tensors, waiting.pop(dtype), dtype, results)
    for dtype, places in waiting.items():
        _sum_bucket(tensors, places, dtype, results)
    return results


def _sum_bucket(
    tensors: Sequence[Tensor], places: Sequence[int], dtype: str, results: list[Any]
) -> None:
    flat = [ops.reshape(ops.cast(tensors[i], dtype), (-1,)) for i in places]
    total = ops.all_sum(flat[0] if len(flat) == 1 else ops.concatenate(flat))
    start = 0
    for i in places:
        stop = start + tensors[i].size
        results[i] = _restored(total if len(places) == 1 else total[start:stop], tensors[i])
        start = stop


def _restored(total: Tensor, like: Tensor) -> Tensor:
    result = ops.cast(ops.reshape(total, like.shape), like.dtype)
    # Rounded to 16 bits here, for all readers: a pass would join the cast with some readers.
    return result if result.dtype == total.dtype else optimization_barrier(result)


def _summed_as(dtype: str) -> str:
    if dtype in _SUMMED:
        return dtype
    return "float32" if dtypes.is_float(dtype) else "int32"


def _nbytes(tensor: Tensor, dtype: str) -> int:
    return math.prod(tensor.shape) * int(dtypes.array_dtype(dtype).itemsize)
