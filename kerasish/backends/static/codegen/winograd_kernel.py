"""Transforms the kernel of a convolution for Winograd's F(2x2, 3x3), see `winograd_tiles`.

The result is [blocks of filters, 16, channels, filters of a block]. For a data gradient, the kernel
of whose convolution is flipped along both axes, with channels and filters exchanged, that kernel is
written as well.

Argument block (int64 words): 0 table, 1 threads, 2 channels and 3 filters of the result, and the
addresses of the kernel, the result and the flipped kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen import winograd_tiles as tiles
from kerasish.backends.static.codegen.tiles import share, word
from kerasish.backends.static.machine.assembly import (
    Target,
    Value,
    Writer,
    entry_function,
)
from kerasish.typing import Array

LANES = 16  # AVX-512
TAPS = 9


class WinogradKernel(NamedTuple):
    """Structure of the transform of a kernel.

    Attributes:
        vectors: of filters in a block.
        flipped: whether the kernel is flipped, and its channels and filters are exchanged.
    """

    vectors: int
    flipped: bool


def pack(
    *, table: int, threads: int, channels: int, filters: int, kernel: int, out: int, flipped: int
) -> Array:
    """Return the argument block."""
    return np.array([table, threads, channels, filters, kernel, out, flipped], np.int64)


def generate(kernel: WinogradKernel, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    worker = _Worker(kernel, target)
    head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
    return f"{head} {{\n{worker.write()}\n}}\n{entry_function(symbol)}", worker.w.declared


class _Worker:
    """One thread's part of the kernel: vectors of filters times blocks of channels."""

    def __init__(self, kernel: WinogradKernel, target: Target) -> None:
        self.kernel, self.w = kernel, Writer(target)
        w, args = self.w, Value("%args", "ptr")
        self.channels, self.filters = w.load_word(args, 2), w.load_word(args, 3)
        self.source, self.out, self.copy = (w.load_word(args, i, "ptr") for i in (4, 5, 6))

    def write(self) -> str:
        w = self.w
        along = w.two("sdiv", self.channels, word(LANES))
        first, last = share(w, w.mul(along, w.two("sdiv", self.filters, word(LANES))))

        def block(number: Value, _: list[Value]) -> list[Value]:
            vector = w.two("sdiv", number, along)
            c = w.mul(w.two("srem", number, along), word(LANES))
            source = self.source
            if self.kernel.flipped:
                self._flip(c, w.mul(vector, word(LANES)))
                source = self.copy
            self._transform(source, c, vector)
            return []

        w.loop(first, last, 1, [], block)
        w.do("ret void")
        return w.body()

    def _transform(self, source: Value, c: Value, vector: Value) -> None:
        """Transform a vector of filters of 16 channels."""
        w, vectors = self.w, self.kernel.vectors
        block = w.two("sdiv", vector, word(vectors))
        place = w.mul(w.two("srem", vector, word(vectors)), word(LANES))
        out = w.address(self.out, place, 4)
        tap = w.mul(self.channels, self.filters)

        def channel(i: Value, _: list[Value]) -> list[Value]:
            i = w.add(c, i)
            at = w.add(w.mul(i, self.filters), w.mul(vector, word(LANES)))
            at = w.address(source, at, 4)
            taps = []
            for _n in range(TAPS):
                taps.append(w.load_value(at, "float32", LANES))
                at = w.address(at, tap, 4)
            row = w.add(w.mul(block, w.mul(self.channels, word(tiles.SIDE**2))), i)
            to = w.address(out, w.mul(row, word(LANES * vectors)), 4)
            for x in tiles.transformed_kernel(w, taps):
                w.store_value(x, to)
                to = w.address(to, w.mul(self.channels, word(LANES * vectors)), 4)
            return []

        w.loop(word(0), word(LANES), 1, [], channel)

    def _flip(self, c: Value, f: Value) -> None:
        """Copy 16 filters of 16 channels of the flipped kernel, from [filters, channels]."""
        w = self.w
        size = w.mul(self.channels, self.filters)

        def tap(i: Value, _: list[Value]) -> list[Value]:
            at = w.mul(w.sub(word(TAPS - 1), i), size)
            at = w.add(at, w.add(w.mul(f, self.channels), c))
            at, rows = w.address(self.source, at, 4), []
            for _n in range(LANES):
                rows.append(w.load_value(at, "float32", LANES))
                at = w.address(at, self.channels, 4)
            to = w.add(w.mul(i, size), w.add(w.mul(c, self.filters), f))
            to = w.address(self.copy, to, 4)
            for x in _transposed(w, rows):
                w.store_value(x, to)
                to = w.address(to, self.filters, 4)
            return []

        w.loop(word(0), word(TAPS), 1, [], tap)


def _transposed(w: Writer, rows: list[Value]) -> list[Value]:
    """Return the columns of a square matrix: blocks are exchanged, twice as large each time."""
    rows, lanes, step = list(rows), range(LANES), 1
    while step < LANES:
        for i in (i for i in lanes if not i & step):
            a, b = rows[i], rows[i + step]
            rows[i] = w.shuffle(a, b, [LANES + k - step if k & step else k for k in lanes])
            rows[i + step] = w.shuffle(a, b, [LANES + k if k & step else k + step for k in lanes])
        step *= 2
    return rows
