"""Compute equal expressions once."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.graph.ir import Graph, Node, Value


def _constant_key(value: Value, array: Any) -> Any:
    array = np.asarray(array)
    if array.size > 64:
        return id(value)
    return (value.dtype, value.shape, array.tobytes())


def _attribute_key(attrs: dict[str, Any]) -> Any:
    # 1, 1.0 and True are equal but not the same attribute; so are 0.0 and -0.0.
    return tuple([(k, repr(v)) for k, v in attrs.items()]) if attrs else ()


def share_common(graph: Graph) -> Graph:
    """Return the graph in which equal nodes, and equal constants, stand once."""
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
        key = (node.op.name, inputs, _attribute_key(node.attrs))
        first_node = seen.get(key)
        if first_node is not None:
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
