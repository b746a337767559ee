"""Products of many small matrices, apart in memory, such as those of attention heads.

    out[i, j] = a[i, j] @ b[i, j] for all i, j

Tiles stay in registers. `a` is read where it lies, whatever its strides; a strip of columns of `b`
is copied to the stack first, since its rows may lie so far apart that few of them fit into the
first-level cache. The columns of `b` and of `out` are adjacent.
Each thread computes some of the products, and
each sum adds its terms in order: results do not depend on the number of threads.

Argument block (int64 words): 0 table, 1 threads, 2 and 3 the two sizes of the batch, 4 rows,
5 columns, 6 terms (at most `MOST_TERMS`), then the address of a and its strides (both of the batch,
row, term), of b (both of the batch, term), of out (both of the batch, row), in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen.tiles import (
    Columns,
    lines,
    over_rows,
    product,
    share,
    word,
)
from kerasish.backends.static.machine.assembly import Target, Value, Writer, entry_function
from kerasish.typing import Array

MOST_TERMS = 256
_PAIR = 2  # vectors of a tile
_COUNTS = (4, 3, 3)  # strides of a, b, out


class BatchedProduct(NamedTuple):
    """The structure: there is one; all sizes are arguments."""


class Operand(NamedTuple):
    """A batch of matrices.

    Attributes:
        address: of the first number.
        strides: in elements: both of the batch, that of rows, and for `a` that of columns.
    """

    address: int
    strides: tuple[int, ...]


def tile_rows(target: Target) -> int:
    """Return the rows of a tile."""
    return 8 if target.level == "avx512" else 4


def pack(
    *, table: int, threads: int, batch: tuple[int, int], sizes: tuple[int, int, int],
    operands: Sequence[Operand],
) -> Array:  # fmt: skip
    """Return the argument block.

    Args:
        batch: the sizes of the batch.
        sizes: rows, columns, terms.
        operands: a, b, out.
    """
    if sizes[2] > MOST_TERMS:
        raise ValueError(f"pack: at most {MOST_TERMS} terms, got {sizes[2]}")
    words = [table, threads, *batch, *sizes]
    for operand, count in zip(operands, _COUNTS, strict=True):
        if len(operand.strides) != count:
            raise ValueError(f"pack: expected {count} strides, got {operand.strides}")
        words += [operand.address, *operand.strides]
    return np.array(words, np.int64)


def generate(kernel: BatchedProduct, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    writer = _Products(target)
    head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
    worker = f"{head} {{\n{writer.write()}\n}}"
    return f"{worker}\n{entry_function(symbol)}", writer.w.declared


class _Products:
    def __init__(self, target: Target) -> None:
        self.w = w = Writer(target)
        self.lanes, self.height = target.lanes, tile_rows(target)
        args = Value("%args", "ptr")
        self.batch = w.load_word(args, 2), w.load_word(args, 3)
        self.rows, self.columns, self.terms = (w.load_word(args, i) for i in (4, 5, 6))
        self.bases, self.steps = [], []
        at = 7
        for count in _COUNTS:
            self.bases.append(w.load_word(args, at, "ptr"))
            self.steps.append([w.load_word(args, at + 1 + i) for i in range(count)])
            at += count + 1

    def write(self) -> str:
        """Return the function's body."""
        w = self.w
        self.strip = w.allocate("float", MOST_TERMS * _PAIR * self.lanes)
        first, last = share(w, w.mul(*self.batch))
        pairs = _PAIR * self.lanes

        def matrix(m: Value, _: list[Value]) -> list[Value]:
            i, j = w.two("sdiv", m, self.batch[1]), w.two("srem", m, self.batch[1])
            a, b, out = (
                w.address(base, w.add(w.mul(i, steps[0]), w.mul(j, steps[1])), 4)
                for base, steps in zip(self.bases, self.steps)
            )
            wide = w.mul(w.two("sdiv", self.columns, word(pairs)), word(pairs))
            full = w.mul(w.two("sdiv", self.columns, word(self.lanes)), word(self.lanes))
            for start, stop, count in ((word(0), wide, _PAIR), (wide, full, 1)):

                def whole(c: Value, _: list[Value], count: int = count) -> list[Value]:
                    self._strip(a, b, out, c, [Columns(w, self.lanes)] * count)
                    return []

                w.loop(start, stop, count * self.lanes, [], whole)

            def part(c: Value, _: list[Value]) -> list[Value]:
                self._strip(a, b, out, c, [Columns(w, self.lanes, w.sub(self.columns, c))])
                return []

            w.loop(full, self.columns, self.lanes, [], part)
            return []

        w.loop(first, last, 1, [], matrix)
        w.do("ret void")
        return w.body()

    def _strip(self, a: Value, b: Value, out: Value, c: Value, columns: list[Columns]) -> None:
        """Write the products of all rows of a matrix with adjacent columns."""
        w, lanes, vectors = self.w, self.lanes, len(columns)
        width = word(vectors * lanes)
        self._copy(b, c, columns)
        _, _, a_row, a_term = self.steps[0]
        full = [Columns(w, lanes)] * vectors

        def some(r: Value, count: int) -> None:
            rows = lines(w, a, r, a_row, count)
            sums = product(w, rows, a_term, self.strip, width, self.terms, full)
            ends = lines(w, w.address(out, c, 4), r, self.steps[2][2], count)
            for i, end in enumerate(ends):
                for v, own in enumerate(columns):
                    own.store(sums[i * vectors + v], w.address(end, word(v * lanes), 4))

        over_rows(w, word(0), self.rows, self.height, some)

    def _copy(self, b: Value, c: Value, columns: list[Columns]) -> None:
        """Copy columns of b to the stack, side by side, with zeros after the last one."""
        w, lanes = self.w, self.lanes
        width = len(columns) * lanes
        start = w.address(b, c, 4)

        def row(k: Value, _: list[Value]) -> list[Value]:
            source = w.address(start, w.mul(k, self.steps[1][2]), 4)
            to = w.address(self.strip, w.mul(k, word(width)), 4)
            for v, own in enumerate(columns):
                skip = word(v * lanes)
                w.store_value(own.load(w.address(source, skip, 4)), w.address(to, skip, 4))
            return []

        w.loop(word(0), self.terms, 1, [], row)
