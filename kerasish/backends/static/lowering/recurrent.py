"""Recurrent layers over complete sequences: per time step a oneDNN product and one fused loop.

The recurrent kernel is reordered into oneDNN's layout once per run; its gradient is one product
over all time steps. Masks are numbers; nonzero means that the time step counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.backends.static import onednn
from kerasish.backends.static.codegen import arguments, recurrent
from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.library import _record, _round
from kerasish.backends.static.lowering.units import Locate, Place, Unit, copy_record, filled_array
from kerasish.backends.static.machine import native
from kerasish.backends.static.onednn.primitive import Buffer
from kerasish.graph.ir import Node
from kerasish.ops.op import REGISTRY

if TYPE_CHECKING:
    from kerasish.backends.static.onednn.primitive import Primitive

SIZE = 4  # bytes of a float32
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}


class RepeatedProduct:
    """x @ weights, or x @ weights.T, repeated: the weights are reordered once.

    Args:
        rows, inner, columns: sizes of the product.
        turned: whether the weights are stored as (columns, inner).
        adds: whether the product is added to the content of its result.
        bias: whether a bias of `columns` numbers is added.
    """

    def __init__(
        self, rows: int, inner: int, columns: int, turned: bool, adds: bool, bias: bool = False
    ) -> None:
        shapes = ((rows, inner), (inner, columns))
        post = [("sum", 1.0)] if adds else []
        kind = "float32" if bias else None
        self.primitive = onednn.matmul(*shapes, b_layout="any", post=post, bias=kind)
        plain = onednn.matmul(*shapes, transpose_b=turned).arguments["b"]
        chosen = self.primitive.arguments["b"]
        self.turn = None if chosen == plain else onednn.reorder(plain, chosen)
        self.packed = 0 if self.turn is None else _round(chosen.nbytes)
        spare = max(self.primitive.scratchpad_bytes, getattr(self.turn, "scratchpad_bytes", 0))
        self.scratch = self.packed + _round(spare)

    def start(self, weights: Place, at: int) -> list[Record]:
        """Return the record that reorders the weights into the scratch memory `at`."""
        self.at = at
        self.weights = Buffer(weights.address, weights.nbytes)
        if self.turn is None:
            return []
        nbytes = self.primitive.arguments["b"].nbytes
        ends = {"source": self.weights, "destination": Buffer(at, nbytes)}
        self.weights = ends["destination"]
        if self.turn.scratchpad_bytes:
            ends["scratchpad"] = Buffer(at + self.packed, self.turn.scratchpad_bytes)
        return [_record(self.turn, ends)]

    def record(self, a: int, out: int, bias: int = 0) -> Record:
        """Return the record of one product of the matrix at address `a`."""
        p = self.primitive.arguments
        buffers = {
            "a": Buffer(a, p["a"].nbytes), "b": self.weights, "out": Buffer(out, p["out"].nbytes),
        }  # fmt: skip
        if "bias" in p:
            buffers["bias"] = Buffer(bias, p["bias"].nbytes)
        if self.primitive.scratchpad_bytes:
            buffers["scratchpad"] = Buffer(self.at + self.packed, self.primitive.scratchpad_bytes)
        return _record(self.primitive, buffers)


class RecurrentUnit(Unit):
    """The base of the forward and backward units: sizes, scratch memory, loops over a time step."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.kind = node.op.name.removesuffix("_gradient")
        sequence = node.outputs[0]
        self.steps, self.n = sequence.shape[:2]
        self.count = GATES[self.kind]
        self.masked = len(node.inputs) == len(REGISTRY[node.op.name].input_names)
        self._zeros: Any = None
        self._units = 0

    def _finish(self, kernel: Kernel, *products: RepeatedProduct, **buffers: int) -> None:
        """Reserve scratch memory for the products and for named buffers (name=element count)."""
        self.kernel, self.products = kernel, products
        self.threads = choose_threads(kernel, self.n, self.units, native.get_threads())
        self._loop_scratch = arguments.scratch_size(kernel, self.units, 1, self.threads)
        self._offsets: dict[str, int] = {}
        total = sum(p.scratch for p in products) + _round(self._loop_scratch)
        for name, numbers in buffers.items():
            self._offsets[name] = total
            total += _round(numbers * SIZE)
        self.scratch = max(total, 64)
        self.flops = sum(p.primitive.flops for p in products) * self.steps

    @property
    def units(self) -> int:
        """The size of the state."""
        return self._units

    def kernels(self) -> list[Any]:
        """Return the loop of a time step."""
        return [self.kernel]

    def _start(self, locate: Locate, weights: Place) -> list[Record]:
        at = self.base = locate(("scratch", self)).address
        results = []
        for product in self.products:
            results += product.start(weights, at)
            at += product.scratch
        self._loop_at = at
        return results

    def _buffer(self, name: str) -> int:
        return self.base + self._offsets[name]

    def _zero(self) -> int:
        """Return the address of a state of zeros."""
        if self._zeros is None:
            self._zeros = filled_array((self.n, self.units), "float32", 0)
        return int(self._zeros.ctypes.data)

    def _gates(self, address: int, count: int, width: int | None = None) -> list[Operand]:
        """Return `count` gates of the rows at `address`, which are `width` gates wide."""
        step = (width or count) * self.units
        return [Operand(address + SIZE * self.units * k, (step,)) for k in range(count)]

    def _step(self, operands: list[Any]) -> Record:
        block = arguments.pack(
            self.kernel, operands, table=load_runtime().table, rows=self.n, columns=self.units,
            threads=self.threads, scratch=self._loop_at if self._loop_scratch else 0,
        )  # fmt: skip
        return Record(compile_one(self.kernel), block, self.name)

    def _rows(self, place: Place, width: int) -> list[int]:
        """Return the address of each step of a sequence."""
        return [place.address + SIZE * self.n * width * t for t in range(self.steps)]

    def _mask(self, locate: Locate, t: int) -> list[Operand]:
        if not self.masked:
            return []
        return [Operand(locate(self.reads[-1]).address + SIZE * self.n * t, (1,))]


class ForwardUnit(RecurrentUnit):
    """`lstm`, `gru` or `simple_rnn`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._units = u = node.outputs[0].shape[2]
        gated = self.kind == "gru"
        product = RepeatedProduct(self.n, u, self.count * u, False, not gated, gated)
        kernel = getattr(recurrent, f"{self.kind.removesuffix('_rnn')}_forward")
        options = {"whole": True} if gated else {}
        result = kernel("float32", masked=self.masked, mask_dtype="float32", **options)
        self._finish(result, product, **({"s": self.n * 3 * u} if gated else {}))

    def records(self, locate: Locate) -> list[Record]:
        """Return the records of all steps."""
        result = self._start(locate, locate(self.reads[1]))
        return result + getattr(self, f"_{self.kind}")(locate)

    def _simple_rnn(self, locate: Locate) -> list[Record]:
        x, _, first = (locate(v) for v in self.reads[:3])
        states = locate(self.writes[0])
        result, h = [copy_record(x, states)], first.address
        for t, new in enumerate(self._rows(states, self.units)):
            result.append(self.products[0].record(h, new))
            more = [Operand(h, (self.units,))] if self.masked else []
            result.append(self._step([new, *more, *self._mask(locate, t), new]))
            h = new
        return result

    def _lstm(self, locate: Locate) -> list[Record]:
        x, _, first, first_c = (locate(v) for v in self.reads[:4])
        states, cells, gates = (locate(v) for v in self.writes)
        result, h, c = [copy_record(x, gates)], first.address, first_c.address
        steps = zip(
            self._rows(states, self.units), self._rows(cells, self.units),
            self._rows(gates, 4 * self.units),
        )  # fmt: skip
        for t, (new_h, new_c, z) in enumerate(steps):
            result.append(self.products[0].record(h, z))
            parts, more = self._gates(z, 4), [h] if self.masked else []
            result.append(
                self._step([*parts, c, *more, *self._mask(locate, t), *parts, new_c, new_h])
            )
            h, c = new_h, new_c
        return result

    def _gru(self, locate: Locate) -> list[Record]:
        x, _, bias, first = (locate(v) for v in self.reads[:4])
        states, gates = (locate(v) for v in self.writes)
        result, h, s = [], first.address, self._buffer("s")
        steps = zip(
            self._rows(x, 3 * self.units), self._rows(states, self.units),
            self._rows(gates, 4 * self.units),
        )  # fmt: skip
        for t, (row, new, kept) in enumerate(steps):
            result.append(self.products[0].record(h, s, bias.address))
            inputs = [*self._gates(row, 3), *self._gates(s, 3), h, *self._mask(locate, t)]
            result.append(self._step([*inputs, *self._gates(kept, 4), new]))
            h = new
        return result


class BackwardUnit(RecurrentUnit):
    """`lstm_gradient`, `gru_gradient` or `simple_rnn_gradient`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._units = u = node.inputs[0].shape[2]
        width = self.count * u
        self.adds = self.masked or self.kind == "gru"
        product = RepeatedProduct(self.n, width, u, True, self.adds)
        kernel = getattr(recurrent, f"{self.kind.removesuffix('_rnn')}_backward")
        result = kernel("float32", masked=self.masked, mask_dtype="float32", whole=True)
        sizes = dict.fromkeys(("dh0", "dh1", "dc0", "dc1"), self.n * u)
        if self.kind == "gru":
            sizes["ds"] = self.steps * self.n * width
        weights, self._more = [], []
        if self.steps > 1:
            rows = (self.steps - 1) * self.n
            weights.append(onednn.matmul((u, rows), (rows, width), transpose_a=True))
        post = [("sum", 1.0)] if self.steps > 1 else []
        weights.append(onednn.matmul((u, self.n), (self.n, width), transpose_a=True, post=post))
        if self.kind == "gru":
            rows = self.steps * self.n
            self._ones = filled_array((rows,), "float32", 1)
            self._more = [onednn.matmul((1, rows), (rows, width))]
        self.weights = weights
        spare = max(p.scratchpad_bytes for p in (*weights, *self._more))
        self._finish(result, product, spare=-(-spare // SIZE), **sizes)
        self.flops += sum(p.flops for p in weights)

    def records(self, locate: Locate) -> list[Record]:
        """Return the records of all steps, the last step first, then the weights' gradient."""
        by_name = dict(zip(self._names(), self.reads))
        self.places = {name: locate(v) for name, v in by_name.items()}
        result = self._start(locate, self.places["recurrent"])
        return result + getattr(self, f"_{self.kind}")(locate)

    def _names(self) -> tuple[str, ...]:
        return {
            "simple_rnn": ("g", "recurrent", "h", "states"),
            "gru": ("g", "recurrent", "h", "states", "gates"),
            "lstm": ("g", "g_cells", "recurrent", "h", "c", "states", "cells", "gates"),
        }[self.kind]

    def _sequence(self, name: str, width: int | None = None) -> list[int]:
        return self._rows(self.places[name], width or self.units)

    def _gradient_of_weights(self, dz: int, out: Place) -> list[Record]:
        width = self.count * self.units
        whole = SIZE * self.n * width
        ends = [(self.places["h"].address, dz, self.n)]
        if self.steps > 1:
            ends.insert(0, (self.places["states"].address, dz + whole, (self.steps - 1) * self.n))
        results = []
        for primitive, (a, b, rows) in zip(self.weights, ends):
            buffers = {
                "a": Buffer(a, SIZE * rows * self.units), "b": Buffer(b, SIZE * rows * width),
                "out": Buffer(out.address, out.nbytes),
            }  # fmt: skip
            results.append(self._library(primitive, buffers))
        return results

    def _library(self, primitive: Primitive, buffers: dict[str, Buffer]) -> Record:
        if primitive.scratchpad_bytes:
            buffers["scratchpad"] = Buffer(self._buffer("spare"), primitive.scratchpad_bytes)
        return _record(primitive, buffers)

    def _past(self, t: int, name: str, last: Place) -> int:
        """Return the address for the gradient by the state before time step t."""
        return self._buffer(f"{name}{t % 2}") if t else last.address

    def _simple_rnn(self, locate: Locate) -> list[Record]:
        dx, weights, first = (locate(v) for v in self.writes)
        states, g, dz = self._sequence("states"), self._sequence("g"), self._rows(dx, self.units)
        result, dh = [], self._zero()
        for t in reversed(range(self.steps)):
            past = self._past(t, "dh", first)
            inputs = [states[t], dh, g[t], *self._mask(locate, t)]
            result.append(self._step([*inputs, dz[t], *([past] if self.masked else [])]))
            result.append(self.products[0].record(dz[t], past))
            dh = past
        return result + self._gradient_of_weights(dx.address, weights)

    def _lstm(self, locate: Locate) -> list[Record]:
        dx, weights, first, first_c = (locate(v) for v in self.writes)
        cells, g, g_cells = (self._sequence(name) for name in ("cells", "g", "g_cells"))
        gates, dz = self._sequence("gates", 4 * self.units), self._rows(dx, 4 * self.units)
        result, dh, dc = [], self._zero(), self._zero()
        for t in reversed(range(self.steps)):
            past, past_c = self._past(t, "dh", first), self._past(t, "dc", first_c)
            before = cells[t - 1] if t else self.places["c"].address
            inputs = [*self._gates(gates[t], 4), before, cells[t], dh, dc]
            inputs += [g[t], g_cells[t], *self._mask(locate, t)]
            outputs = [*self._gates(dz[t], 4), past_c, *([past] if self.masked else [])]
            result.append(self._step([*inputs, *outputs]))
            result.append(self.products[0].record(dz[t], past))
            dh, dc = past, past_c
        return result + self._gradient_of_weights(dx.address, weights)

    def _gru(self, locate: Locate) -> list[Record]:
        dx, weights, bias, first = (locate(v) for v in self.writes)
        width = 3 * self.units
        states, g = self._sequence("states"), self._sequence("g")
        gates, of_x = self._sequence("gates", 4 * self.units), self._rows(dx, width)
        all_s = Place(self._buffer("ds"), SIZE * self.steps * self.n * width)
        of_h = self._rows(all_s, width)
        result, dh = [], self._zero()
        for t in reversed(range(self.steps)):
            past = self._past(t, "dh", first)
            before = states[t - 1] if t else self.places["h"].address
            inputs = [*self._gates(gates[t], 4), before, dh, g[t], *self._mask(locate, t)]
            outputs = [*self._gates(of_x[t], 3), *self._gates(of_h[t], 3), past]
            result.append(self._step([*inputs, *outputs]))
            result.append(self.products[0].record(of_h[t], past))
            dh = past
        result += self._gradient_of_weights(all_s.address, weights)
        rows = Buffer(int(self._ones.ctypes.data), self._ones.nbytes)
        ends = {"a": rows, "b": Buffer(*all_s), "out": Buffer(bias.address, bias.nbytes)}
        return [*result, self._library(self._more[0], ends)]


def make_recurrent(node: Node) -> Unit | None:
    """Return the unit for a recurrent op; None if oneDNN does not support it."""
    kind = node.op.name.removesuffix("_gradient")
    if kind not in GATES or native.available():
        return None
    values = (*node.inputs, *node.outputs)
    if any(v.dtype != "float32" or v.size == 0 for v in values):
        return None
    try:
        return ForwardUnit(node) if node.op.name == kind else BackwardUnit(node)
    except (onednn.OneDnnError, ValueError):
        return None
