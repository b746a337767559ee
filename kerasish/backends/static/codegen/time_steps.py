"""All time steps of an LSTM in one function: products and cells, forward and backward.

Each thread computes some rows of the batch over all time steps, so threads do not meet in between.
The recurrent kernel is packed once per call, so that its strips are read from end to end. A sum has
one order of its terms, whatever the number of rows and threads: the bits do not depend on them.

A tile of a product is some rows times a few vectors, in registers. Forward, the products of a time
step come first, then the cells, row by row. Backward, the gradients of the gates come first; their
product with the turned kernel gives the gradient by the state before.

Argument block (int64 words): 0 table, 1 threads, 2 steps, 3 rows, 4 units, 5 scratch memory
(`scratch_size` bytes), then the addresses of arrays in C order (`FORWARD`, `BACKWARD`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kerasish.backends.static.codegen import memory, recurrent, scalars
from kerasish.backends.static.codegen.description import Kernel, constant_value
from kerasish.backends.static.codegen.plan import plan_loops
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
GATES = 4
# FLOPs per thread, about 12 microseconds: a second thread takes some microseconds to wake up.
GRAIN = 1e6
_FIRST = 6  # word of the first address
_WIDEST = 16  # lanes of the widest vector
_SQUARE = 16  # rows and columns that are turned at a time


@dataclass(frozen=True)
class TimeSteps:
    """The structure of the loop; sizes are arguments.

    Attributes:
        backward: whether it computes the gradients.
    """

    backward: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays, in the order of their addresses."""
        return BACKWARD if self.backward else FORWARD


def scratch_size(kernel: TimeSteps, rows: int, units: int) -> int:
    """Return the bytes of scratch memory."""
    padded = -(-units // _WIDEST) * _WIDEST
    return 4 * padded * (GATES * units + rows * (1 if kernel.backward else GATES)) + 64


def tile_rows(target: Target) -> int:
    """Return the rows of a tile: as many as the registers hold with a vector of each gate."""
    return 4 if target.level == "avx512" else 2


def choose_threads(sizes: tuple[int, int, int], most: int) -> int:
    """Return the number of threads, up to `most`: each has whole tiles of rows, and enough work.

    Args:
        sizes: steps, rows, units.
    """
    steps, rows, units = sizes
    flops = 2.0 * steps * rows * units * GATES * units
    tiles = -(-rows // tile_rows(host_target()))
    return max(1, min(most, tiles, int(flops / GRAIN)))


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
    for name, lines in (("pack", packing.pack()), ("worker", working.work())):
        head = f"define internal void @{symbol}.{name}(ptr %args, i64 %t, i64 %n) #0"
        parts.append(f"{head} {{\n{lines}\n}}")
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
  call void @SYMBOL.pack(ptr %args, i64 0, i64 1)
  call void @SYMBOL.worker(ptr %args, i64 0, i64 1)
  ret i32 0
}"""


def _int(number: int) -> Value:
    return constant(number, "int64")


def _zeros(lanes: int) -> Value:
    return constant(0.0, "float32", lanes)


class _Columns:
    """Adjacent columns of one vector: all of its lanes, or the first ones.

    Args:
        w: where the code is written.
        lanes: of a vector.
        rest: how many lanes count; None: all.
    """

    def __init__(self, w: Writer, lanes: int, rest: Value | None = None) -> None:
        self.w, self.lanes, self.rest = w, lanes, rest
        self.mask = None if rest is None else memory.tail_mask(w, rest, lanes)

    def load(self, at: Value) -> Value:
        """Return the vector at an address, with zeros in the lanes that do not count."""
        if self.rest is None or self.mask is None:
            return memory.load_full(self.w, at, "float32", self.lanes)
        return memory.load_tail(self.w, at, "float32", self.lanes, self.rest, self.mask)

    def store(self, x: Value, at: Value) -> None:
        """Write the lanes that count."""
        if self.rest is None or self.mask is None:
            memory.store_full(self.w, x, at, "float32")
        else:
            memory.store_tail(self.w, x, at, "float32", self.rest, self.mask)


class _Steps:
    """What the forward and the backward function have in common.

    Args:
        kernel: the structure.
        target: the processor.
    """

    def __init__(self, kernel: TimeSteps, target: Target) -> None:
        self.w = w = Writer(target)
        self.lanes, self.tile = target.lanes, tile_rows(target)
        args = Value("%args", "ptr")
        w.table = w.load_word(args, 0, "ptr")
        self.steps, self.rows, self.units = (w.load_word(args, i) for i in (2, 3, 4))
        start = w.load_word(args, 5)
        start = w.bits_and(w.add(start, _int(63)), _int(-64))
        self.packed = w.let(f"inttoptr {start.typed} to ptr", "ptr")
        self.at = {
            name: w.load_word(args, _FIRST + i, "ptr") for i, name in enumerate(kernel.names)
        }
        self.width = w.mul(self.units, _int(GATES))
        self.vectors = w.two("sdiv", w.add(self.units, _int(self.lanes - 1)), _int(self.lanes))
        self.padded = w.mul(self.vectors, _int(self.lanes))
        self.spare = w.address(self.packed, w.mul(self.width, self.padded), 4)

    def share(self, count: Value, each: int = 1) -> tuple[Value, Value]:
        """Return the first and the last number of this thread's part of `count`, in runs."""
        w = self.w
        runs = w.two("sdiv", w.add(count, _int(each - 1)), _int(each))
        ends = []
        for number in (Value("%t", "int64"), w.add(Value("%t", "int64"), _int(1))):
            end = w.two("sdiv", w.mul(number, runs), Value("%n", "int64"))
            ends.append(self.least(w.mul(end, _int(each)), count))
        return ends[0], ends[1]

    def least(self, a: Value, b: Value) -> Value:
        """Return the smaller number."""
        return self.w.select(self.w.compare("slt", a, b), a, b)

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
        whole = self.least(w.two("sdiv", self.units, _int(self.lanes)), last)

        def full(v: Value, _: list[Value]) -> list[Value]:
            body(w.mul(v, _int(self.lanes)), _Columns(w, self.lanes))
            return []

        def part(v: Value, _: list[Value]) -> list[Value]:
            c = w.mul(v, _int(self.lanes))
            body(c, _Columns(w, self.lanes, w.sub(self.units, c)))
            return []

        w.loop(first, whole, 1, [], full)
        start = w.select(w.compare("sgt", first, whole), first, whole)
        w.loop(start, last, 1, [], part)

    def over_rows(self, first: Value, last: Value, body: Callable[[Value, int], None]) -> None:
        """Write body(row, rows) for tiles of rows, and for the others one by one."""
        w = self.w
        count = w.sub(last, first)
        full = w.sub(last, w.two("srem", count, _int(self.tile)))

        def some(r: Value, _: list[Value]) -> list[Value]:
            body(r, self.tile)
            return []

        def one(r: Value, _: list[Value]) -> list[Value]:
            body(r, 1)
            return []

        w.loop(first, full, self.tile, [], some)
        w.loop(full, last, 1, [], one)

    def over(self, first: Value, last: Value, body: Callable[..., None]) -> None:
        """Write body(row, column, columns) for each vector of columns of some rows."""

        def row(r: Value, _: list[Value]) -> list[Value]:
            self.over_columns(_int(0), self.vectors, lambda u, columns: body(r, u, columns))
            return []

        self.w.loop(first, last, 1, [], row)

    def lines(self, base: Value, r: Value, width: Value, count: int) -> list[Value]:
        """Return the addresses of some rows of a matrix."""
        w = self.w
        results = [w.address(base, w.mul(r, width), 4)]
        for _ in range(count - 1):
            results.append(w.address(results[-1], width, 4))
        return results

    def product(
        self, rows: Sequence[Value], strip: Value, terms: Value, vectors: int
    ) -> list[Value]:
        """Return the sums of a tile: for each row its vectors.

        Args:
            rows: the addresses of the rows' first terms.
            strip: the address of packed weights.
            terms: of each sum.
            vectors: of the strip.
        """
        w, lanes = self.w, self.lanes

        def term(k: Value, sums: list[Value]) -> list[Value]:
            at = w.address(strip, w.mul(k, _int(vectors * lanes)), 4)
            weights = [
                w.load_value(w.address(at, _int(v * lanes), 4), "float32", lanes)
                for v in range(vectors)
            ]
            result = []
            for i, row in enumerate(rows):
                x = w.splat(w.load_value(w.address(row, k, 4), "float32"), lanes)
                result += [w.fma(x, b, s) for b, s in zip(weights, sums[i * vectors :])]
            return result

        def two(k: Value, sums: list[Value]) -> list[Value]:
            return term(w.add(k, _int(1)), term(k, sums))

        even = w.bits_and(terms, _int(-2))
        sums = w.loop(_int(0), even, 2, [_zeros(lanes)] * (len(rows) * vectors), two)
        return w.loop(even, terms, 1, sums, term)

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
            self.w.address(start, self.w.mul(self.units, _int(g)), 4) if g else start
            for g in range(GATES)
        ]


class _Forward(_Steps):
    def pack(self) -> str:
        """Copy the kernel: for each vector of units a strip with the vectors of all gates."""
        w, lanes = self.w, self.lanes

        def strip(c: Value, columns: _Columns) -> None:
            to = w.address(self.packed, w.mul(c, self.width), 4)

            def row(k: Value, _: list[Value]) -> list[Value]:
                end = w.address(to, w.mul(k, _int(GATES * lanes)), 4)
                for g, at in enumerate(self.gates(self.at["recurrent"], k, c)):
                    w.store_value(columns.load(at), w.address(end, _int(g * lanes), 4))
                return []

            w.loop(_int(0), self.units, 1, [], row)

        self.over_columns(*self.share(self.vectors), strip)
        w.do("ret void")
        return w.body()

    def work(self) -> str:
        """Write all time steps of this thread's rows."""
        w = self.w
        first, last = self.share(self.rows, self.tile)
        block = w.mul(self.rows, self.units)
        cell = recurrent.lstm_forward("float32")

        def step(t: Value, before: list[Value]) -> list[Value]:
            h, c = before
            now, place = w.mul(t, self.rows), w.mul(t, block)
            new_h, new_c = (w.address(self.at[name], place, 4) for name in ("states", "cells"))

            def strip(v: Value, _: list[Value]) -> list[Value]:
                u = w.mul(v, _int(self.lanes))
                weights = w.address(self.packed, w.mul(u, self.width), 4)
                self.over_rows(first, last, lambda r, n: self._write_sums(h, r, n, u, weights))
                return []

            def row(r: Value, u: Value, columns: _Columns) -> None:
                at = w.add(w.mul(r, self.units), u)
                line = w.add(now, r)
                inputs = [columns.load(p) for p in self.gates(self.at["x"], line, u)]
                z = [w.add(x, s) for x, s in zip(inputs, self._sums_of(r, u))]
                outputs = self.results(cell, [*z, columns.load(w.address(c, at, 4))])
                places = [*self.gates(self.at["gates"], line, u)]
                places += [w.address(base, at, 4) for base in (new_c, new_h)]
                for output, end in zip(outputs, places, strict=True):
                    columns.store(output, end)

            w.loop(_int(0), self.vectors, 1, [], strip)
            self.over(first, last, row)
            return [new_h, new_c]

        w.loop(_int(0), self.steps, 1, [self.at["h"], self.at["c"]], step)
        w.do("ret void")
        return w.body()

    def _sums_at(self, r: Value, u: Value) -> Value:
        """Return where the sums of all gates of one vector of units of a row lie."""
        w = self.w
        return self.moved(self.spare, w.mul(w.add(w.mul(r, self.padded), u), _int(GATES)))

    def _sums_of(self, r: Value, u: Value) -> list[Value]:
        w, lanes, at = self.w, self.lanes, self._sums_at(r, u)
        places = [w.address(at, _int(g * lanes), 4) for g in range(GATES)]
        return [w.load_value(place, "float32", lanes) for place in places]

    def _write_sums(self, h: Value, r: Value, count: int, u: Value, weights: Value) -> None:
        """Write the products of some rows of states with a strip."""
        w, lanes = self.w, self.lanes
        rows, at = self.lines(h, r, self.units, count), self._sums_at(r, u)
        sums = self.product(rows, weights, self.units, GATES)
        row = w.mul(self.padded, _int(GATES))
        for i in range(count):
            for g in range(GATES):
                w.store_value(sums[i * GATES + g], w.address(at, _int(g * lanes), 4))
            at = w.address(at, row, 4)


class _Backward(_Steps):
    def over_strips(self, first: Value, last: Value, body: Callable[[Value, int], None]) -> None:
        """Write body(vector, vectors) for each strip of the turned kernel.

        Args:
            first: the first vector, that of a strip.
            last: the one after the last.
        """
        w = self.w
        wide = w.mul(w.two("sdiv", self.vectors, _int(GATES)), _int(GATES))
        wide = self.least(wide, last)

        def many(v: Value, _: list[Value]) -> list[Value]:
            body(v, GATES)
            return []

        def one(v: Value, _: list[Value]) -> list[Value]:
            body(v, 1)
            return []

        w.loop(first, wide, GATES, [], many)
        start = w.select(w.compare("sgt", first, wide), first, wide)
        w.loop(start, last, 1, [], one)

    def pack(self) -> str:
        """Turn the kernel: strips of several vectors of units, with a row for each gate's unit."""
        w, lanes = self.w, self.lanes
        source = self.at["recurrent"]

        def strip(v: Value, vectors: int) -> None:
            start = w.mul(v, _int(lanes))
            to = w.address(self.packed, w.mul(start, self.width), 4)
            row = vectors * lanes

            def square(m0: Value, _: list[Value]) -> list[Value]:
                m1 = self.least(w.add(m0, _int(_SQUARE)), self.width)

                def column(j: Value, _: list[Value]) -> list[Value]:
                    c = w.add(start, j)
                    counts = w.compare("slt", c, self.units)
                    line = w.mul(w.select(counts, c, start), self.width)

                    def number(m: Value, _: list[Value]) -> list[Value]:
                        x = w.load_value(self.moved(source, line, m), "float32")
                        x = w.select(counts, x, _zeros(1))
                        w.store_value(x, self.moved(to, w.mul(m, _int(row)), j))
                        return []

                    w.loop(m0, m1, 1, [], number)
                    return []

                w.loop(_int(0), _int(row), 1, [], column)
                return []

            w.loop(_int(0), self.width, _SQUARE, [], square)

        self.over_strips(*self.share(self.vectors, GATES), strip)
        w.do("ret void")
        return w.body()

    def work(self) -> str:
        """Write all time steps of this thread's rows, the last one first."""
        w = self.w
        first, last = self.share(self.rows, self.tile)
        block = w.mul(self.rows, self.units)
        cell = recurrent.lstm_backward("float32", whole=True)
        self._begin(first, last)

        def step(i: Value, _: list[Value]) -> list[Value]:
            t = w.sub(w.sub(self.steps, _int(1)), i)
            now, place = w.mul(t, self.rows), w.mul(t, block)
            before = w.address(self.at["cells"], w.sub(place, block), 4)
            before = w.select(w.compare("eq", t, _int(0)), self.at["c"], before)
            arriving = [w.address(self.at[n], place, 4) for n in ("g_states", "g_cells")]
            cells = w.address(self.at["cells"], place, 4)

            def row(r: Value, u: Value, columns: _Columns) -> None:
                at, line = w.add(w.mul(r, self.units), u), w.add(now, r)
                dc = w.address(self.at["dc"], at, 4)
                places = [*self.gates(self.at["gates"], line, u)]
                places += [w.address(base, at, 4) for base in (before, cells)]
                given = [columns.load(p) for p in places]
                given.append(w.load_value(self._past(r, u), "float32", self.lanes))
                given.append(columns.load(dc))
                given += [columns.load(w.address(base, at, 4)) for base in arriving]
                outputs = self.results(cell, given)
                ends = [*self.gates(self.at["dx"], line, u), dc]
                for output, end in zip(outputs, ends, strict=True):
                    columns.store(output, end)

            self.over(first, last, row)
            lines = w.address(self.at["dx"], w.mul(now, self.width), 4)
            self.over_strips(
                _int(0), self.vectors, lambda v, n: self._by_states(lines, first, last, v, n)
            )
            return []

        w.loop(_int(0), self.steps, 1, [], step)
        self._end(first, last)
        w.do("ret void")
        return w.body()

    def _past(self, r: Value, u: Value) -> Value:
        """Return the address of the gradient by the state, at column u of row r."""
        return self.moved(self.spare, self.w.mul(r, self.padded), u)

    def _begin(self, first: Value, last: Value) -> None:
        """Fill the gradients by the states of this thread's rows with zeros."""
        w = self.w

        def zero(r: Value, u: Value, columns: _Columns) -> None:
            w.store_value(_zeros(self.lanes), self._past(r, u))
            columns.store(_zeros(self.lanes), self.moved(self.at["dc"], w.mul(r, self.units), u))

        self.over(first, last, zero)

    def _end(self, first: Value, last: Value) -> None:
        """Write the gradient by the first state."""
        w = self.w

        def copy(r: Value, u: Value, columns: _Columns) -> None:
            x = w.load_value(self._past(r, u), "float32", self.lanes)
            columns.store(x, self.moved(self.at["dh"], w.mul(r, self.units), u))

        self.over(first, last, copy)

    def _by_states(self, lines: Value, first: Value, last: Value, v: Value, vectors: int) -> None:
        """Write the products of the rows' gradients with a strip of the turned kernel."""
        w, lanes = self.w, self.lanes
        c = w.mul(v, _int(lanes))
        strip = w.address(self.packed, w.mul(c, self.width), 4)

        def some(r: Value, count: int) -> None:
            rows = self.lines(lines, r, self.width, count)
            sums = self.product(rows, strip, self.width, vectors)
            at = self._past(r, c)
            for i in range(count):
                for j in range(vectors):
                    w.store_value(sums[i * vectors + j], w.address(at, _int(j * lanes), 4))
                at = w.address(at, self.padded, 4)

        self.over_rows(first, last, some)
