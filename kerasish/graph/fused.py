"""Fused nodes: an element-wise body of several ops, as one node of a graph."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from kerasish.graph.interpret import interpret
from kerasish.graph.ir import Graph, GraphOp, Node, Value
from kerasish.ops.shapes import Spec

Dims = tuple[Any, ...]


class FusedBody(NamedTuple):
    """The computation of a fused node.

    Attributes:
        graph: its inputs are the node's inputs, its outputs the node's outputs.
        frame: the shape of the loop.
        split: the number of leading axes of the frame that are rows; None: any number does.
        groups: the number of leading axes that separate the sums over rows (0: none).
        dims: the dims of each value that is computed.
        reads: (index of a node in the graph, index of its input) -> the dims of this read.
    """

    graph: Graph
    frame: tuple[int, ...]
    split: int | None
    groups: int
    dims: dict[Value, Dims]
    reads: dict[tuple[int, int], Dims]

    def __hash__(self) -> int:
        return id(self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FusedBody) and other.graph is self.graph

    def __repr__(self) -> str:
        names = " ".join(n.op.name for n in self.graph.nodes)
        return f"{list(self.frame)} {names}"


def _run_body(xp: Any, *inputs: Any, body: FusedBody) -> Any:
    outputs = interpret(body.graph, inputs, xp)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _body_specs(*inputs: Spec, body: FusedBody) -> Any:
    specs = tuple(v.spec for v in body.graph.outputs)
    return specs[0] if len(specs) == 1 else specs


def make_fused(body: FusedBody) -> Node:
    """Return the node that computes `body`."""
    op = fused_op(len(body.graph.outputs))
    return Node(op, body.graph.inputs, {"body": body}, body.graph.outputs)


@functools.cache
def fused_op(outputs: int) -> GraphOp:
    """Return the op of fused nodes with this number of results."""
    return GraphOp("fused", _run_body, _body_specs, outputs)
