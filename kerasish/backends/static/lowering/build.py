"""From a graph to units in execution order: chooses the native code for each op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.lowering.attention import make_attention
from kerasish.backends.static.lowering.columns import make_columns
from kerasish.backends.static.lowering.convolutions import make_convolution, make_pool
from kerasish.backends.static.lowering.early_updates import updated_early
from kerasish.backends.static.lowering.exchange import ExchangeUnit, make_exchange
from kerasish.backends.static.lowering.few_pixels import make_few_pixels
from kerasish.backends.static.lowering.kernel_gradients import make_kernel_gradient
from kerasish.backends.static.lowering.library import View, is_scattered, make_matmul, plain_view
from kerasish.backends.static.lowering.loops import LoopUnit, NotALoop
from kerasish.backends.static.lowering.moves import make_indexing, make_move, make_scaled_rows
from kerasish.backends.static.lowering.overlap import overlapped
from kerasish.backends.static.lowering.pieces import in_pieces
from kerasish.backends.static.lowering.pointwise import make_pointwise, without_strides
from kerasish.backends.static.lowering.pool import make_max_pool, pair_pools
from kerasish.backends.static.lowering.quantized import make_integer_matmul, make_packed
from kerasish.backends.static.lowering.recurrences import Recurrences
from kerasish.backends.static.lowering.rows import make_rows
from kerasish.backends.static.lowering.segments import SegmentsUnit
from kerasish.backends.static.lowering.units import (
    CopyUnit,
    EffectUnit,
    EmptyUnit,
    PythonUnit,
    Unit,
)
from kerasish.backends.static.lowering.winograd import make_winograd
from kerasish.graph.ir import Graph, GraphError, Node, Value
from kerasish.graph.passes import gather
from kerasish.graph.passes.fuse import fuse_loops
from kerasish.graph.passes.fuse_attention import FORWARD, GRADIENT, AttentionBody
from kerasish.graph.passes.fuse_epilogues import LastReads, Product, apart
from kerasish.graph.passes.recurrences import described
from kerasish.graph.passes.widen import HALVES, widen_halves
from kerasish.ranks import current_group


class Builder:
    """Creates the units of a fused graph.

    Args:
        graph: optimized and fused.
        kernel_of: op -> NumPy kernel, for ops without native code.
        updated: new value -> variable, for variables that may be written before the end.

    Attributes:
        units: in an order in which they can run.
        aliases: value -> the value whose memory it shares (reshapes).
    """

    def __init__(
        self,
        graph: Graph,
        kernel_of: Callable[[Any], Callable[..., Any]],
        updated: Mapping[Value, Value] = MappingProxyType({}),
    ) -> None:
        self.graph = graph
        self.kernel_of = kernel_of
        self._updated = updated
        self.uses = graph.uses()
        self.units: list[Unit] = []
        self.aliases: dict[Value, Value] = {}
        self.pending: dict[Value, Node] = {}  # transposes that are not materialized yet
        self.pieces: dict[Value, int] = {}  # value -> in how many pieces it is sent to other ranks
        self._barriers = {
            n.inputs[0]: n.attrs["pieces"] for n in graph.nodes if n.attrs.get("pieces", 1) > 1
        }
        self._pairs = pair_pools(graph)
        self._recurrences = Recurrences(graph)
        self._last_read = LastReads(graph)
        self._place = {node: i for i, node in enumerate(graph.nodes)}

    def build(self) -> list[Unit]:
        """Return the units."""
        for node in self.graph.nodes:
            self._lower(node)
        for v in self.graph.outputs:
            self._materialize(v)
        units = overlapped(self._merge_segments(), self._root)
        self._check_order(units)
        return units

    def _check_order(self, units: Sequence[Unit]) -> None:
        """Raise unless each unit reads inputs of the graph, or results of earlier units."""
        known = {self._root(v) for v in self._given()}
        for unit in units:
            if not known.issuperset(map(self._root, unit.reads)):
                raise GraphError(f"the unit {unit.name!r} runs before what it reads is there")
            known.update(map(self._root, unit.writes))

    def _given(self) -> Iterable[Value]:
        """Return the values that no unit writes."""
        return (*self.graph.inputs, *self.graph.constants)

    def _root(self, v: Value) -> Value:
        """Return the value whose memory v uses."""
        while v in self.aliases:
            v = self.aliases[v]
        return v

    # --- one node -----------------------------------------------------------------------------

    def _lower(self, node: Node) -> None:
        name = node.op.name
        if all(v.size == 0 for v in node.outputs):
            self.units.append(EmptyUnit(node.op.name, (), node.outputs))
            return
        if name == "transpose":
            self.pending[node.out] = node
            return
        single_rank = node.op.communicates and current_group().size == 1
        if single_rank or node.op.aliases:
            self._materialize(node.inputs[0])
            self.aliases[node.out] = node.inputs[0]
            if node.attrs.get("pieces", 1) > 1:
                self.pieces[self._root(node.out)] = node.attrs["pieces"]
            return
        if node.op.effect:
            for v in node.inputs:
                self._materialize(v)
            self.aliases[node.out] = node.inputs[0]
            self.units.append(EffectUnit(node, self.kernel_of(node.op)))
            return
        if name == "matmul":
            units = in_pieces(*self._operands(node), node.out, self._barriers.get(node.out, 1))
            if units:
                self.units += units
                return
        if name == "product":
            self._follow(node)
            return
        pieces = without_strides(node)
        if pieces:
            for piece in pieces:
                self._lower(piece)
            return
        if node.op in (FORWARD, GRADIENT):
            self._attend(node)
            return
        if name == "integer_matmul":
            unit = make_integer_matmul(*self._operands(node), node)
            if unit is not None:
                self.units.append(unit)
                return
        for v in node.inputs:
            self._materialize(v)
        unit = self._unit(node)
        if unit is None and name == "masked_recurrence":
            inner = Graph(node.inputs, {}, described(node).nodes, node.outputs)
            for piece in fuse_loops(inner).nodes:
                self._lower(piece)
            return
        if unit is None and (self._widen(node) or self._split(node)):
            return
        self.units.append(unit or self._python(node))

    def _widen(self, node: Node) -> bool:
        """Lower a node of 16-bit floats in float32 if it has native code only for float32."""
        halves = any(v.dtype in HALVES for v in (*node.inputs, *node.outputs))
        if not halves or node.op.name == "cast":
            return False
        graph = Graph(node.inputs, {}, [node], node.outputs)
        wide = widen_halves(graph)
        if wide is graph or node in wide.nodes:
            return False
        named = dict(zip(wide.outputs, node.outputs, strict=True))
        nodes = [
            Node(n.op, n.inputs, n.attrs, [named.get(v, v) for v in n.outputs]) for n in wide.nodes
        ]
        for piece in fuse_loops(wide.replace(nodes=nodes, outputs=node.outputs)).nodes:
            self._lower(piece)
        return True

    def _split(self, node: Node) -> bool:
        """Lower a reduction over non-adjacent axes as two reductions, the last axes first."""
        if not _folds(node) or node.inputs[0].size == 0:
            return False
        shape = node.inputs[0].shape
        real = [axis for axis in sorted(node.attrs["axis"]) if shape[axis] != 1]
        kept = [axis for axis in range(len(shape)) if shape[axis] != 1 and axis not in real]
        between = [axis for axis in kept if real and real[0] < axis < real[-1]]
        if not between:
            return False
        last = [axis for axis in real if axis > between[-1]]
        first = {**node.attrs, "axis": tuple(last), "keepdims": True}
        spec = node.op.shape(node.inputs[0].spec, **first)
        part = Value(spec.shape, spec.dtype)
        if node.op.shape(spec, **node.attrs) != node.out.spec:
            return False
        pieces = [
            Node(node.op, node.inputs, first, [part]),
            Node(node.op, [part], node.attrs, node.outputs),
        ]
        for piece in fuse_loops(Graph(node.inputs, {}, pieces, node.outputs)).nodes:
            self._lower(piece)
        return True

    def _follow(self, node: Node) -> None:
        """Lower a product with bias and relu; in parts where the library cannot fuse them."""
        what: Product = node.attrs["what"]
        bias = node.inputs[2] if what.bias else None
        added = node.inputs[-1] if what.sum else None
        for v in (bias, added):
            if v is not None:
                self._materialize(v)
        if what.leader.op.name == "matmul":
            a, b = self._operands(node)
            unit = make_matmul(a, b, node.out, bias, "relu" if what.relu else "", added, what.axes)
        else:
            for v in node.inputs:
                self._materialize(v)
            conv, others = what.leader, (bias, node.out, added)
            unit = None if what.relu else make_few_pixels(conv, *others)
            unit = unit or make_winograd(conv, *others, what.relu)
            # oneDNN's relu turns NaN into 0: a loop computes it.
            if unit is None and not what.relu:
                *before, conv = without_strides(conv) or [conv]
                for piece in before:
                    self._lower(piece)
                unit = make_pointwise(conv, *others) or make_convolution(conv, *others)
        if unit is not None:
            if added is not None:
                self._begin_with(added, node, unit)
            self.units.append(unit)
            return
        leader, *rest = apart(node)
        self._lower(leader)
        inputs = [leader.out, *(v for v in (bias, added) if v is not None)]
        for piece in fuse_loops(Graph(inputs, {}, rest, [node.out])).nodes:
            self._lower(piece)

    def _attend(self, node: Node) -> None:
        """Lower attention heads; where no unit fits, their products and softmax one by one."""
        views = [self._view(v) for v in node.inputs]
        unit = make_attention(node, views, self.graph.constants)
        if unit is not None:
            self.units.append(unit)
            return
        body: AttentionBody = node.attrs["body"]
        for piece in gather(body.graph, heads=False).nodes:
            self._lower(piece)

    def _begin_with(self, added: Value, node: Node, unit: Unit) -> None:
        """Initialize the node's output with `added`: in its memory if it is not read otherwise.

        Args:
            unit: computes the node. It may read `added` as an operand, too, as in h @ w + h.
        """
        reads_once = [self._root(v) for v in unit.reads].count(self._root(added)) == 1
        if reads_once and self._last_read(added) <= self._place[node]:
            self.aliases[node.out] = added
        else:
            self.units.append(CopyUnit(added, node.out))

    def _unit(self, node: Node) -> Unit | None:
        """Return the native unit of a node; None if there is none."""
        name = node.op.name
        unit: Unit | None = None
        if name == "fused":
            try:
                return LoopUnit(node, self.graph.constants)
            except NotALoop:
                return None
        if node.op.communicates:
            pieces = self.pieces.get(self._root(node.inputs[0]), 1)
            unit = make_exchange(node, pieces)
            if isinstance(unit, ExchangeUnit) and self._is_read_once(node.inputs[0]):
                self.aliases[node.out] = node.inputs[0]
                unit.in_place = True
            return unit
        if name.startswith("convolution"):
            unit = make_few_pixels(node) or make_kernel_gradient(node) or make_winograd(node)
            unit = unit or make_pointwise(node) or make_convolution(node) or make_columns(node)
        elif node.op.kind == "pool":
            unit = make_max_pool(node, self._pairs.get(node)) or make_pool(node)
        elif node.op.kind == "recurrent":
            unit = self._recurrences.unit(node)
        else:
            unit = make_move(node) or make_indexing(node) or make_scaled_rows(node)
            unit = unit or make_rows(node) or make_packed(node)
        return unit

    def _is_read_once(self, v: Value) -> bool:
        """Return whether one node reads the memory of a value, which is no input or constant."""
        outputs = set(self.graph.outputs)
        while self.uses[v] == 1 and v not in outputs:
            if v not in self.aliases:
                return v not in self.graph.constants and v not in self.graph.inputs
            v = self.aliases[v]
        return False

    def _python(self, node: Node) -> Unit:
        return PythonUnit(node, self.kernel_of(node.op))

    # --- transposes -------------------------------------------------------------------------------

    def _view(self, v: Value) -> View:
        node = self.pending.get(v)
        if node is None:
            self._materialize(v)
            return plain_view(v)
        inner = self._view(node.inputs[0])
        axes = node.attrs["axes"]
        return View(inner.root, v.shape, tuple(inner.strides[a] for a in axes))

    def _operands(self, node: Node) -> tuple[View, View]:
        """Return the two operands of a product; transposed ones without a copy where that pays."""
        a, b = self._view(node.inputs[0]), self._view(node.inputs[1])
        if is_scattered(a, b):
            self._materialize(node.inputs[0])
            a = plain_view(node.inputs[0])
        return a, b

    def _materialize(self, v: Value) -> None:
        node = self.pending.pop(v, None)
        if node is not None:
            self._materialize(node.inputs[0])
            unit = make_move(node)
            self.units.append(unit or self._python(node))

    # --- updates of many variables ----------------------------------------------------------------

    def _merge_segments(self) -> list[Unit]:
        """Join equal, independent loops that only feed the graph's outputs into one record."""
        outputs = set(self.graph.outputs)
        read = {v for u in self.units for v in u.reads} | set(self.aliases.values())
        last: list[Unit] = []
        first: list[Unit] = []
        for unit in self.units:
            ends = all(v in outputs and v not in read for v in unit.writes)
            (last if ends and unit.writes and unit.movable else first).append(unit)
        first, last = updated_early(first, last, self._updated, self._root)
        groups: dict[Any, list[Any]] = {}
        order: list[Any] = []
        for unit in last:
            key = unit.segment_key() if isinstance(unit, LoopUnit) else None
            if key is None:
                order.append(unit)
                continue
            if key not in groups:
                groups[key] = []
                order.append(key)
            groups[key].append(unit)
        joined = []
        for entry in order:
            if isinstance(entry, Unit):
                joined.append(entry)
            elif len(groups[entry]) == 1:
                joined.append(groups[entry][0])
            else:
                joined.append(SegmentsUnit(groups[entry]))
        return [*first, *joined]


def threads() -> int:
    """Return the number of threads that programs compiled now may use."""
    return native.get_threads()


def _folds(node: Node) -> bool:
    """Return whether a node is a reduction that can be computed in two stages."""
    return bool(node.op.reduction) and not node.op.gives_index
