"""Fuse the ops after a product or convolution into it: a bias, relu, a sum with another result.

A node `product` combines a matmul or convolution, a bias that is added along the last axis, and
either relu or the addition of an earlier result (a residual connection, or the gradients of a value
that several products read). Only the final result is written to memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from kerasish.graph.ir import Graph, GraphOp, Node, Value
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec
from kerasish.typing import Array, ArrayModule

# FLOPs of a product. Smaller ones are not computed by a library, and their loops add for free.
WORTH = 1e6


class Product(NamedTuple):
    """The computation of a `product` node.

    Attributes:
        leader: the matmul or convolution.
        bias: whether the input after those of the leader is added along the last axis.
        relu: whether relu is applied.
        sum: whether the last input, of the result's shape, is added.
        axes: the order in which the axes of the result are written, as for `transpose`; None:
            unchanged.
    """

    leader: Node
    bias: bool
    relu: bool
    sum: bool = False
    axes: tuple[int, ...] | None = None


def fuse_epilogues(graph: Graph) -> Graph:
    """Return the graph with bias, relu and sum fused into products."""
    return _Follower(graph).run()


class _Follower:
    """One walk over the graph.

    Attributes:
        swaps: node -> its replacement, None if it is removed.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.makers = graph.makers()
        self.readers = graph.readers()
        self.last_read = LastReads(graph)
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.swaps: dict[Node, list[Node]] = {}
        self.products: set[Value] = set()  # results of products

    def run(self) -> Graph:
        """Return the graph."""
        for node in self.graph.nodes:
            if node.op.epilogues and node.out.dtype == "float32" and node.out.size:
                self._join(node)
        if not self.swaps:
            return self.graph
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.swaps.get(node, (node,))
        return self.graph.replace(nodes=nodes)

    def _join(self, leader: Node) -> None:
        """Replace the leader, and the nodes that can be fused into it, by a product node."""
        out, taken = leader.out, [leader]
        bias = added = view = None
        following = self._following(out)
        if following is not None and _splits_last(following):
            # Attention heads: the addition follows the split of the last axis.
            view, following = following, self._following(following.out)
            if following is None or following.op.name != "add":
                return
        whole = out if view is None else view.out
        if following is not None and following.op.name == "add":
            bias = self._bias(following, whole, leader.out)
            if bias is not None:
                taken.append(following)
                whole = following.out
                following = self._following(whole)
        relu = following is not None and following.op.name == "relu"
        if relu:
            taken.append(following)  # type: ignore[arg-type]
            whole = following.out  # type: ignore[union-attr]
        elif following is not None:
            added = self._added(following, whole, leader, view)
            if added is not None:
                taken.append(following)
                whole = following.out
        if len(taken) == 1:
            return
        inner = Node(leader.op, leader.inputs, leader.attrs, [Value(*leader.out.spec)])
        what = Product(inner, bias is not None, relu, added is not None)
        inputs = [*leader.inputs, *(v for v in (bias, added) if v is not None)]
        self._put(taken, view, what, inputs, whole)

    def _put(
        self, taken: list[Node], view: Node | None, what: Product, inputs: list[Value], whole: Value
    ) -> None:
        """Put the product at the place of the last node that it replaces."""
        if view is None:
            nodes = [make_product(what, inputs, whole)]
            self.products.add(whole)
        else:
            flat = Value(*what.leader.out.spec)
            shape = Node(view.op, [flat], {**view.attrs, "newshape": whole.shape}, [whole])
            nodes = [make_product(what, inputs, flat), shape]
            if what.sum and inputs[-1].shape != flat.shape:
                joined = Value(*flat.spec)
                attrs = {**view.attrs, "newshape": flat.shape}
                nodes.insert(0, Node(view.op, [inputs[-1]], attrs, [joined]))
                nodes[1] = make_product(what, [*inputs[:-1], joined], flat)
            taken.append(view)
        last = max(taken, key=self.place.__getitem__)
        self.swaps.update((node, []) for node in taken)
        self.swaps[last] = nodes

    def _following(self, v: Value) -> Node | None:
        """Return the only reader of a value if it is not replaced yet; else None."""
        if self.uses.get(v) != 1:
            return None
        readers = self.readers.get(v)  # None where the value is an output of the graph
        return readers[0] if readers and readers[0] not in self.swaps else None

    def _bias(self, node: Node, x: Value, product: Value) -> Value | None:
        """Return what a node adds to x if it varies only along the product's last axis."""
        if node.op.name != "add" or node.out.shape != x.shape:
            return None
        a, b = node.inputs
        other = b if a is x else a
        if other is x or other.dtype != x.dtype:
            return None
        size, apart_axes = product.shape[-1], len(x.shape) - len(product.shape) + 1
        if other.size != size or x.shape[-apart_axes:] != other.shape[-apart_axes:]:
            return None
        # Only values that are in memory: a value computed only for this node fits a loop better.
        maker = self.makers.get(other)
        return other if maker is None else None

    def _added(self, node: Node, x: Value, leader: Node, view: Node | None) -> Value | None:
        """Return what a node adds to x if the product can overwrite it; else None.

        Args:
            view: the node that has split the last axis of the product; None: none.
        """
        if node.op.name != "add" or node.out.shape != x.shape:
            return None
        a, b = node.inputs
        other = b if a is x else a
        if other is x or other.shape != x.shape or other.dtype != x.dtype:
            return None
        if view is not None:
            other = self._before_split(other, leader.out)
            if self.uses.get(other) != 1:
                return None  # a reshaped value: later, other readers of its memory are not detected
        work = 2.0 * x.size * _depth(leader)
        if work < WORTH or self._work_of(other) > work:
            return None
        return other if self._is_free(other, self.place[node]) else None

    def _work_of(self, v: Value) -> float:
        """Return the operations of the product that computes v for one reader; 0 for other values.

        Of two products that are added, the larger one adds: the smaller one then only writes.
        """
        maker = self.makers.get(v)
        if maker is None or not maker.op.epilogues or maker in self.swaps:
            return 0.0
        return 2.0 * v.size * _depth(maker) if self.uses.get(v) == 1 else 0.0

    def _before_split(self, v: Value, product: Value) -> Value:
        """Return the value of the product's shape of which v is a view, if there is one; else v."""
        maker = self.makers.get(v)
        if maker is None or not _splits_last(maker) or self.uses.get(v) != 1:
            return v
        return maker.inputs[0] if maker.inputs[0].shape == product.shape else v

    def _is_free(self, v: Value, place: int) -> bool:
        """Return whether v is in memory that no node after index `place` reads."""
        maker = self.makers.get(v)
        if maker is None or maker.op.aliases:
            return False  # a variable, an argument, a constant, or a part of something else
        loops = _runs_in_loops(maker) and v not in self.products
        if loops and all(map(_runs_in_loops, self.readers[v])):
            return False  # a loop may compute it without writing it anywhere
        return self.last_read(v) <= place


def _runs_in_loops(node: Node) -> bool:
    """Return whether fused loops compute such nodes."""
    return node.op.native is not None or bool(node.op.reduction) or node.op.view


class LastReads:
    """Finds the last node that reads the memory of a value."""

    def __init__(self, graph: Graph) -> None:
        self._readers, self._outputs = graph.readers(), set(graph.outputs)
        self._place = {node: i for i, node in enumerate(graph.nodes)}

    def __call__(self, v: Value) -> float:
        """Return the index of the last reader; infinity for an output of the graph."""
        if v in self._outputs:
            return math.inf
        last: float = -1
        for node in self._readers.get(v, ()):
            last = max(last, self._place[node])
            if node.op.aliases:
                last = max(last, self(node.out))
        return last


def _splits_last(node: Node) -> bool:
    """Return whether a node is a reshape that only splits the last axis."""
    if node.op.name != "reshape":
        return False
    before, after = node.inputs[0].shape, node.out.shape
    lead = len(before) - 1
    return len(after) > lead + 1 and before[:lead] == after[:lead]


def _depth(leader: Node) -> int:
    """Return the number of terms in each sum that the leader computes."""
    if leader.op.name == "matmul":
        return leader.inputs[0].shape[-1]
    kernel = leader.inputs[1].shape
    return leader.inputs[1].size // kernel[-1]


def make_product(what: Product, inputs: Sequence[Value], out: Value) -> Node:
    """Return the node that computes `what`."""
    return Node(PRODUCT, inputs, {"what": what}, [out])


def _run(xp: ArrayModule, *inputs: Any, what: Product) -> Array:
    """Compute a node with the reference kernels."""
    leader = what.leader
    y = leader.op.kernel(xp, *inputs[:2], **leader.attrs)
    if what.bias:
        y = y + inputs[2].reshape(-1)
    if what.sum:
        y = y + inputs[-1]
    if what.relu:
        y = REGISTRY["relu"].kernel(xp, y)
    return y if what.axes is None else xp.transpose(y, what.axes)


def _spec(*inputs: Spec, what: Product) -> Spec:
    shape, dtype = what.leader.out.spec
    return Spec(shape if what.axes is None else tuple(shape[a] for a in what.axes), dtype)


PRODUCT = GraphOp("product", _run, _spec)


def apart(node: Node) -> list[Node]:
    """Return the nodes that a `product` node combines."""
    what: Product = node.attrs["what"]
    steps: list[tuple[str, list[Value], dict[str, Any]]] = []
    nodes = [what.leader]
    if what.bias:
        flat = Value(node.out.shape[-1:], node.out.dtype)
        nodes.append(Node(REGISTRY["reshape"], [node.inputs[2]], {"newshape": flat.shape}, [flat]))
        steps.append(("add", [flat], {}))
    if what.sum:
        steps.append(("add", [node.inputs[-1]], {}))
    if what.relu:
        steps.append(("relu", [], {}))
    if what.axes is not None:
        steps.append(("transpose", [], {"axes": what.axes}))
    y = what.leader.out
    for i, (name, more, attrs) in enumerate(steps, 1):
        out = node.out if i == len(steps) else Value(*y.spec)
        nodes.append(Node(REGISTRY[name], [y, *more], attrs, [out]))
        y = out
    return nodes
