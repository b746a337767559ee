"""Recurrent layers over complete sequences: per time step a oneDNN product and one fused loop.
A time step that a mask leaves out in all rows, as behind the end of the longest, costs copies.

The recurrent kernel is reordered into oneDNN's layout once per run; its gradient is one product
over all time steps. Masks are numbers; nonzero means that the time step counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn.primitive import Buffer
from kerasish.backends.static.codegen import arguments, recurrent
from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.nested_records import choice_record
from kerasish.backends.static.lowering.library import _record, _round
from kerasish.backends.static.lowering.units import Locate, Place, Unit, copy_record, filled_array
from kerasish.graph.formulas import work_of
from kerasish.graph.ir import Graph, Node
from kerasish.ops.op import REGISTRY

if TYPE_CHECKING:
    from kerasish.backends.onednn.primitive import Primitive

SIZE = 4  # bytes of a float32
CHUNK = 16  # time steps whose part of the weights' gradient is one product, under a mask
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}


# FLOPs of the product of a time step. Below, one thread runs the step: threads would meet several
# times in each step, a few microseconds apart, and beside busy processes they wait there for long.
# On two cores one thread takes 0.78 of the time of two at 2.4 MFLOP, 1.15 of it at 8.4 MFLOP.
STEP_FLOPS = 4e6


def _is_short(rows: int, inner: int, columns: int) -> bool:
    """Return whether a product of these sizes is too little work per time step for threads."""
    return 2.0 * rows * inner * columns < STEP_FLOPS


def is_short_recurrence(graph: Graph) -> bool:
    """Return whether most of a graph's work is a recurrence whose steps one thread runs.

    Then one thread runs all of it: there is little to gain from a second one, and each place where
    two threads meet may wait for a busy neighbor.
    """
    short = others = 0
    for node in graph.nodes:
        if node.op.kind == "recurrent":
            _, rows, units = node.outputs[0].shape
            if _is_short(rows, units, GATES[node.op.name.removesuffix("_gradient")] * units):
                short += work_of(node)
                continue
        others += work_of(node)
    return short > 0 and others <= short


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
        threads = 1 if _is_short(rows, inner, columns) else None
        self.primitive = onednn.matmul(
            *shapes, b_layout="any", post=post, bias=kind, threads=threads
        )
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
    """The base of the forward and backward units: sizes, scratch memory, loops over a time step.

    Attributes:
        alone: whether one thread runs the time steps.
        step_flops: the number of operations of all time steps.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.kind = node.op.name.removesuffix("_gradient")
        sequence = node.outputs[0]
        self.steps, self.n = sequence.shape[:2]
        self.count = GATES[self.kind]
        self.masked = len(node.inputs) == len(REGISTRY[node.op.name].input_names)
        self._zeros: Any = None
        self._zero_rows: dict[int, Any] = {}
        self._units = 0

    def _finish(self, kernel: Kernel, *products: RepeatedProduct, **buffers: int) -> None:
        """Reserve scratch memory for the products and for named buffers (name=element count)."""
        self.kernel, self.products = kernel, products
        short = _is_short(self.n, self.units, self.count * self.units)
        most = 1 if short else native.get_threads()
        self.threads = choose_threads(kernel, self.n, self.units, most)
        self._loop_scratch = arguments.scratch_size(kernel, self.units, 1, self.threads)
        self._offsets: dict[str, int] = {}
        total = sum(p.scratch for p in products) + _round(self._loop_scratch)
        for name, numbers in buffers.items():
            self._offsets[name] = total
            total += _round(numbers * SIZE)
        self.scratch = max(total, 64)
        self.alone = short and self.threads == 1
        self.flops = self.step_flops = sum(p.primitive.flops for p in products) * self.steps

    @property
    def units(self) -> int:
        """The size of the state."""
        return self._units

    def kernels(self) -> list[Any]:
        """Return the loop of a time step."""
        return [self.kernel]

    def parts(self, locate: Locate) -> tuple[list[Record], list[Record], list[Record]]:
        """Return the records before the time steps, those of the time steps, and those after."""
        raise NotImplementedError(f"{type(self).__name__} makes no records.")

    def records(self, locate: Locate) -> list[Record]:
        """Return the records in the order in which they run."""
        return [record for part in self.parts(locate) for record in part]

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
        return [Operand(self._mask_at(locate, t), (1,))] if self.masked else []

    def _mask_at(self, locate: Locate, t: int) -> int:
        return locate(self.reads[-1]).address + SIZE * self.n * t

    def _where_counted(
        self, locate: Locate, t: int, counted: list[Record], left_out: list[Record], steps: int = 1
    ) -> list[Record]:
        """Return what runs for time step t, or some steps from it: `left_out` where no row counts.

        Without a mask every step counts.
        """
        if not self.masked:
            return counted
        at = self._mask_at(locate, t)
        return [choice_record(at, self.n * steps, counted, left_out, self.name)]

    def _copies(self, pairs: list[tuple[int, int]]) -> list[Record]:
        """Return the records that copy states from address to address."""
        size = SIZE * self.n * self.units
        return [copy_record(Place(a, size), Place(b, size), "kept state") for a, b in pairs]

    def _zeros_at(self, address: int, width: int) -> Record:
        """Return the record that sets n rows of some width to 0."""
        if width not in self._zero_rows:
            self._zero_rows[width] = filled_array((self.n, width), "float32", 0)
        zeros = self._zero_rows[width]
        place = Place(address, zeros.nbytes)
        copy = copy_record(Place(zeros.ctypes.data, zeros.nbytes), place, "zeros")
        return Record(copy.function, copy.block, copy.name, zeros)


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

    def parts(self, locate: Locate) -> tuple[list[Record], list[Record], list[Record]]:
        """Return the reordering of the weights, and the records of all steps."""
        first = self._start(locate, locate(self.reads[1]))
        return first, getattr(self, f"_{self.kind}")(locate), []

    def _whole(self, x: Place, out: Place) -> list[Record]:
        """Return the record that copies the inputs of all steps; with a mask each step copies."""
        return [] if self.masked else [copy_record(x, out)]

    def _part(self, row: int, out: int, gates: int) -> list[Record]:
        if not self.masked:
            return []
        size = SIZE * self.n * gates * self.units
        return [copy_record(Place(row, size), Place(out, size))]

    def _simple_rnn(self, locate: Locate) -> list[Record]:
        x, _, first = (locate(v) for v in self.reads[:3])
        states = locate(self.writes[0])
        result, h = self._whole(x, states), first.address
        rows = zip(self._rows(x, self.units), self._rows(states, self.units))
        for t, (row, new) in enumerate(rows):
            more = [Operand(h, (self.units,))] if self.masked else []
            step = self._step([new, *more, *self._mask(locate, t), new])
            counted = [*self._part(row, new, 1), self.products[0].record(h, new), step]
            result += self._where_counted(locate, t, counted, self._copies([(h, new)]))
            h = new
        return result

    def _lstm(self, locate: Locate) -> list[Record]:
        x, _, first, first_c = (locate(v) for v in self.reads[:4])
        states, cells, gates = (locate(v) for v in self.writes)
        result, h, c = self._whole(x, gates), first.address, first_c.address
        steps = zip(
            self._rows(x, 4 * self.units), self._rows(states, self.units),
            self._rows(cells, self.units), self._rows(gates, 4 * self.units),
        )  # fmt: skip
        for t, (row, new_h, new_c, z) in enumerate(steps):
            parts, more = self._gates(z, 4), [h] if self.masked else []
            step = self._step([*parts, c, *more, *self._mask(locate, t), *parts, new_c, new_h])
            counted = [*self._part(row, z, 4), self.products[0].record(h, z), step]
            left_out = [*self._copies([(h, new_h), (c, new_c)]), self._zeros_at(z, 4 * self.units)]
            result += self._where_counted(locate, t, counted, left_out)
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
            inputs = [*self._gates(row, 3), *self._gates(s, 3), h, *self._mask(locate, t)]
            step = self._step([*inputs, *self._gates(kept, 4), new])
            counted = [self.products[0].record(h, s, bias.address), step]
            left_out = [*self._copies([(h, new)]), self._zeros_at(kept, 4 * self.units)]
            result += self._where_counted(locate, t, counted, left_out)
            h = new
        return result


class BackwardUnit(RecurrentUnit):
    """`lstm_gradient`, `gru_gradient` or `simple_rnn_gradient`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._units = u = node.inputs[0].shape[2]
        width = self.count * u
        self.adds = self.masked or self.kind == "gru"
        k = KernelBuilder()
        k.output(k.input("float32") + k.input("float32"), "float32")
        self.sum = k.build()
        product = RepeatedProduct(self.n, width, u, True, self.adds)
        kernel = getattr(recurrent, f"{self.kind.removesuffix('_rnn')}_backward")
        result = kernel("float32", masked=self.masked, mask_dtype="float32", whole=True)
        sizes = dict.fromkeys(("dh0", "dh1", "dc0", "dc1"), self.n * u)
        if self.kind == "gru":
            sizes["ds"] = self.steps * self.n * width
        weights, self._more = [], []
        self._chunks: dict[int, Primitive] = {}
        if self.masked:
            for count in {min(CHUNK, self.steps - t) for t in range(1, self.steps, CHUNK)}:
                shapes = ((u, count * self.n), (count * self.n, width))
                self._chunks[count] = onednn.matmul(*shapes, transpose_a=True, post=[("sum", 1.0)])
        elif self.steps > 1:
            rows = (self.steps - 1) * self.n
            weights.append(onednn.matmul((u, rows), (rows, width), transpose_a=True))
        post = [("sum", 1.0)] if weights else []
        weights.append(onednn.matmul((u, self.n), (self.n, width), transpose_a=True, post=post))
        if self.kind == "gru":
            rows = self.steps * self.n
            self._ones = filled_array((rows,), "float32", 1)
            self._more = [onednn.matmul((1, rows), (rows, width))]
        self.weights = weights
        libraries = (*weights, *self._more, *self._chunks.values())
        spare = max(p.scratchpad_bytes for p in libraries)
        self._finish(result, product, spare=-(-spare // SIZE), **sizes)
        self.flops += sum(p.flops for p in weights)

    def parts(self, locate: Locate) -> tuple[list[Record], list[Record], list[Record]]:
        """Return the reordering, all steps, the last one first, and the weights' gradient."""
        by_name = dict(zip(self._names(), self.reads))
        self.places = {name: locate(v) for name, v in by_name.items()}
        first = self._start(locate, self.places["recurrent"])
        return first, *getattr(self, f"_{self.kind}")(locate)

    def kernels(self) -> list[Any]:
        """Return the loop of a time step, and the sum for one that is left out."""
        return [self.kernel, self.sum]

    def _names(self) -> tuple[str, ...]:
        return {
            "simple_rnn": ("g", "recurrent", "h", "states"),
            "gru": ("g", "recurrent", "h", "states", "gates"),
            "lstm": ("g", "g_cells", "recurrent", "h", "c", "states", "cells", "gates"),
        }[self.kind]

    def _sequence(self, name: str, width: int | None = None) -> list[int]:
        return self._rows(self.places[name], width or self.units)

    def _gradient_of_weights(self, locate: Locate, dz: int, out: Place) -> list[Record]:
        if self.masked:
            return self._gradient_in_chunks(locate, dz, out)
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

    def _gradient_in_chunks(self, locate: Locate, dz: int, out: Place) -> list[Record]:
        """Return the records that add up the parts of some time steps each."""
        u, width = self.units, self.count * self.units

        def part(primitive: Primitive, states: int, first: int, steps: int) -> Record:
            rows = SIZE * self.n * steps
            buffers = {
                "a": Buffer(states, rows * u),
                "b": Buffer(dz + SIZE * self.n * width * first, rows * width),
                "out": Buffer(out.address, out.nbytes),
            }
            return self._library(primitive, buffers)

        results = [part(self.weights[0], self.places["h"].address, 0, 1)]
        for t in range(1, self.steps, CHUNK):
            count = min(CHUNK, self.steps - t)
            before = self.places["states"].address + SIZE * self.n * u * (t - 1)
            record = part(self._chunks[count], before, t, count)
            results += self._where_counted(locate, t, [record], [], count)
        return results

    def _library(self, primitive: Primitive, buffers: dict[str, Buffer]) -> Record:
        if primitive.scratchpad_bytes:
            buffers["scratchpad"] = Buffer(self._buffer("spare"), primitive.scratchpad_bytes)
        return _record(primitive, buffers)

    def _sum(self, a: int, b: int, out: int) -> Record:
        """Return the record that adds two states."""
        block = arguments.pack(
            self.sum, [a, b, out], table=load_runtime().table, rows=self.n, columns=self.units,
            threads=1,
        )  # fmt: skip
        return Record(compile_one(self.sum), block, "sum of gradients")

    def _past(self, t: int, name: str, last: Place) -> int:
        """Return the address for the gradient by the state before time step t."""
        return self._buffer(f"{name}{t % 2}") if t else last.address

    def _simple_rnn(self, locate: Locate) -> tuple[list[Record], list[Record]]:
        dx, weights, first = (locate(v) for v in self.writes)
        states, g, dz = self._sequence("states"), self._sequence("g"), self._rows(dx, self.units)
        result, dh = [], self._zero()
        for t in reversed(range(self.steps)):
            past = self._past(t, "dh", first)
            inputs = [states[t], dh, g[t], *self._mask(locate, t)]
            step = self._step([*inputs, dz[t], *([past] if self.masked else [])])
            counted = [step, self.products[0].record(dz[t], past)]
            left_out = [self._zeros_at(dz[t], self.units), self._sum(dh, g[t], past)]
            result += self._where_counted(locate, t, counted, left_out)
            dh = past
        return result, self._gradient_of_weights(locate, dx.address, weights)

    def _lstm(self, locate: Locate) -> tuple[list[Record], list[Record]]:
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
            step = self._step([*inputs, *outputs])
            counted = [step, self.products[0].record(dz[t], past)]
            left_out = [self._zeros_at(dz[t], 4 * self.units), self._sum(dh, g[t], past)]
            left_out.append(self._sum(dc, g_cells[t], past_c))
            result += self._where_counted(locate, t, counted, left_out)
            dh, dc = past, past_c
        return result, self._gradient_of_weights(locate, dx.address, weights)

    def _gru(self, locate: Locate) -> tuple[list[Record], list[Record]]:
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
            counted = [self._step([*inputs, *outputs]), self.products[0].record(of_h[t], past)]
            left_out = [self._zeros_at(of_x[t], width), self._zeros_at(of_h[t], width)]
            left_out.append(self._sum(dh, g[t], past))
            result += self._where_counted(locate, t, counted, left_out)
            dh = past
        after = self._gradient_of_weights(locate, all_s.address, weights)
        rows = Buffer(int(self._ones.ctypes.data), self._ones.nbytes)
        ends = {"a": rows, "b": Buffer(*all_s), "out": Buffer(bias.address, bias.nbytes)}
        return result, [*after, self._library(self._more[0], ends)]


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
