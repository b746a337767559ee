"""Products with weights of 4 or 8 bits, unpacked in registers on the way into the product.

    out[r, c] = sum over groups g of
                scale[g, c] * sum over k in g of x[r, k] * (q[k, c] - zero[g, c])

Weights are read once for a few rows, in the order of memory; a batch of one row is bound by this
reading. Sums are float32; sums of integers (`integer`) are exact within a group.

Argument block (int64 words): 0 table, 1 threads, 2 rows, 3 columns, 4 inputs, 5 rows of a group,
6 status, then address and row stride (in elements) of x, weights, scale, zero, out, and the address
of scratch memory (`scratch_size` bytes).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.machine.assembly import Target, Value, Writer, constant
from kerasish.typing import Array

LANES = 16  # of a vector here, on all processors; LLVM divides it
PAIR = 2 * LANES  # columns of the smallest step: with 4 bits, of 16 bytes
LINE = 64  # bytes of a cache line
# Rows of weights between prefetch and use. The rows of a tile have a large stride, so the processor
# does not prefetch them itself.
AHEAD = 16


def pack(
    *, table: int, threads: int, sizes: tuple[int, int, int], block: int,
    operands: Sequence[tuple[int, int]], scratch: int,
) -> Array:  # fmt: skip
    """Return the argument block.

    Args:
        sizes: rows, columns, inputs.
        block: rows of a group.
        operands: (address, row stride) of x, weights, scale, zero, out.
        scratch: address of scratch memory; 0 for integers.
    """
    words = [table, threads, *sizes, block, 0]
    for operand in operands:
        words += operand
    return np.array([*words, scratch], np.int64)


def scratch_size(rows: int, inputs: int, block: int) -> int:
    """Return the bytes of scratch memory: a sum of x for each row and group."""
    return 4 * rows * -(-inputs // block)


class PackedProduct(NamedTuple):
    """Structure of a product.

    Attributes:
        rows: rows at a time: 1, 2, 4 or 8; remaining rows are processed one by one.
        bits: of a weight: 4 or 8.
        integer: x is int8 and out is int32, without scale and zero; else all are float32 (zero is
            int8).
    """

    rows: int
    bits: int
    integer: bool


@functools.cache
def generate(product: PackedProduct, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    worker = _Worker(product.rows, product.bits, product.integer, target)
    head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
    source = f"{head} {{\n{worker.write()}\n}}\n"
    declared = set(worker.w.declared)
    before = ""
    if not product.integer:
        sums = _Sums(target)
        source += f"define internal void @{symbol}.sums(ptr %args) #0 {{\n{sums.write()}\n}}\n"
        declared |= sums.w.declared
        before = f"  call void @{symbol}.sums(ptr %args)\n"
    return source + _ENTRY.replace("BEFORE", before).replace("SYMBOL", symbol), declared


_ENTRY = """define i32 @SYMBOL(ptr %args) #0 {
entry:
BEFORE  %threads.at = getelementptr i64, ptr %args, i64 1
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


def number(n: int) -> Value:
    """Return an int64 constant."""
    return constant(n, "int64")


class _Arguments:
    """A function's writer, and the words of its argument block."""

    def __init__(self, target: Target) -> None:
        self.w = w = Writer(target)
        args = Value("%args", "ptr")
        self.rows, self.columns, self.inputs, self.block = (
            w.load_word(args, i) for i in (2, 3, 4, 5)
        )
        self.at = {}
        for i, name in enumerate(("x", "q", "scale", "zero", "out")):
            self.at[name] = w.load_word(args, 7 + 2 * i, "ptr"), w.load_word(args, 8 + 2 * i)
        self.scratch = w.load_word(args, 17, "ptr")
        whole = w.add(self.inputs, w.sub(self.block, number(1)))
        self.groups = w.two("sdiv", whole, self.block)

    def limits(self, group: Value) -> tuple[Value, Value]:
        """Return the first row of a group, and the one after its last."""
        w = self.w
        first = w.mul(group, self.block)
        last = w.add(first, self.block)
        return first, w.select(w.compare("slt", last, self.inputs), last, self.inputs)

    def element(self, name: str, row: Value, column: Value, size: int) -> Value:
        """Return the address of an element of an operand."""
        base, stride = self.at[name]
        return self.w.address(base, self.w.add(self.w.mul(row, stride), column), size)


class _Sums(_Arguments):
    """The sums of x over each group, which the zero points are multiplied by."""

    def write(self) -> str:
        w = self.w

        def row(r: Value, _: list[Value]) -> list[Value]:
            def group(g: Value, _: list[Value]) -> list[Value]:
                first, last = self.limits(g)
                size = w.sub(last, first)
                rest = w.two("srem", size, number(LANES))
                whole = w.sub(last, rest)

                def many(k: Value, sums: list[Value]) -> list[Value]:
                    x = w.load_value(self.element("x", r, k, 4), "float32", LANES)
                    return [w.add(sums[0], x)]

                def one(k: Value, sums: list[Value]) -> list[Value]:
                    return [w.add(sums[0], w.load_value(self.element("x", r, k, 4), "float32"))]

                zeros = constant(0.0, "float32", LANES)
                total = w.fold(w.loop(first, whole, LANES, [zeros], many)[0], w.add)
                total = w.loop(whole, last, 1, [total], one)[0]
                place = w.add(w.mul(r, self.groups), g)
                w.store_value(total, w.address(self.scratch, place, 4))
                return []

            w.loop(number(0), self.groups, 1, [], group)
            return []

        w.loop(number(0), self.rows, 1, [], row)
        w.do("ret void")
        return w.body()


class _Worker(_Arguments):
    def __init__(self, rows: int, bits: int, integer: bool, target: Target) -> None:
        super().__init__(target)
        self.most, self.bits, self.integer = rows, bits, integer
        # 16 sums in registers with AVX-512, else 8, each in two halves.
        self.pairs = max(1, (8 if target.lanes == LANES else 4) // rows)
        self.dtype = "int32" if integer else "float32"

    def write(self) -> str:
        w, width = self.w, self.pairs * PAIR
        thread, threads = Value("%t", "int64"), Value("%n", "int64")
        tiles = w.two("sdiv", self.columns, number(width))

        def share(t: Value) -> Value:
            return w.mul(w.two("sdiv", w.mul(t, tiles), threads), number(width))

        first, last = share(thread), share(w.add(thread, number(1)))
        w.loop(first, last, width, [], lambda c, _: self._strip(c, self.pairs))
        ends = w.compare("eq", w.add(thread, number(1)), threads)

        def rest() -> list[Value]:
            start = w.mul(tiles, number(width))
            left = w.sub(self.columns, start)
            steps = w.mul(w.two("sdiv", left, number(PAIR)), number(PAIR))
            middle = w.add(start, steps)
            w.loop(start, middle, PAIR, [], lambda c, _: self._strip(c, 1))
            w.loop(middle, self.columns, 1, [], lambda c, _: self._column(c))
            return []

        w.branch(ends, rest)
        w.do("ret void")
        return w.body()

    def _strip(self, c: Value, pairs: int) -> list[Value]:
        w = self.w
        full = w.sub(self.rows, w.two("srem", self.rows, number(self.most)))
        w.loop(number(0), full, self.most, [], lambda r, _: self._tile(r, c, self.most, pairs))
        if self.most > 1:
            w.loop(full, self.rows, 1, [], lambda r, _: self._tile(r, c, 1, pairs))
        return []

    def _tile(self, r: Value, c: Value, rows: int, pairs: int) -> list[Value]:
        """Several rows times 32 columns, or a multiple of 32."""
        w = self.w
        own = [w.add(r, number(i)) for i in range(rows)]
        halves = range(2 * pairs)
        places = [w.add(c, number(LANES * h)) for h in halves]
        for row in own:
            for place in places:
                w.store_value(constant(0, self.dtype, LANES), self.element("out", row, place, 4))

        def group(g: Value, _: list[Value]) -> list[Value]:
            first, last = self.limits(g)

            def term(k: Value, sums: list[Value]) -> list[Value]:
                self._prefetch(k, c, pairs)
                weights = [v for i in range(pairs) for v in self._weights(k, c, i)]
                factors = [w.splat(self._x(row, k), LANES) for row in own]
                return [
                    w.fma(factor, q, sums[i * len(weights) + j])
                    for i, factor in enumerate(factors)
                    for j, q in enumerate(weights)
                ]

            zeros = [constant(0.0, "float32", LANES)] * (rows * 2 * pairs)
            sums = w.loop(first, last, 1, zeros, term)
            for i, row in enumerate(own):
                totals = self._in_order(sums[i * len(halves) : (i + 1) * len(halves)])
                for place, total in zip(places, totals, strict=True):
                    self._add(g, row, place, total)
            return []

        w.loop(number(0), self.groups, 1, [], group)
        return []

    def _prefetch(self, k: Value, c: Value, pairs: int) -> None:
        """Prefetch the weights of a later row, if a tile reads whole cache lines of it."""
        w, columns = self.w, 8 * LINE // self.bits
        later = w.add(k, number(AHEAD))
        for first in range(0, pairs * PAIR - columns + 1, columns):
            column = w.add(c, number(first))
            byte = column if self.bits == 8 else w.shift_right(column, 1)
            w.prefetch(self.element("q", later, byte, 1))

    def _x(self, row: Value, k: Value) -> Value:
        w = self.w
        if not self.integer:
            return w.load_value(self.element("x", row, k, 4), "float32")
        byte = Value(w.load(self.element("x", row, k, 1), "i8", 1), "int8")
        return w.convert("sitofp", byte, "float32")

    def _weights(self, k: Value, c: Value, pair: int) -> list[Value]:
        """Return two vectors of weights: adjacent columns, or with 4 bits even and odd ones."""
        w = self.w
        if self.bits == 8:
            at = self.element("q", k, w.add(c, number(PAIR * pair)), 1)
            both = [at, w.address(at, number(LANES), 1)]
            loaded = [Value(w.load(a, f"<{LANES} x i8>", 1), "int8", LANES) for a in both]
            wide = [w.convert("sext", v, "int32") for v in loaded]
        else:
            byte = w.add(w.shift_right(c, 1), number(LANES * pair))
            at = self.element("q", k, byte, 1)
            bytes_ = Value(w.load(at, f"<{LANES} x i8>", 1), "uint8", LANES)
            # Numbers from 0 to 15 are the weights plus 8; the zero points correct this.
            moved = w.convert("zext", w.bits_xor(bytes_, constant(-120, "int8", LANES)), "int32")
            wide = [w.bits_and(moved, w.like(moved, 15)), w.shift_right(moved, 4)]
        return [w.convert("sitofp", v, "float32") for v in wide]

    def _in_order(self, sums: list[Value]) -> list[Value]:
        if self.bits == 8:
            return sums
        w, result = self.w, []
        order = [i // 2 + LANES * (i % 2) for i in range(PAIR)]
        for even, odd in zip(sums[::2], sums[1::2], strict=True):
            result += [w.shuffle(even, odd, part) for part in (order[:LANES], order[LANES:])]
        return result

    def _add(self, g: Value, row: Value, column: Value, total: Value) -> None:
        """Add a group's sums to the result, one or a vector of them."""
        w, lanes = self.w, total.lanes
        at = self.element("out", row, column, 4)
        if self.integer:
            total = w.convert("fptosi", total, "int32")
        else:
            llvm = "i8" if lanes == 1 else f"<{lanes} x i8>"
            raw = Value(w.load(self.element("zero", g, column, 1), llvm, 1), "int8", lanes)
            zero = w.convert("sitofp", raw, "float32")
            if self.bits == 4:
                zero = w.add(zero, w.like(zero, 8.0))
            place = w.add(w.mul(row, self.groups), g)
            amount = w.load_value(w.address(self.scratch, place, 4), "float32")
            total = w.sub(total, w.mul(zero, w.splat(amount, lanes)))
            scale = w.load_value(self.element("scale", g, column, 4), "float32", lanes)
            total = w.mul(total, scale)
        w.store_value(w.add(w.load_value(at, self.dtype, lanes), total), at)

    def _column(self, c: Value) -> list[Value]:
        """One remaining column, number by number."""
        w = self.w
        odd = w.bits_and(c, number(1))

        def weight(k: Value) -> Value:
            column = c if self.bits == 8 else w.shift_right(c, 1)
            byte = Value(w.load(self.element("q", k, column, 1), "i8", 1), "int8")
            if self.bits == 8:
                return w.convert("sitofp", byte, "float32")
            whole = w.convert("zext", w.bits_xor(byte, constant(-120, "int8")), "int32")
            high = w.compare("ne", odd, number(0))
            low = w.bits_and(whole, constant(15, "int32"))
            return w.convert("sitofp", w.select(high, w.shift_right(whole, 4), low), "float32")

        def row(r: Value, _: list[Value]) -> list[Value]:
            w.store_value(constant(0, self.dtype), self.element("out", r, c, 4))

            def group(g: Value, _: list[Value]) -> list[Value]:
                first, last = self.limits(g)

                def term(k: Value, sums: list[Value]) -> list[Value]:
                    return [w.fma(self._x(r, k), weight(k), sums[0])]

                total = w.loop(first, last, 1, [constant(0.0, "float32")], term)[0]
                self._add(g, r, c, total)
                return []

            w.loop(number(0), self.groups, 1, [], group)
            return []

        w.loop(number(0), self.rows, 1, [], row)
        return []
