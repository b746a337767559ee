"""If, Loop and Scan."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops
from kerasish.errors import TraceError
from kerasish.export.onnx.reading.registry import (
    OnnxNode,
    axis_of,
    check_size,
    rank_of,
    reads,
    tensor,
)
from kerasish.typing import Structure


def _number(value: Any) -> Any:
    """Return the number of a value; None where a trace does not know it."""
    if isinstance(value, np.ndarray):
        return value.reshape(-1)[0].item()
    try:
        return np.asarray(value).reshape(-1)[0].item()
    except TraceError:
        return None


@reads("If")
def _if(n: OnnxNode) -> Structure:
    condition = _number(n.x)
    branches = {True: n.attr("then_branch"), False: n.attr("else_branch")}
    if condition is not None:
        return n.run(branches[bool(condition)], [])

    def results(which: bool) -> list[Any]:
        return [tensor(y) for y in n.run(branches[which], [])]

    chosen = ops.reshape(ops.cast(tensor(n.x), "bool"), ())
    return ops.cond(chosen, lambda: results(True), lambda: results(False))


@reads("Loop")
def _loop(n: OnnxNode) -> Structure:
    body = n.attr("body")
    states = [n.get(i) for i in range(2, len(n.inputs))]
    most = None if n.get(0) is None else _number(n.get(0))
    go = True if n.get(1) is None else _number(n.get(1))
    if (n.get(0) is not None and most is None) or go is None:
        return _open_loop(n, states)
    rows: list[list[Any]] = []
    count = 0
    while go and (most is None or count < most):
        number = np.array(count, "int64")
        going, *results = n.run(body, [number, np.array(True), *states])
        states, row = results[: len(states)], results[len(states) :]
        rows.append(row)
        count += 1
        known = _number(going)
        if known is None:
            if rows[0]:
                raise ValueError("a loop that ends by computed numbers cannot collect rows")
            return _open_loop(n, [n.get(i) for i in range(2, len(n.inputs))])
        go = known
    return [*states, *_stacked(rows, n)]


def _stacked(rows: list[list[Any]], n: OnnxNode) -> list[Any]:
    graph = n.attr("body")["graph"]
    collected = len(graph["outputs"]) - 1 - max(len(n.inputs) - 2, 0)
    if not rows and collected:
        raise ValueError("a loop that does not run collects no rows")
    return [ops.stack([tensor(row[i]) for row in rows], axis=0) for i in range(collected)]


def _open_loop(n: OnnxNode, states: list[Any]) -> Any:
    """Run a loop whose end a trace does not know."""
    body = n.attr("body")
    collected = len(body["graph"]["outputs"]) - 1 - len(states)
    if collected:
        raise ValueError(
            "a loop whose number of rounds is computed collects rows: their number is not known; "
            "run it on the eager engine"
        )
    most = n.get(0)

    def holds(count: Any, go: Any, *_: Any) -> Any:
        return go if most is None else ops.logical_and(go, ops.less(count, tensor(most)))

    def step(count: Any, go: Any, *values: Any) -> Any:
        going, *results = n.run(body, [count, go, *values])
        return (
            ops.add(count, 1),
            ops.reshape(ops.cast(tensor(going), "bool"), ()),
            *map(tensor, results),
        )

    go = ops.convert_to_tensor(True) if n.get(1) is None else tensor(n.get(1))
    count = ops.convert_to_tensor(np.array(0, "int64"))
    start = (count, ops.reshape(ops.cast(go, "bool"), ()), *map(tensor, states))
    return list(ops.while_loop(holds, step, start))[2:]


@reads("Scan")
def _scan(n: OnnxNode) -> Structure:
    graph = n.attr("body")
    along = int(n.attr("num_scan_inputs"))
    given = [tensor(x) for x in n.inputs if x is not None]
    if n.opset < 9:
        given = [tensor(x) for x in n.inputs[1:] if x is not None]
        return _batched_scan(n, graph, given, along)
    states, sequences = given[: len(given) - along], given[len(given) - along :]
    axes = n.attr("scan_input_axes") or [0] * along
    back = n.attr("scan_input_directions") or n.attr("directions") or [0] * along
    rows = []
    for x, axis, reverse in zip(sequences, axes, back):
        x = ops.moveaxis(x, axis_of(axis, rank_of(x)), 0)
        rows.append(ops.flip(x, 0) if reverse else x)
    states, results = _scanned(n, graph, states, rows)
    out_axes = n.attr("scan_output_axes") or [0] * len(results)
    out_back = n.attr("scan_output_directions") or [0] * len(results)
    results = [
        ops.moveaxis(ops.flip(y, 0) if reverse else y, 0, axis_of(axis, rank_of(y)))
        for y, axis, reverse in zip(results, out_axes, out_back)
    ]
    return [*states, *results]


def _scanned(
    n: OnnxNode, graph: Any, states: list[Any], rows: list[Any]
) -> tuple[list[Any], list[Any]]:
    count = len(states)

    def step(carry: Any, parts: Any) -> Any:
        results = [tensor(y) for y in n.run(graph, [*carry, *parts])]
        return results[:count], results[count:]

    last, collected = ops.scan(step, list(states), list(rows), length=int(rows[0].shape[0]))
    return list(last), list(collected)


def _batched_scan(n: OnnxNode, graph: Any, given: list[Any], along: int) -> Any:
    """Run Scan of opset 8: the first axis of everything counts examples."""
    states, sequences = given[: len(given) - along], given[len(given) - along :]
    every = []
    (count,) = check_size(sequences[0].shape[:1])
    for i in range(count):
        last, rows = _scanned(n, graph, [s[i] for s in states], [x[i] for x in sequences])
        every.append([*last, *rows])
    return [ops.stack(list(column), axis=0) for column in zip(*every)]
