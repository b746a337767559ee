"""Plans that need no library: the builder that chooses such units, and their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.direct import pack_weights
from kerasish.backends.static.codegen.skipping import finite_note
from kerasish.backends.static.lowering.build import Builder
from kerasish.backends.static.lowering.library import View, _flattened
from kerasish.backends.static.lowering.moves import (
    MoveUnit,
    _fill_piece,
    make_indexing,
    make_move,
    make_scaled_rows,
)
from kerasish.backends.static.lowering.pool import make_max_pool
from kerasish.backends.static.lowering.quantized import make_packed
from kerasish.backends.static.lowering.standalone_direct import (
    TransposedUnit,
    convolution_unit,
    fuse_followers,
    product_unit,
)
from kerasish.backends.static.lowering.standalone_plain import make_plain, make_plain_product
from kerasish.backends.static.lowering.standalone_recurrent import (
    RECURRENT,
    RecurrentUnit,
    join_products,
)
from kerasish.backends.static.lowering.standalone_units import (
    ProductUnit,
    UnsupportedStep,
    WindowSumUnit,
)
from kerasish.backends.static.lowering.units import CopyUnit, PythonUnit, Unit, plan_units
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.fuse import fuse_loops
from kerasish.graph.passes.fuse_epilogues import Product, apart
from kerasish.ops import dtypes
from kerasish.ops.networks.quantized import integer_matmul
from kerasish.ops.op import REGISTRY


class StandaloneBuilder(Builder):
    """Chooses units that need no library.

    Args:
        graph: optimized and fused; weights are constants.
        name_of: node -> its layer, for messages.

    Attributes:
        packed: value -> array, of packed weights.
    """

    def __init__(self, graph: Graph, name_of: Callable[[Node], str]) -> None:
        super().__init__(graph, lambda op: op.kernel)
        self.name_of = name_of
        self.packed: dict[Value, Any] = {}
        self._packed: dict[Any, Value] = {}

    def build(self) -> list[Unit]:
        """Return the units, with loops fused into products, and products into recurrences."""
        kept = {self._root(v) for v in self.graph.outputs}
        units = fuse_followers(super().build(), self._root, kept)
        return join_products(units, self._root, kept)

    def _merge_segments(self) -> list[Unit]:
        return self.units  # a joined loop has a table of addresses

    def _given(self) -> Iterable[Value]:
        return (*super()._given(), *self.packed)

    def _lower(self, node: Node) -> None:
        if node.op.name == "pool_average" and node.out.dtype == "float32":
            self._mean(node)
            return
        if node.op.name in ("conj", "real") and not node.inputs[0].dtype.startswith("complex"):
            self._materialize(node.inputs[0])
            self.aliases[node.out] = node.inputs[0]
            return
        if node.op.name == "reinterpret":
            self._materialize(node.inputs[0])
            self.units.append(CopyUnit(node.inputs[0], node.out))
            return
        if node.op is integer_matmul:
            for v in node.inputs:
                self._materialize(v)
            unit = make_packed(node)
            if unit is not None:
                self.units.append(unit)
                return
        if node.op.name != "matmul":
            super()._lower(node)
            return
        a, b = self._view(node.inputs[0]), self._view(node.inputs[1])
        self.units.append(self._product(node, a, b, node.out, None, ""))

    def _mean(self, node: Node) -> None:
        """Lower a mean pooling: the sums of windows, times 1 / how many elements they have."""
        self._materialize(node.inputs[0])
        total = Value(node.out.shape, "float32")
        unit = WindowSumUnit(node, total)
        self.units.append(unit)
        shares = (1.0 / unit.counts)[None, ..., None]
        factor = Value(shares.shape, "float32")
        self.packed[factor] = shares
        scaled = Node(REGISTRY["multiply"], [total, factor], {}, [node.out])
        for piece in fuse_loops(Graph([total, factor], {}, [scaled], [node.out])).nodes:
            self._lower(piece)

    def _follow(self, node: Node) -> None:
        what: Product = node.attrs["what"]
        bias = node.inputs[2] if what.bias else None
        simple = not what.sum and what.axes is None
        activation = "relu" if what.relu else ""
        if bias is not None:
            self._materialize(bias)
        if simple and what.leader.op.name == "matmul":
            a, b = self._view(node.inputs[0]), self._view(node.inputs[1])
            self.units.append(self._product(node, a, b, node.out, bias, activation))
            return
        if simple and what.leader.op.name == "convolution":
            for v in node.inputs:
                self._materialize(v)
            self.units.append(self._convolution(what.leader, bias, activation, node.out))
            return
        leader, *rest = apart(node)
        self._lower(leader)
        inputs = [leader.out, *node.inputs[2:]]
        for piece in fuse_loops(Graph(inputs, {}, rest, [node.out])).nodes:
            self._lower(piece)

    def _unit(self, node: Node) -> Unit | None:
        name = node.op.name
        if name == "convolution":
            return self._convolution(node, None, "", node.out)
        if name == "convolution_data_gradient":
            return self._transposed(node)
        if name == "fused":
            return super()._unit(node)
        if node.op.name in RECURRENT:
            return self._recurrent(node)
        if name == "imag" and not node.inputs[0].dtype.startswith("complex"):
            return MoveUnit(name, [_fill_piece(node.out, 0.0)], node.out)
        if node.op.reduction and node.inputs[0].size == 0:
            return self._of_nothing(node)
        unit = make_max_pool(node) or make_move(node) or make_indexing(node)
        return unit or make_scaled_rows(node) or make_packed(node) or make_plain(node)

    def _of_nothing(self, node: Node) -> Unit | None:
        """Return the unit of a reduction of no elements: all results are the same number."""
        (x,) = node.inputs
        empty = np.zeros(x.shape, dtypes.array_dtype(x.dtype))
        number = np.unique(self.kernel_of(node.op)(np, empty, **node.attrs))
        return MoveUnit(node.op.name, [_fill_piece(node.out, float(number[0]))], node.out)

    def _python(self, node: Node) -> Unit:
        raise UnsupportedStep(
            f"{self.name_of(node)}the op {node.op.name!r} ({node.out.dtype}) has no code that "
            "needs no library"
        )

    def _product(
        self, node: Node, a: View, b: View, out: Value, bias: Value | None, activation: str
    ) -> Unit:
        small = 0 in (*a.shape, *b.shape) or min(len(a.shape), len(b.shape)) < 2
        if {a.root.dtype, b.root.dtype, out.dtype} != {"float32"} or small:
            return self._plain_product(node, a, b, out, bias, activation)
        if bias is not None and bias.size != out.shape[-1]:
            raise UnsupportedStep(f"{self.name_of(node)}a bias of shape {bias.shape}")
        flat = _flattened(a, b)
        known = self._known(b.root)
        if known is not None and len(b.shape) == 2 and len(flat.shape) == 2:
            array = np.lib.stride_tricks.as_strided(
                np.ascontiguousarray(known).reshape(-1), b.shape, [4 * s for s in b.strides]
            )
            packed = self._pack(b, array)
            unit = product_unit(flat, b.shape[1], packed, out, bias, activation, skips=True)
            if unit is not None:
                return unit
        if 1 not in b.strides[-2:] and bias is None and not activation:
            return self._plain_product(node, a, b, out, bias, activation)
        if 1 not in b.strides[-2:]:
            raise UnsupportedStep(f"{self.name_of(node)}a product with strides {b.strides}")
        if len(flat.shape) == 2 and len(b.shape) == 2 and len(out.shape) > 2:
            out_shape = Value((flat.shape[0], b.shape[1]), out.dtype)
            self.aliases[out] = out_shape
            out = out_shape
        return ProductUnit(flat, b, out, bias, activation)

    def _plain_product(
        self, node: Node, a: View, b: View, out: Value, bias: Value | None, activation: str
    ) -> Unit:
        unit = None if bias is not None or activation else make_plain_product(a, b, out)
        if unit is None:
            raise UnsupportedStep(f"{self.name_of(node)}products of {a.root.dtype}")
        return unit

    def _known(self, v: Value) -> Any:
        """Return the numbers of a value, where they are known, in its shape; else None."""
        root = self._root(v)
        array = self.graph.constants.get(root, self.packed.get(root))
        return None if array is None else np.asarray(array).reshape(v.shape)

    def _materialize(self, v: Value) -> None:
        node = self.pending.get(v)
        if node is not None and node.inputs[0] not in self.pending:
            known = self._known(node.inputs[0])
            if known is not None:
                del self.pending[v]
                self.packed[v] = np.ascontiguousarray(np.transpose(known, node.attrs["axes"]))
                return
        super()._materialize(v)

    def _pack(self, key: Any, matrix: Any) -> Value:
        if key not in self._packed:
            array = pack_weights(np.asarray(matrix))
            self._packed[key] = self._constant(np.append(array, finite_note(array)))
        return self._packed[key]

    def _constant(self, array: Any) -> Value:
        value = Value(array.shape, "float32")
        self.packed[value] = array
        return value

    def _convolution(self, node: Node, bias: Value | None, activation: str, out: Value) -> Unit:
        weights = self._weights(node)
        unit, value, array = convolution_unit(node, weights, bias, activation, out)
        self.packed[value] = array
        return unit

    def _recurrent(self, node: Node) -> Unit:
        weights = self._known(node.inputs[1])
        gates = node.outputs[1 + (node.op.name == "lstm") :]
        plain = all(v.dtype == "float32" and v.size for v in (*node.inputs, *node.outputs))
        if weights is None or not plain or any(self.uses.get(v) for v in gates):
            raise UnsupportedStep(f"{self.name_of(node)}a recurrence of this kind")
        unit = RecurrentUnit(node, np.asarray(weights))
        self.packed[unit.packed] = unit.array
        return unit

    def _transposed(self, node: Node) -> Unit:
        unit = TransposedUnit(node, self._weights(node))
        self.packed[unit.packed] = unit.array
        return unit

    def _weights(self, node: Node) -> Any:
        """Return the filters of a convolution."""
        known = self._known(node.inputs[1])
        if known is None or node.out.dtype != "float32" or 0 in node.inputs[0].shape:
            raise UnsupportedStep(f"{self.name_of(node)}a convolution of this kind")
        return known


class StandalonePlan:
    """Units of a graph and their memory.

    Args:
        graph: optimized and fused; weights are constants.
        name_of: node -> its layer, for messages.

    Attributes:
        units: in order.
        weights: value -> array, of all constants that are read.
        plan: offsets into the arena.
    """

    def __init__(self, graph: Graph, name_of: Callable[[Node], str]) -> None:
        builder = StandaloneBuilder(graph, name_of)
        self.graph = graph
        self.units = builder.build()
        if any(isinstance(u, PythonUnit) for u in self.units):
            raise UnsupportedStep("a unit is computed by Python")
        self.aliases = builder.aliases
        known = {**graph.constants, **builder.packed}
        used = [self.root(v) for u in self.units for v in u.reads]
        used += [self.root(v) for v in graph.outputs]
        self.weights = {
            v: np.ascontiguousarray(known[v]) for v in dict.fromkeys(used) if v in known
        }
        self.plan, _ = plan_units(graph, self.units, self.root, self.weights)

    def root(self, v: Value) -> Value:
        """Return the value whose memory v uses."""
        while v in self.aliases:
            v = self.aliases[v]
        return v
