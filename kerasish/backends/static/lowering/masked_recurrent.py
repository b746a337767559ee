"""Recurrent layers with a mask: blocks of time steps in which no row counts are skipped.

A mask is an array (steps, n); a nonzero element means that the time step counts for the row. If no
row of a block of time steps counts, as after the end of the longest row of a batch, the block's
products before, within and after the recurrence are skipped, and states are copied. In other
blocks, a single time step in which no row counts costs only copies. Values that are written and
read only where time steps count (gates for the gradient) hold no content elsewhere; everything that
other units read is written.

The products after a gradient add 0 times the inputs of time steps that do not count. This is NaN
if an input is NaN or infinite, so a block with such an input is computed in full.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn.primitive import Primitive
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.description import KernelBuilder
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.nested_records import choice_record
from kerasish.backends.static.lowering.recurrent import (
    SIZE,
    BackwardUnit,
    ForwardUnit,
    RecurrentUnit,
    RepeatedProduct,
)
from kerasish.backends.static.lowering.units import Place, copy_record, filled_array
from kerasish.graph.ir import Node
from kerasish.graph.passes import recurrences

GRAIN = 500_000.0  # FLOPs of a block's product per thread


class Masked(RecurrentUnit):
    """What the masked forward and backward units share.

    Attributes:
        blocks: (first time step, number of time steps) of each block.
    """

    masked = True

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The blocks, in order."""
        most = recurrences.BLOCK
        return [(t, min(most, self.steps - t)) for t in range(0, self.steps, most)]

    @property
    def _counts(self) -> list[int]:
        """The different numbers of time steps of a block."""
        return sorted({count for _, count in self.blocks})

    def _mask(self, t: int) -> list[Operand]:
        return [Operand(self._mask_at(t), (1,))]

    def _mask_at(self, t: int) -> int:
        return self.places["mask"].address + SIZE * self.n * t

    def _choice(
        self, first: int, count: int, counted: Sequence[Record], skipped: Sequence[Record]
    ) -> list[Record]:
        """Return the record that runs `counted` if a row counts in these steps, else `skipped`."""
        if not counted and not skipped:
            return []
        return [choice_record(self._mask_at(first), self.n * count, counted, skipped, self.name)]

    def _copy(self, source: int, target: int, count: int = 1) -> Record:
        """Return the record that copies states."""
        size = SIZE * self.n * self.units * count
        return copy_record(Place(source, size), Place(target, size), "kept state")

    def _zeroed(self, address: int, gates: int, count: int = 1) -> Record:
        """Return the record that sets this number of gates of time steps to 0."""
        zeros = self._zeros(self.n * gates * self.units * count)
        return copy_record(zeros, Place(address, zeros.nbytes), "zeros")

    def _block_threads(self, flops: float) -> int:
        return native.threads_for(flops, GRAIN)

    def _sizes(self) -> tuple[int, int]:
        """Return the numbers of inputs and of gates of a row."""
        if "kernel" in self.given:
            return self.given["kernel"].shape[0], self.width
        return (self.given["inputs"].shape[1] if "inputs" in self.given else 0), self.width


class MaskedForwardUnit(Masked, ForwardUnit):
    """`lstm`, `gru` or `simple_rnn` with a mask, and the product before it.

    Args:
        private: the names of the results that only the gradient's unit reads.
    """

    def __init__(self, node: Node, private: Collection[str] = ()) -> None:
        self.private = frozenset(private)
        super().__init__(node)
        self.unchecked = frozenset(self.results[name] for name in self.private)
        size, width = self._sizes()
        if self._projections:
            self.flops += 2.0 * self.steps * self.n * size * width

    def _products(self) -> tuple[list[tuple[RepeatedProduct, str]], dict[str, int]]:
        self._projections: dict[int, RepeatedProduct] = {}
        if "kernel" not in self.given:
            return [], {}
        size, width = self._sizes()
        for count in self._counts:
            rows = count * self.n
            threads = self._block_threads(2.0 * rows * size * width)
            self._projections[count] = RepeatedProduct(
                rows, size, width, False, False, "kernel_bias" in self.given, threads
            )
        products = [(product, "kernel") for product in self._projections.values()]
        return products, {"z": self.steps * self.n * width} if self.kind == "gru" else {}

    def _x(self, t: int) -> int:
        if not self._projections:
            return super()._x(t)
        return self._row(self._buffer("z"), t, self.count)

    def _before(self) -> list[Record]:
        """Return the records that multiply or copy the inputs of blocks that count."""
        results = []
        target = {"lstm": "2", "simple_rnn": "0"}.get(self.kind)
        bias = self.places["kernel_bias"].address if "kernel_bias" in self.given else 0
        size, width = self._sizes()
        for first, count in self.blocks:
            out = self._x(first) if target is None else self._at(target, first, self.count)
            if self._projections:
                x = self.places["inputs"].address + SIZE * self.n * size * first
                record = self._projections[count].record(x, out, bias)
            elif target is not None:
                nbytes = SIZE * self.n * width * count
                record = copy_record(Place(self._at("x", first, self.count), nbytes),
                                     Place(out, nbytes))  # fmt: skip
            else:
                continue
            results += self._choice(first, count, [record], [])
        return results

    def _time_records(self) -> list[Record]:
        steps, results = list(self._time_steps()), []
        for first, count in self.blocks:
            some: list[Record] = []
            for t, step in enumerate(steps[first : first + count], first):
                some += self._choice(t, 1, step.counted, step.left_out)
            results += self._choice(first, count, some, self._skip(first, count))
        return results

    def _kept_gates(self) -> str:
        """Return the number of the result that holds the gates; "" where nothing reads it."""
        name = {"lstm": "2", "gru": "1"}.get(self.kind, "")
        return "" if name in self.private else name

    def _left_out(self, t: int, carried: list[tuple[int, int]]) -> list[Record]:
        results = [self._copy(before, after) for before, after in carried]
        gates = self._kept_gates()
        return [*results, self._zeroed(self._at(gates, t, 4), 4)] if gates else results

    def _skip(self, first: int, count: int) -> list[Record]:
        """Return what runs for a block in which no row counts."""
        results = []
        for name, start in (("0", "h"), ("1", "c"))[: 1 + (self.kind == "lstm")]:
            before = self._at(name, first - 1) if first else self.places[start].address
            if name in self.private:  # the gradient reads the state before a time step that counts
                results.append(self._copy(before, self._at(name, first + count - 1)))
                continue
            results.append(self._copy(before, self._at(name, first)))
            filled = 1
            while filled < count:
                more = min(filled, count - filled)
                target = self._at(name, first + filled)
                results.append(self._copy(self._at(name, first), target, more))
                filled += more
        gates = self._kept_gates()
        return [*results, self._zeroed(self._at(gates, first, 4), 4, count)] if gates else results


class MaskedBackwardUnit(Masked, BackwardUnit):
    """The gradient of a masked recurrence, and the products after it.

    Args:
        private: the inputs that hold content only where time steps count.
    """

    def __init__(self, node: Node, private: Collection[str] = ()) -> None:
        super().__init__(node)
        self.unchecked = frozenset(self.given[name] for name in private)

    def kernels(self) -> list[Any]:
        """Return the loop of a time step, the sum for a skipped one, and the check."""
        return [self.kernel, self.sum, self.check]

    # --- primitives and memory ------------------------------------------------------------------

    def _products(self) -> tuple[list[tuple[RepeatedProduct, str]], dict[str, int]]:
        k = KernelBuilder()
        k.output(k.input("float32") + k.input("float32"), "float32")
        self.sum = k.build()
        k = KernelBuilder()
        x = k.input("float32")
        k.output(k.op("all_sum", x * 0.0), "float32")
        self.check = k.build()
        size, width = self._sizes()
        self._by_kernel: dict[int, RepeatedProduct] = {}
        if "d_inputs" in self.results:
            for count in self._counts:
                threads = self._threads_of_block(count)
                self._by_kernel[count] = RepeatedProduct(
                    count * self.n, width, size, True, False, threads=threads
                )
        buffers = {"flags": 16}
        most = max(size * width, self.n * size * self._counts[-1])
        self._check_scratch = arguments.scratch_size(self.check, most)
        buffers["check"] = -(-self._check_scratch // SIZE)
        if "0" not in self.results:
            buffers["dz"] = self.steps * self.n * width
        return [(product, "kernel") for product in self._by_kernel.values()], buffers

    def _threads_of_block(self, count: int) -> int:
        """Return the threads of each product of a block."""
        size, width = self._sizes()
        return self._block_threads(2.0 * count * self.n * max(size, self.units) * width)

    def _libraries(self) -> list[Primitive]:
        u, width, n = self.units, self.width, self.n
        adding = [("sum", 1.0)]
        self._first = onednn.matmul((u, n), (n, width), transpose_a=True)
        self._later: dict[int, Primitive] = {}
        self._kernels: dict[int, Primitive] = {}
        self._sums: dict[int, Primitive] = {}
        for count in self._counts:
            rows, threads = count * n, self._threads_of_block(count)
            self._later[count] = onednn.matmul(
                (u, rows), (rows, width), transpose_a=True, post=adding, threads=threads
            )
            if "d_kernel" in self.results:
                size, _ = self._sizes()
                self._kernels[count] = onednn.matmul(
                    (size, rows), (rows, width), transpose_a=True, post=adding, threads=threads
                )
            if "d_bias" in self.results or self.kind == "gru":
                self._sums[count] = onednn.matmul(
                    (1, rows), (rows, width), post=adding, threads=threads
                )
        self._rest = None  # of the first block, whose first time step is multiplied separately
        _, count = self.blocks[0]
        if count > 1:
            rows, threads = (count - 1) * n, self._threads_of_block(count)
            self._rest = onednn.matmul(
                (u, rows), (rows, width), transpose_a=True, post=adding, threads=threads
            )
        self._ones = filled_array((count * n,), "float32", 1)
        results = [self._first, *self._later.values(), *self._kernels.values()]
        return [*results, *self._sums.values(), *([self._rest] if self._rest else [])]

    def _by_inputs(self) -> int:
        return self.places["0"].address if "0" in self.results else self._buffer("dz")

    # --- time steps -----------------------------------------------------------------------------

    def _arrives(self, name: str, t: int) -> bool:
        """Return whether something arrives at time step t that is not known to be 0."""
        return name in self.given or (self._last_of(name) in self.given and t == self.steps - 1)

    @staticmethod
    def _last_of(name: str) -> str:
        return "g_cells_last" if name == "g_cells" else "g_last"

    def _arriving(self, name: str, t: int) -> int:
        if name in self.given:
            return super()._arriving(name, t)
        return self.places[self._last_of(name)].address if self._arrives(name, t) else self._zero()

    def _carried(self) -> list[tuple[str, str]]:
        """Return the gradients that are carried from time step to time step, and what arrives."""
        if self.kind == "lstm":
            return [("dh", "g_states"), ("dc", "g_cells")]
        return [("dh", "g")]

    def _left_out(self, t: int) -> list[Record]:
        results = [self._zeroed(self._row(self._by_inputs(), t, self.count), self.count)]
        if self.kind == "gru":
            results.append(self._zeroed(self._row(self._by_states(), t, 3), 3))
        for name, arriving in self._carried():
            old, new = self._past(name, t + 1), self._past(name, t)
            if self._arrives(arriving, t):
                results.append(self._sum(old, self._arriving(arriving, t), new))
            else:
                results.append(self._copy(old, new))
        return results

    def _time_records(self) -> list[Record]:
        steps, results = list(self._time_steps()), []
        for first, count in reversed(self.blocks):
            some: list[Record] = []
            for t in reversed(range(first, first + count)):
                step = steps[self.steps - 1 - t]
                some += self._choice(t, 1, step.counted, step.left_out)
            results += self._choice(first, count, some, self._skip(first, count))
        return results

    def _skip(self, first: int, count: int) -> list[Record]:
        """Return what runs for a block in which no row counts."""
        results = []
        if "0" in self.results:
            results.append(
                self._zeroed(self._row(self._by_inputs(), first, self.count), self.count, count)
            )
        if not first:  # the product with the first states is never skipped
            results.append(self._zeroed(self._by_states(), self.count))
        for name, arriving in self._carried():
            at = self._past(name, first + count)
            for t in reversed(range(first, first + count)):
                if self._arrives(arriving, t):
                    results.append(self._sum(at, self._arriving(arriving, t), self._past(name, t)))
                    at = self._past(name, t)
            if at != self._past(name, first):
                results.append(self._copy(at, self._past(name, first)))
        return results

    def _sum(self, a: int, b: int, out: int) -> Record:
        """Return the record that adds two states."""
        block = arguments.pack(
            self.sum, [a, b, out], table=load_runtime().table, rows=self.n, columns=self.units,
            threads=1,
        )  # fmt: skip
        return Record(compile_one(self.sum), block, "sum of gradients")

    # --- products after the time steps ------------------------------------------------------------

    def _after(self) -> list[Record]:
        """Return the products, added up over the blocks."""
        u, width, ds = self.units, self.width, self._by_states()
        out = self.places["1"]
        h = self.places["h"].address
        results = [self._library(self._first, (h, self.n * u), (ds, self.n * width), out)]
        for name in ("d_kernel", "d_bias", *(["2"] if self.kind == "gru" else [])):
            if name in self.results:
                place = self.places[name]
                results.append(copy_record(self._zeros(self.results[name].size), place, "zeros"))
        if self._by_kernel:
            results.append(self._checked("kernel", 0, self.given["kernel"].size, 1))
        for first, count in self.blocks:
            products = [*self._by_recurrent(first, count), *self._by_bias(first, count)]
            results += self._choice(first, count, [*products, *self._by_input(first, count)],
                                    self._left_out_inputs(first, count))  # fmt: skip
        return results

    def _by_recurrent(self, first: int, count: int) -> list[Record]:
        """Return a block's part of the gradients by the recurrent kernel."""
        skipped = 0 if first else 1
        primitive = self._later[count] if first else self._rest
        if primitive is None:
            return []
        rows = (count - skipped) * self.n
        states = (self._at("states", first + skipped - 1), rows * self.units)
        ds = (self._row(self._by_states(), first + skipped, self.count), rows * self.width)
        return [self._library(primitive, states, ds, self.places["1"])]

    def _by_bias(self, first: int, count: int) -> list[Record]:
        """Return a block's part of the gradients by biases."""
        rows = count * self.n
        ends = []
        if "d_bias" in self.results:
            ends.append((self._by_inputs(), "d_bias"))
        if self.kind == "gru":
            ends.append((self._by_states(), "2"))
        ones = (int(self._ones.ctypes.data), rows)
        return [
            self._library(self._sums[count], ones,
                          (self._row(dz, first, self.count), rows * self.width), self.places[name])
            for dz, name in ends
        ]  # fmt: skip

    def _by_input(self, first: int, count: int) -> list[Record]:
        """Return a block's part of the gradients by inputs and kernel."""
        results = []
        rows, (size, width) = count * self.n, self._sizes()
        dz = self._row(self._by_inputs(), first, self.count)
        if self._kernels:
            x = (self.places["inputs"].address + SIZE * self.n * size * first, rows * size)
            results.append(
                self._library(self._kernels[count], x, (dz, rows * width), self.places["d_kernel"])
            )
        if self._by_kernel:
            out = self.places["d_inputs"].address + SIZE * self.n * size * first
            results.append(self._by_kernel[count].record(dz, out))
        return results

    def _left_out_inputs(self, first: int, count: int) -> list[Record]:
        """Return what replaces the products with a block's inputs where no row counts.

        0 times NaN or infinity is NaN: if an input has one, the products are computed.
        """
        if not self._kernels and not self._by_kernel:
            return []
        size, _ = self._sizes()
        skipped = []
        if self._by_kernel:
            zeros = self._zeros(self.n * size * count)
            out = self.places["d_inputs"].address + SIZE * self.n * size * first
            skipped = [copy_record(zeros, Place(out, zeros.nbytes), "zeros")]
        dz = self._row(self._by_inputs(), first, self.count)
        computed = [self._zeroed(dz, self.count, count), *self._by_input(first, count)]
        checks = []
        if self._kernels:
            numbers = SIZE * self.n * size * first
            checks.append(self._checked("inputs", numbers, self.n * size * count, 0))
        low, high = (0 if self._kernels else 1), (2 if self._by_kernel else 1)
        flags = self._buffer("flags") + SIZE * low
        return [*checks, choice_record(flags, high - low, computed, skipped, self.name)]

    def _checked(self, name: str, offset: int, count: int, flag: int) -> Record:
        """Return the record that sets a flag to 0 if `count` elements of a value are finite."""
        block = arguments.pack(
            self.check,
            [self.places[name].address + offset, self._buffer("flags") + SIZE * flag],
            table=load_runtime().table, rows=1, columns=count, threads=1,
            scratch=self._buffer("check") if self._check_scratch else 0,
        )  # fmt: skip
        return Record(compile_one(self.check), block, "check for NaN")
