"""Early communication: what is sent to other ranks is sent as soon as it is there.

The sums over ranks are written after the reverse pass; the gradients of the last layers are ready
long before its end. This pass moves each node that communicates, with the moves of memory that
feed it, to the place where its last input is computed. Nodes that communicate keep their order, so
that all ranks communicate in one order even where they fuse other nodes in other ways.
"""

from __future__ import annotations

from collections import deque

from kerasish.graph.ir import Graph, Node, Value


def hoist_exchanges(graph: Graph) -> Graph:
    """Return the graph with nodes that communicate as early as their inputs allow."""
    exchanges = [node for node in graph.nodes if node.op.communicates]
    if not exchanges:
        return graph
    groups = _groups(graph, exchanges)
    early = {node for group in groups for node in group}
    known: set[Value] = set(graph.inputs) | set(graph.constants)
    order: list[Node] = []
    waiting = deque(groups)

    def emit(nodes: list[Node]) -> None:
        order.extend(nodes)
        known.update(v for node in nodes for v in node.outputs)

    def emit_ready() -> None:
        while waiting and _needs(waiting[0]) <= known:
            emit(waiting.popleft())

    emit_ready()
    for node in graph.nodes:
        if node not in early:
            emit([node])
            emit_ready()
    return graph if order == list(graph.nodes) else graph.replace(nodes=order)


def _groups(graph: Graph, exchanges: list[Node]) -> list[list[Node]]:
    """Return each exchange behind the moves of memory that feed it alone or first."""
    makers = graph.makers()
    place = {node: i for i, node in enumerate(graph.nodes)}
    taken: set[Node] = set()
    groups = []
    for exchange in exchanges:
        group, pending = {exchange}, [*exchange.inputs]
        while pending:
            maker = makers.get(pending.pop())
            if maker is None or maker in taken or maker in group or not _moves(maker):
                continue
            group.add(maker)
            pending.extend(maker.inputs)
        taken |= group
        groups.append(sorted(group, key=place.__getitem__))
    return groups


def _moves(node: Node) -> bool:
    return node.op.kind == "movement" or node.op.view or node.op.aliases


def _needs(group: list[Node]) -> set[Value]:
    produced = {v for node in group for v in node.outputs}
    return {v for node in group for v in node.inputs} - produced
