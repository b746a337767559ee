"""A graph whose results belong to the rows of a batch, as the graph of a block of its rows.

Row i of each output must depend only on row i of the inputs and on variables. This is checked op by
op, by the rules of `ops/rows.py`. Then the graph of a few rows computes these rows of the results.
It is derived from the graph of all rows, not traced again: a number that Python computed from the
size of the batch does not change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kerasish.graph.formulas import bytes_of
from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops import rows
from kerasish.ops.rows import NotByRows, RowCall, RowPlace
from kerasish.ops.shapes import Spec


class ByRows(NamedTuple):
    """The graph of a block of rows.

    Attributes:
        graph: its arguments and outputs have the rows of a block.
        values: value of the graph of all rows -> that of this one, if they differ.
        most: the largest number of bytes per row that a node reads and writes.
    """

    graph: Graph
    values: dict[Value, Value]
    most: int


def by_rows(graph: Graph, arguments: int, block: int) -> ByRows | None:
    """Return the graph of `block` rows; None where rows may depend on other rows.

    Args:
        graph: as traced; its first inputs are the arguments, which have the rows as first axis.
        arguments: the number of arguments.
        block: rows of the new graph, at least 1 and fewer than the graph's.
    """
    try:
        return divided(graph, arguments, block)
    except MixedRows:
        return None


class MixedRows(Exception):  # noqa: N818 (a signal, not an error)
    """Rows may depend on other rows.

    Attributes:
        node: the node that may mix them; None: an argument or a result has no rows.
    """

    def __init__(self, node: Node | None) -> None:
        super().__init__(node)
        self.node = node


def divided(graph: Graph, arguments: int, block: int) -> ByRows:
    """Return the result of `by_rows`.

    Raises:
        MixedRows: rows may depend on other rows.
    """
    given = graph.inputs[:arguments]
    if not given or any(not v.shape or v.shape[0] != given[0].shape[0] for v in given):
        raise MixedRows(None)
    if not 1 <= block < given[0].shape[0]:
        raise MixedRows(None)
    blocks = _Blocks(graph, given, block)
    try:
        return blocks.result()
    except NotByRows:
        raise MixedRows(blocks.node) from None


class _Blocks:
    """Rewrites a graph node by node.

    Args:
        graph: of all rows.
        given: its arguments.
        block: rows of the result.
    """

    def __init__(self, graph: Graph, given: tuple[Value, ...], block: int) -> None:
        self.graph, self.given, self.block = graph, given, block
        self.rows = given[0].shape[0]
        self.places: dict[Value, RowPlace] = {}
        self.values: dict[Value, Value] = {}
        self.nodes: list[Node] = []
        self.constants = dict(graph.constants)
        self.most = 0
        self.node: Node | None = None  # the current one
        self._makers: dict[Value, Node] = {}
        self._shrunk: dict[tuple[Value, int, int], Value] = {}

    def result(self) -> ByRows:
        """Return the new graph.

        Raises:
            NotByRows: rows may depend on other rows.
        """
        for v in self.given:
            self._enter(v, RowPlace(0))
        for node in self.graph.nodes:
            self._makers.update((v, node) for v in node.outputs)
            self.node = node
            self._rewrite(node)
        self.node = None
        for v in self.graph.outputs:
            place = self.places.get(v)
            if place is None or place.axis or place.before != 1:
                raise NotByRows
        inputs = [self.values.get(v, v) for v in self.graph.inputs]
        outputs = [self.values[v] for v in self.graph.outputs]
        graph = Graph(inputs, self.constants, self.nodes, outputs)
        return ByRows(graph, self.values, self.most)

    def _enter(self, v: Value, place: RowPlace) -> None:
        size = place.before * self.block * place.after
        shape = (*v.shape[: place.axis], size, *v.shape[place.axis + 1 :])
        self.places[v], self.values[v] = place, Value(shape, v.dtype)

    def _rewrite(self, node: Node) -> None:
        op = node.op
        if op.kind == "control" or op.effect or op.communicates or op.calls_python:
            raise NotByRows
        places = [self.places.get(v) for v in node.inputs]
        if not any(places):
            self.nodes.append(node)
            return
        rule = op.rows  # ops created by passes have none
        if rule is None:
            raise NotByRows
        call = RowCall(
            [v.shape for v in node.inputs], [v.shape for v in node.outputs], node.attrs, places,
            self.rows, self.block,
        )  # fmt: skip
        holders, attrs = rule(call)
        inputs = [self.values.get(v, v) for v in node.inputs]
        for (number, axis), size in call.shrunk.items():
            inputs[number] = self._shrink(node.inputs[number], axis, size)
        for v, place in zip(node.outputs, holders, strict=True):
            if v.shape[place.axis] != place.before * self.rows * place.after:
                raise NotByRows
            self._enter(v, place)
        self._check(node, inputs, attrs)
        self.nodes.append(Node(op, inputs, attrs, [self.values[v] for v in node.outputs]))
        held = [v for v in (*node.inputs, *node.outputs) if v in self.places]
        self.most = max(self.most, bytes_of(held) // self.rows)

    def _check(self, node: Node, inputs: list[Value], attrs: dict[str, Any]) -> None:
        """Raise unless the op's shape rule agrees with the rule of the rows."""
        specs = node.op.shape(*(v.spec for v in inputs), **attrs)
        all_specs = (specs,) if isinstance(specs, Spec) else tuple(specs)
        expected = [(self.values[v].shape, v.dtype) for v in node.outputs]
        if [(tuple(s.shape), s.dtype) for s in all_specs] != expected:
            raise NotByRows

    def _shrink(self, v: Value, axis: int, size: int) -> Value:
        """Return a value without rows that repeats along an axis, with fewer repeats.

        Raises:
            NotByRows: it is not known to repeat.
        """
        key = v, axis, size
        if key not in self._shrunk:
            shape = (*v.shape[:axis], size, *v.shape[axis + 1 :])
            self._shrunk[key] = self._fewer(v, axis, Value(shape, v.dtype))
        return self._shrunk[key]

    def _fewer(self, v: Value, axis: int, small: Value) -> Value:
        if v in self.constants:
            array = np.asarray(self.constants[v])
            first = array.take([0], axis)
            if array.tobytes() != np.broadcast_to(first, array.shape).tobytes():
                raise NotByRows
            repeated = np.broadcast_to(first, small.shape)
            self.constants[small] = np.ascontiguousarray(repeated)
            return small
        node = self._makers.get(v)
        if node is None:
            raise NotByRows
        inputs, attrs = list(node.inputs), node.attrs
        rule = node.op.rows
        from_last = axis - len(v.shape)
        if node.op.name == "fill":
            attrs = {**attrs, "shape": small.shape}
        elif node.op.name == "broadcast_to":
            (x,) = inputs
            if len(x.shape) >= -from_last and x.shape[from_last] != 1:
                raise NotByRows
            attrs = {**attrs, "shape": small.shape}
        elif node.op.elementwise:
            for i, x in enumerate(inputs):
                if len(x.shape) >= -from_last and x.shape[from_last] != 1:
                    x_axis = len(x.shape) + from_last
                    inputs[i] = self._shrink(x, x_axis, small.shape[axis])
        elif node.op.name == "transpose":
            inputs = [self._shrink(inputs[0], attrs["axes"][axis], small.shape[axis])]
        elif node.op.name == "strided_slice":
            inputs = [self._shrink(inputs[0], axis, small.shape[axis])]
            whole = (0, small.shape[axis], 1)
            slices = attrs["slices"]
            attrs = {**attrs, "slices": (*slices[:axis], whole, *slices[axis + 1 :])}
        elif rule is rows.examples and axis == 0:
            inputs[0] = self._shrink(inputs[0], 0, small.shape[0])
        elif rule is rows.matmul and min(len(x.shape) for x in inputs) > 1:
            self._shrink_factors(inputs, from_last, small.shape[axis])
        else:
            raise NotByRows
        self.nodes.append(Node(node.op, inputs, attrs, [small]))
        return small

    def _shrink_factors(self, factors: list[Value], from_last: int, size: int) -> None:
        """Reduce the rows, columns or pairs of matrices of a product's factors."""
        for i, x in enumerate(factors):
            read = i == 2 + from_last if from_last >= -2 else len(x.shape) >= -from_last
            if read and x.shape[from_last] != 1:
                factors[i] = self._shrink(x, len(x.shape) + from_last, size)
