"""Dead code elimination: drop nodes whose results are not read."""

from __future__ import annotations

from kerasish.graph.ir import Graph, Node


def drop_dead(graph: Graph) -> Graph:
    """Return the graph without unused nodes and constants; unused inputs stay."""
    live = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs):
            live.update(node.inputs)
            kept.append(node)
    constants = {v: a for v, a in graph.constants.items() if v in live}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return graph.replace(nodes=kept[::-1], constants=constants)
