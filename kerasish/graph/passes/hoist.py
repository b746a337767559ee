"""Early communication: values are sent to other ranks as soon as they are computed.

The trace contains the sums over ranks after the reverse pass, but the gradients of the last layers
are ready long before its end. This pass moves each node that communicates, with the moves of memory
that feed it, to the place where its last input is computed. It also moves the product that such a
node sends: the gradient of a layer's kernel is computed before that of the layer's input, whose
product then runs while the sum is in flight. Nodes that communicate keep their order, so that all
ranks communicate in the same order even if they fuse other nodes differently.

A node that gathers a divided variable keeps its place: see `spread_gathers`. In such a graph memory
matters: products also keep their places, and a rank's part is cut out of a sum once the next sum is
started, when the first one's memory is free.
"""

from __future__ import annotations

from collections import deque

from kerasish.graph.ir import Graph, Node, Value


def hoist_exchanges(graph: Graph) -> Graph:
    """Return the graph with nodes that communicate as early as their inputs allow."""
    exchanges = [node for node in graph.nodes if node.op.communicates]
    if not exchanges:
        return graph
    groups = exchange_groups(graph, exchanges)
    late = {node for node in exchanges if is_late(node, graph)}
    early = {node for group in groups for node in group}
    sources: set[Node] = set()
    if not late:
        groups, sources = _with_sources(graph, groups)
    known: set[Value] = set(graph.inputs) | set(graph.constants)
    order: list[Node] = []
    waiting = deque(groups)
    cuts = _cuts(graph, early) if late else {}
    cutting = {node for nodes in cuts.values() for node in nodes}
    uncut: list[Node] = []  # the cuts of the sum that was started last

    def emit(nodes: list[Node]) -> None:
        missing = [n for n in nodes if n not in sources or not known.issuperset(n.outputs)]
        order.extend(missing)
        known.update(v for node in missing for v in node.outputs)

    def emit_ready() -> None:
        while waiting and waiting[0][-1] not in late and _needs(waiting[0]) <= known:
            emit_group(waiting.popleft())

    def emit_group(group: list[Node]) -> None:
        emit(group)
        if group[-1] in cuts:
            emit(uncut)
            uncut[:] = cuts[group[-1]]

    emit_ready()
    for node in graph.nodes:
        if node in late:
            while waiting[0][-1] is not node:  # these are before it
                emit_group(waiting.popleft())
            emit(waiting.popleft())
        elif node not in early and node not in cutting:
            if not known.issuperset(node.inputs):
                emit(uncut)
                uncut.clear()
            emit([node])
        emit_ready()
    emit(uncut)
    return graph if order == list(graph.nodes) else graph.replace(nodes=order)


def is_late(node: Node, graph: Graph) -> bool:
    """Return whether a node gathers a variable that is divided among the ranks."""
    return node.op.communicates == "gather" and node.inputs[0] in graph.inputs


def exchange_groups(graph: Graph, exchanges: list[Node]) -> list[list[Node]]:
    """Return each exchange after the moves of memory that feed only it, or it first.

    A move that another node also reads stays where it is: an exchange may need that node's result.
    """
    makers = graph.makers()
    place = {node: i for i, node in enumerate(graph.nodes)}
    free = _feed_alone(graph, exchanges)
    groups = []
    for exchange in exchanges:
        group, pending = {exchange}, [*exchange.inputs]
        while pending:
            maker = makers.get(pending.pop())
            if maker in free:
                free.discard(maker)
                group.add(maker)
                pending.extend(maker.inputs)
        groups.append(sorted(group, key=place.__getitem__))
    return groups


def _with_sources(graph: Graph, groups: list[list[Node]]) -> tuple[list[list[Node]], set[Node]]:
    """Return the groups, each after the nodes that compute the array it sends; and these nodes.

    These are a node for which nothing else waits, and the moves of memory that only it reads. They
    do not move later than their old places, even if another array has to be sent before.
    """
    makers, uses, shown = graph.makers(), graph.uses(), set(graph.outputs)

    def maker_for_one(v: Value) -> Node | None:
        node = makers.get(v)
        only = node is not None and len(node.outputs) == 1 and uses[v] == 1 and v not in shown
        return node if only else None

    results = []
    sources: set[Node] = set()
    for group in groups:
        needs = _needs(group)
        source = maker_for_one(next(iter(needs))) if len(needs) == 1 else None
        if source is not None and not source.op.communicates:
            makers_of_inputs = map(maker_for_one, source.inputs)
            moved = [node for node in makers_of_inputs if node is not None and moves(node)]
            sources.update((*moved, source))
            group = [*moved, source, *group]
        results.append(group)
    return results, sources


def _feed_alone(graph: Graph, exchanges: list[Node]) -> set[Node]:
    """Return the moves of memory whose results reach only the exchanges."""
    readers = graph.readers()
    shown = set(graph.outputs)
    results = set(exchanges)
    for node in reversed(graph.nodes):
        if moves(node) and shown.isdisjoint(node.outputs):
            reading = [reader for v in node.outputs for reader in readers.get(v, ())]
            if reading and results.issuperset(reading):
                results.add(node)
    return results.difference(exchanges)


def moves(node: Node) -> bool:
    """Return whether a node computes nothing: it moves memory, or returns a view of it."""
    return node.op.kind == "movement" or node.op.view or node.op.aliases


def _cuts(graph: Graph, early: set[Node]) -> dict[Node, list[Node]]:
    """Return sum -> the moves that take parts of it, in order."""
    readers = graph.readers()
    results: dict[Node, list[Node]] = {}
    for node in early:
        if node.op.communicates != "sum":
            continue
        cuts = results[node] = []
        waiting = [node]
        while waiting:
            for reader in readers.get(waiting.pop(0).out, ()):
                if moves(reader) and len(reader.inputs) == 1 and reader not in early:
                    cuts.append(reader)
                    waiting.append(reader)
    return results


def _needs(group: list[Node]) -> set[Value]:
    produced = {v for node in group for v in node.outputs}
    return {v for node in group for v in node.inputs} - produced
