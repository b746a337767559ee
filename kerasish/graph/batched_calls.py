"""A schedule of calls as one node of a graph: each call runs for many rows at once.

The node holds one graph per kind of call and number of rows. Its inputs contain the schedule: the
calls, and the number and indices of the rows of each. So one compiled step can run every schedule
that fits into its arrays. All values of one shape and dtype are the rows of one array, a buffer:
first the given rows, then the results of the calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kerasish.config import using_threads
from kerasish.errors import TraceError
from kerasish.graph.control import ControlOp, _is_float, _slopes_of, _spread, _zeros
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.nested import Inner, Tracer, _captured
from kerasish.ops.op import current_engine
from kerasish.ops.shapes import Spec
from kerasish.tensor import Tensor, record, recording, wrap
from kerasish.typing import Array

WIDTHS = (4, 16, 64, 256, 1024, 4096)  # rows of a compiled call
_CALL_COST = 32  # of a native call, in rows
_ONE_THREAD = 256  # rows up to which a call is too short to wait for other threads


@functools.lru_cache(maxsize=4096)
def chunks(count: int, widths: tuple[int, ...] = WIDTHS) -> tuple[tuple[int, int], ...]:
    """Return (first row, width) of the compiled calls that cover `count` rows at least cost.

    Args:
        count: rows, at least 1.
        widths: the numbers of rows for which there are compiled calls, ascending.

    Example:
        >>> chunks(3), chunks(300), chunks(40)
        (((0, 4),), ((0, 256), (256, 64)), ((0, 64),))
    """
    result: list[tuple[int, int]] = []
    first = 0
    while first < count:
        rest = count - first
        enough = [w for w in widths if w >= rest]
        below = [w for w in widths if w < rest]
        whole = enough[0] if enough else 0
        if whole and (not below or whole + _CALL_COST <= _cost_of_parts(rest, below)):
            result.append((first, whole))
            break
        result.append((first, below[-1]))
        first += below[-1]
    return tuple(result)


def _cost_of_parts(count: int, widths: Sequence[int]) -> int:
    cost = 0
    for width in reversed(widths):
        times, count = divmod(count, width)
        cost += times * (width + _CALL_COST)
    return cost + (widths[0] + _CALL_COST if count else 0)


def _scheduled(
    calls: Array, index: Array, inputs: Sequence[Any], outputs: Sequence[Any]
) -> Iterator[tuple[int, int, Array, Array, int]]:
    """Yield (kind, rows, first row of each result, rows of each argument, repeating ones)."""
    for kind, count, start, repeated in calls.tolist():
        if count:
            middle = start + len(outputs[kind])
            end = middle + count * len(inputs[kind])
            yield (
                kind, count, index[start:middle],
                index[middle:end].reshape(len(inputs[kind]), count), repeated,
            )  # fmt: skip


def _rows_of(buffer: Array, places: Array, width: int) -> Array:
    """Return the rows at `places`; the last one is repeated up to `width` rows."""
    if len(places) < width:
        places = np.concatenate([places, np.full(width - len(places), places[-1], places.dtype)])
    return np.take(buffer, places, axis=0)


def _run(
    runners: Any, table: Array, index: Array, *rest: Any, graphs: Any, inputs: Any, outputs: Any,
    widths: tuple[int, ...], classes: int,
) -> list[Any]:  # fmt: skip
    leaves, capacity, captured = rest[:classes], rest[classes : 2 * classes], rest[2 * classes :]
    buffers = []
    for leaf, rows in zip(leaves, capacity):
        buffer = np.zeros((len(leaf) + len(rows), *leaf.shape[1:]), leaf.dtype)
        buffer[: len(leaf)] = leaf
        buffers.append(buffer)
    for kind, count, firsts, places, _ in _scheduled(table, index, inputs, outputs):
        for low, width in chunks(count, widths):
            high = min(low + width, count)
            arguments = [
                _rows_of(buffers[c], row[low:high], width) for c, row in zip(inputs[kind], places)
            ]
            runner = runners["graphs"][kind * len(widths) + widths.index(width)]
            with using_threads(1 if width <= _ONE_THREAD else None):
                results = runner([*arguments, *captured])
            for c, first, result in zip(outputs[kind], firsts.tolist(), results):
                buffers[c][first + low : first + high] = result[: high - low]
    return buffers


def _shapes(table: Spec, index: Spec, *rest: Spec, classes: int, **attrs: Any) -> list[Spec]:
    leaves, capacity = rest[:classes], rest[classes : 2 * classes]
    return [
        Spec((leaf.shape[0] + rows.shape[0], *leaf.shape[1:]), leaf.dtype)
        for leaf, rows in zip(leaves, capacity)
    ]


def _slopes(
    gs: Sequence[Any], ys: Sequence[Any], table: Tensor, index: Tensor, *rest: Any, graphs: Any,
    inputs: Any, outputs: Any, widths: tuple[int, ...], classes: int,
) -> Sequence[Any]:  # fmt: skip
    captured = rest[2 * classes :]
    floats = tuple(i for i, t in enumerate(captured) if _is_float(t))
    untouched = [None] * (2 + 2 * classes)
    if not floats:
        return [*untouched, *(None for _ in captured)]
    tracer = current_engine()
    if not isinstance(tracer, Tracer):
        raise TraceError("Batched calls are differentiated where they were traced: in a step.")
    arriving = [_zeros(y) if g is None else g for g, y in zip(gs, ys) if _is_float(y)]
    kinds = [k for k in range(len(inputs)) for _ in widths]
    backs = tuple(
        _reverse_of(tracer, graph, len(inputs[k]), floats) for k, graph in zip(kinds, graphs)
    )
    attrs = {
        "graphs": backs, "inputs": inputs, "outputs": outputs, "widths": widths,
        "real": tuple(map(_is_float, ys)), "captured": len(captured), "floats": floats,
    }  # fmt: skip
    entering = [table, index, *captured, *ys, *arriving]
    summed = _write(tracer, _reverse_op(len(floats)), entering, attrs)
    return [*untouched, *_spread(summed, captured)]


def _reverse_of(tracer: Tracer, graph: Graph, arguments: int, floats: tuple[int, ...]) -> Graph:
    """Return the graph (arguments, captured, slopes of results) -> slopes of the floating ones."""
    inner = Inner(tracer)
    with inner.inside():
        entered = [inner.input(v.spec) for v in graph.inputs]
        slopes = [inner.input(v.spec) if _is_float(v) else None for v in graph.outputs]
        results = inner.values_of(_slopes_of(graph, entered, slopes, len(graph.outputs)))
    entering = [*entered, *(g for g in slopes if g is not None)]
    return Graph([t.value for t in entering], inner.constants, inner.nodes, results)


def _run_reverse(
    runners: Any, table: Array, index: Array, *rest: Any, graphs: Any, inputs: Any, outputs: Any,
    widths: tuple[int, ...], real: tuple[bool, ...], captured: int, floats: tuple[int, ...],
) -> list[Any]:  # fmt: skip
    known, buffers = rest[:captured], rest[captured : captured + len(real)]
    arriving = iter(rest[captured + len(real) :])
    slopes = [np.array(next(arriving)) if is_real else None for is_real in real]
    sums = [np.zeros(known[i].shape, known[i].dtype) for i in floats]
    schedule = list(_scheduled(table, index, inputs, outputs))
    for kind, count, firsts, places, repeated in reversed(schedule):
        changed = [j for j, c in enumerate(inputs[kind]) if real[c]]
        for low, width in chunks(count, widths):
            high = min(low + width, count)
            arguments = [
                _rows_of(buffers[c], row[low:high], width) for c, row in zip(inputs[kind], places)
            ]
            here = []
            for c, first in zip(outputs[kind], firsts.tolist()):
                whole = slopes[c]
                if whole is not None:
                    part = np.zeros((width, *whole.shape[1:]), whole.dtype)
                    part[: high - low] = whole[first + low : first + high]
                    here.append(part)
            runner = runners["graphs"][kind * len(widths) + widths.index(width)]
            with using_threads(1 if width <= _ONE_THREAD else None):
                results = runner([*arguments, *known, *here])
            for j, result in zip(changed, results):
                target, rows = slopes[inputs[kind][j]], places[j, low:high]
                if repeated >> j & 1:
                    np.add.at(target, rows, result[: high - low])
                else:
                    target[rows] += result[: high - low]
            for total, result in zip(sums, results[len(changed) :]):
                total += result
    return sums


def _shapes_reverse(
    table: Spec, index: Spec, *rest: Spec, floats: tuple[int, ...], **attrs: Any
) -> list[Spec]:
    return [rest[i] for i in floats]


def _no_slopes(gs: Sequence[Any], ys: Sequence[Any], *inputs: Any, **attrs: Any) -> Sequence[Any]:
    raise TraceError(
        "A second derivative through a folded function is not compiled. Compile the model with "
        "run_eagerly=True, or take the derivative outside a compiled function."
    )


@functools.lru_cache(maxsize=64)
def _forward_op(outputs: int) -> ControlOp:
    return ControlOp("batched_calls", outputs, _run, _shapes, _slopes)


@functools.lru_cache(maxsize=512)
def _reverse_op(outputs: int) -> ControlOp:
    return ControlOp("batched_calls_reverse", outputs, _run_reverse, _shapes_reverse, _no_slopes)


def _write(
    tracer: Tracer, op: ControlOp, inputs: Sequence[Tensor], attrs: dict[str, Any]
) -> list[Tensor]:
    """Write a node; return its results."""
    values = [tracer.value_of(t) for t in inputs]
    specs = op.shape(*(v.spec for v in values), **attrs)
    all_specs = (specs,) if isinstance(specs, Spec) else specs
    outputs = [Value(tuple(s.shape), s.dtype) for s in all_specs]
    tracer.write_node(Node(op, values, attrs, outputs))
    results = [wrap(v) for v in outputs]
    if recording.on and any(t.tracked for t in inputs):
        record(op, inputs, attrs, results)  # type: ignore[arg-type]
    return results


def batched_calls(
    functions: Sequence[Callable[[list[Tensor]], list[Tensor]]],
    names: Sequence[str],
    inputs: tuple[tuple[int, ...], ...],
    outputs: tuple[tuple[int, ...], ...],
    arrays: tuple[Tensor, Tensor, Sequence[Tensor], Sequence[Tensor]],
) -> list[Tensor]:
    """Write a schedule of calls into the current trace; return the buffers.

    Args:
        functions: one per kind of call: tensors with the rows along axis 0 -> results likewise.
        names: the names of the kinds, for errors.
        inputs: the number of the buffer of each argument, for each kind.
        outputs: the number of the buffer of each result, for each kind.
        arrays: (table, index, leaves, capacity). A row of the table is (kind, rows, place in the
            index, bits of the arguments in which rows repeat), int32; 0 rows: no call. At its place
            the index, int32, holds the first row of each result, then the rows of each argument.
            `leaves` are the given rows of each buffer; `capacity` has one element per further row.

    Raises:
        TraceError: a call assigns a variable.
    """
    tracer = current_engine()
    assert isinstance(tracer, Tracer)
    table, index, leaves, capacity = arrays
    most = max(a.shape[0] + b.shape[0] for a, b in zip(leaves, capacity))
    widths = tuple(w for i, w in enumerate(WIDTHS) if i == 0 or WIDTHS[i - 1] < most)
    inners: list[Inner] = []
    results: list[tuple[list[Value], list[Value]]] = []
    for function, name, places in zip(functions, names, inputs):
        for width in widths:
            inner = Inner(tracer)
            with inner.inside():
                arguments = [
                    inner.input(Spec((width, *leaves[c].shape[1:]), leaves[c].dtype))
                    for c in places
                ]
                values = [inner.value_of(t) for t in function(arguments)]
            if inner.written:
                variable = next(iter(inner.written))
                raise TraceError(
                    f"{name} assigns the variable {variable.path!r} in a folded function, where it "
                    "is called for groups of nodes: a compiled step cannot do this. Move the layer "
                    "(Dropout, BatchNormalization ...) behind the folded function, or compile the "
                    "model with run_eagerly=True."
                )
            inners.append(inner)
            results.append(([t.value for t in arguments], values))
    captured = _captured(inners)
    graphs = tuple(
        inner.graph(captured, arguments, results_of_kind)
        for inner, (arguments, results_of_kind) in zip(inners, results)
    )
    attrs = {
        "graphs": graphs, "inputs": inputs, "outputs": outputs, "widths": widths,
        "classes": len(leaves),
    }  # fmt: skip
    entering = [table, index, *leaves, *capacity, *captured.values()]
    return _write(tracer, _forward_op(len(leaves)), entering, attrs)
