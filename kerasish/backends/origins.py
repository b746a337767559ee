"""The origins of the values of a step, and the step as formulas."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kerasish.backends.backend import Formula, Timing
from kerasish.graph.formulas import (
    Names,
    bytes_of,
    named_inputs,
    pieces,
    results_of,
    statements,
    work_of,
)
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes import FUSION_PASSES
from kerasish.graph.passes import optimize as run_passes
from kerasish.graph.passes.widen import widen_halves
from kerasish.graph.trace import Traced


class Origins:
    """The origins of the values of a compiled plan: layers, and lines of the user's code.

    Args:
        traced: the trace of the step.
        graph: the graph that runs. If the step uses the plan of an equal step, its values are those
            of that step.
        first: the values of the trace that the plan was compiled from, in order; None for those
            that are not known.

    Attributes:
        described: the records of the last timed run, their timings without the seconds, and the
            number of each record's timing.
    """

    def __init__(self, traced: Traced, graph: Graph, first: Sequence[Value | None]) -> None:
        own = traced_values(traced.graph)
        same = {v: other for v, other in zip(own, first) if other is not None}
        self.paths = {same.get(v, v): path for v, path in traced.paths.items()}
        self.lines = {same.get(v, v): f"{file}:{line}" for v, (file, line) in traced.lines.items()}
        self.makers: dict[Value, tuple[Node, Node]] = {}  # value -> (node, the part of it)
        for node in graph.nodes:
            for piece in pieces(node):
                self.makers.update(dict.fromkeys(piece.outputs, (node, piece)))
            self.makers.update(dict.fromkeys(node.outputs, (node, node)))
        self.described: tuple[list[tuple[str, Any]], list[Timing], list[int]] = ([], [], [])

    def layer(self, values: Sequence[Value]) -> str:
        """Return the layers that compute values; "" if none is known."""
        return self._first(self.paths, values)

    def line(self, values: Sequence[Value]) -> str:
        """Return the user's line that computes values; "" if none is known."""
        return self._first(self.lines, values)

    def _first(self, known: Mapping[Value, str], values: Sequence[Value]) -> str:
        return next((known[v] for v in self._near(values) if v in known), "")

    def _near(self, values: Sequence[Value]) -> Iterator[Value]:
        """Yield values, then the values that nodes combine, the last first, then inputs."""
        yield from values
        makers = [self.makers[v][0] for v in values if v in self.makers]
        for node in makers:
            yield from node.outputs
            for piece in reversed(pieces(node)):
                yield from piece.outputs
        for node in makers:
            yield from node.inputs

    def work(self, writes: Sequence[Value], others: set[Value]) -> int:
        """Return the floating-point operations of a unit.

        Args:
            writes: what it computes.
            others: the values that units compute: a part of a node that a separate unit computes
                counts there.
        """
        total = 0
        for node, part in dict.fromkeys(self.makers[v] for v in writes if v in self.makers):
            total += work_of(part)
            if part is node:
                own = [p for p in pieces(node) if p is not node and p.out not in node.outputs]
                total -= sum(work_of(p) for p in own if p.out in others)
        return total


def traced_values(graph: Graph) -> list[Value]:
    """Return the results of a graph's nodes in order: equal graphs have them at equal places."""
    return [v for node in graph.nodes for v in node.outputs]


_BATCH = ("x", "y", "sample_weight")


def stages(
    traced: Traced, level: str, halves: Sequence[str], function: Callable[..., Any]
) -> list[tuple[str, list[Formula]]]:
    """Return (name, formulas) of a graph as traced, after each pass that changes it, and fused.

    Args:
        traced: the trace.
        level: the level of optimization.
        halves: the 16-bit dtypes that are computed in float32.
        function: the step, whose arguments have names.
    """
    arguments = _argument_names(function, traced.arguments)
    graphs = [("traced", traced.graph)]

    def watch(name: str, before: Graph, after: Graph) -> None:
        if after is not graphs[-1][1]:
            graphs.append((name, after))

    graph = widen_halves(traced.graph, halves)
    watch("widen_halves", traced.graph, graph)
    graph = run_passes(graph, level, watch)
    watch("drop_dead", graph, graph)
    if level == "fast_run":
        for step in FUSION_PASSES:
            after = step(graph)
            watch(step.__name__, graph, after)
            graph = after
    lines = {v: f"{file}:{line}" for v, (file, line) in traced.lines.items()}
    results = []
    for name, graph in graphs:
        given = named_inputs(graph, arguments, traced.variables)
        names, origins = Names(given, traced.paths), Origins(traced, graph, ())
        origins.lines = lines
        formulas = [_formula(s.text, s.node, origins) for s in statements(graph, names)]
        results.append((name, formulas))
    return results


def _formula(text: str, node: Node, origins: Origins) -> Formula:
    outputs = node.outputs
    nbytes = bytes_of((*node.inputs, *outputs))
    layer, line = origins.layer(outputs), origins.line(outputs)
    return Formula(text, results_of(node), layer, line, work_of(node), nbytes)


def _argument_names(function: Callable[..., Any], count: int) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if not names and count <= len(_BATCH):
        names = list(_BATCH)  # a step of a model in a wrapper
    return names[:count] if len(names) >= count else [f"input_{i}" for i in range(count)]
