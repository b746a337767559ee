"""Products with quantized weights: by oneDNN where the processor multiplies integers, or a loop.

oneDNN's product of int8 is exact only with VNNI's instructions (or AMX): older ones saturate
intermediate sums. Elsewhere, and for packed weights, generated loops unpack the weights in
registers (`codegen/packed.py`).
"""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn.primitive import Primitive
from kerasish.backends.static.codegen import packed
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.library import LibraryUnit, View, _flattened
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.graph.ir import Node, Value
from kerasish.ops.networks.quantized import EXACT_ROWS, integer_matmul, packed_product

GRAIN = 500_000.0  # operations per thread
_EXACT = ("vnni", "amx", "avx10")  # in the names of oneDNN's kernels that never saturate


class IntegerMatmulUnit(LibraryUnit):
    """A product of int8 matrices by oneDNN, added up in int32."""

    weights = "b"

    def __init__(self, a: View, b: View, out: Value) -> None:
        super().__init__("integer matmul", [a.root, b.root], [out])
        self._make = functools.partial(
            onednn.matmul, a.shape, b.shape, a_strides=a.strides, b_strides=b.strides,
            dtype="int8", out_dtype="int32",
        )  # fmt: skip
        self.primitive = self._make()
        if not _is_exact(self.primitive):
            raise onednn.OneDnnError(f"{self.primitive.implementation} may saturate")
        self.arguments = {"a": a.root, "b": b.root, "out": out}
        self._finish()

    def _choose_layout(self) -> None:
        own = self._make(b_layout="any")
        if _is_exact(own):
            self.plain["b"] = self.primitive.arguments["b"]
            self.primitive = own
            self._finish()


def _is_exact(primitive: Primitive) -> bool:
    return any(word in primitive.implementation for word in _EXACT)


class PackedWeightsUnit(Unit):
    """A product by a generated loop, which unpacks the weights in registers."""

    def __init__(
        self, name: str, rows: int, columns: int, inputs: int, block: int, bits: int, node: Node
    ) -> None:
        super().__init__(name, node.inputs, node.outputs)
        self.sizes, self.block, self.bits = (rows, columns, inputs), block, bits
        self.integer = node.op is integer_matmul
        most = 8 if host_target().lanes == packed.LANES else 4
        at_once = max(n for n in (1, 2, 4, 8) if n <= min(rows, most))
        self.kernel = packed.PackedProduct(at_once, bits, self.integer)
        self.scratch = 0 if self.integer else packed.scratch_size(rows, inputs, block)
        self.flops = 2.0 * math.prod(self.sizes)

    def kernels(self) -> list[Any]:
        """Return the one kernel."""
        return [self.kernel]

    def records(self, locate: Locate) -> list[Record]:
        """Return the one record."""
        _, columns, inputs = self.sizes
        places = [locate(v).address for v in (*self.reads, *self.writes)]
        operands = list(zip(places[:2], (inputs, -(-columns * self.bits // 8))))
        operands += [(0, 0)] * 2 if self.integer else [(p, columns) for p in places[2:4]]
        block = packed.pack(
            table=load_runtime().table, threads=native.threads_for(self.flops, GRAIN),
            sizes=self.sizes, block=self.block, operands=[*operands, (places[-1], columns)],
            scratch=locate(("scratch", self)).address if self.scratch else 0,
        )  # fmt: skip
        return [Record(compile_one(self.kernel), block, self.name)]


def make_integer_matmul(a: View, b: View, node: Node) -> Unit | None:
    """Return oneDNN's unit for a product of int8, where it is exact; None elsewhere."""
    if native.available() or 0 in (*a.shape, *b.shape) or len(a.shape) < 2:
        return None
    with contextlib.suppress(onednn.OneDnnError, ValueError):
        return IntegerMatmulUnit(_flattened(a, b), b, node.out)
    return None


def make_packed(node: Node) -> Unit | None:
    """Return the unit of a generated loop for a product with quantized weights, or None."""
    if node.op not in (integer_matmul, packed_product):
        return None
    x, q = node.inputs[:2]
    inputs = x.shape[-1]
    if not inputs or not node.out.size:
        return None
    rows, columns = node.out.size // node.out.shape[-1], node.out.shape[-1]
    if node.op is integer_matmul:
        return PackedWeightsUnit("integer matmul", rows, columns, inputs, EXACT_ROWS, 8, node)
    if {x.dtype, node.inputs[2].dtype} != {"float32"} or q.dtype != "int8":
        return None
    attrs = node.attrs
    block = min(attrs["block"], inputs)
    return PackedWeightsUnit("packed product", rows, columns, inputs, block, attrs["bits"], node)
