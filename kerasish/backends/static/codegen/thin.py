"""Products with few columns, such as those of LoRA.

    out (rows, columns) = a (rows, terms) @ b (terms, columns)

A library fills half of its vectors with 8 columns. Here a tile is several rows times one vector of
`WIDTH` numbers, in registers. `a` is read once, in place; `b` is copied to rows of `WIDTH` numbers
first, unless it already has this layout.

Long sums are added up in blocks of `BLOCK` terms, in order: rounding grows with the terms of a
block, and results do not depend on the number of threads.

Argument block (int64 words): 0 table, 1 threads, 2 rows, 3 unused, 4 terms, 5 address of a, 6 its
stride from term to term, 7 address of b, 8 and 9 its strides (terms, columns), 10 address of out,
11 its stride from row to row, 12 scratch memory for b (`scratch_size` bytes; 0: no copy).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen.tiles import (
    Columns,
    least,
    lines,
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
    entry_function,
)
from kerasish.typing import Array

WIDTH = 8  # columns at most
BLOCK = 512  # terms that are added up separately


class ThinProduct(NamedTuple):
    """Structure of a product with few columns.

    Attributes:
        columns: the number of columns, at most `WIDTH`.
        row: numbers of `a` from one row to the next.
        apart: whether the terms of a row of `a` are not adjacent.
    """

    columns: int
    row: int
    apart: bool


def scratch_size(terms: int) -> int:
    """Return the bytes of scratch memory for the copy of b."""
    return 4 * WIDTH * terms


def pack(
    *, table: int, threads: int, sizes: tuple[int, int, int], a: tuple[int, int],
    b: tuple[int, int, int], out: tuple[int, int], scratch: int = 0,
) -> Array:  # fmt: skip
    """Return the argument block.

    Args:
        sizes: rows, columns, terms.
        a: address, and stride from term to term.
        b: address, and strides from term to term and from column to column.
        out: address, and stride from row to row.
        scratch: memory for the copy of b; 0: b has rows of `WIDTH` numbers.
    """
    return np.array([table, threads, *sizes, *a, *b, *out, scratch], np.int64)


def generate(kernel: ThinProduct, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    worker, copy = _Worker(kernel, target), _Copy(kernel, target)
    head = f"define internal void @{symbol}"
    source = f"{head}.worker(ptr %args, i64 %t, i64 %n) #0 {{\n{worker.write()}\n}}\n"
    source += f"{head}.copy(ptr %args) #0 {{\n{copy.write()}\n}}\n"
    entry = entry_function(symbol, f"  call void @{symbol}.copy(ptr %args)\n")
    return source + entry, worker.w.declared | copy.w.declared


class _Arguments:
    """A function's writer, and the words of its argument block."""

    def __init__(self, kernel: ThinProduct, target: Target) -> None:
        self.kernel, self.w = kernel, Writer(target)
        w, args = self.w, Value("%args", "ptr")
        self.rows, self.terms = w.load_word(args, 2), w.load_word(args, 4)
        self.a, self.a_term = w.load_word(args, 5, "ptr"), w.load_word(args, 6)
        self.b, self.b_term = w.load_word(args, 7, "ptr"), w.load_word(args, 8)
        self.b_column = w.load_word(args, 9)
        self.out, self.out_row = w.load_word(args, 10, "ptr"), w.load_word(args, 11)
        self.scratch = w.load_word(args, 12)


class _Copy(_Arguments):
    """Copies b to scratch memory; its rows are padded with zeros."""

    def write(self) -> str:
        w = self.w

        def row(k: Value, _: list[Value]) -> list[Value]:
            source = w.address(self.b, w.mul(k, self.b_term), 4)
            to = w.address(Value("%to", "ptr"), w.mul(k, word(WIDTH)), 4)
            for j in range(WIDTH):
                x = constant(0.0, "float32")
                if j < self.kernel.columns:
                    x = w.load_value(w.address(source, w.mul(word(j), self.b_column), 4), "float32")
                w.store_value(x, w.address(to, word(j), 4))
            return []

        def copy() -> list[Value]:
            w.do(f"%to = inttoptr i64 {self.scratch.text} to ptr")
            w.loop(word(0), self.terms, 1, [], row)
            return []

        w.branch(w.compare("ne", self.scratch, word(0)), copy)
        w.do("ret void")
        return w.body()


class _Worker(_Arguments):
    def __init__(self, kernel: ThinProduct, target: Target) -> None:
        super().__init__(kernel, target)
        self.height = 16 if target.level == "avx512" else 8

    def write(self) -> str:
        w = self.w
        w.do(f"%copy = inttoptr i64 {self.scratch.text} to ptr")
        copied = w.compare("ne", self.scratch, word(0))
        self.b = w.select(copied, Value("%copy", "ptr"), self.b)
        first, last = share(w, self.rows, self.height)
        over_rows(w, first, last, self.height, self._clear)

        def block(k: Value, _: list[Value]) -> list[Value]:
            terms = least(w, w.sub(self.terms, k), word(BLOCK))
            over_rows(w, first, last, self.height, lambda r, count: self._tile(r, count, k, terms))
            return []

        w.loop(word(0), self.terms, BLOCK, [], block)
        w.do("ret void")
        return w.body()

    def _ends(self, r: Value, count: int) -> list[Value]:
        """Return the addresses of `count` rows of the result."""
        return lines(self.w, self.out, r, self.out_row, count)

    def _clear(self, r: Value, count: int) -> None:
        for end in self._ends(r, count):
            self.own().store(zeros(WIDTH), end)

    def own(self) -> Columns:
        """Return the columns of the result."""
        columns = self.kernel.columns
        return Columns(self.w, WIDTH, None if columns == WIDTH else word(columns))

    def _tile(self, r: Value, count: int, first: Value, terms: Value) -> None:
        """Add the sums of a block of terms to `count` rows of the result."""
        w, kernel = self.w, self.kernel
        at = w.add(w.mul(r, word(kernel.row)), w.mul(first, self.a_term))
        start = w.address(self.a, at, 4)
        rows = [w.address(start, word(i * kernel.row), 4) for i in range(count)]
        matrix = w.address(self.b, w.mul(first, word(WIDTH)), 4)

        def ahead(k: Value) -> None:
            if kernel.apart and count > 1:  # what the next tile reads
                w.prefetch(w.address(w.address(start, w.mul(k, self.a_term), 4), word(count), 4))

        step, whole = self.a_term if kernel.apart else word(1), [Columns(w, WIDTH)]
        sums = product(w, rows, step, matrix, word(WIDTH), terms, whole, before=ahead)
        own = self.own()
        for x, end in zip(sums, self._ends(r, count), strict=True):
            own.store(w.add(own.load(end), x), end)
