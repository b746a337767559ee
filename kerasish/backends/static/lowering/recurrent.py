"""Recurrent layers over complete sequences: per time step a oneDNN product and one fused loop.

The recurrent kernel is reordered into oneDNN's layout once per run; its gradient is one product
over all time steps. `masked_recurrent` has what a mask changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn.primitive import Buffer, Primitive
from kerasish.backends.static.codegen import arguments, recurrent
from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.library import _record, _round
from kerasish.backends.static.lowering.shared_products import (
    SharedProduct,
    library_threads,
    transposed_product,
)
from kerasish.backends.static.lowering.units import Locate, Place, Unit, copy_record, filled_array
from kerasish.graph.formulas import work_of
from kerasish.graph.ir import Graph, Node
from kerasish.graph.passes.recurrences import described

SIZE = 4  # bytes of a float32
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}


# FLOPs of the product of a time step. Below, one thread runs the step: threads would synchronize
# several times per step, every few microseconds, and wait long while other processes are busy.
# On two cores one thread takes 0.78 of the time of two at 2.4 MFLOP, 1.15 of it at 8.4 MFLOP.
STEP_FLOPS = 4e6


def _is_short(rows: int, inner: int, columns: int) -> bool:
    """Return whether a product of these sizes is too little work per time step for threads."""
    return 2.0 * rows * inner * columns < STEP_FLOPS


def is_short(node: Node) -> bool:
    """Return whether one thread runs each time step of a recurrence, or of its gradient."""
    leader = described(node).leader
    states = leader.outputs[0] if leader.op.name in GATES else leader.inputs[0]
    _, rows, units = states.shape
    return _is_short(rows, units, GATES[leader.op.name.removesuffix("_gradient")] * units)


def is_short_recurrence(graph: Graph) -> bool:
    """Return whether most of a graph's work is a recurrence whose steps one thread runs.

    Then one thread runs all of it: a second one would save little, and each synchronization may
    wait for a thread whose processor is busy.
    """
    short = others = 0
    for node in graph.nodes:
        if node.op.kind == "recurrent" and is_short(node):
            leader = described(node).leader
            short += work_of(leader)
            others += work_of(node) - work_of(leader)
            continue
        others += work_of(node)
    return short > 0 and others <= short


class RepeatedProduct:
    """x @ weights, or x @ weights.T, repeated: the weights are reordered once.

    Args:
        rows, inner, columns: sizes of the product.
        turned: whether the weights are stored as (columns, inner), transposed.
        adds: whether the product is added to the content of its result.
        bias: whether a bias of `columns` numbers is added.
        threads: the number of threads that compute it; None: by its work.
    """

    def __init__(
        self, rows: int, inner: int, columns: int, turned: bool, adds: bool, bias: bool = False,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        shapes = ((rows, inner), (inner, columns))
        post = [("sum", 1.0)] if adds else []
        kind = "float32" if bias else None
        self.primitive = onednn.matmul(
            *shapes, b_layout="any", post=post, bias=kind, threads=threads
        )
        plain = onednn.matmul(*shapes, transpose_b=turned).arguments["b"]
        chosen = self.primitive.arguments["b"]
        self.turn = None if chosen == plain else onednn.reorder(plain, chosen)
        self.packed = 0 if self.turn is None else _round(chosen.nbytes)
        turning = 0 if self.turn is None else self.turn.scratchpad_bytes
        spare = max(self.primitive.scratchpad_bytes, turning)
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


class TimeStep(NamedTuple):
    """The records of a time step.

    Attributes:
        counted: what runs; with a mask, only if at least one row counts.
        left_out: what runs instead if a mask excludes all rows.
    """

    counted: list[Record]
    left_out: list[Record]


class RecurrentUnit(Unit):
    """The base of the forward and backward units: sizes, scratch memory, loops over a time step.

    Attributes:
        one_thread: whether one thread runs the time steps.
        step_flops: the number of operations of all time steps.
        products: products that are repeated, and the names of their weights; the first is that of
            a time step.
    """

    safe = True
    masked = False

    def __init__(self, node: Node) -> None:
        what = described(node)
        super().__init__(what.leader.op.name, node.inputs, node.outputs)
        self.kind = self.name.removesuffix("_gradient")
        self.given = dict(zip(what.inputs, node.inputs))
        self.results = dict(zip(what.outputs, node.outputs))
        self.steps, self.n = what.leader.outputs[0].shape[:2]
        self.count = GATES[self.kind]
        self.units = (what.leader.outputs if self.name == self.kind else what.leader.inputs)[
            0
        ].shape[2]
        self._zero_arrays: dict[int, Any] = {}

    @property
    def width(self) -> int:
        """The number of elements of all gates of a row."""
        return self.count * self.units

    def _finish(
        self, kernel: Kernel, products: Sequence[tuple[RepeatedProduct, str]], **buffers: int
    ) -> None:
        """Reserve scratch memory for the products and for named buffers (name=element count)."""
        self.kernel, self.products = kernel, list(products)
        short = self._is_short()
        most = 1 if short else native.get_threads()
        self._loop_threads = choose_threads(kernel, self.n, self.units, most)
        self._loop_scratch = arguments.scratch_size(kernel, self.units, 1, self._loop_threads)
        self._offsets: dict[str, int] = {}
        total = sum(p.scratch for p, _ in self.products) + _round(self._loop_scratch)
        for name, numbers in buffers.items():
            self._offsets[name] = total
            total += _round(numbers * SIZE)
        self.scratch = max(total, 64)
        self.one_thread = short and self._loop_threads == 1
        self.flops = self.step_flops = self.products[0][0].primitive.flops * self.steps

    def _is_short(self) -> bool:
        return _is_short(self.n, self.units, self.width)

    def _step_threads(self) -> int | None:
        return 1 if self._is_short() else None

    def kernels(self) -> list[Any]:
        """Return the loop of a time step."""
        return [self.kernel]

    # --- records --------------------------------------------------------------------------------

    def parts(self, locate: Locate) -> tuple[list[Record], list[Record], list[Record]]:
        """Return the records before the time steps, those of the time steps, and those after."""
        self.places = {name: locate(v) for name, v in (*self.given.items(), *self.results.items())}
        at = self.base = locate(("scratch", self)).address
        before = []
        for product, name in self.products:
            before += product.start(self.places[name], at)
            at += product.scratch
        self._loop_at = at
        return [*before, *self._before()], self._time_records(), self._after()

    def records(self, locate: Locate) -> list[Record]:
        """Return the records in the order in which they run."""
        return [record for part in self.parts(locate) for record in part]

    def _before(self) -> list[Record]:
        """Return what runs before the time steps, after the weights are reordered."""
        return []

    def _after(self) -> list[Record]:
        """Return what runs after the time steps."""
        return []

    def _time_steps(self) -> Iterator[TimeStep]:
        """Yield the time steps in the order in which they run."""
        steps: Iterator[TimeStep] = getattr(self, f"_{self.kind}")()
        return steps

    def _time_records(self) -> list[Record]:
        """Return the records of all time steps."""
        return [record for step in self._time_steps() for record in step.counted]

    def _buffer(self, name: str) -> int:
        return self.base + self._offsets[name]

    def _zeros(self, count: int) -> Place:
        """Return memory of this many zeros."""
        if count not in self._zero_arrays:
            self._zero_arrays[count] = filled_array((count,), "float32", 0)
        array = self._zero_arrays[count]
        return Place(int(array.ctypes.data), SIZE * count)

    def _zero(self) -> int:
        """Return the address of a state of zeros."""
        return self._zeros(self.n * self.units).address

    def _gates(self, address: int, count: int, width: int | None = None) -> list[Operand]:
        """Return `count` gates of the rows at `address`, which are `width` gates wide."""
        step = (width or count) * self.units
        return [Operand(address + SIZE * self.units * k, (step,)) for k in range(count)]

    def _step(self, operands: list[Any]) -> Record:
        block = arguments.pack(
            self.kernel, operands, table=load_runtime().table, rows=self.n, columns=self.units,
            threads=self._loop_threads, scratch=self._loop_at if self._loop_scratch else 0,
        )  # fmt: skip
        return Record(compile_one(self.kernel), block, self.name)

    def _at(self, name: str, t: int, gates: int = 1) -> int:
        """Return the address of time step t of a sequence of this many gates."""
        return self._row(self.places[name].address, t, gates)

    def _row(self, address: int, t: int, gates: int = 1) -> int:
        return address + SIZE * self.n * gates * self.units * t

    # --- hooks of masks -------------------------------------------------------------------------

    def _mask(self, t: int) -> list[Operand]:
        """Return the mask of a time step as an operand of its loop."""
        return []


class ForwardUnit(RecurrentUnit):
    """`lstm`, `gru` or `simple_rnn`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        u, gated = self.units, self.kind == "gru"
        product = RepeatedProduct(
            self.n, u, self.width, False, not gated, gated, self._step_threads()
        )
        kernel = getattr(recurrent, f"{self.kind.removesuffix('_rnn')}_forward")
        options = {"sequence": True} if gated else {}
        result = kernel("float32", masked=self.masked, mask_dtype="float32", **options)
        buffers = {"s": self.n * 3 * u} if gated else {}
        more, spare = self._products()
        self._finish(result, [(product, "recurrent"), *more], **buffers, **spare)

    def _products(self) -> tuple[list[tuple[RepeatedProduct, str]], dict[str, int]]:
        """Return further products with the names of their weights, and buffers."""
        return [], {}

    def _before(self) -> list[Record]:
        """Return the record that copies the inputs of all steps to where their gates are added."""
        if self.kind == "gru":
            return []
        return [copy_record(self.places["x"], self.places["2" if self.kind == "lstm" else "0"])]

    def _left_out(self, t: int, carried: list[tuple[int, int]]) -> list[Record]:
        """Return what runs if a mask excludes all rows of a time step.

        Args:
            t: the time step.
            carried: the address of each state before and after it.
        """
        return []

    def _x(self, t: int) -> int:
        """Return the address of a time step's inputs, multiplied by the kernel."""
        return self._at("x", t, self.count)

    def _simple_rnn(self) -> Iterator[TimeStep]:
        h = self.places["h"].address
        for t in range(self.steps):
            new = self._at("0", t)
            more = [Operand(h, (self.units,))] if self.masked else []
            step = self._step([new, *more, *self._mask(t), new])
            counted = [self.products[0][0].record(h, new), step]
            yield TimeStep(counted, self._left_out(t, [(h, new)]))
            h = new

    def _lstm(self) -> Iterator[TimeStep]:
        h, c = self.places["h"].address, self.places["c"].address
        for t in range(self.steps):
            new_h, new_c, z = self._at("0", t), self._at("1", t), self._at("2", t, 4)
            parts, more = self._gates(z, 4), [h] if self.masked else []
            step = self._step([*parts, c, *more, *self._mask(t), *parts, new_c, new_h])
            counted = [self.products[0][0].record(h, z), step]
            yield TimeStep(counted, self._left_out(t, [(h, new_h), (c, new_c)]))
            h, c = new_h, new_c

    def _gru(self) -> Iterator[TimeStep]:
        h, s = self.places["h"].address, self._buffer("s")
        bias = self.places["bias"].address
        for t in range(self.steps):
            row, new, kept = self._x(t), self._at("0", t), self._at("1", t, 4)
            inputs = [*self._gates(row, 3), *self._gates(s, 3), h, *self._mask(t)]
            step = self._step([*inputs, *self._gates(kept, 4), new])
            counted = [self.products[0][0].record(h, s, bias), step]
            yield TimeStep(counted, self._left_out(t, [(h, new)]))
            h = new


class BackwardUnit(RecurrentUnit):
    """`lstm_gradient`, `gru_gradient` or `simple_rnn_gradient`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        u, width = self.units, self.width
        adds = self.masked or self.kind == "gru"
        product = RepeatedProduct(self.n, width, u, True, adds, threads=self._step_threads())
        kernel = getattr(recurrent, f"{self.kind.removesuffix('_rnn')}_backward")
        result = kernel("float32", masked=self.masked, mask_dtype="float32", sequence=True)
        buffers = dict.fromkeys(("dh0", "dh1", "dc0", "dc1"), self.n * u)
        if self.kind == "gru":
            buffers["ds"] = self.steps * self.n * width
        more, further = self._products()
        libraries = self._libraries()
        spare = max(p.scratchpad_bytes for p in libraries)
        buffers["spare"] = -(-spare // SIZE)
        self._finish(result, [(product, "recurrent"), *more], **buffers, **further)
        self.flops += sum(p.flops for p in libraries)

    def _products(self) -> tuple[list[tuple[RepeatedProduct, str]], dict[str, int]]:
        """Return further products with the names of their weights, and buffers."""
        return [], {}

    def _libraries(self) -> Sequence[Primitive | SharedProduct]:
        """Create the products that compute the gradients by weights, and return them."""
        u, width = self.units, self.width
        self.weights, self._more = [], []
        if self.steps > 1:
            rows = (self.steps - 1) * self.n
            self.weights.append(transposed_product(u, rows, width))
        post = [("sum", 1.0)] if self.weights else []
        self.weights.append(transposed_product(u, self.n, width, post))
        if self.kind == "gru":
            rows = self.steps * self.n
            self._ones = filled_array((rows,), "float32", 1)
            threads = library_threads(2.0 * rows * width)
            self._more = [onednn.matmul((1, rows), (rows, width), threads=threads)]
        return [*self.weights, *self._more]

    def _by_states(self) -> int:
        """Return the address of the gradients by the products with states, for all steps."""
        return self._buffer("ds") if self.kind == "gru" else self._by_inputs()

    def _by_inputs(self) -> int:
        """Return the address of the gradients by x, for all steps."""
        return self.places["0"].address

    def _after(self) -> list[Record]:
        """Return the products that compute the gradients by the recurrent kernel and its bias."""
        ds, out = self._by_states(), self.places["1"]
        block = SIZE * self.n * self.width
        ends = [(self.places["h"].address, ds, self.n)]
        if self.steps > 1:
            ends.insert(0, (self.places["states"].address, ds + block, (self.steps - 1) * self.n))
        results = [
            self._library(primitive, (a, rows * self.units), (b, rows * self.width), out)
            for primitive, (a, b, rows) in zip(self.weights, ends)
        ]
        if self._more:
            rows = self.steps * self.n
            ones = (int(self._ones.ctypes.data), rows)
            results.append(
                self._library(self._more[0], ones, (ds, rows * self.width), self.places["2"])
            )
        return results

    def _library(
        self, primitive: Primitive | SharedProduct, a: tuple[int, int], b: tuple[int, int],
        out: Place,
    ) -> Record:  # fmt: skip
        """Return the record of a product of matrices, given as (address, numbers)."""
        buffers = {
            "a": Buffer(a[0], SIZE * a[1]), "b": Buffer(b[0], SIZE * b[1]),
            "out": Buffer(out.address, out.nbytes),
        }  # fmt: skip
        if isinstance(primitive, SharedProduct):
            return primitive.record(buffers, self._buffer("spare"), self.name)
        if primitive.scratchpad_bytes:
            buffers["scratchpad"] = Buffer(self._buffer("spare"), primitive.scratchpad_bytes)
        return _record(primitive, buffers)

    def _left_out(self, t: int) -> list[Record]:
        """Return what runs if a mask excludes all rows of time step t."""
        return []

    def _arriving(self, name: str, t: int) -> int:
        """Return the address of what arrives at time step t."""
        return self._at(name, t)

    def _past(self, name: str, t: int) -> int:
        """Return the address for the gradient by the state "dh" or "dc" before time step t."""
        if t == self.steps:
            return self._zero()
        if t:
            return self._buffer(f"{name}{t % 2}")
        by_h = {"lstm": "2", "gru": "3", "simple_rnn": "2"}[self.kind]
        return self.places["3" if name == "dc" else by_h].address

    def _simple_rnn(self) -> Iterator[TimeStep]:
        for t in reversed(range(self.steps)):
            dz, past = self._row(self._by_inputs(), t), self._past("dh", t)
            arriving = self._arriving("g", t)
            inputs = [self._at("states", t), self._past("dh", t + 1), arriving, *self._mask(t)]
            step = self._step([*inputs, dz, *([past] if self.masked else [])])
            yield TimeStep([step, self.products[0][0].record(dz, past)], self._left_out(t))

    def _lstm(self) -> Iterator[TimeStep]:
        for t in reversed(range(self.steps)):
            dz, past = self._row(self._by_inputs(), t, 4), self._past("dh", t)
            before = self._at("cells", t - 1) if t else self.places["c"].address
            inputs = [*self._gates(self._at("gates", t, 4), 4), before, self._at("cells", t)]
            inputs += [self._past("dh", t + 1), self._past("dc", t + 1)]
            inputs += [self._arriving("g_states", t), self._arriving("g_cells", t), *self._mask(t)]
            outputs = [*self._gates(dz, 4), self._past("dc", t), *([past] if self.masked else [])]
            step = self._step([*inputs, *outputs])
            yield TimeStep([step, self.products[0][0].record(dz, past)], self._left_out(t))

    def _gru(self) -> Iterator[TimeStep]:
        for t in reversed(range(self.steps)):
            of_x, of_h = self._row(self._by_inputs(), t, 3), self._row(self._by_states(), t, 3)
            before = self._at("states", t - 1) if t else self.places["h"].address
            past, kept = self._past("dh", t), self._gates(self._at("gates", t, 4), 4)
            inputs = [*kept, before, self._past("dh", t + 1), self._arriving("g", t)]
            outputs = [*self._gates(of_x, 3), *self._gates(of_h, 3), past]
            step = self._step([*inputs, *self._mask(t), *outputs])
            yield TimeStep([step, self.products[0][0].record(of_h, past)], self._left_out(t))
