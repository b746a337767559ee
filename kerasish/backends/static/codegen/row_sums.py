"""Sums of rows by place: y[places[i]] += rows[i], for all i in order, y being zeros before.

Threads share the rows of y, and each reads all places. So no row is written by two threads, and
results do not depend on their number.

Argument block (int64 words): 0 table, 1 threads, 2 rows that are added, 3 rows of y, 4 columns,
then the addresses of the places (int64, each from 0 to the rows of y), of the rows and of y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen.tiles import Columns, share, word, zeros
from kerasish.backends.static.machine.assembly import Target, Value, Writer, entry_function
from kerasish.typing import Array

# Elements per thread, about 20 microseconds: Python runs between two calls, so threads must be
# woken up.
GRAIN = 1 << 17


class RowSums(NamedTuple):
    """The structure of the loop; sizes are arguments."""

    dtype: str = "float32"


def choose_threads(count: int, size: int, columns: int, limit: int) -> int:
    """Return the number of threads, up to `limit`, for sizes as in `pack`."""
    return max(1, min(limit, size, (count + size) * columns // GRAIN))


def pack(
    *, table: int, threads: int, count: int, size: int, columns: int, addresses: tuple[int, ...]
) -> Array:
    """Return the argument block.

    Args:
        count: the rows that are added.
        size: the rows of y.
        columns: of both.
        addresses: of the places, of the rows and of y.
    """
    return np.array([table, threads, count, size, columns, *addresses], np.int64)


def generate(kernel: RowSums, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    w = Writer(target)
    _write(w, target.lanes)
    head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
    return f"{head} {{\n{w.body()}\n}}\n{entry_function(symbol)}", w.declared


def _over(
    w: Writer, lanes: int, full: Value, columns: Value, body: Callable[[Value, Columns], None]
) -> None:
    """Write body(column, columns) for each vector of a row.

    Args:
        w: where the code is written.
        lanes: of a vector.
        full: the columns of complete vectors.
        columns: all columns.
        body: writes the code of a vector.
    """

    def whole(c: Value, _: list[Value]) -> list[Value]:
        body(c, Columns(w, lanes))
        return []

    def part(c: Value, _: list[Value]) -> list[Value]:
        body(c, Columns(w, lanes, w.sub(columns, c)))
        return []

    w.loop(word(0), full, lanes, [], whole)
    w.loop(full, columns, lanes, [], part)


def _write(w: Writer, lanes: int) -> None:
    args = Value("%args", "ptr")
    count, size, columns = (w.load_word(args, i) for i in (2, 3, 4))
    places, rows, y = (w.load_word(args, i, "ptr") for i in (5, 6, 7))
    full = w.bits_and(columns, word(-lanes))
    first, last = share(w, size)

    def clear(r: Value, _: list[Value]) -> list[Value]:
        row = w.address(y, w.mul(r, columns), 4)
        _over(
            w, lanes, full, columns,
            lambda c, part: part.store(zeros(lanes), w.address(row, c, 4)),
        )  # fmt: skip
        return []

    def add(i: Value, _: list[Value]) -> list[Value]:
        place, none = w.load_value(w.address(places, i, 8), "int64"), word(0)
        inside = w.bits_and(w.compare("sge", place, first), w.compare("slt", place, last))
        source = w.address(rows, w.mul(i, columns), 4)
        to = w.address(y, w.mul(w.select(inside, place, none), columns), 4)

        def vector(c: Value, part: Columns) -> None:
            at = w.address(to, c, 4)
            part.store(w.add(part.load(at), part.load(w.address(source, c, 4))), at)

        ends = w.select(inside, full, none), w.select(inside, columns, none)
        _over(w, lanes, *ends, vector)
        return []

    w.loop(first, last, 1, [], clear)
    w.loop(word(0), count, 1, [], add)
    w.do("ret void")
