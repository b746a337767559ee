"""Compute large values a second time for late readers, instead of storing them until then.

The gradient of a convolution by its kernel reads what the convolution read. In between a program
writes more than the caches hold. If a few cheap ops computed that value, as normalization and relu
do, and what they read is in memory anyway, a loop in front of the late reader computes it a second
time: by the same ops, so the bits are the same. The value then lives shortly, twice. Both times it
stays in the caches, and a program needs less memory.
"""

from __future__ import annotations

from typing import NamedTuple

from kerasish.graph.fused import FusedBody, make_fused
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.cones import Cone, body_of, cone_of, copied, covers, is_loop, nbytes

FAR = 32 << 20  # bytes that a program writes in between, from which a value has left the caches
LEAST = 1 << 18  # bytes of a value; a loop for a smaller one takes longer than reading it


class _Late(NamedTuple):
    """A loop that computes a value a second time.

    Attributes:
        node: the loop.
        place: the number of the node that it precedes.
    """

    node: Node
    place: int


def recompute_late(graph: Graph) -> Graph:
    """Return the graph in which loops compute values in front of late readers."""
    return _Recomputer(graph).run()


class _Recomputer:
    """One walk over the loops of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = list(graph.nodes)
        self.lasting = {*graph.inputs, *graph.constants, *graph.outputs}
        self.readers: dict[Value, list[int]] = {}
        self.written = [0]  # the bytes that all nodes before a place write
        for place, node in enumerate(graph.nodes):
            for v in dict.fromkeys(node.inputs):
                self.readers.setdefault(v, []).append(place)
            self.written.append(self.written[-1] + sum(map(nbytes, node.outputs)))

    def run(self) -> Graph:
        """Return the graph."""
        before: dict[int, list[Node]] = {}
        for node in self.graph.nodes:
            for late in self._late(node) if is_loop(node) else ():
                before.setdefault(late.place, []).append(late.node)
        if not before:
            return self.graph
        nodes = [n for i, node in enumerate(self.nodes) for n in (*before.get(i, ()), node)]
        return self.graph.replace(nodes=nodes)

    def _late(self, node: Node) -> list[_Late]:
        """Let late readers of a loop's results read others; return the loops that write these."""
        body: FusedBody = node.attrs["body"]
        stored, results = set(node.outputs), []
        for v in node.outputs:
            if v in self.lasting or nbytes(v) < LEAST or not covers(body, v):
                continue
            groups = self._groups(v)
            cone = cone_of(body, v, stored, 0) if len(groups) > 1 else None
            if cone is None:
                continue
            for places in groups[1:]:
                if self._pays(v, cone, places):
                    results.append(self._compute(v, body, cone, places))
        return results

    def _groups(self, v: Value) -> list[list[int]]:
        """Return the places of a value's readers, divided where much is written in between."""
        groups: list[list[int]] = []
        for place in self.readers.get(v, ()):
            if groups and self.written[place] - self.written[groups[-1][-1]] < FAR:
                groups[-1].append(place)
            else:
                groups.append([place])
        return groups

    def _pays(self, v: Value, cone: Cone, places: list[int]) -> bool:
        """Return whether convolutions read the value, and what it is computed from is kept."""
        if any(self.nodes[place].op.kind != "convolution" for place in places):
            return False
        large = [leaf for leaf in cone.leaves if leaf.size == v.size]
        return all(max(self.readers[leaf]) > places[-1] for leaf in large)

    def _compute(self, v: Value, body: FusedBody, cone: Cone, places: list[int]) -> _Late:
        """Let the readers at some places read a second value; return the loop that writes it."""
        new, nodes, dims, reads = copied(body, cone.numbers)
        for place in places:
            old = self.nodes[place]
            inputs = [new[v] if x is v else x for x in old.inputs]
            self.nodes[place] = Node(old.op, inputs, old.attrs, old.outputs)
            self.readers[v].remove(place)
        return _Late(make_fused(body_of(body, nodes, dims, reads, [new[v]])), places[0])
