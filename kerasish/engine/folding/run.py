"""Running a schedule: as one node of a trace, or group by group on the current engine."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.engine.folding.schedule import INDEX, KINDS, ROOTS, TABLE, leaf_name, result_name
from kerasish.engine.folding.table import FoldedCall, FoldedTable
from kerasish.errors import TraceError
from kerasish.graph.abstract import Abstract
from kerasish.graph.batched_calls import batched_calls
from kerasish.graph.nested import Tracer
from kerasish.ops.op import current_engine, is_inferring
from kerasish.tensor import (
    Tensor,
    VariableScope,
    convert,
    is_traced,
    recording,
    to_numpy,
    using_scope,
)
from kerasish.typing import Array


def run(packed: dict[str, Any], table: FoldedTable, name: str) -> list[Tensor]:
    """Return the results of a folded function for a batch: tensors with a row per structure.

    Args:
        packed: what `schedule.pack` returned, arrays or tensors.
        table: the kinds of calls.
        name: the folded layer, for errors.
    """
    tensors = {key: convert(value) for key, value in packed.items()}
    classes = list(table.classes)[: sum(key.startswith("d_") for key in tensors)]
    leaves = []
    for number, own in enumerate(classes):
        leaf = tensors[leaf_name(number)]
        leaves.append(leaf if leaf.dtype == own.dtype else ops.cast(leaf, own.dtype))
    roots = tensors[ROOTS]
    assert table.root is not None
    kinds = table.root[1]
    if isinstance(tensors[TABLE].value, Abstract) or is_inferring(roots):
        buffers = _on_shapes(table, leaves, kinds)
    elif not is_traced(tensors[TABLE]):
        parts = _by_groups(tensors, table.calls, leaves)
        numbers = to_numpy(roots)
        results = [parts[c].rows(numbers[:, i]) for i, c in enumerate(kinds)]
        return _linked(results, tensors, table, leaves) if recording.on else results
    elif isinstance(current_engine(), Tracer):
        capacity = [tensors[result_name(n)] for n in range(len(classes))]
        calls = table.calls[: tensors[KINDS].shape[0]]
        whole = batched_calls(
            [c.function for c in calls], [c.name for c in calls], tuple(c.inputs for c in calls),
            tuple(c.outputs for c in calls), (tensors[TABLE], tensors[INDEX], leaves, capacity),
        )  # fmt: skip
        buffers = {c: whole[c] for c in kinds}
    else:
        raise TraceError(f"{name} cannot run inside vmap or another transformation of ops.")
    return [ops.take(buffers[c], roots[:, i], axis=0) for i, c in enumerate(kinds)]


def _linked(
    results: list[Tensor], tensors: dict[str, Tensor], table: FoldedTable, leaves: Sequence[Tensor]
) -> list[Tensor]:
    """Return the results with derivatives of zero for weights that this batch does not use.

    Without it these weights would have none, and an optimizer with momentum would leave them as
    they are; a compiled step, which has all kinds of calls, updates them. Calls without rows
    give sums of zero, for any numbers in the weights; what they assign (moments of no rows) is
    dropped.
    """
    rows_of = to_numpy(tensors[TABLE])
    used = set(rows_of[rows_of[:, 1] > 0, 0].tolist())
    total: Any = None
    for number, call in enumerate(table.calls[: tensors[KINDS].shape[0]]):
        if number in used:
            continue
        with using_scope(VariableScope()):
            empty = call.function([leaves[c][:0] for c in call.inputs])
        for result in empty:
            if result.tracked and _is_float(result.dtype):
                part = ops.sum(ops.cast(result, "float32"))
                total = part if total is None else ops.add(total, part)
    if total is None:
        return results
    return [ops.add(r, ops.cast(total, r.dtype)) if _is_float(r.dtype) else r for r in results]


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _on_shapes(
    table: FoldedTable, leaves: Sequence[Tensor], kinds: Sequence[int]
) -> dict[int, Tensor]:
    """Return a few rows of the classes of the results, where only shapes are asked for."""
    parts: dict[int, list[Tensor]] = {}
    for number, leaf in enumerate(leaves):
        parts[number] = [leaf]
    total: Any = None
    for call in table.calls:
        given = [_blank(table, c) for c in call.inputs]
        for c, result in zip(call.outputs, call.function(given)):
            parts.setdefault(c, []).append(result)
            part = ops.sum(ops.cast(result, "float32"))
            total = part if total is None else ops.add(total, part)
    # Each result depends on all weights, as far as a gradient on shapes is concerned.
    results: dict[int, Tensor] = {}
    for c in kinds:
        rows = ops.concatenate(parts[c], axis=0) if len(parts[c]) > 1 else parts[c][0]
        linked = total is not None and _is_float(table.classes[c].dtype)
        results[c] = ops.add(rows, ops.cast(total, rows.dtype)) if linked else rows
    return results


def _blank(table: FoldedTable, number: int) -> Tensor:
    own = table.classes[number]
    return ops.zeros((4, *own.shape), own.dtype)


class _Buffer:
    """The rows of a class while groups run: the given rows, then the results of each group.

    Args:
        leaf: the given rows.
    """

    def __init__(self, leaf: Tensor) -> None:
        self._parts = [leaf]
        self._starts = [0]
        self._ends = [leaf.shape[0]]

    def append(self, start: int, rows: Tensor) -> None:
        """Add the results of a group, which begin at a row behind all others."""
        self._parts.append(rows)
        self._starts.append(start)
        self._ends.append(start + rows.shape[0])

    def rows(self, places: Array) -> Tensor:
        """Return the rows at `places`, read from as few groups as hold them."""
        if not len(places):
            return self._parts[0][:0]
        low, high = int(places.min()), int(places.max())
        first = bisect_right(self._ends, low)
        last = bisect_right(self._starts, high) - 1
        start, part = self._starts[first], self._parts[first]
        if last > first:
            part = ops.concatenate(self._parts[first : last + 1], axis=0)
        if len(places) == part.shape[0] and np.array_equal(
            places, np.arange(start, start + len(places), dtype=places.dtype)
        ):
            return part
        return ops.take(part, places - start, axis=0)


def _by_groups(
    tensors: dict[str, Tensor], calls: Sequence[FoldedCall], leaves: Sequence[Tensor]
) -> dict[int, _Buffer]:
    """Run the calls group by group, by ops; derivatives flow as through any ops."""
    buffers = {number: _Buffer(leaf) for number, leaf in enumerate(leaves)}
    index = to_numpy(tensors[INDEX])
    for kind, count, start, _ in to_numpy(tensors[TABLE]).tolist():
        if not count:
            continue
        call = calls[kind]
        middle = start + len(call.outputs)
        places = index[middle : middle + count * len(call.inputs)].reshape(-1, count)
        results = call.function([buffers[c].rows(row) for c, row in zip(call.inputs, places)])
        for c, first, result in zip(call.outputs, index[start:middle].tolist(), results):
            buffers[c].append(first, result)
    return buffers
