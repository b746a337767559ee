"""All time steps of an LSTM in one function: products and cells, forward and backward.

Each thread computes some rows of the batch over all time steps, so threads do not synchronize in
between. The recurrent kernel is packed once per call, so that its strips are read sequentially. The
order of the terms of a sum does not depend on the number of rows and threads, and so the bits do
not either.

A tile of a product is several rows times a few vectors, in registers. Forward, the products of a
time step are computed first, then the cells, row by row. Backward, the gradients of the gates are
computed first; their product with the transposed kernel is the gradient by the previous state.

Argument block (int64 words): 0 table, 1 threads (0: one, and the scratch memory holds the packed
kernel of an earlier call), 2 steps, 3 rows, 4 units, 5 scratch memory (`scratch_size` bytes), then
the addresses of arrays in C order (`FORWARD`, `BACKWARD`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen import recurrent, scalars
from kerasish.backends.static.codegen.description import Kernel, constant_value
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.codegen.tiles import (
    Columns,
    least,
    lines,
    most,
    over_rows,
    product,
    share,
    word,
    zeros,
)
from kerasish.backends.static.machine.assembly import (
    Target,
    Value,
    Writer,
    constant,
    words_of,
)
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.typing import Array

FORWARD = ("x", "recurrent", "h", "c", "states", "cells", "gates")
BACKWARD = ("g_states", "g_cells", "recurrent", "c", "cells", "gates", "dx", "dh", "dc")
ARRIVING = BACKWARD[:2]
GATES = 4
# FLOPs per thread, about 12 microseconds: a second thread takes several microseconds to wake up.
GRAIN = 1e6
THREADS, STEPS, FIRST = 1, 2, 6  # words; that of the first address
_WIDEST = 16  # lanes of the widest vector
_SQUARE = 16  # rows and columns that are transposed at a time


class TimeSteps(NamedTuple):
    """The structure of the loop; sizes are arguments.

    Attributes:
        backward: whether it computes the gradients.
        given: the time steps at which gradients by states and by cells arrive: "every", "last" (the
            array is that of the last time step), "none".
    """

    backward: bool = False
    given: tuple[str, str] = ("every", "every")

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays, in the order of their addresses."""
        if not self.backward:
            return FORWARD
        none = {n for n, steps in zip(ARRIVING, self.given, strict=True) if steps == "none"}
        return tuple(name for name in BACKWARD if name not in none)


def scratch_size(kernel: TimeSteps, rows: int, units: int) -> int:
    """Return the bytes of scratch memory."""
    padded = -(-units // _WIDEST) * _WIDEST
    return 4 * padded * (GATES * units + rows * (1 if kernel.backward else GATES)) + 64


def tile_rows(target: Target) -> int:
    """Return the rows of a tile: the most that registers hold with a vector of each gate."""
    return 4 if target.level == "avx512" else 2


def choose_threads(sizes: tuple[int, int, int], limit: int) -> int:
    """Return the number of threads, up to `limit`: each has whole tiles of rows, and enough work.

    Args:
        sizes: steps, rows, units.
    """
    steps, rows, units = sizes
    flops = 2.0 * steps * rows * units * GATES * units
    tiles = -(-rows // tile_rows(host_target()))
    return max(1, min(limit, tiles, int(flops / GRAIN)))


def pack(
    kernel: TimeSteps, *, table: int, threads: int, sizes: tuple[int, int, int], scratch: int,
    addresses: Sequence[int],
) -> Array:  # fmt: skip
    """Return the argument block.

    Args:
        sizes: steps, rows, units.
        addresses: of the arrays `kernel.names`.
    """
    if len(addresses) != len(kernel.names):
        raise ValueError(f"pack: expected {len(kernel.names)} addresses, got {len(addresses)}")
    return np.array([table, threads, *sizes, scratch, *addresses], np.int64)


def generate(kernel: TimeSteps, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    kind = _Backward if kernel.backward else _Forward
    packing, working = kind(kernel, target), kind(kernel, target)
    parts = []
    for name, body in (("pack", packing.pack()), ("worker", working.work())):
        head = f"define internal void @{symbol}.{name}(ptr %args, i64 %t, i64 %n) #0"
        parts.append(f"{head} {{\n{body}\n}}")
    entry = _ENTRY.replace("WORDS", words_of("args", "ptr table", "i64 threads"))
    text = "\n".join([*parts, entry.replace("SYMBOL", symbol)])
    return text, packing.w.declared | working.w.declared


_ENTRY = """define i32 @SYMBOL(ptr %args) #0 {
entry:
WORDS
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %parallel, label %alone
parallel:
  %run = load ptr, ptr %table, align 8
  call void %run(ptr @SYMBOL.pack, ptr %args, i64 %threads)
  call void %run(ptr @SYMBOL.worker, ptr %args, i64 %threads)
  ret i32 0
alone:
  %packs = icmp ne i64 %threads, 0
  br i1 %packs, label %pack, label %work
pack:
  call void @SYMBOL.pack(ptr %args, i64 0, i64 1)
  br label %work
work:
  call void @SYMBOL.worker(ptr %args, i64 0, i64 1)
  ret i32 0
}"""


class _Steps:
    """The base of the forward and the backward function.

    Args:
        kernel: the structure.
        target: the processor.
    """

    def __init__(self, kernel: TimeSteps, target: Target) -> None:
        self.w = w = Writer(target)
        self.kernel = kernel
        self.lanes, self.tile = target.lanes, tile_rows(target)
        args = Value("%args", "ptr")
        w.table = w.load_word(args, 0, "ptr")
        self.steps, self.rows, self.units = (w.load_word(args, i) for i in (2, 3, 4))
        start = w.load_word(args, 5)
        start = w.bits_and(w.add(start, word(63)), word(-64))
        self.packed = w.let(f"inttoptr {start.typed} to ptr", "ptr")
        self.at = {name: w.load_word(args, FIRST + i, "ptr") for i, name in enumerate(kernel.names)}
        self.width = w.mul(self.units, word(GATES))
        self.vectors = w.two("sdiv", w.add(self.units, word(self.lanes - 1)), word(self.lanes))
        self.padded = w.mul(self.vectors, word(self.lanes))
        self.spare = w.address(self.packed, w.mul(self.width, self.padded), 4)

    def moved(self, base: Value, *parts: Value) -> Value:
        """Return the address of the number at the sum of the parts."""
        index = parts[0]
        for part in parts[1:]:
            index = self.w.add(index, part)
        return self.w.address(base, index, 4)

    def over_columns(self, first: Value, last: Value, body: Callable[..., None]) -> None:
        """Write body(column, columns) for each vector of columns, complete or not.

        Args:
            first: the first vector.
            last: the one after the last.
        """
        w = self.w
        whole = least(w, w.two("sdiv", self.units, word(self.lanes)), last)

        def full(v: Value, _: list[Value]) -> list[Value]:
            body(w.mul(v, word(self.lanes)), Columns(w, self.lanes))
            return []

        def part(v: Value, _: list[Value]) -> list[Value]:
            c = w.mul(v, word(self.lanes))
            body(c, Columns(w, self.lanes, w.sub(self.units, c)))
            return []

        w.loop(first, whole, 1, [], full)
        start = most(w, first, whole)
        w.loop(start, last, 1, [], part)

    def over(self, first: Value, last: Value, body: Callable[..., None]) -> None:
        """Write body(row, column, columns) for each vector of columns of a range of rows."""

        def row(r: Value, _: list[Value]) -> list[Value]:
            self.over_columns(word(0), self.vectors, lambda u, columns: body(r, u, columns))
            return []

        self.w.loop(first, last, 1, [], row)

    def sums(self, rows: Sequence[Value], strip: Value, terms: Value, vectors: int) -> list[Value]:
        """Return the sums of a tile: for each row its vectors.

        Args:
            rows: the addresses of the rows' first terms.
            strip: the address of packed weights.
            terms: of each sum.
            vectors: of the strip.
        """
        columns = [Columns(self.w, self.lanes)] * vectors
        return product(self.w, rows, word(1), strip, word(vectors * self.lanes), terms, columns)

    def write_tile(
        self, rows: Sequence[Value], strip: Value, terms: Value, vectors: int, at: Value, row: Value
    ) -> None:
        """Write the sums of a tile.

        Args:
            rows, strip, terms, vectors: see `sums`.
            at: the address of those of the first row.
            row: numbers from one row of sums to the next.
        """
        w, sums = self.w, self.sums(rows, strip, terms, vectors)
        for i in range(len(rows)):
            for j in range(vectors):
                w.store_value(sums[i * vectors + j], w.address(at, word(j * self.lanes), 4))
            at = w.address(at, row, 4)

    def results(self, kernel: Kernel, inputs: Sequence[Value]) -> list[Value]:
        """Return the outputs of a loop's kernel for vectors of its inputs."""
        w, plan = self.w, plan_loops(kernel)
        values = dict(enumerate(inputs))
        for v in range(len(kernel.inputs), plan.count):
            node = plan.node(v)
            if node.op == "constant":
                values[v] = constant(constant_value(node), kernel.dtype_of(v), self.lanes)
            else:
                values[v] = scalars.apply(w, node, [values[a] for a in node.args])
        return [values[o.value] for o in kernel.outputs]

    def gates(self, base: Value, row: Value, c: Value) -> list[Value]:
        """Return the addresses of column c of each gate of a row."""
        start = self.moved(base, self.w.mul(row, self.width), c)
        return [
            self.w.address(start, self.w.mul(self.units, word(g)), 4) if g else start
            for g in range(GATES)
        ]


class _Forward(_Steps):
    def pack(self) -> str:
        """Copy the kernel: for each vector of units a strip with the vectors of all gates."""
        w, lanes = self.w, self.lanes

        def strip(c: Value, columns: Columns) -> None:
            to = w.address(self.packed, w.mul(c, self.width), 4)

            def row(k: Value, _: list[Value]) -> list[Value]:
                end = w.address(to, w.mul(k, word(GATES * lanes)), 4)
                for g, at in enumerate(self.gates(self.at["recurrent"], k, c)):
                    w.store_value(columns.load(at), w.address(end, word(g * lanes), 4))
                return []

            w.loop(word(0), self.units, 1, [], row)

        self.over_columns(*share(w, self.vectors), strip)
        w.do("ret void")
        return w.body()

    def work(self) -> str:
        """Write all time steps of this thread's rows."""
        w = self.w
        first, last = share(w, self.rows, self.tile)
        block = w.mul(self.rows, self.units)
        cell = recurrent.lstm_forward("float32")

        def step(t: Value, before: list[Value]) -> list[Value]:
            h, c = before
            now, place = w.mul(t, self.rows), w.mul(t, block)
            new_h, new_c = (w.address(self.at[name], place, 4) for name in ("states", "cells"))

            def strip(v: Value, _: list[Value]) -> list[Value]:
                u = w.mul(v, word(self.lanes))
                weights = w.address(self.packed, w.mul(u, self.width), 4)
                over_rows(
                    w, first, last, self.tile, lambda r, n: self._write_sums(h, r, n, u, weights)
                )
                return []

            def row(r: Value, u: Value, columns: Columns) -> None:
                at = w.add(w.mul(r, self.units), u)
                line = w.add(now, r)
                inputs = [columns.load(p) for p in self.gates(self.at["x"], line, u)]
                z = [w.add(x, s) for x, s in zip(inputs, self._sums_of(r, u))]
                outputs = self.results(cell, [*z, columns.load(w.address(c, at, 4))])
                places = [*self.gates(self.at["gates"], line, u)]
                places += [w.address(base, at, 4) for base in (new_c, new_h)]
                for output, end in zip(outputs, places, strict=True):
                    columns.store(output, end)

            w.loop(word(0), self.vectors, 1, [], strip)
            self.over(first, last, row)
            return [new_h, new_c]

        w.loop(word(0), self.steps, 1, [self.at["h"], self.at["c"]], step)
        w.do("ret void")
        return w.body()

    def _sums_at(self, r: Value, u: Value) -> Value:
        """Return the address of the sums of all gates of one vector of units of a row."""
        w = self.w
        return self.moved(self.spare, w.mul(w.add(w.mul(r, self.padded), u), word(GATES)))

    def _sums_of(self, r: Value, u: Value) -> list[Value]:
        w, lanes, at = self.w, self.lanes, self._sums_at(r, u)
        places = [w.address(at, word(g * lanes), 4) for g in range(GATES)]
        return [w.load_value(place, "float32", lanes) for place in places]

    def _write_sums(self, h: Value, r: Value, count: int, u: Value, weights: Value) -> None:
        """Write the products of rows of states with a strip."""
        rows, at = lines(self.w, h, r, self.units, count), self._sums_at(r, u)
        self.write_tile(rows, weights, self.units, GATES, at, self.w.mul(self.padded, word(GATES)))


class _Backward(_Steps):
    def over_strips(self, first: Value, last: Value, body: Callable[[Value, int], None]) -> None:
        """Write body(vector, vectors) for each strip of the transposed kernel.

        Args:
            first: the first vector, that of a strip.
            last: the one after the last.
        """
        w = self.w
        wide = w.mul(w.two("sdiv", self.vectors, word(GATES)), word(GATES))
        wide = least(w, wide, last)

        def many(v: Value, _: list[Value]) -> list[Value]:
            body(v, GATES)
            return []

        def one(v: Value, _: list[Value]) -> list[Value]:
            body(v, 1)
            return []

        w.loop(first, wide, GATES, [], many)
        start = most(w, first, wide)
        w.loop(start, last, 1, [], one)

    def pack(self) -> str:
        """Transpose the kernel: strips of vectors of units, with a row for each gate's unit."""
        w, lanes = self.w, self.lanes
        source = self.at["recurrent"]

        def strip(v: Value, vectors: int) -> None:
            start = w.mul(v, word(lanes))
            to = w.address(self.packed, w.mul(start, self.width), 4)
            row = vectors * lanes

            def square(m0: Value, _: list[Value]) -> list[Value]:
                m1 = least(w, w.add(m0, word(_SQUARE)), self.width)

                def column(j: Value, _: list[Value]) -> list[Value]:
                    c = w.add(start, j)
                    counts = w.compare("slt", c, self.units)
                    line = w.mul(w.select(counts, c, start), self.width)

                    def number(m: Value, _: list[Value]) -> list[Value]:
                        x = w.load_value(self.moved(source, line, m), "float32")
                        x = w.select(counts, x, zeros(1))
                        w.store_value(x, self.moved(to, w.mul(m, word(row)), j))
                        return []

                    w.loop(m0, m1, 1, [], number)
                    return []

                w.loop(word(0), word(row), 1, [], column)
                return []

            w.loop(word(0), self.width, _SQUARE, [], square)

        self.over_strips(*share(w, self.vectors, GATES), strip)
        w.do("ret void")
        return w.body()

    def work(self) -> str:
        """Write all time steps of this thread's rows, the last one first."""
        w = self.w
        first, last = share(w, self.rows, self.tile)
        block = w.mul(self.rows, self.units)
        cell = recurrent.lstm_backward("float32", sequence=True)
        self._begin(first, last)

        def step(i: Value, _: list[Value]) -> list[Value]:
            t = w.sub(w.sub(self.steps, word(1)), i)
            now, place = w.mul(t, self.rows), w.mul(t, block)
            before = w.address(self.at["cells"], w.sub(place, block), 4)
            before = w.select(w.compare("eq", t, word(0)), self.at["c"], before)
            is_last = w.compare("eq", i, word(0))
            cells = w.address(self.at["cells"], place, 4)

            def row(r: Value, u: Value, columns: Columns) -> None:
                at, line = w.add(w.mul(r, self.units), u), w.add(now, r)
                dc = w.address(self.at["dc"], at, 4)
                places = [*self.gates(self.at["gates"], line, u)]
                places += [w.address(base, at, 4) for base in (before, cells)]
                given = [columns.load(p) for p in places]
                given.append(w.load_value(self._past(r, u), "float32", self.lanes))
                given.append(columns.load(dc))
                for name, steps in zip(ARRIVING, self.kernel.given, strict=True):
                    x = zeros(self.lanes)
                    if steps == "every":
                        x = columns.load(self.moved(self.at[name], place, at))
                    elif steps == "last":
                        x = w.select(is_last, columns.load(w.address(self.at[name], at, 4)), x)
                    given.append(x)
                outputs = self.results(cell, given)
                ends = [*self.gates(self.at["dx"], line, u), dc]
                for output, end in zip(outputs, ends, strict=True):
                    columns.store(output, end)

            self.over(first, last, row)
            dz = w.address(self.at["dx"], w.mul(now, self.width), 4)
            self.over_strips(
                word(0), self.vectors, lambda v, n: self._by_states(dz, first, last, v, n)
            )
            return []

        w.loop(word(0), self.steps, 1, [], step)
        self._end(first, last)
        w.do("ret void")
        return w.body()

    def _past(self, r: Value, u: Value) -> Value:
        """Return the address of the gradient by the state, at column u of row r."""
        return self.moved(self.spare, self.w.mul(r, self.padded), u)

    def _begin(self, first: Value, last: Value) -> None:
        """Fill the gradients by the states of this thread's rows with zeros."""
        w = self.w

        def zero(r: Value, u: Value, columns: Columns) -> None:
            w.store_value(zeros(self.lanes), self._past(r, u))
            columns.store(zeros(self.lanes), self.moved(self.at["dc"], w.mul(r, self.units), u))

        self.over(first, last, zero)

    def _end(self, first: Value, last: Value) -> None:
        """Write the gradient by the first state."""
        w = self.w

        def copy(r: Value, u: Value, columns: Columns) -> None:
            x = w.load_value(self._past(r, u), "float32", self.lanes)
            columns.store(x, self.moved(self.at["dh"], w.mul(r, self.units), u))

        self.over(first, last, copy)

    def _by_states(self, dz: Value, first: Value, last: Value, v: Value, vectors: int) -> None:
        """Write the products of the rows' gradients with a strip of the transposed kernel."""
        w = self.w
        c = w.mul(v, word(self.lanes))
        strip = w.address(self.packed, w.mul(c, self.width), 4)

        def some(r: Value, count: int) -> None:
            rows = lines(w, dz, r, self.width, count)
            self.write_tile(rows, strip, self.width, vectors, self._past(r, c), self.padded)

        over_rows(w, first, last, self.tile, some)
