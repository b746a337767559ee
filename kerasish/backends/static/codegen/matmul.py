"""Small matrix products with an epilogue, where a library call costs more than the product.

`Matmul(epilogue)` is y = epilogue(a @ b, ...): a is (m, k), b is (k, n), both at run-time
strides, b with adjacent columns unless `transposed` (then b is stored (n, k)). The epilogue is
an ordinary `Kernel` whose input 0 is the product; its other inputs are element (m, n), row or
column operands; every output is an element output. Without an epilogue the product is stored. One
thread; it processes four rows and two vectors of columns at a time. Few columns are one vector with
that number of lanes (`few_lanes`), and then it processes eight rows at a time.

Argument block (int64 words): 0 table, 1 threads (unused), 2 m, 3 n, 4 k, 5 scratch (for
`transposed`: 4 * k * padded(n) bytes), 6 status, 7 address of a, 8 and 9 its row and column
strides, 10 address of b, 11 its row stride, then for each input of the epilogue after the first,
and each output, address and row stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen import memory
from kerasish.backends.static.codegen.arguments import PAD, padded
from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.codegen.epilogue import EpilogueWriter
from kerasish.backends.static.machine.assembly import Target, Value, Writer, constant
from kerasish.typing import Array

ROWS, MORE_ROWS = 4, 8
MOST_LANES = 16  # of a vector of few columns
OPERANDS = 12  # the first word of the epilogue's operands


class Matmul(NamedTuple):
    """Structure of a small float32 matrix product (see the module).

    Attributes:
        epilogue, transposed: see the module.
        lanes: of a vector of columns; 0: two of the processor's vectors.
    """

    epilogue: Kernel
    transposed: bool = False
    lanes: int = 0


def few_lanes(columns: int) -> int:
    """Return the lanes of a structure for this number of columns: a power of two, or 0."""
    return 0 if columns > MOST_LANES else max(2, 1 << (columns - 1).bit_length())


def scratch_size(matmul: Matmul, n: int, k: int) -> int:
    """Bytes of scratch memory."""
    return 4 * k * padded(n) if matmul.transposed else 0


def pack(
    matmul: Matmul,
    *,
    table: int,
    sizes: tuple[int, int, int],
    a: tuple[int, int, int],
    b: tuple[int, int],
    operands: Sequence[tuple[int, int]],
    scratch: int = 0,
) -> Array:
    """The argument block.

    Args:
        sizes: (m, n, k). a: (address, row stride, column stride). b: (address, row stride).
        operands: (address, row stride) of the epilogue's inputs after the first, then of its
        outputs.
    """
    expected = len(matmul.epilogue.inputs) - 1 + len(matmul.epilogue.outputs)
    if len(operands) != expected:
        raise ValueError(f"pack: the epilogue has {expected} operands, got {len(operands)}")
    words = [table, 1, *sizes, scratch, 0, *a, *b]
    for operand in operands:
        words += operand
    return np.array(words, dtype=np.int64)


def generate(matmul: Matmul, symbol: str, target: Target) -> tuple[str, set[str]]:
    """The LLVM IR of `i32 symbol(ptr arguments)`."""
    product = _ProductWriter(matmul, target)
    text = f"define i32 @{symbol}(ptr %args) #0 {{\n{product.write()}\n}}"
    return text, product.w.declared


class _ProductWriter:
    def __init__(self, matmul: Matmul, target: Target) -> None:
        self.matmul = matmul
        self.w = w = Writer(target)
        self.lanes = matmul.lanes or 2 * target.lanes
        self.rows = MORE_ROWS if self.lanes <= target.lanes else ROWS
        args = Value("%args", "ptr")
        w.table = w.load_word(args, 0, "ptr")
        self.m, self.n, self.k = (w.load_word(args, i) for i in (2, 3, 4))
        self.scratch = w.load_word(args, 5, "ptr")
        self.a = w.load_word(args, 7, "ptr")
        self.a_row, self.a_column = w.load_word(args, 8), w.load_word(args, 9)
        self.b, self.b_row = w.load_word(args, 10, "ptr"), w.load_word(args, 11)
        self.epilogue = EpilogueWriter(w, matmul.epilogue, args, OPERANDS, self.lanes)

    def write(self) -> str:
        w = self.w
        if self.matmul.transposed:
            self._turn_b()
        zero = constant(0, "int64")
        full = w.two("sub", self.m, w.two("srem", self.m, constant(self.rows, "int64")))

        def columns(c: Value, _: list[Value]) -> list[Value]:
            rest = w.sub(self.n, c)
            whole = w.compare("sge", rest, constant(self.lanes, "int64"))

            def every() -> list[Value]:
                self._strip(zero, full, self.rows, c, None)
                self._strip(full, self.m, 1, c, None)
                return []

            def some() -> list[Value]:
                self._strip(zero, full, self.rows, c, rest)
                self._strip(full, self.m, 1, c, rest)
                return []

            w.branch(whole, every, some)
            return []

        w.loop(zero, self.n, self.lanes, [], columns)
        w.do("ret i32 0")
        return w.body()

    def _turn_b(self) -> None:
        """Copy b, stored (n, k), into scratch memory as (k, padded n)."""
        w, zero = self.w, constant(0, "int64")
        width = w.bits_and(w.add(self.n, constant(PAD - 1, "int64")), constant(-PAD, "int64"))

        def row(j: Value, _: list[Value]) -> list[Value]:
            source = w.address(self.b, w.mul(j, self.b_row), 4)

            def item(i: Value, _: list[Value]) -> list[Value]:
                value = w.load_value(w.address(source, i, 4), "float32")
                w.store_value(value, w.address(self.scratch, w.add(w.mul(i, width), j), 4))
                return []

            w.loop(zero, self.k, 1, [], item)
            return []

        w.loop(zero, self.n, 1, [], row)
        self.b, self.b_row = self.scratch, width

    def _strip(self, first: Value, last: Value, rows: int, c: Value, rest: Value | None) -> None:
        """Rows first .. last, `rows` at a time, of one vector of columns."""
        w, lanes = self.w, self.lanes
        mask = None if rest is None else memory.tail_mask(w, rest, lanes)
        if self.matmul.transposed:
            b_rest, b_mask = None, None  # the copy is padded to whole vectors
        else:
            b_rest, b_mask = rest, mask
        b_start = w.address(self.b, c, 4)

        def block(r: Value, _: list[Value]) -> list[Value]:
            starts = [
                w.address(self.a, w.mul(w.add(r, constant(i, "int64")), self.a_row), 4)
                for i in range(rows)
            ]

            def term(p: Value, sums: list[Value]) -> list[Value]:
                at = w.address(b_start, w.mul(p, self.b_row), 4)
                b = self.epilogue.load(at, "float32", b_rest, b_mask)
                offset = w.mul(p, self.a_column)
                return [
                    w.fma(
                        w.splat(w.load_value(w.address(start, offset, 4), "float32"), lanes), b, s
                    )
                    for start, s in zip(starts, sums, strict=True)
                ]

            zeros = [constant(0.0, "float32", lanes)] * rows
            sums = w.loop(constant(0, "int64"), self.k, 1, zeros, term)
            for i, value in enumerate(sums):
                self.epilogue.store(w.add(r, constant(i, "int64")), c, value, rest, mask)
            return []

        w.loop(first, last, rows, [], block)
