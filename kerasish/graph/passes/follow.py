"""Let products and convolutions add their bias and apply their relu themselves.

A node `product` stands for matmul or convolution, the bias that is added along the last axis, and
the relu after it: what reaches memory is the finished layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops.op import REGISTRY, Op, Spec

LEADERS = ("matmul", "convolution")


class Product(NamedTuple):
    """What a `product` node does.

    Attributes:
        leader: the node that computes the product, without what follows.
        bias: whether the last input is added along the last axis.
        relu: whether negative numbers become 0.
    """

    leader: Node
    bias: bool
    relu: bool


def follow_products(graph: Graph) -> Graph:
    """Return the graph in which products do their own bias and relu."""
    uses = graph.uses()
    readers = {}
    for node in graph.nodes:
        for v in node.inputs:
            readers[v] = node  # of interest where it is the only one
    known = {*graph.inputs, *graph.constants}
    swaps: dict[Node, Node | None] = {}
    for node in graph.nodes:
        if node.op.name in LEADERS and node.out.dtype == "float32" and node.out.size:
            swaps.update(_joined(node, uses, readers, known))
    if not swaps:
        return graph
    nodes = [swaps.get(node, node) for node in graph.nodes]
    return graph.replace(nodes=[node for node in nodes if node is not None])


def _joined(
    leader: Node, uses: dict[Value, int], readers: dict[Value, Node], known: set[Value]
) -> dict[Node, Node | None]:
    """Return what stands in place of the leader and of those that it takes over."""
    taken, out, bias = [], leader.out, None
    following = readers.get(out) if uses.get(out) == 1 else None
    if following is not None and following.op.name == "add":
        bias = _bias(following, out, known)
        if bias is not None:
            taken.append(following)
            out = following.out
            following = readers.get(out) if uses.get(out) == 1 else None
    relu = False
    if following is not None and following.op.name == "relu":
        relu = True
        taken.append(following)
        out = following.out
    if not taken:
        return {}
    inner = Node(leader.op, leader.inputs, leader.attrs, [Value(*leader.out.spec)])
    what = Product(inner, bias is not None, relu)
    inputs = [*leader.inputs, *([] if bias is None else [bias])]
    made = _node(what, inputs, out)
    return {leader: made, **dict.fromkeys(taken)}


def _bias(node: Node, x: Value, known: set[Value]) -> Value | None:
    """Return what a node adds to x if it varies along the last axis alone and is known before."""
    a, b = node.inputs
    other = b if a is x else a
    if other is x or other not in known or other.dtype != x.dtype or node.out.shape != x.shape:
        return None
    size = x.shape[-1]
    return other if other.shape[-1:] == (size,) and other.size == size else None


def _node(what: Product, inputs: Sequence[Value], out: Value) -> Node:
    def product(xp: Any, *inputs: Any, what: Product) -> Any:
        return run(xp, what, inputs)

    def spec(*inputs: Spec, what: Product) -> Spec:
        return what.leader.out.spec

    op = Op(product, "product", spec, None, None, 0, None, (), False, 1, "product")
    return Node(op, inputs, {"what": what}, [out])


def run(xp: Any, what: Product, inputs: Sequence[Any]) -> Any:
    """Compute a node with the reference kernels."""
    leader = what.leader
    y = leader.op.kernel(xp, *inputs[:2], **leader.attrs)
    if what.bias:
        y = y + inputs[2].reshape(-1)
    return REGISTRY["relu"].kernel(xp, y) if what.relu else y


def apart(node: Node) -> list[Node]:
    """Return the nodes that a `product` node stands for."""
    what: Product = node.attrs["what"]
    nodes, y = [what.leader], what.leader.out
    if what.bias:
        out = Value(*y.spec) if what.relu else node.out
        nodes.append(Node(REGISTRY["add"], [y, node.inputs[2]], {}, [out]))
        y = out
    if what.relu:
        nodes.append(Node(REGISTRY["relu"], [y], {}, [node.out]))
    return nodes
