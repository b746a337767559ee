"""Control flow: branches as `If`, loops as `Loop`, loops along sequences as `Scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasish.export.onnx.registry import Call, translates
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.graph.symbolic import SymbolicGraph
from kerasish.ops.shapes import Spec

Body = Callable[[OnnxWriter, list[Item]], list[Item]]


def subgraph(w: OnnxWriter, name: str, specs: Sequence[Spec], body: Body) -> tuple[Any, list[Item]]:
    """Return (graph, its results): the graph of a node's attribute.

    Args:
        w: the writer of the graph around it.
        name: what it is called.
        specs: of its inputs.
        body: returns the results for a writer and the inputs.
    """
    inner = OnnxWriter(w.opset, outer=w)
    inner.path = w.path
    inputs = [Item(inner.name(f"{name}_in"), s.dtype, s.shape) for s in specs]
    results = body(inner, inputs)
    outputs = [inner.export_item(y, inner.name(f"{name}_out")) for y in results]
    helper = w.onnx.helper

    def info(x: Item) -> Any:
        sizes = [n if type(n) is int else None for n in x.shape]
        return helper.make_tensor_value_info(x.name, w.code(x.dtype), sizes)

    # A result's sizes are left to the runtime: those of a loop's state may not be said twice.
    outs = [
        helper.make_tensor_value_info(y.name, w.code(y.dtype), [None] * len(y.shape))
        for y in outputs
    ]
    return helper.make_graph(inner.nodes, w.name(name), list(map(info, inputs)), outs), results


def scan(
    w: OnnxWriter,
    states: Sequence[Item],
    along: Sequence[Item],
    step: Callable[[OnnxWriter, list[Item], list[Item]], tuple[list[Item], list[Item]]],
    outputs: Sequence[Spec],
    reverse: bool = False,
) -> list[Item]:
    """Return the last states and the rows of a loop along the first axis of `along`.

    Args:
        states: what enters the first step.
        along: the sequences.
        step: returns (new states, rows) for a writer, the states, and a part of each sequence.
        outputs: the specs of the results.
        reverse: whether the loop runs from the last part to the first.
    """
    count = len(states)

    def body(inner: OnnxWriter, given: list[Item]) -> list[Item]:
        new, rows = step(inner, given[:count], given[count:])
        return [*new, *rows]

    specs = [Spec(x.shape, x.dtype) for x in states]
    specs += [Spec(x.shape[1:], x.dtype) for x in along]
    graph, results = subgraph(w, "scan_body", specs, body)
    rows = len(results) - count
    return w.ops(
        "Scan",
        [*states, *along],
        [(s.dtype, s.shape) for s in outputs],
        body=graph,
        num_scan_inputs=len(along),
        scan_input_directions=[int(reverse)] * len(along),
        scan_output_directions=[int(reverse)] * rows if rows else None,
    )


def _translated(inner: OnnxWriter, graph: SymbolicGraph, inputs: Sequence[Item]) -> list[Item]:
    # The translator of nodes is above this file: it is handed down by the root writer.
    result: list[Item] = inner.root.translate(inner, graph, inputs)
    return result


@translates("scan_along")
def _scan_along(w: OnnxWriter, call: Call) -> list[Item]:
    attrs = call.attrs
    carried, scanned = attrs["carried"], attrs["scanned"]
    states, along = call.inputs[:carried], call.inputs[carried : carried + scanned]
    captured = call.inputs[carried + scanned :]

    def step(
        inner: OnnxWriter, given: list[Item], parts: list[Item]
    ) -> tuple[list[Item], list[Item]]:
        results = _translated(inner, attrs["body"], [*given, *parts, *captured])
        before = given if attrs["trail"] else []
        return results[:carried], [*results[carried:], *before]

    if not along:
        along = [_counter(w, attrs["length"])]
        plain = step
        return scan(
            w, states, along, lambda i, s, _: plain(i, s, []), call.outputs, attrs["reverse"]
        )
    return scan(w, states, along, step, call.outputs, attrs["reverse"])


def _counter(w: OnnxWriter, length: Any) -> Item:
    """Return a sequence without content that gives a loop its number of steps."""
    return w.op("Expand", [w.like(0, "int32"), w.size(length)], "int32", (length,))


@translates("loop")
def _loop(w: OnnxWriter, call: Call) -> list[Item]:
    attrs = call.attrs
    carried = attrs["carried"]
    states, captured = call.inputs[:carried], call.inputs[carried:]

    def holds(writer: OnnxWriter, values: Sequence[Item]) -> Item:
        return _translated(writer, attrs["test"], [*values, *captured])[0]

    def body(inner: OnnxWriter, given: list[Item]) -> list[Item]:
        new = _translated(inner, attrs["body"], [*given[2:], *captured])
        return [holds(inner, new), *new]

    most = None if attrs["most"] is None else w.like(attrs["most"], "int64")
    specs = [Spec((), "int64"), Spec((), "bool"), *(Spec(x.shape, x.dtype) for x in states)]
    graph, _ = subgraph(w, "loop_body", specs, body)
    first = holds(w, states)
    return w.ops(
        "Loop", [most, first, *states], [(s.dtype, s.shape) for s in call.outputs], body=graph
    )


@translates("branch")
def _branch(w: OnnxWriter, call: Call) -> list[Item]:
    index, *captured = call.inputs
    return _chosen(w, index, captured, list(call.attrs["graphs"]), 0, call.outputs)


def _chosen(
    w: OnnxWriter, index: Item, captured: list[Item], graphs: list[SymbolicGraph], first: int,
    outputs: Sequence[Spec],
) -> list[Item]:  # fmt: skip
    """Return the results of `graphs[index - first]`: one `If` for each graph but the last."""
    if len(graphs) == 1:
        return _translated(w, graphs[0], captured)

    def this(inner: OnnxWriter, _: list[Item]) -> list[Item]:
        return _translated(inner, graphs[0], captured)

    def others(inner: OnnxWriter, _: list[Item]) -> list[Item]:
        return _chosen(inner, index, captured, graphs[1:], first + 1, outputs)

    condition = w.op("LessOrEqual", [index, w.like(first, index.dtype)], "bool", ())
    then_graph, _ = subgraph(w, "then", [], this)
    else_graph, _ = subgraph(w, "else", [], others)
    return w.ops(
        "If", [condition], [(s.dtype, s.shape) for s in outputs],
        then_branch=then_graph, else_branch=else_graph,
    )  # fmt: skip
