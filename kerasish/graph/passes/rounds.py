"""Orders of nodes: a topological order that changes a given one least; ranks keep one order."""

from __future__ import annotations

from collections.abc import Mapping

from kerasish.graph.ir import Graph, GraphError, Node, Value


def in_rounds(rank: Mapping[int, int], reads: Mapping[int, set[int]]) -> list[int]:
    """Return units in an order in which each comes after those that it reads.

    Each round goes over the units by rank, and takes those whose inputs have all been taken. The
    round of a unit follows from the units that it reads, so the time is linear in their number.

    Args:
        rank: unit -> its place in the given order.
        reads: unit -> other units that must come before it.

    Example:
        >>> in_rounds({0: 0, 1: 1, 2: 2, 3: 3}, {0: {2}, 1: set(), 2: set(), 3: {0}})
        [1, 2, 0, 3]
    """
    readers: dict[int, list[int]] = {u: [] for u in reads}
    for u, others in reads.items():
        for other in others:
            readers[other].append(u)
    unread = {u: len(others) for u, others in reads.items()}
    turn = dict.fromkeys(reads, 0)
    ready = [u for u, count in unread.items() if not count]
    for u in ready:
        for reader in readers[u]:
            turn[reader] = max(turn[reader], turn[u] + (rank[u] > rank[reader]))
            unread[reader] -= 1
            if not unread[reader]:
                ready.append(reader)
    if len(ready) < len(reads):
        raise AssertionError("units depend on each other in a cycle")
    return sorted(ready, key=lambda u: (turn[u], rank[u]))


def exchanges_before(graph: Graph) -> dict[Node, tuple[Value, ...]]:
    """Return node that communicates -> the results of the previous one, which must run first.

    Ranks may have different numbers of rows, and fuse other nodes differently. They must still
    communicate in the same order: that of the program.
    """
    exchanges = [node for node in graph.nodes if node.op.communicates]
    return {node: before.outputs for before, node in zip(exchanges, exchanges[1:])}


def check_turns(before: Graph, after: Graph) -> Graph:
    """Return the graph `after` passes if its nodes communicate in the same order as `before`.

    Raises:
        GraphError: they do not.
    """
    turns = {v: i for i, v in enumerate(_exchanged(before))}
    places = [turns[v] for v in _exchanged(after) if v in turns]
    if places != sorted(places):
        raise GraphError("a pass has changed the order in which ranks communicate")
    return after


def _exchanged(graph: Graph) -> list[Value]:
    return [v for node in graph.nodes if node.op.communicates for v in node.outputs]
