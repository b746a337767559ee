"""Tiles of products in registers: several rows times a few vectors of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kerasish.backends.static.codegen import memory
from kerasish.backends.static.machine.assembly import Value, Writer, constant


def word(number: int) -> Value:
    """Return an int64 constant."""
    return constant(number, "int64")


def zeros(lanes: int) -> Value:
    """Return a vector of zeros."""
    return constant(0.0, "float32", lanes)


def least(w: Writer, a: Value, b: Value) -> Value:
    """Return the smaller of two integers."""
    return w.select(w.compare("slt", a, b), a, b)


def most(w: Writer, a: Value, b: Value) -> Value:
    """Return the larger of two integers."""
    return w.select(w.compare("sgt", a, b), a, b)


def share(w: Writer, count: Value, each: int = 1) -> tuple[Value, Value]:
    """Return the first and the last number of thread %t's part of `count`, one of %n, in runs.

    Args:
        w: where the code is written.
        count: the numbers 0 to count - 1 are shared.
        each: the length of a run, which one thread takes as a whole.
    """
    runs = w.two("sdiv", w.add(count, word(each - 1)), word(each))
    thread, ends = Value("%t", "int64"), []
    for number in (thread, w.add(thread, word(1))):
        end = w.two("sdiv", w.mul(number, runs), Value("%n", "int64"))
        ends.append(least(w, w.mul(end, word(each)), count))
    return ends[0], ends[1]


class Columns:
    """Adjacent columns of one vector: all of its lanes, or the first ones.

    Args:
        w: where the code is written.
        lanes: of a vector.
        rest: the number of valid lanes; None: all.
    """

    def __init__(self, w: Writer, lanes: int, rest: Value | None = None) -> None:
        self.w, self.lanes, self.rest = w, lanes, rest
        self.mask = None if rest is None else memory.tail_mask(w, rest, lanes)

    def load(self, at: Value) -> Value:
        """Return the vector at an address, with zeros in invalid lanes."""
        if self.rest is None or self.mask is None:
            return memory.load_full(self.w, at, "float32", self.lanes)
        return memory.load_tail(self.w, at, "float32", self.lanes, self.rest, self.mask)

    def store(self, x: Value, at: Value) -> None:
        """Write the valid lanes."""
        if self.rest is None or self.mask is None:
            memory.store_full(self.w, x, at, "float32")
        else:
            memory.store_tail(self.w, x, at, "float32", self.rest, self.mask)


def over_rows(
    w: Writer, first: Value, last: Value, height: int, body: Callable[[Value, int], None]
) -> None:
    """Write body(row, rows) for tiles of `height` rows, and for the others one by one."""
    full = w.sub(last, w.two("srem", w.sub(last, first), word(height)))

    def some(r: Value, _: list[Value]) -> list[Value]:
        body(r, height)
        return []

    def one(r: Value, _: list[Value]) -> list[Value]:
        body(r, 1)
        return []

    w.loop(first, full, height, [], some)
    w.loop(full, last, 1, [], one)


def lines(w: Writer, base: Value, r: Value, width: Value, count: int) -> list[Value]:
    """Return the addresses of `count` rows of a matrix.

    Args:
        w: where the code is written.
        base: the address of row 0.
        r: the first row.
        width: numbers from one row to the next.
        count: the number of rows.
    """
    results = [w.address(base, w.mul(r, width), 4)]
    for _ in range(count - 1):
        results.append(w.address(results[-1], width, 4))
    return results


def product(
    w: Writer, rows: Sequence[Value], step: Value, matrix: Value, width: Value, terms: Value,
    columns: Sequence[Columns], starts: Sequence[Value] = (),
    before: Callable[[Value], None] = lambda k: None,
) -> list[Value]:  # fmt: skip
    """Return the sums of a tile: for each row its vectors. The terms are added in order.

    Args:
        w: where the code is written.
        rows: the addresses of the rows' first terms.
        step: numbers from one term of a row to the next.
        matrix: the address of the columns in the first row of the other matrix.
        width: numbers from one of its rows to the next.
        terms: of each sum.
        columns: the vectors of the tile, which are adjacent.
        starts: the values to which the terms are added; empty: zeros.
        before: writes the code before each term, given its number.
    """
    vectors, lanes = len(columns), columns[0].lanes

    def term(k: Value, sums: list[Value]) -> list[Value]:
        before(k)
        at = w.address(matrix, w.mul(k, width), 4)
        own = w.mul(k, step)
        others = [c.load(w.address(at, word(v * lanes), 4)) for v, c in enumerate(columns)]
        result = []
        for i, row in enumerate(rows):
            x = w.splat(w.load_value(w.address(row, own, 4), "float32"), lanes)
            result += [w.fma(x, b, s) for b, s in zip(others, sums[i * vectors :])]
        return result

    def two(k: Value, sums: list[Value]) -> list[Value]:
        return term(w.add(k, word(1)), term(k, sums))

    even = w.bits_and(terms, word(-2))
    starts = starts or [zeros(lanes)] * (len(rows) * vectors)
    sums = w.loop(word(0), even, 2, starts, two)
    return w.loop(even, terms, 1, sums, term)
