"""Matrix products of any size: packed panels and a block of registers.

`Gemm()` is c = relu(a @ b + bias), or c = c + a @ b + bias, of float32: a is (m, k) with any
strides; b is (k, n) with adjacent columns, or adjacent rows if `turned` (stored as (n, k)); the
columns of c are adjacent. Blocks of a and b are copied into panels that the innermost loop reads in
order, so strides and page boundaries do not slow it down. It keeps ROWS rows of two vectors of
columns in registers. Threads share a grid of rows and columns, and each packs what it needs.

Where the processor lacks AVX-512, this is faster than oneDNN's float32 product for most shapes
(`benchmarks/products.py` measures both).

Argument block (int64 words): 0 table, 1 threads, 2 m, 3 n, 4 k, 5 scratch, 6 status, 7 address of
a, 8 and 9 its row and column strides, 10 address of b, 11 the stride of its rows (of its columns
if turned), 12 address of c, 13 its row stride, 14 address of the bias, 15 and 16 how many threads
share the rows and the columns, 17 k's block, 18 scratch bytes a thread, 19 whether relu follows, 20
whether the product is added to what c holds. An address of 0 stands for no bias.

Source: Goto & van de Geijn, Anatomy of high-performance matrix multiplication, TOMS 2008.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasish.backends.static.codegen import memory
from kerasish.backends.static.machine.assembly import Target, Value, Writer, constant

ROWS = 6
DEPTH = 256  # k of a block: a panel of b (DEPTH x two vectors) stays in the first cache
HEIGHT = 72  # rows of a block of a, which stays in the second cache
WIDTH = 512  # columns of a block of b
WIDEST = 32  # columns of a panel on the widest processor: scratch is sized by it


@dataclass(frozen=True)
class Gemm:
    """Structure of a product (see the module)."""

    turned: bool = False


def depth(k: int) -> int:
    """Return k's block: equal parts, at most DEPTH."""
    return -(-k // -(-k // DEPTH)) if k else 1


def scratch_size(sizes: tuple[int, int, int], threads: int) -> int:
    """Return the bytes of scratch memory, a multiple of 64 for each thread."""
    return threads * _share(sizes)


def _share(sizes: tuple[int, int, int]) -> int:
    _, n, k = sizes
    width = -(-min(n, WIDTH) // WIDEST) * WIDEST
    return 4 * depth(k) * (HEIGHT + width)


def grid(m: int, n: int, threads: int) -> tuple[int, int]:
    """Return how many threads share the rows and the columns: parts as square as can be."""
    found = [(a, threads // a) for a in range(1, threads + 1) if threads % a == 0]
    return min(found, key=lambda pair: (m / pair[0] + n / pair[1], pair[0]))


def pack(
    *,
    table: int,
    sizes: tuple[int, int, int],
    a: tuple[int, int, int],
    b: tuple[int, int],
    c: tuple[int, int],
    bias: int = 0,
    relu: bool = False,
    adds: bool = False,
    scratch: int,
    threads: int = 1,
) -> Any:
    """Return the argument block.

    Args:
        sizes: (m, n, k), each >= 1. a: (address, row stride, column stride). b, c: (address,
            stride).
        bias: address of n numbers, 0 for none. scratch: of `scratch_size` bytes, 64-aligned.
    """
    m, n, k = sizes
    words = [table, threads, m, n, k, scratch, 0, *a, *b, *c, bias]
    words += [*grid(m, n, threads), depth(k), _share(sizes), int(relu), int(adds)]
    return np.array(words, dtype=np.int64)


def generate(gemm: Gemm, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and what it declares."""
    product = _Product(gemm, target)
    text = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0 {{\n"
    text += f"{product.write()}\n}}\n" + ENTRY.replace("SYMBOL", symbol)
    return text, product.w.declared


ENTRY = """define i32 @SYMBOL(ptr %args) #0 {
entry:
  %threads.at = getelementptr i64, ptr %args, i64 1
  %threads = load i64, ptr %threads.at, align 8
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %parallel, label %alone
parallel:
  %table = load ptr, ptr %args, align 8
  %run = load ptr, ptr %table, align 8
  call void %run(ptr @SYMBOL.worker, ptr %args, i64 %threads)
  ret i32 0
alone:
  call void @SYMBOL.worker(ptr %args, i64 0, i64 1)
  ret i32 0
}"""


def _whole(number: int) -> Value:
    return constant(number, "int64")


class _Product:
    """One thread's share."""

    def __init__(self, gemm: Gemm, target: Target) -> None:
        self.gemm = gemm
        self.w = w = Writer(target)
        self.lanes = target.lanes
        self.columns = 2 * target.lanes
        args = Value("%args", "ptr")
        self.m, self.n, self.k = (w.load_word(args, i) for i in (2, 3, 4))
        self.a, self.b, self.c = (w.load_word(args, i, "ptr") for i in (7, 10, 12))
        self.a_row, self.a_column = w.load_word(args, 8), w.load_word(args, 9)
        self.b_stride, self.c_row = w.load_word(args, 11), w.load_word(args, 13)
        self.bias = w.load_word(args, 14, "ptr")
        self.has_bias = w.compare("ne", w.load_word(args, 14), _whole(0))
        self.has_relu = w.compare("ne", w.load_word(args, 19), _whole(0))
        self.begins = w.compare("eq", w.load_word(args, 20), _whole(0))
        self.down, self.across = w.load_word(args, 15), w.load_word(args, 16)
        self.depth = w.load_word(args, 17)
        self.tile = w.allocate("float", ROWS * self.columns)
        offset = w.mul(Value("%t", "int64"), w.load_word(args, 18))
        self.a_panels = w.address(w.load_word(args, 5, "ptr"), offset, 1)
        self.b_panels = w.address(self.a_panels, w.mul(self.depth, _whole(HEIGHT)), 4)

    def write(self) -> str:
        w = self.w
        t = Value("%t", "int64")
        first, last = self._range(self.m, w.two("sdiv", t, self.across), self.down, ROWS)
        left, right = self._range(self.n, w.two("srem", t, self.across), self.across, self.columns)

        def strip(j: Value, _: list[Value]) -> list[Value]:
            width = self._least(w.sub(right, j), _whole(WIDTH))

            def block(p: Value, _: list[Value]) -> list[Value]:
                deep = self._least(w.sub(self.k, p), self.depth)
                self._pack_b(p, deep, j, width)

                def rows(i: Value, _: list[Value]) -> list[Value]:
                    height = self._least(w.sub(last, i), _whole(HEIGHT))
                    self._pack_a(i, height, p, deep)
                    self._multiply((i, height), (j, width), (p, deep))
                    return []

                w.loop(first, last, HEIGHT, [], rows)
                return []

            self._steps(_whole(0), self.k, self.depth, block)
            return []

        w.loop(left, right, WIDTH, [], strip)
        w.do("ret void")
        return w.body()

    # --- sizes ------------------------------------------------------------------------------------

    def _least(self, a: Value, b: Value) -> Value:
        return self.w.select(self.w.compare("slt", a, b), a, b)

    def _range(self, size: Value, part: Value, parts: Value, tile: int) -> tuple[Value, Value]:
        """Return where part `part` of `parts` begins and ends, in whole tiles."""
        w = self.w
        tiles = w.two("sdiv", w.add(size, _whole(tile - 1)), _whole(tile))

        def bound(number: Value) -> Value:
            tile_number = w.two("sdiv", w.mul(tiles, number), parts)
            return self._least(w.mul(tile_number, _whole(tile)), size)

        return bound(part), bound(w.add(part, _whole(1)))

    def _steps(
        self, start: Value, stop: Value, step: Value, body: Callable[[Value, list[Value]], Any]
    ) -> None:
        """for p in range(start, stop, step), the step known at run time only."""
        w = self.w
        length = w.add(w.sub(stop, start), w.sub(step, _whole(1)))
        count = w.two("sdiv", length, step)
        w.loop(_whole(0), count, 1, [], lambda i, c: body(w.add(start, w.mul(i, step)), c))

    # --- packing ----------------------------------------------------------------------------------

    def _pack_a(self, i: Value, height: Value, p: Value, deep: Value) -> None:
        """Copy rows i .. of a: panels of ROWS rows, column after column."""
        w = self.w
        start = w.address(self.a, w.mul(p, self.a_column), 4)
        end = w.sub(w.add(i, height), _whole(1))

        def panel(r: Value, _: list[Value]) -> list[Value]:
            # Rows after the last repeat the last one; their results are not stored.
            rows = [
                w.address(
                    start, w.mul(self._least(w.add(w.add(i, r), _whole(n)), end), self.a_row), 4
                )
                for n in range(ROWS)
            ]
            to = w.address(self.a_panels, w.mul(r, deep), 4)

            def column(q: Value, _: list[Value]) -> list[Value]:
                offset = w.mul(q, self.a_column)
                place = w.address(to, w.mul(q, _whole(ROWS)), 4)
                for n, row in enumerate(rows):
                    item = w.load_value(w.address(row, offset, 4), "float32")
                    w.store_value(item, w.address(place, _whole(n), 4))
                return []

            w.loop(_whole(0), deep, 1, [], column)
            return []

        w.loop(_whole(0), height, ROWS, [], panel)

    def _pack_b(self, p: Value, deep: Value, j: Value, width: Value) -> None:
        """Copy columns j .. of b: panels of two vectors of columns, row after row."""
        w = self.w

        def panel(c: Value, _: list[Value]) -> list[Value]:
            to = w.address(self.b_panels, w.mul(c, deep), 4)
            rest = w.sub(width, c)
            whole = w.compare("sge", rest, _whole(self.columns))
            copy = self._turn if self.gemm.turned else self._copy
            at = (p, w.add(j, c))
            w.branch(
                whole,
                lambda: copy(at, deep, to, None),
                lambda: copy(at, deep, to, rest),
            )
            return []

        w.loop(_whole(0), width, self.columns, [], panel)

    def _copy(
        self, at: tuple[Value, Value], deep: Value, to: Value, rest: Value | None
    ) -> list[Value]:
        """Copy one panel of a b with adjacent columns."""
        w = self.w
        start = w.address(self.b, w.add(w.mul(at[0], self.b_stride), at[1]), 4)

        def row(q: Value, _: list[Value]) -> list[Value]:
            source = w.address(start, w.mul(q, self.b_stride), 4)
            target = w.address(to, w.mul(q, _whole(self.columns)), 4)
            for half in range(2):
                shift = _whole(half * self.lanes)
                value = self._load(w.address(source, shift, 4), rest, half)
                w.store_value(value, w.address(target, shift, 4))
            return []

        w.loop(_whole(0), deep, 1, [], row)
        return []

    def _turn(
        self, at: tuple[Value, Value], deep: Value, to: Value, rest: Value | None
    ) -> list[Value]:
        """Copy one panel of a b with adjacent rows."""
        w = self.w
        start = w.address(self.b, w.add(w.mul(at[1], self.b_stride), at[0]), 4)
        end = None if rest is None else w.sub(rest, _whole(1))
        columns = []
        for n in range(self.columns):
            number = _whole(n) if end is None else self._least(_whole(n), end)
            columns.append(w.address(start, w.mul(number, self.b_stride), 4))

        def row(q: Value, _: list[Value]) -> list[Value]:
            target = w.address(to, w.mul(q, _whole(self.columns)), 4)
            for n, column in enumerate(columns):
                item = w.load_value(w.address(column, q, 4), "float32")
                w.store_value(item, w.address(target, _whole(n), 4))
            return []

        w.loop(_whole(0), deep, 1, [], row)
        return []

    def _count(self, rest: Value, half: int) -> Value:
        """Return the number of a vector's lanes that are among the `rest` columns."""
        w = self.w
        own = w.sub(rest, _whole(half * self.lanes))
        some = w.select(w.compare("sgt", own, _whole(0)), own, _whole(0))
        return self._least(some, _whole(self.lanes))

    def _load(self, address: Value, rest: Value | None, half: int) -> Value:
        w = self.w
        if rest is None:
            return memory.load_full(w, address, "float32", self.lanes)
        count = self._count(rest, half)
        mask = memory.tail_mask(w, count, self.lanes)
        return memory.load_tail(w, address, "float32", self.lanes, count, mask)

    def _store(self, value: Value, address: Value, rest: Value | None, half: int) -> None:
        w = self.w
        if rest is None:
            memory.store_full(w, value, address, "float32")
            return
        count = self._count(rest, half)
        mask = memory.tail_mask(w, count, self.lanes)
        memory.store_tail(w, value, address, "float32", count, mask)

    # --- multiplying ------------------------------------------------------------------------------

    def _multiply(
        self, rows: tuple[Value, Value], columns: tuple[Value, Value], block: tuple[Value, Value]
    ) -> None:
        """Multiply the packed blocks into c."""
        w = self.w
        (i, height), (j, width), (p, deep) = rows, columns, block
        first = w.bits_and(w.compare("eq", p, _whole(0)), self.begins)
        last = w.compare("sge", w.add(p, deep), self.k)

        def across(c: Value, _: list[Value]) -> list[Value]:
            b = w.address(self.b_panels, w.mul(c, deep), 4)

            def down(r: Value, _: list[Value]) -> list[Value]:
                a = w.address(self.a_panels, w.mul(r, deep), 4)
                sums = self._sums(a, b, deep)
                place = w.add(w.mul(w.add(i, r), self.c_row), w.add(j, c))
                to = w.address(self.c, place, 4)
                bias = w.address(self.bias, w.add(j, c), 4)
                below, beside = w.sub(height, r), w.sub(width, c)
                whole = w.bits_and(
                    w.compare("sge", below, _whole(ROWS)),
                    w.compare("sge", beside, _whole(self.columns)),
                )
                w.branch(
                    whole,
                    lambda: self._finish_whole(sums, to, bias, first, last),
                    lambda: self._finish_part(sums, to, bias, first, last, below, beside),
                )
                return []

            w.loop(_whole(0), height, ROWS, [], down)
            return []

        w.loop(_whole(0), width, self.columns, [], across)

    def _sums(self, a: Value, b: Value, deep: Value) -> list[Value]:
        """Return ROWS times two vectors: the product of a panel of a and one of b."""
        w = self.w

        def term(q: Value, sums: list[Value]) -> list[Value]:
            here = w.address(b, w.mul(q, _whole(self.columns)), 4)
            right = [
                memory.load_full(
                    w, w.address(here, _whole(h * self.lanes), 4), "float32", self.lanes
                )
                for h in range(2)
            ]
            there = w.address(a, w.mul(q, _whole(ROWS)), 4)
            made = []
            for n in range(ROWS):
                item = w.load_value(w.address(there, _whole(n), 4), "float32")
                left = w.splat(item, self.lanes)
                made += [w.fma(left, right[h], sums[2 * n + h]) for h in range(2)]
            return made

        zeros = [constant(0.0, "float32", self.lanes)] * (2 * ROWS)
        return w.loop(_whole(0), deep, 1, zeros, term)

    def _finish_whole(
        self, sums: list[Value], to: Value, bias: Value, first: Value, last: Value
    ) -> list[Value]:
        """Add the sums of a whole tile to c (or store them); after the last block, the epilogue."""
        w = self.w
        places = [
            w.address(w.address(to, w.mul(_whole(n), self.c_row), 4), _whole(h * self.lanes), 4)
            for n in range(ROWS)
            for h in range(2)
        ]
        begun = w.branch(
            first,
            lambda: sums,
            lambda: [w.add(y, self._load(p, None, 0)) for y, p in zip(sums, places)],
        )
        done = w.branch(last, lambda: self._followed(begun, bias, None), lambda: begun)
        for value, place in zip(done, places):
            self._store(value, place, None, 0)
        return []

    def _finish_part(
        self, sums: list[Value], to: Value, bias: Value, first: Value, last: Value,
        below: Value, beside: Value,
    ) -> list[Value]:  # fmt: skip
        """The same, row by row, for a tile with fewer rows or columns."""
        w = self.w
        for n, value in enumerate(sums):
            w.store_value(value, w.address(self.tile, _whole(n * self.lanes), 4))

        def row(n: Value, _: list[Value]) -> list[Value]:
            own = w.address(self.tile, w.mul(n, _whole(self.columns)), 4)
            target = w.address(to, w.mul(n, self.c_row), 4)
            places = [w.address(target, _whole(h * self.lanes), 4) for h in range(2)]
            values = [
                memory.load_full(
                    w, w.address(own, _whole(h * self.lanes), 4), "float32", self.lanes
                )
                for h in range(2)
            ]
            begun = w.branch(
                first,
                lambda: values,
                lambda: [w.add(values[h], self._load(places[h], beside, h)) for h in range(2)],
            )
            done = w.branch(last, lambda: self._followed(begun, bias, beside), lambda: begun)
            for h in range(2):
                self._store(done[h], places[h], beside, h)
            return []

        w.loop(_whole(0), self._least(below, _whole(ROWS)), 1, [], row)
        return []

    def _followed(self, values: list[Value], bias: Value, beside: Value | None) -> list[Value]:
        """Return rows of two vectors after the epilogue: the bias added, relu applied."""
        w = self.w

        def add() -> list[Value]:
            own = [
                self._load(w.address(bias, _whole(h * self.lanes), 4), beside, h) for h in range(2)
            ]
            return [w.add(y, own[n % 2]) for n, y in enumerate(values)]

        biased = w.branch(self.has_bias, add, lambda: values)

        def cut() -> list[Value]:
            zero = constant(0.0, "float32", self.lanes)
            return [w.select(w.compare("olt", y, zero), zero, y) for y in biased]  # NaN stays

        return w.branch(self.has_relu, cut, lambda: biased)
