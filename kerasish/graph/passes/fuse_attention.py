"""Combine the products and the softmax of attention heads, and their gradients, into two nodes.

    logits = q @ kT,  a constant where the mask is false
    weights = softmax(logits),  0 where the mask is false
    out = weights @ v

A node `attention` computes `out`, and the maximum and the sum of each row of the softmax. A node
`attention_gradient` recomputes the weights from these, and computes the gradients by q, k and v. So
the matrices of logits and weights, (targets, sources), are not results of nodes: native code
computes them in parts that fit a cache. This requires that nothing else reads these matrices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.graph.interpret import interpret
from kerasish.graph.ir import Graph, GraphOp, Node, Value
from kerasish.graph.passes.rounds import exchanges_before, in_rounds
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec

LEAST = 4  # matrices; fewer keep no threads busy
LARGEST = 1 << 16  # elements of the keys or the values of a head, which are packed in a cache
Axes = tuple[int, ...]


class AttentionBody(NamedTuple):
    """The computation of an `attention` or `attention_gradient` node.

    Attributes:
        graph: the same in single ops. Its inputs are those of the node: q, kT, v; for a gradient
            the maxima and sums of the rows, and the incoming gradient; with a mask the mask and the
            constant of the logits, and zero if it also masks the weights. Its outputs are those of
            the node: out, maxima, sums; or the gradients by q, k and v.
        masked: whether there is a mask.
        twice: whether it masks the weights in addition to the logits.
        axes: the order in which the axes of out, or of each gradient, are written.
    """

    graph: Graph
    masked: bool
    twice: bool
    axes: tuple[Axes, ...]

    def __hash__(self) -> int:
        return id(self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttentionBody) and other.graph is self.graph

    def __repr__(self) -> str:
        q, kt = self.graph.inputs[:2]
        return f"{list(q.shape)} {list(kt.shape)}"


def _run(xp: Any, *inputs: Any, body: AttentionBody) -> Any:
    return tuple(interpret(body.graph, inputs, xp))


def _specs(*inputs: Spec, body: AttentionBody) -> Any:
    return tuple(v.spec for v in body.graph.outputs)


FORWARD = GraphOp("attention", _run, _specs, 3)
GRADIENT = GraphOp("attention_gradient", _run, _specs, 3)


def fuse_attention(graph: Graph, dtypes: Collection[str] = ("float32",)) -> Graph:
    """Return the graph with attention heads combined.

    Args:
        graph: optimized.
        dtypes: of the heads that are combined.
    """
    tops = [n for n in graph.nodes if n.op.name == "reduce_max" and n.out.dtype in dtypes]
    return _Combiner(graph).run(tops) if tops else graph


class _NoMatchError(Exception):
    """The nodes around a maximum are not attention heads."""


class _Head(NamedTuple):
    """The values of a forward computation; `nodes` computes them."""

    q: Value
    kt: Value
    v: Value
    mask: tuple[Value, ...]  # the mask and the constant of the logits, or empty
    zero: tuple[Value, ...]  # the constant of the weights, or empty
    maximum: Value
    powers: Value
    total: Value
    plain: Value
    weights: Value
    out: Value
    nodes: list[Node]


class _Combiner:
    """One walk over the maxima of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.constants = graph, graph.constants
        self.readers, self.makers = graph.readers(), graph.makers()
        self.outputs = set(graph.outputs)
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.taken: set[Node] = set()
        self.new: dict[int, list[Node]] = {}  # place -> the nodes that are inserted there

    def run(self, tops: Sequence[Node]) -> Graph:
        """Return the graph; `tops` are the maxima."""
        for top in tops:
            try:
                self._combine(top)
            except _NoMatchError:
                continue
        if not self.new:
            return self.graph
        nodes: list[Node] = []
        for place, node in enumerate(self.graph.nodes):
            if node not in self.taken:
                nodes.append(node)
            nodes += self.new.get(place, ())
        return self.graph.replace(nodes=_ordered(nodes, exchanges_before(self.graph)))

    # --- questions ------------------------------------------------------------------------------

    def _reader(self, v: Value, name: str, *others: Value, but: Value | None = None) -> Node:
        """Return the reader of a value that is this op, of it and all other values.

        Args:
            v, name, others: the value, the op's name, and the other values.
            but: the result of a reader to ignore.
        """
        for node in self.readers.get(v, ()):
            matches = node.op.name == name and node.out is not but
            if matches and all(other in node.inputs for other in others):
                return node
        raise _NoMatchError

    def _maker(self, v: Value, name: str) -> Node:
        """Return the node of this op that computes a value."""
        node = self.makers.get(v)
        if node is None or node.op.name != name:
            raise _NoMatchError
        return node

    def _source(self, v: Value) -> tuple[Value, Axes]:
        """Return the value of which v is a transpose, and the order of its axes."""
        axes = tuple(range(len(v.shape)))
        node = self.makers.get(v)
        while node is not None and node.op.name == "transpose":
            axes = tuple(node.attrs["axes"][a] for a in axes)
            v = node.inputs[0]
            node = self.makers.get(v)
        return v, axes

    def _is(self, a: Value, b: Value, turned: bool = False) -> bool:
        """Return whether a is b, or b with its last two axes swapped."""
        (root, axes), (other, order) = self._source(a), self._source(b)
        return root is other and order == (_swapped(axes) if turned else axes)

    def _inside(self, nodes: Iterable[Node], results: Collection[Value]) -> None:
        """Check that of the values of these nodes, other nodes read only the results."""
        inside = set(nodes)
        for node in inside:
            for v in node.outputs:
                if v in results:
                    continue
                if v in self.outputs or not inside.issuperset(self.readers.get(v, ())):
                    raise _NoMatchError

    # --- forward --------------------------------------------------------------------------------

    def _combine(self, top: Node) -> None:
        """Replace the nodes around a maximum."""
        head = self._head(top)
        out, axes, more = self._result(head.out)
        old = [*head.nodes, *more]
        results = [out, head.maximum, head.total]
        operands = (head.q, head.kt, head.v, *head.mask, *head.zero)
        what = AttentionBody(
            Graph(operands, {}, old, results), bool(head.mask), bool(head.zero), (axes,)
        )
        new = Node(FORWARD, operands, {"body": what}, results)
        if len(self.readers[head.powers]) == 2:
            self._inside(old, results)
            self._put(old, [new])
            return
        after, gradient = self._gradient(head)
        self._inside([*old, *after], [*results, *gradient[-1].outputs, *gradient[0].outputs])
        self._put(old, [new])
        self._put(after, gradient)

    def _head(self, top: Node) -> _Head:
        """Return the forward computation around a maximum."""
        logits, maximum = top.inputs[0], top.out
        shift = self._reader(logits, "subtract", maximum)
        exp = self._reader(shift.out, "exp")
        total = self._reader(exp.out, "reduce_sum")
        division = self._reader(exp.out, "divide", total.out)
        if shift.inputs[0] is not logits or division.inputs[0] is not exp.out:
            raise _NoMatchError
        if not all(_is_of_rows(node) and node.attrs["keepdims"] for node in (top, total)):
            raise _NoMatchError
        nodes = [top, shift, exp, total, division]
        mask: tuple[Value, ...] = ()
        zero: tuple[Value, ...] = ()
        product, weights = self.makers.get(logits), division.out
        if product is not None and product.op.name == "select":
            nodes.append(product)
            mask = self._mask(product, logits)
            product = self.makers.get(product.inputs[1])
            for node in self.readers.get(division.out, ()):
                if node.op.name == "select" and node.inputs[:2] == (mask[0], division.out):
                    zero, weights = self._zero(node), node.out
                    nodes.append(node)
        if product is None or product.op.name != "matmul":
            raise _NoMatchError
        last = self._reader(weights, "matmul")
        if last.inputs[0] is not weights:
            raise _NoMatchError
        nodes = sorted([product, *nodes, last], key=self.place.__getitem__)
        q, kt, v = *product.inputs, last.inputs[1]
        _check_sizes(q, kt, v)
        return _Head(q, kt, v, mask, zero, maximum, exp.out, total.out, division.out,
                     weights, last.out, nodes)  # fmt: skip

    def _mask(self, node: Node, logits: Value) -> tuple[Value, Value]:
        """Return the mask of a selection, and the constant where it is false."""
        mask, _, low = node.inputs
        lead = len(logits.shape) - len(mask.shape)
        fits = lead >= 0 and mask.shape[-1:] == logits.shape[-1:] and mask.dtype == "bool"
        if not fits or low.size != 1 or low not in self.constants:
            raise _NoMatchError
        return mask, low

    def _zero(self, node: Node) -> tuple[Value]:
        """Return the zero that a selection returns where the mask is false."""
        zero = node.inputs[2]
        array = self.constants.get(zero)
        if array is None or zero.size != 1 or np.asarray(array).reshape(())[()] != 0:
            raise _NoMatchError
        return (zero,)

    # --- backward -------------------------------------------------------------------------------

    def _gradient(self, head: _Head) -> tuple[list[Node], list[Node]]:
        """Return the nodes of the gradient, and those that replace them."""
        turned = self._reader(head.weights, "transpose")
        by_v = self._reader(turned.out, "matmul")
        if by_v.inputs[0] is not turned.out or not _swaps(turned):
            raise _NoMatchError
        arriving = by_v.inputs[1]
        scaled = self._reader(head.total, "divide", but=head.plain)
        nodes = [turned, by_v, scaled]
        by_weights = scaled.inputs[0]
        if head.zero:
            chosen = self._maker(by_weights, "select")
            if chosen.inputs != (head.mask[0], chosen.inputs[1], head.zero[0]):
                raise _NoMatchError
            nodes.append(chosen)
            by_weights = chosen.inputs[1]
        product = self._maker(by_weights, "matmul")
        shares = self._reader(scaled.out, "multiply", head.plain)
        negative = self._reader(shares.out, "negative")
        total = self._reader(negative.out, "reduce_sum")
        nodes += [product, shares, negative, total]
        row = total.out
        if not total.attrs["keepdims"]:
            nodes.append(self._reader(row, "reshape"))
            row = nodes[-1].out
        added = self._reader(scaled.out, "add", row)
        back = self._reader(added.out, "multiply", head.powers)
        nodes += [added, back]
        if (
            scaled.inputs[1] is not head.total
            or not _is_of_rows(total)
            or row.shape != head.total.shape
        ):
            raise _NoMatchError
        by_logits = back.out
        zero: tuple[Value, ...] = ()
        if head.mask:
            masked = self._reader(by_logits, "select", head.mask[0])
            if masked.inputs[:2] != (head.mask[0], by_logits):
                raise _NoMatchError
            zero = self._zero(masked)
            nodes.append(masked)
            by_logits = masked.out
        if not self._is(product.inputs[0], arriving) or not self._is(
            product.inputs[1], head.v, True
        ):
            raise _NoMatchError
        by_q, by_k = self._operand_gradients(head, by_logits)
        operands = (head.q, head.kt, head.v, head.maximum, head.total, arriving, *head.mask, *zero)
        return self._replaced(head, operands, (by_q, by_k, by_v), [*nodes, by_q, by_k])

    def _operand_gradients(self, head: _Head, dy: Value) -> tuple[Node, Node]:
        """Return the products that compute the gradients by q and kT."""
        by_q = by_k = None
        for node in self.readers.get(dy, ()):
            if node.op.name == "matmul" and node.inputs[0] is dy:
                by_q = node if self._is(node.inputs[1], head.kt, True) else by_q
            elif node.op.name == "matmul" and self._is(node.inputs[0], head.q, True):
                by_k = node
        if by_q is None or by_k is None:
            raise _NoMatchError
        return by_q, by_k

    def _replaced(
        self, head: _Head, operands: Sequence[Value], products: Sequence[Node], nodes: list[Node]
    ) -> tuple[list[Node], list[Node]]:
        """Return the nodes of a gradient with the transposes of its results, and the new ones."""
        results, axes, after = [], [], []
        for node, turned in zip(products, (False, True, False), strict=True):
            result, order, more = self._result(node.out, turned)
            nodes += more
            if turned and not more:  # it is written as rows of keys, and read as their transpose
                result = Value(_swapped(node.out.shape), node.out.dtype)
                after.append(_transpose(result, node.out, _swapped(order)))
            results.append(result)
            axes.append(order)
        graph = _gradient_body(operands, bool(head.zero), results, axes)
        what = AttentionBody(graph, bool(head.mask), bool(head.zero), tuple(axes))
        return nodes, [Node(GRADIENT, operands, {"body": what}, results), *after]

    # --- results --------------------------------------------------------------------------------

    def _result(self, v: Value, turned: bool = False) -> tuple[Value, Axes, list[Node]]:
        """Return the value as which a matrix is written: its only reader's, if a transpose of rows.

        Args:
            v: the matrix.
            turned: whether v is the transpose of the matrix.

        Returns:
            The value, the order of the matrix's axes in it, and the reader, if it is replaced.
        """
        axes = tuple(range(len(v.shape)))
        stored = _swapped(axes) if turned else axes
        readers = self.readers.get(v, [])
        if len(readers) == 1 and v not in self.outputs and readers[0].op.name == "transpose":
            order = tuple(stored[a] for a in readers[0].attrs["axes"])
            if order[-1] == axes[-1]:
                return readers[0].out, order, [readers[0]]
        return v, axes, []

    def _put(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        """Put new nodes at the place of the last of the old ones."""
        self.taken.update(old)
        self.new.setdefault(max(self.place[node] for node in old), []).extend(new)


class _Pen:
    """Writes nodes of ops, each with a new result."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def __call__(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        """Return the result of an op."""
        op = REGISTRY[name]
        out = Value(*op.shape(*(v.spec for v in inputs), **attrs))
        self.nodes.append(Node(op, inputs, attrs, [out]))
        return out

    def turned(self, v: Value) -> Value:
        """Return v with its last two axes swapped."""
        return self("transpose", v, axes=_swapped(tuple(range(len(v.shape)))))


def _gradient_body(
    operands: Sequence[Value], twice: bool, results: Sequence[Value], axes: Sequence[Axes]
) -> Graph:
    """Return the graph that computes the gradients by q, k and v.

    Args:
        operands: see `AttentionBody`; with a mask they include zero.
        twice: whether the mask also masks the weights.
        results: the gradients.
        axes: the order in which their axes are written.
    """
    pen = _Pen()
    q, kt, v, maximum, total, arriving = operands[:6]
    logits = pen("matmul", q, kt)
    if len(operands) > 6:
        logits = pen("select", operands[6], logits, operands[7])
    powers = pen("exp", pen("subtract", logits, maximum))
    weights = plain = pen("divide", powers, total)
    by_weights = pen("matmul", arriving, pen.turned(v))
    if twice:
        weights = pen("select", operands[6], plain, operands[8])
        by_weights = pen("select", operands[6], by_weights, operands[8])
    scaled = pen("divide", by_weights, total)
    shares = pen("negative", pen("multiply", scaled, plain))
    row = pen("reduce_sum", shares, axis=(len(q.shape) - 1,), keepdims=True)
    by_logits = pen("multiply", pen("add", scaled, row), powers)
    if len(operands) > 6:
        by_logits = pen("select", operands[6], by_logits, operands[8])
    matrices = (
        pen("matmul", by_logits, pen.turned(kt)),
        pen("matmul", pen.turned(by_logits), q),
        pen("matmul", pen.turned(weights), arriving),
    )
    for matrix, order, result in zip(matrices, axes, results, strict=True):
        pen.nodes.append(_transpose(matrix, result, order))
    return Graph(operands, {}, pen.nodes, results)


def _transpose(v: Value, out: Value, axes: Axes) -> Node:
    """Return the node that writes v with its axes in another order."""
    return Node(REGISTRY["transpose"], [v], {"axes": axes}, [out])


def _swapped(axes: Axes) -> Axes:
    """Return the axes with the last two swapped."""
    return (*axes[:-2], axes[-1], axes[-2])


def _swaps(node: Node) -> bool:
    """Return whether a transpose swaps only the last two axes."""
    axes: Axes = node.attrs["axes"]
    return axes == _swapped(tuple(range(len(axes))))


def _is_of_rows(node: Node) -> bool:
    """Return whether a reduction is over the last axis only."""
    return tuple(node.attrs["axis"]) == (len(node.inputs[0].shape) - 1,)


def _check_sizes(q: Value, kt: Value, v: Value) -> None:
    """Check that there are many matrices, and that native code can compute them in a cache."""
    batch = q.shape[:-2]
    count, (size, sources) = math.prod(batch), kt.shape[-2:]
    same = batch == kt.shape[:-2] == v.shape[:-2]
    if not same or count < LEAST or 0 in (*q.shape, *v.shape):
        raise _NoMatchError
    if sources * max(size, v.shape[-1]) > LARGEST:
        raise _NoMatchError


def _ordered(nodes: Sequence[Node], before: Mapping[Node, Sequence[Value]]) -> list[Node]:
    """Return the nodes in an order in which each follows those that it reads, or must follow."""
    makers = {v: i for i, node in enumerate(nodes) for v in node.outputs}
    reads = {
        i: {makers[v] for v in (*node.inputs, *before.get(node, ())) if v in makers}
        for i, node in enumerate(nodes)
    }
    return [nodes[i] for i in in_rounds({i: i for i in reads}, reads)]
