"""Choose layouts: let products write their results with the axes in the order of the readers.

A transpose after a product costs a pass over memory, unless only products read it (they accept
transposed inputs). Where the last axis stays last, the product can write each row to its final
place at no cost; the heads of attention are an example.
"""

from __future__ import annotations

from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.fuse_epilogues import Product, make_product


def lay_out_products(graph: Graph) -> Graph:
    """Return the graph in which products write transposed results directly."""
    readers, uses = graph.readers(), graph.uses()
    swaps: dict[Node, Node | None] = {}
    for node in graph.nodes:
        if _is_batch(node) and uses.get(node.out) == 1:
            after = readers.get(node.out, ())
            if after and _is_walk(after[0], readers):
                axes = after[0].attrs["axes"]
                inner = Node(node.op, node.inputs, node.attrs, [Value(*node.out.spec)])
                what = Product(inner, False, False, False, axes)
                swaps[node] = make_product(what, node.inputs, after[0].out)
                swaps[after[0]] = None
    if not swaps:
        return graph
    nodes = [swaps.get(node, node) for node in graph.nodes]
    return graph.replace(nodes=[node for node in nodes if node is not None])


def _is_batch(node: Node) -> bool:
    """Return whether a node is a batched product with equal batch axes on both sides."""
    if node.op.name != "matmul" or node.out.dtype != "float32" or not node.out.size:
        return False
    return len(node.inputs[0].shape) == len(node.inputs[1].shape) > 2


def _is_walk(node: Node, readers: dict[Value, list[Node]]) -> bool:
    """Return whether a node is a transpose that would be materialized without need."""
    if node.op.name != "transpose":
        return False
    axes = node.attrs["axes"]
    if axes[-1] != len(axes) - 1:
        return False
    return any(n.op.name not in ("matmul", "transpose") for n in readers.get(node.out, ())) or (
        node.out not in readers
    )
