"""Compute cheap values again in the loops that read them, where that moves fewer bytes.

A loop writes values that later loops read. If a few cheap ops can compute such a value from other
values in memory, the readers compute it themselves: a 16-bit value in float32, its distance from a
mean, the mask of a relu. Then the value is neither written nor read, and needs no memory. In
float32 the bits are the same; a 16-bit value is not rounded in between.

A value that has to be stored, such as a normalized result that a convolution reads, is computed
again by loops that read what it is computed from: they read one array less.

For values that are larger than the caches, one or two slower ops are allowed, such as `exp` and
`erf` in the gradient of GELU: memory is slower still.
"""

from __future__ import annotations

from collections.abc import Iterable

from kerasish.graph.fused import Dims, FusedBody, make_fused
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.cones import (
    Cone,
    all_axes,
    body_of,
    cone_of,
    copied,
    covers,
    is_loop,
    nbytes,
)
from kerasish.graph.passes.fuse import LARGEST
from kerasish.graph.passes.widen import HALVES

MOST_SLOW_OPS = 2  # of these, ops that take longer than reading from a cache
LARGE = 1 << 22  # bytes of a value that does not stay in the caches until it is read


def recompute_cheap(graph: Graph) -> Graph:
    """Return the graph in which loops compute cheap values themselves."""
    return _Recomputer(graph).run()


class _Recomputer:
    """One walk over the loops of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node | None] = list(graph.nodes)
        self.lasting = {*graph.inputs, *graph.constants, *graph.outputs}
        self.readers: dict[Value, set[int]] = {}
        for place, node in enumerate(graph.nodes):
            self._note(place, node)

    def run(self) -> Graph:
        """Return the graph."""
        changed = False
        for place, node in enumerate(self.nodes):
            if node is not None and is_loop(node):
                changed = self._rewrite(place, node) or changed
        if not changed:
            return self.graph
        return self.graph.replace(nodes=[node for node in self.nodes if node is not None])

    def _note(self, place: int, node: Node) -> None:
        for v in node.inputs:
            self.readers.setdefault(v, set()).add(place)

    # --- which values ---------------------------------------------------------------------------

    def _rewrite(self, place: int, node: Node) -> bool:
        """Let the readers of a loop compute its cheap results; return whether there are any."""
        body: FusedBody = node.attrs["body"]
        stored = {v for v in node.outputs if not self._is_free(v, body)}
        cones: dict[Value, Cone] = {}
        for inner in body.graph.nodes:
            v = inner.out
            if v not in node.outputs or v in stored:
                continue
            cone = cone_of(body, v, stored, 0 if nbytes(v) < LARGE else MOST_SLOW_OPS)
            if cone is not None and self._pays(v, cone):
                cones[v] = cone
            else:
                stored.add(v)
        for reader in sorted({r for v in cones for r in self.readers[v]}):
            self._put(reader, self._with_cones(reader, body, cones))
        if cones:
            self._put(place, _without(body, cones))
        return self._recompute_stored(body, stored) or bool(cones)

    def _recompute_stored(self, body: FusedBody, stored: set[Value]) -> bool:
        """Let loops that read what a stored value is computed from compute it, not read it."""
        changed = False
        for v in body.graph.outputs:
            if v not in stored or v.dtype in HALVES or not covers(body, v):
                continue
            cone = cone_of(body, v, stored, 0)
            if cone is None:
                continue
            for reader in sorted(self.readers.get(v, ())):
                if self._reads_in_place(reader, v, body) and self._has(reader, v, cone):
                    self._put(reader, self._with_cones(reader, body, {v: cone}))
                    changed = True
        return changed

    def _has(self, place: int, v: Value, cone: Cone) -> bool:
        """Return whether a loop reads all large values that v is computed from."""
        body: FusedBody = self._node(place).attrs["body"]
        large = [leaf for leaf in cone.leaves if leaf.size == v.size]
        return all(leaf in body.graph.inputs for leaf in large) and _fits(body, cone)

    def _is_free(self, v: Value, body: FusedBody) -> bool:
        """Return whether loops over the same elements, and nothing else, read a value."""
        if v in self.lasting or not covers(body, v):
            return False
        places = self.readers.get(v, set())
        return bool(places) and all(self._reads_in_place(place, v, body) for place in places)

    def _reads_in_place(self, place: int, v: Value, writer: FusedBody) -> bool:
        node = self.nodes[place]
        if node is None or not is_loop(node):
            return False
        body: FusedBody = node.attrs["body"]
        if body.frame != writer.frame:
            return False
        return all(dims == all_axes(body) for dims in _reads_of(body, v))

    def _pays(self, v: Value, cone: Cone) -> bool:
        """Return whether fewer bytes move, and no more memory is used in between."""
        places = self.readers[v]
        last, moved, held = max(places), 0, 0
        for place in places:
            body: FusedBody = self._node(place).attrs["body"]
            if not _fits(body, cone):
                return False
            moved += sum(nbytes(leaf) for leaf in cone.leaves if leaf not in body.graph.inputs)
        large = [leaf for leaf in cone.leaves if leaf.size == v.size]
        for leaf in large:
            if leaf not in self.lasting and max(self.readers.get(leaf, {0})) < last:
                held += nbytes(leaf)
        return moved < nbytes(v) * (1 + len(places)) and held <= nbytes(v)

    # --- the loops after it ---------------------------------------------------------------------

    def _node(self, place: int) -> Node:
        node = self.nodes[place]
        assert node is not None
        return node

    def _put(self, place: int, body: FusedBody | None) -> None:
        for v in self._node(place).inputs:
            self.readers[v].discard(place)
        self.nodes[place] = None
        if body is not None:
            node = self.nodes[place] = make_fused(body)
            self._note(place, node)

    def _with_cones(self, place: int, writer: FusedBody, cones: dict[Value, Cone]) -> FusedBody:
        """Return the body of a reader that computes the values itself."""
        body: FusedBody = self._node(place).attrs["body"]
        recomputed = [v for v in cones if v in body.graph.inputs]
        numbers = sorted({n for v in recomputed for n in cones[v].numbers})
        new, nodes, dims, reads = copied(writer, numbers)
        shift = len(nodes)
        for node in body.graph.nodes:
            nodes.append(Node(node.op, [new.get(v, v) for v in node.inputs], node.attrs,
                              node.outputs))  # fmt: skip
        reads.update({(number + shift, i): dims for (number, i), dims in body.reads.items()})
        return body_of(body, nodes, {**body.dims, **dims}, reads, body.graph.outputs)


# --- bodies of loops ------------------------------------------------------------------------------


def _reads_of(body: FusedBody, v: Value) -> list[Dims]:
    """Return the dims of each read of a value."""
    return [
        body.reads[number, i]
        for number, node in enumerate(body.graph.nodes)
        for i, x in enumerate(node.inputs)
        if x is v
    ]


def _reads_well(body: FusedBody, dims: Dims) -> bool:
    """Return whether a loop can read a value along these axes: along all rows or all columns."""
    varying = {d for d in dims if d is not None}
    axes = {d for d in all_axes(body) if d is not None}
    if body.split is None or varying in (axes, set()):
        return True
    rows = {d for d in axes if d < body.split}
    return varying in (rows, axes - rows)


def _fits(body: FusedBody, cone: Cone) -> bool:
    """Return whether a loop can have the ops and the reads of a cone, too."""
    if len(body.graph.nodes) + len(cone.numbers) > LARGEST:
        return False
    return all(_reads_well(body, dims) for dims in cone.leaves.values())


def _without(body: FusedBody, gone: Iterable[Value]) -> FusedBody | None:
    """Return a body that does not write some of its results; None if no result remains."""
    without = set(gone)
    outputs = [v for v in body.graph.outputs if v not in without]
    if not outputs:
        return None
    needed, kept = set(outputs), []
    for number in reversed(range(len(body.graph.nodes))):
        node = body.graph.nodes[number]
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            kept.append(number)
    kept.reverse()
    place = {number: new for new, number in enumerate(kept)}
    nodes = [body.graph.nodes[number] for number in kept]
    reads = {(place[n], i): dims for (n, i), dims in body.reads.items() if n in place}
    return body_of(body, nodes, {n.out: body.dims[n.out] for n in nodes}, reads, outputs)
