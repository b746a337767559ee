"""Graphs as formulas: the computation and the amount of work of each node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.graph.control import graphs_of
from kerasish.graph.fused import FusedBody
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.fuse_attention import AttentionBody
from kerasish.graph.passes.fuse_epilogues import apart
from kerasish.graph.passes.recurrences import described
from kerasish.graph.work import flops_of
from kerasish.ops import dtypes
from kerasish.tensor import Variable

_LONGEST = 400  # characters of a formula; longer ones are split where a value has a name


class Statement(NamedTuple):
    """A node as a formula.

    Attributes:
        text: "name = formula".
        node: the node.
    """

    text: str
    node: Node


def pieces(node: Node) -> Sequence[Node]:
    """Return the nodes of single ops that a node combines; for a node of one op, the node."""
    body = node.attrs.get("body")
    if isinstance(body, (FusedBody, AttentionBody)):
        nodes: Sequence[Node] = body.graph.nodes
        return nodes
    if node.op.name == "masked_recurrence":
        return described(node).nodes
    return apart(node) if "what" in node.attrs else [node]


def work_of(node: Node) -> int:
    """Return the floating-point operations of a node; per iteration if their number is unknown."""
    graphs = graphs_of(node.attrs) if node.op.kind == "control" else {}
    if graphs:
        inner = [sum(map(work_of, g.nodes)) for several in graphs.values() for g in several]
        branches = "graphs" in graphs
        return max(inner) if branches else sum(inner) * int(node.attrs.get("length", 1))
    total = 0
    for piece in pieces(node):
        op: Any = piece.op
        if hasattr(op, "flops"):
            shapes = [v.shape for v in piece.inputs], [v.shape for v in piece.outputs]
            total += int(flops_of(op, *shapes))
    return total


def bytes_of(values: Sequence[Value]) -> int:
    """Return the bytes of values, each counted once."""
    return sum(v.size * int(dtypes.array_dtype(v.dtype).itemsize) for v in dict.fromkeys(values))


def results_of(node: Node) -> str:
    """Return dtypes and shapes of the results of a node."""
    return ", ".join(f"{v.dtype}{list(v.shape)}" for v in node.outputs)


class Names:
    """Names of values: those of variables and arguments, then those of layers, numbered.

    Args:
        given: the names of values that have one.
        paths: value -> the layers that compute it.
    """

    def __init__(self, given: Mapping[Value, str], paths: Mapping[Value, str]) -> None:
        self._names, self._paths = dict(given), paths
        self._counts: dict[str, int] = {}

    def of(self, value: Value) -> str:
        """Return the name of a value."""
        known = self._names.get(value)
        if known is None:
            base = re.sub(r"\W", "_", self._paths.get(value, "").rpartition("/")[2]) or "t"
            number = self._counts[base] = self._counts.get(base, -1) + 1
            known = self._names[value] = f"{base}.{number}"
        return known


def named_inputs(
    graph: Graph, arguments: Sequence[str], variables: Sequence[Variable]
) -> dict[Value, str]:
    """Return the names of a graph's inputs: of its arguments, then of variables, by their paths."""
    return dict(zip(graph.inputs, [*arguments, *(v.path for v in variables)]))


def statements(graph: Graph, names: Names) -> list[Statement]:
    """Return a graph's nodes as formulas, in order; a fused node is one formula per result."""
    constants = dict(graph.constants)
    return [Statement("; ".join(_formulas(node, names, constants)), node) for node in graph.nodes]


def _formulas(node: Node, names: Names, constants: dict[Value, Any]) -> Iterator[str]:
    inner = pieces(node)
    if len(inner) == 1:
        given = [_shown(v, names, constants) for v in inner[0].inputs]
        yield f"{_targets(node, names)} = {_expression(inner[0], given)}"
        return
    body = node.attrs.get("body")
    if body is not None:
        constants = {**constants, **body.graph.constants}
    uses: dict[Value, int] = {}
    for piece in inner:
        for v in piece.inputs:
            uses[v] = uses.get(v, 0) + 1
    texts: dict[Value, str] = {}  # of values that are read once, inside this node
    for piece in inner:
        given = [texts.get(v) or _shown(v, names, constants) for v in piece.inputs]
        text = _expression(piece, given)
        outside = any(v in node.outputs for v in piece.outputs)
        once = len(piece.outputs) == 1 and uses.get(piece.out, 0) == 1
        if once and not outside and len(text) <= _LONGEST:
            texts[piece.out] = f"({text})" if _symbol(piece) else text
        else:
            yield f"{_targets(piece, names)} = {text}"


def _targets(node: Node, names: Names) -> str:
    return ", ".join(names.of(v) for v in node.outputs)


def _shown(v: Value, names: Names, constants: Mapping[Value, Any]) -> str:
    array = constants.get(v)
    if array is None:
        return names.of(v)
    array = np.asarray(array)
    if array.size == 1:
        return f"{array.reshape(()).item():.6g}" if array.dtype.kind == "f" else str(array.item())
    if array.size and array.dtype.kind in "fiub" and (array == array.flat[0]).all():
        return f"{array.flat[0]:.6g}"
    return f"constant{list(array.shape)}"


def _symbol(node: Node) -> str:
    return node.op.symbol


def _expression(node: Node, given: Sequence[str]) -> str:
    symbol = _symbol(node)
    if symbol and len(given) == 2:
        return f"{given[0]} {symbol} {given[1]}"
    if symbol and len(given) == 1:
        return f"{symbol}{given[0]}"
    attrs = [f"{name}={_attribute(value)}" for name, value in node.attrs.items()]
    return f"{node.op.name}({', '.join([*given, *attrs])})"


def _attribute(value: object) -> str:
    if isinstance(value, Graph):
        return f"{{{len(value.nodes)} nodes}}"
    if isinstance(value, tuple) and value and isinstance(value[0], Graph):
        return ", ".join(map(_attribute, value))
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
