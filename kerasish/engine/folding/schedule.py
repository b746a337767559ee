"""A schedule: the calls of many structures, those of one kind and level together, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.engine.folding.recorder import CallRecord
from kerasish.engine.folding.table import FoldedTable
from kerasish.typing import Array

ROOTS, TABLE, INDEX, KINDS = "a_roots", "b_calls", "c_index", "f_kinds"
_SLACK = 1.25  # packed arrays are this much longer than needed, so that later batches fit too
_MOST_UNUSED = 4.0  # how many times larger than needed packed arrays may be


def leaf_name(number: int) -> str:
    """Return the key of the given rows of a class in packed arrays."""
    return f"d_rows{number:04d}"


def result_name(number: int) -> str:
    """Return the key of the array whose length is the capacity for results of a class."""
    return f"e_room{number:04d}"


def is_packed(x: object) -> bool:
    """Return whether x is a batch of structures as packed arrays, of one folded layer."""
    return isinstance(x, dict) and ROOTS in x and TABLE in x


def pack(records: Sequence[CallRecord], table: FoldedTable) -> dict[str, Array]:
    """Return the schedule of some structures as arrays, for `graph.batched_calls`.

    The arrays have one of a few lists of sizes, so that few programs cover all batches.

    Args:
        records: the finished record of each structure.
        table: the kinds of calls.
    """
    known = len(table.calls)  # first: their classes are among those that are counted later
    counts = [r.count for r in records]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    starts = offsets[:-1]
    kinds, levels = _joined(records, "kinds"), _joined(records, "levels")
    per_record = [len(r.kinds) for r in records]
    firsts = _joined(records, "firsts") + np.repeat(starts, per_record)
    arguments = _joined(records, "arguments") + np.repeat(
        starts, [len(r.arguments) for r in records]
    )
    arities = np.array([len(c.inputs) for c in table.calls] or [0], np.int64)
    begins = np.concatenate([[0], np.cumsum(arities[kinds])])[:-1].astype(np.int64)
    order = np.lexsort((kinds, levels))
    changes = np.flatnonzero(np.diff(kinds[order]) | np.diff(levels[order])) + 1
    groups = np.split(order, changes) if len(order) else []
    leaves = _leaves(records, starts, table)
    sizes = _sizes(groups, kinds, leaves, table)

    row_of = np.zeros(int(offsets[-1]) + 1, np.int32)
    result: dict[str, Array] = {
        ROOTS: np.zeros((len(records), len(table.root[1]) if table.root else 0), np.int32),
        TABLE: np.zeros((sizes[0], 4), np.int32),
        INDEX: np.zeros(sizes[1], np.int32),
    }
    next_row = []
    for number, (numbers, rows) in enumerate(leaves):
        row_of[numbers] = np.arange(len(numbers), dtype=np.int32)
        own = sizes[2 + number]
        shape = table.classes[number].shape
        whole = np.zeros((own, *shape), table.array_dtype(number))
        if len(numbers):
            whole[: len(numbers)] = rows
        result[leaf_name(number)] = whole
        next_row.append(own)
    for number in range(len(leaves)):
        result[result_name(number)] = np.zeros(sizes[2 + len(leaves) + number], np.uint8)
    place = 0
    for i, group in enumerate(groups):
        kind, count = int(kinds[group[0]]), len(group)
        call = table.calls[kind]
        result[TABLE][i, :3] = kind, count, place
        for j, c in enumerate(call.outputs):
            row_of[firsts[group] + j] = np.arange(next_row[c], next_row[c] + count, dtype=np.int32)
            result[INDEX][place] = next_row[c]
            next_row[c] += count
            place += 1
        for j in range(len(call.inputs)):
            rows = row_of[arguments[begins[group] + j]]
            result[INDEX][place : place + count] = rows
            place += count
            if len(np.unique(rows)) < count:
                result[TABLE][i, 3] |= 1 << j
    roots = np.array([r.roots for r in records], np.int64).reshape(result[ROOTS].shape)
    result[ROOTS][:] = row_of[roots + starts[:, None]]
    result[KINDS] = np.zeros(max(known, 1), np.uint8)
    return result


def _joined(records: Sequence[CallRecord], name: str) -> Array:
    return np.concatenate([getattr(r, name) for r in records] or [np.zeros(0, np.int32)])


def _leaves(
    records: Sequence[CallRecord], starts: Array, table: FoldedTable
) -> list[tuple[Array, Any]]:
    """Return (numbers of the values, rows) of the given data, for each class."""
    result: list[tuple[Array, Any]] = []
    for number in range(len(table.classes)):
        numbers: list[Array] = []
        rows: list[Any] = []
        for record, start in zip(records, starts):
            own = record.leaves.get(number)
            if own is not None:
                numbers.append(np.array(own[0], np.int64) + start)
                rows.extend(own[1])
        joined = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
        result.append((joined, np.array(rows, table.array_dtype(number)) if rows else rows))
    return result


def _sizes(
    groups: Sequence[Array], kinds: Array, leaves: Sequence[Any], table: FoldedTable
) -> tuple[int, ...]:
    """Return the sizes of the packed arrays: calls, index, given rows, capacity for results."""
    index, capacity = 0, [0] * len(leaves)
    for group in groups:
        call = table.calls[int(kinds[group[0]])]
        index += len(call.outputs) + len(call.inputs) * len(group)
        for c in call.outputs:
            capacity[c] += len(group)
    needed = (len(groups), index, *(len(numbers) for numbers, _ in leaves), *capacity)
    with table.lock:
        best: tuple[int, ...] | None = None
        for known in table.capacities:
            fits = len(known) == len(needed) and all(n <= k for n, k in zip(needed, known))
            if fits and sum(known) <= _MOST_UNUSED * (sum(needed) + 64):
                best = known if best is None or sum(known) < sum(best) else best
        if best is None:
            best = tuple(_ceiling(n) for n in needed)
            table.capacities.append(best)
    return best


def _ceiling(count: int) -> int:
    """Return a round size above `count`; at least 1."""
    padded = int(count * _SLACK) + (4 if count else 0)
    step = max(4, 1 << max(padded.bit_length() - 3, 0))
    return max(1, -(-padded // step) * step)
