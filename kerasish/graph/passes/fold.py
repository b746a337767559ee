"""Constant folding: compute at compile time what depends only on constants."""

from __future__ import annotations

import numpy as np

from kerasish.graph.ir import Graph, Node

# For a larger constant, computing it in each step costs less than its memory.
LARGEST = 4096


def fold_constants(graph: Graph) -> Graph:
    """Return the graph with constant expressions replaced by their values."""
    constants = dict(graph.constants)
    nodes: list[Node] = []
    for node in graph.nodes:
        if not constants.keys() >= set(node.inputs) or node.op.communicates:
            nodes.append(node)
            continue
        # A node without inputs and native code would be computed by NumPy in each step.
        by_numpy = not node.inputs and node.op.native is None
        small = by_numpy or all(v.size <= LARGEST for v in node.outputs)
        # A repeated number is cheaper to compute where it is used than to read from memory.
        repeats = node.op.repeats and node.outputs[0].size > 1
        if not small or repeats:
            nodes.append(node)
            continue
        with np.errstate(all="ignore"):
            out = node.op.kernel(np, *(constants[v] for v in node.inputs), **node.attrs)
        results = (out,) if node.op.outputs == 1 else out
        constants.update((v, np.asarray(r)) for v, r in zip(node.outputs, results))
    if len(nodes) == len(graph.nodes):
        return graph
    return graph.replace(constants=constants, nodes=nodes)
