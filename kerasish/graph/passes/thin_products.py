"""Compute a product of a few terms inside the loop that reads it.

The output of a layer with LoRA is x @ W + (x @ A) @ B, where B has few rows. The second product
writes as many numbers as the first one and computes little: memory limits it. If a loop reads the
sum, the product becomes the sum of rank-one terms `low[:, k] * B[k, :]`, which the loop computes
from two vectors. Then one array less is written, and none is read again for the addition.
"""

from __future__ import annotations

from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.fuse_epilogues import WORTH
from kerasish.ops.op import REGISTRY

MOST_TERMS = 8  # terms of each sum; the loop holds a vector of the left factor for each
SMALLEST = 1 << 19  # elements of the result; a smaller one stays in a cache until it is read


def expand_thin_products(graph: Graph) -> Graph:
    """Return the graph with thin products as rank-one terms where loops compute these."""
    return _Expander(graph).run()


class _Expander:
    """One walk over the graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses, self.readers, self.makers = graph.uses(), graph.readers(), graph.makers()

    def run(self) -> Graph:
        """Return the graph."""
        new = {node: _terms(node) for node in self.graph.nodes if self._pays(node)}
        if not new:
            return self.graph
        nodes = [n for node in self.graph.nodes for n in new.get(node, (node,))]
        return self.graph.replace(nodes=nodes)

    def _pays(self, node: Node) -> bool:
        """Return whether a node is a thin product that is added to a large one, inside a loop."""
        if not _is_thin(node):
            return False
        v, reader = node.out, self._only_reader(node.out)
        if reader is not None and reader.op.name == "multiply" and _other(reader, v).size == 1:
            v, reader = reader.out, self._only_reader(reader.out)  # the factor of LoRA
        if reader is None or reader.op.name != "add" or reader.out.shape != node.out.shape:
            return False
        return self._is_large(_other(reader, v)) and self._ends_in_loops(reader)

    def _only_reader(self, v: Value) -> Node | None:
        """Return the only reader of a value; None if there are several, or it is an output."""
        reading = self.readers.get(v, [])
        return reading[0] if len(reading) == self.uses[v] == 1 else None

    def _is_large(self, v: Value) -> bool:
        """Return whether a value is a product of many terms, perhaps with a bias."""
        maker = self.makers.get(v)
        if maker is not None and maker.op.name == "add":
            nodes = (self.makers.get(x) for x in maker.inputs if x.shape == v.shape)
            maker = next((m for m in nodes if m is not None and m.op.name == "matmul"), None)
        if maker is None or maker.op.name != "matmul":
            return False
        depth = maker.inputs[0].shape[-1]
        return depth > MOST_TERMS and 2.0 * v.size * depth >= WORTH

    def _ends_in_loops(self, node: Node) -> bool:
        """Return whether loops over the same elements, and nothing else, read a sum."""
        reading = self.readers.get(node.out, [])
        if not reading or len(reading) != self.uses[node.out]:
            return False
        return all(self._is_loop(reader, node.out) for reader in reading)

    def _is_loop(self, reader: Node, v: Value) -> bool:
        if not reader.op.elementwise or not reader.op.native or reader.out.shape != v.shape:
            return False
        others = (self.makers.get(x) for x in reader.inputs if x is not v)
        # A product to which the sum is added adds it itself.
        return not any(m is not None and m.op.epilogues for m in others)


def _other(node: Node, v: Value) -> Value:
    """Return the operand of a node with two operands that is not v; v if both are."""
    a, b = node.inputs
    return b if a is v else a


def _is_thin(node: Node) -> bool:
    """Return whether a node is a product of rows with one matrix, with few terms in each sum."""
    if node.op.name != "matmul" or node.out.dtype != "float32" or node.out.size < SMALLEST:
        return False
    a, b = node.inputs
    alike = a.dtype == b.dtype == "float32" and len(a.shape) >= 2 == len(b.shape)
    return alike and 1 < b.shape[0] <= MOST_TERMS


def _terms(node: Node) -> list[Node]:
    """Return the nodes that compute a thin product, the first term first."""
    (left, right), out = node.inputs, node.out
    nodes: list[Node] = []
    total: Value | None = None
    for k in range(right.shape[0]):
        column = _part(left, len(left.shape) - 1, k, nodes)
        row = _part(right, 0, k, nodes)
        last = k == right.shape[0] - 1
        term = Value(*out.spec)
        nodes.append(Node(REGISTRY["multiply"], [column, row], {}, [term]))
        if total is not None:
            joined = out if last else Value(*out.spec)
            nodes.append(Node(REGISTRY["add"], [total, term], {}, [joined]))
            term = joined
        total = term
    return nodes


def _part(v: Value, axis: int, k: int, nodes: list[Node]) -> Value:
    """Return the part of v at index k of an axis, which stays with size 1; append its node."""
    bounds = [(k, k + 1, 1) if i == axis else (0, s, 1) for i, s in enumerate(v.shape)]
    part = Value((*v.shape[:axis], 1, *v.shape[axis + 1 :]), v.dtype)
    nodes.append(Node(REGISTRY["strided_slice"], [v], {"slices": tuple(bounds)}, [part]))
    return part
