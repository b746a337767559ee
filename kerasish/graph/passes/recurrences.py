"""Combine a masked recurrence with the products of all its time steps.

A recurrent layer multiplies the inputs of all time steps by its kernel before the recurrence, and
its gradient is followed by the products that compute the gradients by inputs, kernel and bias. A
node `masked_recurrence` combines a masked recurrence, or its gradient, with these products: the
unit that computes it skips whole blocks of time steps in which no row counts, for example after the
end of the longest row of a batch. In the gradient of a layer that returns only its last output, it
also replaces the zeros that arrive at all other time steps; this is also done for an LSTM without a
mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kerasish.graph.interpret import interpret
from kerasish.graph.ir import Graph, GraphOp, Node, Value
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec
from kerasish.typing import Array, ArrayModule

BLOCK = 16  # time steps that are skipped together
_FORWARD = ("lstm", "gru", "simple_rnn")


class Recurrence(NamedTuple):
    """The computation of a `masked_recurrence` node.

    Attributes:
        leader: the recurrence, or its gradient.
        nodes: all nodes that are combined, in order.
        inputs: the name of each input: those of the leader's op, and "inputs" (steps * n, size),
            "kernel", "kernel_bias"; "g_last" or "g_cells_last" (1, n, units) instead of a gradient
            that arrives only at the last time step.
        outputs: the name of each output: "0", "1", ... are those of the leader; "d_inputs",
            "d_kernel" and "d_bias" are those of the products after a gradient.
    """

    leader: Node
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def is_masked(node: Node) -> bool:
    """Return whether a node is a recurrence, or its gradient, with a mask."""
    if node.op.kind != "recurrent":
        return False
    if node.op.name == "masked_recurrence":
        return "mask" in described(node).inputs
    return len(node.inputs) == len(REGISTRY[node.op.name].input_names)


def described(node: Node) -> Recurrence:
    """Return what a recurrence computes, combined with other nodes or not."""
    if node.op.name == "masked_recurrence":
        what: Recurrence = node.attrs["what"]
        return what
    names = REGISTRY[node.op.name].input_names[: len(node.inputs)]
    outputs = tuple(map(str, range(len(node.outputs))))
    return Recurrence(node, (node,), tuple(names), outputs)


def fuse_recurrences(graph: Graph) -> Graph:
    """Return the graph with masked recurrences and their products combined."""
    if not any(_fits(node) or _is_plain_gradient(node) for node in graph.nodes):
        return graph
    return _Combiner(graph).run()


def _fits(node: Node) -> bool:
    """Return whether a node is a masked recurrence of several blocks in float32."""
    if node.op.kind != "recurrent" or not is_masked(node) or node.op.name == "masked_recurrence":
        return False
    values = (*node.inputs, *node.outputs)
    return node.outputs[0].shape[0] > BLOCK and all(v.size and v.dtype == "float32" for v in values)


def _is_plain_gradient(node: Node) -> bool:
    """Return whether a node is the gradient of an LSTM without a mask, in float32."""
    if node.op.name != "lstm_gradient" or is_masked(node):
        return False
    return all(v.size and v.dtype == "float32" for v in (*node.inputs, *node.outputs))


class _Combiner:
    """One walk over the graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers, self.uses = graph.readers(), graph.uses()
        self.makers = graph.makers()
        self.outputs = set(graph.outputs)
        self.swaps: dict[Node, Node] = {}
        self.place = {v: i for i, node in enumerate(graph.nodes) for v in node.outputs}
        self.taken: set[Node] = set()

    def run(self) -> Graph:
        """Return the graph."""
        for node in self.graph.nodes:
            if _fits(node):
                if node.op.name in _FORWARD:
                    self._forward(node)
                else:
                    self._backward(node)
            elif _is_plain_gradient(node):
                self._ends(node)
        if not self.swaps:
            return self.graph
        nodes = [self.swaps.get(n, n) for n in self.graph.nodes if n not in self.taken]
        return self.graph.replace(nodes=nodes)

    # --- forward --------------------------------------------------------------------------------

    def _forward(self, leader: Node) -> None:
        """Combine a recurrence with x @ kernel + bias, of which it is the only reader."""
        flat = self._only(leader.inputs[0], "reshape")
        if flat is None:
            return
        width = leader.inputs[0].shape[-1]
        bias, before = None, [flat]
        last = self.makers.get(flat.inputs[0])
        if last is not None and last.op.name == "add" and self.uses[last.out] == 1:
            before.append(last)
            product, bias = self._summands(last, width)
        else:
            product = self._only(flat.inputs[0], "matmul")
        if product is None or product.out.shape != (leader.inputs[0].size // width, width):
            return
        before.append(product)
        inputs = {"inputs": product.inputs[0], "kernel": product.inputs[1]}
        if bias is not None:
            inputs["kernel_bias"] = bias
        names = REGISTRY[leader.op.name].input_names[1:]
        inputs.update(zip(names[:-1], leader.inputs[1:-1]))
        inputs["mask"] = leader.inputs[-1]
        results = {str(i): v for i, v in enumerate(leader.outputs)}
        self._put(leader, [*reversed(before), leader], inputs, results)
        self.taken.update(before)

    def _summands(self, node: Node, width: int) -> tuple[Node | None, Value | None]:
        """Return the product and the bias that a node adds."""
        for a, b in (node.inputs, node.inputs[::-1]):
            product = self._only(a, "matmul")
            if product is not None and b.shape == (width,) and a.shape == node.out.shape:
                return product, b
        return None, None

    def _only(self, v: Value, name: str) -> Node | None:
        """Return the node that computes a value if it has this name and one reader of it."""
        node = self.makers.get(v)
        if node is None or node.op.name != name or self.uses[v] != 1 or node in self.taken:
            return None
        return node

    # --- backward -------------------------------------------------------------------------------

    def _backward(self, leader: Node) -> None:
        """Combine a gradient with the products that read it, and with zeros that arrive."""
        names = REGISTRY[leader.op.name].input_names
        inputs = dict(zip(names[:-1], leader.inputs))
        before = self._arriving(inputs)
        results = {str(i): v for i, v in enumerate(leader.outputs)}
        after: list[Node] = []
        products = self._products(leader)
        if products is not None:
            after, more, gradients = products
            inputs = {**more, **inputs}
            del results["0"]
            results = {**gradients, **results}
        if before or after:
            inputs["mask"] = leader.inputs[-1]
            self._put(leader, [*before, leader, *after], inputs, results)
            self.taken.update(n for n in after if n.out in results.values() or n is after[0])

    def _ends(self, leader: Node) -> None:
        """Combine the gradient of an LSTM without a mask with zeros that arrive."""
        inputs = dict(zip(REGISTRY[leader.op.name].input_names, leader.inputs))
        before = self._arriving(inputs)
        if before:
            results = {str(i): v for i, v in enumerate(leader.outputs)}
            self._put(leader, [*before, leader], inputs, results)

    def _arriving(self, inputs: dict[str, Value]) -> list[Node]:
        """Replace gradients that are zero at all or all but the last steps; return their nodes."""
        before = []
        for name in ("g", "g_states", "g_cells"):
            node = self.makers.get(inputs[name]) if name in inputs else None
            if node is None:
                continue
            steps, n, units = node.out.shape
            if node.op.name == "fill" and node.attrs["value"] == 0:
                del inputs[name]
                before.append(node)
            elif node.op.name == "unslice" and node.attrs["slices"] == (
                (steps - 1, steps, 1), (0, n, 1), (0, units, 1),
            ):  # fmt: skip
                del inputs[name]
                inputs["g_cells_last" if name == "g_cells" else "g_last"] = node.inputs[0]
                before.append(node)
        return before

    def _products(
        self, leader: Node
    ) -> tuple[list[Node], dict[str, Value], dict[str, Value]] | None:
        """Return (nodes, inputs, results) of the products that read the gradient by x.

        None if something else reads it, or a product reads a value that is computed later.
        """
        gradient = leader.outputs[0]
        readers = self.readers.get(gradient, [])
        if gradient in self.outputs or len(readers) != 1 or readers[0].op.name != "reshape":
            return None
        flat = readers[0].out
        if flat.shape != (gradient.size // gradient.shape[-1], gradient.shape[-1]):
            return None
        nodes, inputs, results = [readers[0]], {}, {}
        for node in self.readers.get(flat, []):
            turned, name, role = None, "", ""
            if node.op.name == "reduce_sum" and node.out.shape == flat.shape[1:]:
                role = "d_bias"
            elif node.op.name == "matmul" and node.inputs[0] is flat:
                role, name, turned = "d_inputs", "kernel", self._turned(node.inputs[1])
            elif node.op.name == "matmul" and node.inputs[1] is flat:
                role, name, turned = "d_kernel", "inputs", self._turned(node.inputs[0])
            if not role or role in results or (name and turned is None):
                return None
            if turned is not None:
                inputs[name] = turned.inputs[0]
                nodes.append(turned)
            nodes.append(node)
            results[role] = node.out
        at = self.place[gradient]
        if flat in self.outputs or not results:
            return None
        if any(self.place.get(v, -1) > at for v in inputs.values()):
            return None
        return nodes, inputs, results

    def _turned(self, v: Value) -> Node | None:
        """Return the node that transposes a matrix into v."""
        node = self.makers.get(v)
        if node is None or len(v.shape) != 2 or node.inputs[0].shape != v.shape[::-1]:
            return None
        turned = node.op.name == "transpose" or (node.op.name == "reshape" and 1 in v.shape)
        return node if turned else None

    # --- both -----------------------------------------------------------------------------------

    def _put(
        self, leader: Node, nodes: Sequence[Node], inputs: dict[str, Value],
        results: dict[str, Value],
    ) -> None:  # fmt: skip
        """Put the combined node at the place of the leader."""
        known = {v: v for v in (*inputs.values(), *results.values())}

        def inner(v: Value, computed: bool) -> Value:
            if v not in known:
                known[v] = Value(*v.spec) if computed else v
            return known[v]

        copies = [
            Node(n.op, [inner(v, False) for v in n.inputs], n.attrs,
                 [inner(v, True) for v in n.outputs])
            for n in nodes
        ]  # fmt: skip
        what = Recurrence(copies[nodes.index(leader)], tuple(copies), tuple(inputs), tuple(results))
        self.swaps[leader] = _node(what, list(inputs.values()), list(results.values()))


def _node(what: Recurrence, inputs: list[Value], outputs: list[Value]) -> Node:
    body = Graph(inputs, {}, what.nodes, outputs)

    def kernel(xp: ArrayModule, *arrays: Any, what: Recurrence) -> Array | tuple[Array, ...]:
        results = interpret(body, arrays, xp)
        return results[0] if len(results) == 1 else tuple(results)

    def specs(*given: Spec, what: Recurrence) -> tuple[Spec, ...]:
        return tuple(v.spec for v in outputs)

    op = GraphOp("masked_recurrence", kernel, specs, len(outputs))
    op.kind = "recurrent"
    return Node(op, inputs, {"what": what}, outputs)
