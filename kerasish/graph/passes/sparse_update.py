"""Update only the rows of a table whose gradient is not zero.

The gradient of an embedding, or of a kernel that multiplies a sparse matrix, is a table of zeros to
which a few rows are added. If the update leaves a row unchanged when its gradient is 0 (SGD without
momentum, Adagrad), a node `sparse_update` computes the update only on these few rows. If a number
such as the learning rate is NaN or infinite, rows without a gradient keep their values, while 0
times that number would make them NaN; rows with a gradient become NaN or infinite.

Running averages, such as those of Adam, decay in every row. There the node updates the few rows,
and all others as for a gradient of 0: the table of gradients is never computed. Since the few rows
are moved twice, this is done where they are at most an eighth of all.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.graph.interpret import interpret
from kerasish.graph.ir import Graph, GraphOp, Node, NodeOp, Value
from kerasish.ops.shapes import Spec
from kerasish.typing import ArrayModule, Structure

ZERO, SAME, OTHER = "zero", "same", "other"  # a value in a row whose gradient is 0
SMALLEST = 4096  # elements of a table; a pass over a smaller table is as fast
FEW = 2  # rows of a table per index, at least, if other rows keep their values
FEW_OF_ALL = (
    8  # if all rows change: with four, an Adam step of 10,000 x 128 takes 1.7 times as long
)


class SparseUpdate(NamedTuple):
    """The computation of a `sparse_update` node.

    Attributes:
        source: the op that adds rows to zeros.
        arity: the number of its inputs, which are the node's first inputs.
        body: (summed gradient rows, rows of each table, numbers) -> new rows of the first tables.
        tables: the number of tables among the inputs.
        changed: for each output of the body, the index of the table that it updates.
        everywhere: whether rows without a gradient are also updated, as for a gradient of 0.
    """

    source: NodeOp
    arity: int
    body: Graph
    tables: int
    changed: tuple[int, ...]
    everywhere: bool = False


def sparse_update(graph: Graph) -> Graph:
    """Return the graph with sparse updates computed only on the affected rows."""
    for node in graph.nodes:
        if node.op.adds_rows:
            result = _Update(graph, node).replaced()
            if result is not None:
                graph = result
    return graph


class _Update:
    """The element-wise computation that follows the gradient of one table."""

    def __init__(self, graph: Graph, source: Node) -> None:
        self.graph, self.source = graph, source
        self.shape = source.out.shape
        self.kinds: dict[Value, Any] = {source.out: (ZERO, None)}
        self.nodes: list[Node] = []
        self.tables: list[Value] = []
        self.numbers: list[Value] = []

    def replaced(self) -> Graph | None:
        """Return the graph with the update only on these rows; None if that is not equivalent."""
        if not self._is_worth_it() or not self._gather():
            return None
        finals = self._finals()
        if not finals:
            return None
        return self._rewrite(finals)

    def _is_worth_it(self) -> bool:
        indices = self.source.inputs[1]
        fits = (
            self.source.attrs.get("axis", 0) == 0
            and len(self.shape) == 2
            and self.source.out.dtype == "float32"
            and indices.dtype in ("int32", "int64")
        )
        return fits and self.source.out.size >= SMALLEST and self._few(FEW)

    def _few(self, share: int) -> bool:
        return share * self.source.inputs[1].size <= self.shape[0]

    def _gather(self) -> bool:
        """Collect the nodes that follow the gradient; return False if one is not element-wise."""
        for node in self.graph.nodes:
            if not any(v in self.kinds for v in node.inputs):
                continue
            if not node.op.elementwise or node.op.name == "stop_gradient":
                return False
            if node.out.shape != self.shape or node.out.dtype != "float32":
                return False
            for v in node.inputs:
                if not self._admit(v):
                    return False
            self.nodes.append(node)
            self.kinds[node.out] = self._kind(node)
        return bool(self.nodes)

    def _admit(self, v: Value) -> bool:
        if v in self.kinds:
            return True
        if v.shape == self.shape and v.dtype == "float32":
            if v not in self.tables:
                self.tables.append(v)
            return True
        if v.size == 1 and len(v.shape) <= 2:
            if v not in self.numbers:
                self.numbers.append(v)
            return True
        return False

    def _kind(self, node: Node) -> tuple[Any, ...]:
        """Return the kind of the node's result (ZERO, SAME, OTHER) where the gradient is 0."""
        name = node.op.name
        kinds = [self.kinds.get(v, (SAME, v) if v in self.tables else (OTHER, None))
                 for v in node.inputs]  # fmt: skip
        zero = [kind == ZERO for kind, _ in kinds]
        if node.op.keeps_zero:
            keeps = zero[0] or node.op.aliases
            return kinds[0] if keeps else (OTHER, None)
        if name == "multiply" and any(zero) or name == "divide" and zero[0]:
            return ZERO, None
        if name in ("add", "subtract"):
            if zero[1]:
                return kinds[0]
            if zero[0] and name == "add":
                return kinds[1]
        return OTHER, None

    def _finals(self) -> list[Value]:
        """Return the results that others read; [] where others read the gradient itself."""
        inside = set(self.nodes)
        read = set(self.graph.outputs)
        for node in self.graph.nodes:
            if node not in inside:
                read.update(node.inputs)
        if self.source.out in read:
            return []
        return [n.out for n in self.nodes if n.out in read]

    def _next(self) -> dict[Value, Value]:
        """Return result -> the table that it is most likely a new version of."""
        versions = {v: v for v in self.tables}
        for node in self.nodes:
            inputs = sorted(node.inputs, key=lambda v: v not in self.tables)
            table = next((versions[v] for v in inputs if v in versions), None)
            if table is not None:
                versions[node.out] = table
        return versions

    def _rewrite(self, finals: list[Value]) -> Graph | None:
        everywhere = any(self.kinds[v][0] != SAME for v in finals)
        if everywhere and not self._few(FEW_OF_ALL):
            return None
        versions = self._next() if everywhere else {v: self.kinds[v][1] for v in finals}
        tables = [versions[v] for v in finals if v in versions]
        if len(set(tables)) < len(finals):
            return None
        order = [*tables, *(t for t in self.tables if t not in tables)]
        count = self.source.inputs[1].size
        places = {v: Value((count, self.shape[1]), v.dtype) for v in [self.source.out, *order]}
        copies = []
        for node in self.nodes:
            places[node.out] = Value((count, self.shape[1]), node.out.dtype)
            inputs = [places.get(v, v) for v in node.inputs]
            copies.append(Node(node.op, inputs, node.attrs, [places[node.out]]))
        entering = [places[self.source.out], *(places[t] for t in order), *self.numbers]
        body = Graph(entering, {}, copies, [places[v] for v in finals])
        rows = SparseUpdate(
            self.source.op, len(self.source.inputs), body, len(order), tuple(range(len(finals))),
            everywhere,
        )  # fmt: skip
        inputs = [*self.source.inputs, *order, *self.numbers]
        result = _node(rows, inputs, finals)
        gone = {*self.nodes, self.source}
        nodes: list[Node] = []
        last = self.nodes[-1]
        for node in self.graph.nodes:
            if node is last:
                nodes.append(result)
            elif node not in gone:
                nodes.append(node)
        return _sorted(self.graph.replace(nodes=nodes))


def _sorted(graph: Graph) -> Graph | None:
    """Return the graph if every value is computed before it is read; else None."""
    known = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        if any(v not in known for v in node.inputs):
            return None
        known.update(node.outputs)
    return graph


def _node(rows: SparseUpdate, inputs: Sequence[Value], outputs: Sequence[Value]) -> Node:
    return Node(update_op(len(outputs)), inputs, {"rows": rows}, outputs)


@functools.cache
def update_op(outputs: int) -> GraphOp:
    """Return the op of updates of this number of tables."""
    return GraphOp("sparse_update", _update_rows, _specs, outputs)


def _update_rows(xp: ArrayModule, *inputs: Any, rows: SparseUpdate) -> Structure:
    return run(rows, inputs)


def _specs(*inputs: Spec, rows: SparseUpdate) -> Spec | tuple[Spec, ...]:
    result = tuple(inputs[rows.arity + place] for place in rows.changed)
    return result[0] if len(result) == 1 else result


def run(rows: SparseUpdate, inputs: Sequence[Any]) -> Structure:
    """Compute a node with NumPy: sum gradients of equal rows, update the rows, write them back."""
    count = rows.arity
    sources, others = inputs[:count], inputs[count:]
    indices = sources[1]
    tables, numbers = others[: rows.tables], others[rows.tables :]
    flat = np.asarray(indices).reshape(-1)
    flat = np.where(flat < 0, flat + tables[0].shape[0], flat)
    unique, slots = np.unique(flat, return_inverse=True)
    sources = [*sources[:1], slots.reshape(np.shape(indices)), *sources[2:]]
    summed = rows.source.kernel(np, *sources, size=len(unique))
    result = interpret(rows.body, [summed, *(t[unique] for t in tables), *numbers])
    zeros = np.zeros(np.shape(tables[0]), summed.dtype)
    others = interpret(rows.body, [zeros, *tables, *numbers]) if rows.everywhere else tables
    results = []
    for number, (place, new) in enumerate(zip(rows.changed, result)):
        table = np.array(others[number if rows.everywhere else place])
        table[unique] = new
        results.append(table)
    return results[0] if len(results) == 1 else tuple(results)
