"""Sums of many terms of which those with a factor of zero are left out, with the same bits.

After ReLU about half of the numbers are 0, and of an image often more. A product of one row takes
as long as it takes to read the weights, so the weights of these terms are not read. The numbers of
the other terms are listed once for all columns. The processor cannot predict which rows of weights
are read next, so those of the term `AHEAD` places further in the list are prefetched into the L2
cache.

A term that is 0 changes no sum of finite numbers but a sum of -0, and what is added here is added
to one that begins with +0 (see `direct`). By weights that are not finite such a term is NaN, so
nothing is left out then: a number behind the packed weights says so (`finite_note`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.machine.assembly import Value, Writer, constant
from kerasish.typing import Array

NOTE = 16  # numbers behind packed weights, the first of which is the note
AHEAD = 12  # terms; 6 take as long if the L3 cache holds the weights, 1.4 times as long if not
MOST = 4096  # terms of a list, which lies on the stack
_LINE = 16  # numbers of a cache line
_WORD = 64  # terms whose bits are in one number
# With fewer terms of 0 among 128, the loop over all is faster: it reads from end to end.
_LEAST_ZEROS = 16


def finite_note(weights: Array) -> Array:
    """Return what stands behind packed weights: 0 where all of them are finite, else NaN."""
    note = np.zeros(NOTE, weights.dtype)
    note[0] = 0.0 if np.isfinite(weights).all() else np.nan
    return note


def note_kernel() -> Kernel:
    """Return the loop that makes the note of one row of weights."""
    k = KernelBuilder()
    x = k.input("float32")
    k.output(k.op("row_sum", x - x))
    return k.build()


class Terms:
    """The numbers of the terms of a row that are not 0, and how many there are in each block.

    Args:
        w: where the code is written.
        data: the address of the row.
        note: see `finite_note`.
        depth: the number of terms; those behind the last whole block are not listed.
        block: terms that are added up alone, a multiple of 64.
    """

    def __init__(self, w: Writer, data: Value, note: Value, depth: int, block: int) -> None:
        self.w, self.data, self.block, self.depth = w, data, block, depth
        self.count = count = depth - depth % block
        self.finite = w.compare("oeq", note, constant(0.0, "float32"))
        size = min(count, MOST - MOST % block)
        self.numbers = w.allocate("i32", size + AHEAD)
        self.counts = w.allocate("i64", size // block)
        self.size = size  # of a list
        if size == count:
            self._list(_int(0), _int(count))

    def add(
        self, sums: list[Value], step: int,
        some: Callable[[Value, list[Value]], list[Value]],
        term: Callable[[Value, int, list[Value]], list[Value]], weights: Value, row: int,
    ) -> list[Value]:  # fmt: skip
        """Write the sums plus all terms, without those of zero where there are enough of these.

        Args:
            sums: the sums before.
            step: how many terms `some` adds.
            some: adds terms from a number on.
            term: adds one term: a constant number of terms after a number.
            weights: the address of the first term's.
            row: numbers from one term's weights to the next one's.
        """
        w = self.w

        def listed_term(i: Value, sums: list[Value]) -> list[Value]:
            at = w.address(self.numbers, i, 4)
            later = self._number(w.address(at, _int(AHEAD), 4))
            line = w.address(weights, w.mul(later, _int(row)), 4)
            for number in range(0, len(sums) * w.target.lanes, _LINE):
                w.prefetch(w.address(line, _int(number), 4), 2)
            return term(self._number(at), 0, sums)

        def blocks(first: Value, last: Value, sums: list[Value]) -> list[Value]:
            def block(p: Value, carried: list[Value]) -> list[Value]:
                *totals, place = carried
                index = w.two("sdiv", w.sub(p, first), _int(self.block))
                count = w.load_value(w.address(self.counts, index, 8), "int64")
                every = w.compare("slt", count, _int(0))
                own = [constant(0.0, s.dtype, s.lanes) for s in totals]
                own = w.loop(p, w.select(every, w.add(p, _int(self.block)), p), step, own, some)
                after = w.add(place, w.select(every, _int(0), count))
                own = w.loop(place, after, 1, own, listed_term)
                return [*(w.add(a, b) for a, b in zip(totals, own)), after]

            return w.loop(first, last, self.block, [*sums, _int(0)], block)[:-1]

        if self.size == self.count:
            return blocks(_int(0), _int(self.count), sums)

        def part(first: Value, sums: list[Value]) -> list[Value]:
            end = w.add(first, _int(self.size))
            end = w.select(w.compare("slt", end, _int(self.count)), end, _int(self.count))
            self._list(first, end)
            return blocks(first, end, sums)

        return w.loop(_int(0), _int(self.count), self.size, sums, part)

    def _number(self, at: Value) -> Value:
        return self.w.convert("zext", self.w.load_value(at, "int32"), "int64")

    def _list(self, first: Value, last: Value) -> None:
        """Write the list of some blocks."""
        w = self.w
        w.store_value(constant(0, "int32"), self.numbers)

        def block(p: Value, carried: list[Value]) -> list[Value]:
            (place,) = carried
            start = w.address(self.data, p, 4)
            masks = [_mask(w, w.address(start, _int(at), 4)) for at in range(0, self.block, _WORD)]
            counts = [w.call("llvm.ctpop", mask) for mask in masks]
            total = counts[0]
            for count in counts[1:]:
                total = w.add(total, count)
            worth = w.compare("sle", total, _int(self.block - _LEAST_ZEROS))
            skips = w.bits_and(worth, self.finite)
            index = w.two("sdiv", w.sub(p, first), _int(self.block))
            w.store_value(w.select(skips, total, _int(-1)), w.address(self.counts, index, 8), 8)
            for number, (mask, count) in enumerate(zip(masks, counts)):
                base = w.add(p, _int(number * _WORD))

                def next_term(_: Value, carried: list[Value], base: Value = base) -> list[Value]:
                    place, mask = carried
                    bit = w.call("llvm.cttz", mask, constant(0, "bool"))
                    term = w.convert("trunc", w.add(base, bit), "int32")
                    w.store_value(term, w.address(self.numbers, place, 4))
                    rest = w.bits_and(mask, w.sub(mask, _int(1)))
                    return [w.add(place, _int(1)), rest]

                left = w.select(skips, count, _int(0))
                place, _ = w.loop(_int(0), left, 1, [place, mask], next_term)
            return [place]

        (end,) = w.loop(first, last, self.block, [_int(0)], block)

        def beyond(i: Value, _: list[Value]) -> list[Value]:
            """Behind the last term come the first ones of the columns after these."""
            number = self._number(w.address(self.numbers, i, 4))
            number = w.convert("trunc", w.add(number, _int(self.depth)), "int32")
            w.store_value(number, w.address(self.numbers, w.add(end, i), 4))
            return []

        w.loop(_int(0), _int(AHEAD), 1, [], beyond)


def _mask(w: Writer, data: Value) -> Value:
    """Return a number whose bit i says whether factor i is not 0."""
    lanes = w.target.lanes
    mask: Any = None
    for at in range(0, _WORD, lanes):
        x = w.load_value(w.address(data, _int(at), 4), "float32", lanes)
        other = w.compare("une", x, constant(0.0, "float32", lanes))
        if lanes > 1:
            other = w.let(f"bitcast {other.typed} to i{lanes}", "int64")
        bits = w.let(f"zext i{lanes} {other.text} to i64", "int64")
        bits = w.shift_left(bits, at) if at else bits
        mask = bits if mask is None else w.bits_or(mask, bits)
    result: Value = mask
    return result


def _int(number: int) -> Value:
    return constant(number, "int64")
