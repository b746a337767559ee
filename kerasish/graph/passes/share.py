"""Common subexpression elimination: compute equal expressions once."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.structure import Incomparable, attributes_key
from kerasish.typing import Array


def _constant_key(value: Value, array: Array) -> int | tuple[Any, ...]:
    array = np.asarray(array)
    if array.size > 64:
        return id(value)
    return (value.dtype, value.shape, array.tobytes())


def _attributes_key(node: Node) -> Any:
    try:
        return attributes_key(node)
    except Incomparable:
        return id(node)  # equal only to itself


def share_common(graph: Graph) -> Graph:
    """Return the graph in which equal nodes, and equal constants, occur once."""
    swaps: dict[Value, Value] = {}
    constants: dict[Value, Any] = {}
    seen: dict[Any, Any] = {}
    for value, array in graph.constants.items():
        first = seen.setdefault(_constant_key(value, array), value)
        if first is value:
            constants[value] = array
        else:
            swaps[value] = first
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = node.inputs
        if swaps:
            inputs = tuple([swaps.get(v, v) for v in inputs])
        met = inputs
        if node.op.commutative and id(inputs[0]) > id(inputs[1]):
            met = inputs[::-1]
        key = (node.op, met, _attributes_key(node))
        first_node = seen.get(key)
        # Sums may be equal on one rank only, but all must communicate the same number of times.
        if first_node is not None and node.op.communicates != "sum":
            swaps.update(zip(node.outputs, first_node.outputs))
            continue
        if inputs != node.inputs:
            node = Node(node.op, inputs, node.attrs, node.outputs)
        seen[key] = node
        nodes.append(node)
    if not swaps:
        return graph
    outputs = tuple([swaps.get(v, v) for v in graph.outputs])
    return graph.replace(nodes=nodes, constants=constants, outputs=outputs)
