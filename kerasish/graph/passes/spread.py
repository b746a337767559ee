"""Divided variables, gathered where they are read: not before, and again for the reverse pass.

If each rank keeps a segment of a variable, the graph gathers the whole variable from an input. It
is needed by a layer, and much later by the gradient of the layer. This pass gathers it twice, so
that its memory can be used for other values in between. Sums of gradients move to the places where
these are ready, and `hoist_exchanges` moves the cuts of this rank's segments after them: no whole
gradient waits for the optimizer.

The pass runs before all others, on graphs that are equal on all ranks. The places of nodes that
communicate depend only on the graph, so all ranks communicate in the same order.
"""

from __future__ import annotations

from bisect import bisect_left

from kerasish.graph.ir import Graph, GraphOp, Node, NodeOp, Value
from kerasish.graph.passes.hoist import exchange_groups, is_late, moves


def spread_gathers(graph: Graph) -> Graph:
    """Return the graph with divided variables gathered near their readers."""
    late = [node for node in graph.nodes if is_late(node, graph)]
    if not late:
        return graph
    return _sums_early(_gathered_again(graph, late))


def _gathered_again(graph: Graph, late: list[Node]) -> Graph:
    readers = graph.readers()
    place = {node: i for i, node in enumerate(graph.nodes)}
    chains = {node: _chain(node, readers) for node in late}
    users = {node: _users(chain, readers, place) for node, chain in chains.items()}
    events = sorted((i, k) for k, node in enumerate(late) for i in users[node])
    before: dict[int, list[Node]] = {}  # place of a node -> the nodes that are emitted before it
    swaps: dict[Node, tuple[int, dict[Value, Value]]] = {}
    moved: set[Node] = set()
    for number, node in enumerate(late):
        chain, places = chains[node], users[node]
        if not places or set(graph.outputs) & {v for n in chain for v in n.outputs}:
            continue
        moved.update(chain)
        before.setdefault(places[0], []).extend(chain)
        again = _second_use(places, events, number)
        if again is not None:
            copies, names = _copied(chain)
            before.setdefault(again, []).extend(copies)
            swaps[node] = again, names
    nodes: list[Node] = []
    for i, node in enumerate(graph.nodes):
        nodes.extend(before.get(i, ()))
        if node in moved:
            continue
        inputs = list(node.inputs)
        for first, names in swaps.values():
            if i >= first:
                inputs = [names.get(v, v) for v in inputs]
        same = tuple(inputs) == node.inputs
        nodes.append(node if same else Node(node.op, inputs, node.attrs, node.outputs))
    return graph.replace(nodes=nodes)


def _chain(node: Node, readers: dict[Value, list[Node]]) -> list[Node]:
    """Return a gathering with the cheap ops that read only its result: views, moves and casts."""
    chain, waiting = [node], [node.out]
    while waiting:
        for reader in readers.get(waiting.pop(), ()):
            cheap = moves(reader) or reader.op.elementwise
            if cheap and len(reader.inputs) == 1 and len(reader.outputs) == 1:
                chain.append(reader)
                waiting.append(reader.out)
    return chain


def _users(
    chain: list[Node], readers: dict[Value, list[Node]], place: dict[Node, int]
) -> list[int]:
    inside = set(chain)
    places = {r for node in chain for r in readers.get(node.out, ()) if r not in inside}
    return sorted(place[r] for r in places)


def _second_use(places: list[int], events: list[tuple[int, int]], number: int) -> int | None:
    """Return the place from which a variable is gathered again: after the longest pause.

    Args:
        places: of the readers of a variable, in order.
        events: (place, number of a variable) of the readers of all divided variables, in order.
        number: that of the variable.

    Returns:
        The place; None if no other variable is read between two readers.
    """
    best, result = 0, None
    for first, second in zip(places, places[1:]):
        start, stop = bisect_left(events, (first, -1)), bisect_left(events, (second, -1))
        others = {k for i, k in events[start:stop] if i > first and k != number}
        if len(others) > best:
            best, result = len(others), second
    return result


def _copied(chain: list[Node]) -> tuple[list[Node], dict[Value, Value]]:
    """Return copies of nodes, and the copy of each value."""
    names: dict[Value, Value] = {}
    copies = []
    for node in chain:
        names[node.out] = Value(node.out.shape, node.out.dtype)
        op = _again(node.op) if node.op.communicates else node.op
        inputs = [names.get(v, v) for v in node.inputs]
        copies.append(Node(op, inputs, node.attrs, [names[node.out]]))
    return copies, names


_AGAIN: dict[NodeOp, GraphOp] = {}


def _again(op: NodeOp) -> GraphOp:
    """Return an op that does the same, and does not compare equal."""
    if op not in _AGAIN:
        other = GraphOp(f"{op.name} again", op.kernel, op.shape)
        other.kind, other.communicates = op.kind, op.communicates
        _AGAIN[op] = other
    return _AGAIN[op]


def _sums_early(graph: Graph) -> Graph:
    """Return the graph with each sum where its summands are ready."""
    sums = [n for n in graph.nodes if n.op.communicates and not is_late(n, graph)]
    groups = exchange_groups(graph, sums)
    early = {node for group in groups for node in group}
    missing: list[set[Value]] = []
    known = set(graph.inputs) | set(graph.constants)
    for group in groups:
        produced = {v for node in group for v in node.outputs}
        missing.append({v for node in group for v in node.inputs} - produced - known)
    waits: dict[Value, list[int]] = {}
    for number, values in enumerate(missing):
        for v in values:
            waits.setdefault(v, []).append(number)
    order: list[Node] = []
    emitted: set[Node] = set()

    def emit(node: Node) -> None:
        if node in emitted:
            return
        emitted.add(node)
        order.append(node)
        for v in node.outputs:
            for number in waits.get(v, ()):
                missing[number].discard(v)
                if not missing[number]:
                    emit_group(number)

    def emit_group(number: int) -> None:
        for node in groups[number]:
            emit(node)

    for number, values in enumerate(missing):
        if not values:
            emit_group(number)
    for node in graph.nodes:
        if node not in early:
            emit(node)
    return graph.replace(nodes=order)
