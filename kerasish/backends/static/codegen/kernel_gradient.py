"""Gradients of 2D convolutions with respect to their kernels.

    out[i, j, c, f] = sum over samples and pixels of x[n, y + i, x + j, c] * dy[n, y, x, f]

(with strides, dilations and padding). A tile is all taps of a kernel row, `rows` channels and a few
vectors of filters, in registers. It is added up over the pixels of a block of image rows; the sums
of the blocks are added in memory. Threads share the tiles, so no sum is divided among threads, and
results do not depend on their number. Taps outside an image are left out.

Argument block (int64 words): 0 table, 1 threads, 2 image rows of dy (of all samples), 3 of these in
a block, then the words of `_SIZES`, and the addresses of x, dy, the sums (float32) and the result;
float32 results are the sums.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen import memory
from kerasish.backends.static.codegen.tiles import least, share, word, zeros
from kerasish.backends.static.machine.assembly import (
    STORED,
    Target,
    Value,
    Writer,
    constant,
    entry_function,
)
from kerasish.typing import Array

LANES = 16  # filters of a vector: AVX-512
SUMS = 24  # vectors of sums in a tile: with the factors, they fill 32 registers
BLOCK = 768  # pixels of a block: with more, their rows leave the second-level cache
_SIZES = (
    "dy_height", "dy_width", "height", "width", "channels", "filters", "kernel_height",
    "stride", "dilation", "top", "left",
)  # fmt: skip


class KernelGradient(NamedTuple):
    """Structure of a kernel gradient.

    Attributes:
        dtype: "float32" or "bfloat16".
        taps: the width of the kernel, 2 to 5.
        vectors: vectors of filters in a tile.
        stride, dilation: along the width.
    """

    dtype: str
    taps: int
    vectors: int
    stride: int
    dilation: int

    @property
    def rows(self) -> int:
        """Channels of a tile: a power of two."""
        return 1 << (SUMS // (self.taps * self.vectors)).bit_length() - 1


def pack(
    *, table: int, threads: int, rows: int, sizes: dict[str, int], ends: list[int], x: int,
    dy: int, sums: int, out: int,
) -> Array:  # fmt: skip
    """Return the argument block.

    Args:
        rows: image rows of dy, of all samples.
        sizes: see `_SIZES`; stride and dilation are those along the height.
        ends: the first pixel of each part of a row, see `inside_taps`, and the last one's end.
        x, dy, sums, out: addresses; `sums` is that of the result if it is float32.
    """
    block = max(1, BLOCK // sizes["dy_width"])
    numbers = [sizes[name] for name in _SIZES]
    return np.array([table, threads, rows, block, *numbers, x, dy, sums, out, *ends], np.int64)


def inside_taps(taps: int) -> list[range]:
    """Return the taps inside an image for the parts of a row, from left to right."""
    left = [range(k, taps) for k in reversed(range(1, taps))]
    return [*left, *(range(k) for k in reversed(range(1, taps + 1)))]


def generate(kernel: KernelGradient, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    worker = _Worker(kernel, target)
    head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
    return f"{head} {{\n{worker.write()}\n}}\n{entry_function(symbol)}", worker.w.declared


class _Worker:
    """One thread's tiles."""

    def __init__(self, kernel: KernelGradient, target: Target) -> None:
        self.kernel, self.w = kernel, Writer(target)
        w, args = self.w, Value("%args", "ptr")
        self.all_rows, self.block = w.load_word(args, 2), w.load_word(args, 3)
        self.size = {name: w.load_word(args, 4 + i) for i, name in enumerate(_SIZES)}
        pointers = [w.load_word(args, 4 + len(_SIZES) + i, "ptr") for i in range(4)]
        self.x, self.dy, self.sums, self.out = pointers
        ends = range(8 + len(_SIZES), 8 + len(_SIZES) + 2 * kernel.taps)
        self.ends = [w.load_word(args, i) for i in ends]
        self.each = STORED[kernel.dtype][1]

    def write(self) -> str:
        w, size = self.w, self.size
        across = w.two("sdiv", size["channels"], word(self.kernel.rows))
        along = w.two("sdiv", size["filters"], word(LANES * self.kernel.vectors))
        first, last = share(w, w.mul(w.mul(across, along), size["kernel_height"]))
        more = w.add(self.all_rows, w.sub(self.block, word(1)))
        blocks = w.two("sdiv", more, self.block)

        def block(b: Value, _: list[Value]) -> list[Value]:
            start = w.mul(b, self.block)
            stop = least(w, w.add(start, self.block), self.all_rows)
            final = w.compare("eq", w.add(b, word(1)), blocks)

            def tile(number: Value, _: list[Value]) -> list[Value]:
                rest = w.two("sdiv", number, across)
                c = w.mul(w.two("srem", number, across), word(self.kernel.rows))
                row = w.two("srem", rest, size["kernel_height"])
                f = w.mul(w.two("sdiv", rest, size["kernel_height"]),
                          word(LANES * self.kernel.vectors))  # fmt: skip
                self._finish(row, c, f, b, final, self._tile(row, c, f, start, stop))
                return []

            return w.loop(first, last, 1, [], tile)

        w.loop(word(0), blocks, 1, [], block)
        w.do("ret void")
        return w.body()

    def _tile(self, row: Value, c: Value, f: Value, start: Value, stop: Value) -> list[Value]:
        """Return the sums over the pixels of image rows start .. stop."""
        w, size = self.w, self.size
        down = w.sub(w.mul(row, size["dilation"]), size["top"])

        def image_row(r: Value, sums: list[Value]) -> list[Value]:
            sample = w.two("sdiv", r, size["dy_height"])
            y = w.mul(w.two("srem", r, size["dy_height"]), size["stride"])
            y = w.add(y, down)
            at = w.mul(w.add(w.mul(sample, size["height"]), y), size["width"])
            at = w.add(w.mul(w.sub(at, size["left"]), size["channels"]), c)
            source = w.address(self.x, at, self.each)
            at = w.add(w.mul(w.mul(r, size["dy_width"]), size["filters"]), f)
            slope = w.address(self.dy, at, self.each)
            inside = w.compare("ult", y, size["height"])
            return w.branch(inside, lambda: self._pixels(source, slope, sums), lambda: sums)

        count = self.kernel.taps * self.kernel.rows * self.kernel.vectors
        return w.loop(start, stop, 1, [zeros(LANES)] * count, image_row)

    def _pixels(self, source: Value, slope: Value, sums: list[Value]) -> list[Value]:
        """Add the products of the pixels of one row of an image.

        Args:
            source: the address of x for pixel 0 and tap 0.
            slope: the address of dy for pixel 0.
            sums: of each tap, each channel, each vector.
        """
        w, size, kernel = self.w, self.size, self.kernel
        bases = [source]
        for _ in range(kernel.taps - 1):
            step = w.mul(size["channels"], word(kernel.dilation))
            bases.append(w.address(bases[-1], step, self.each))
        across = w.mul(size["channels"], word(kernel.stride))

        def products(p: Value, taps: range, state: list[Value]) -> list[Value]:
            at = w.address(slope, w.mul(p, size["filters"]), self.each)
            factors = [self._vector(w.address(at, word(LANES * v), self.each))
                       for v in range(kernel.vectors)]  # fmt: skip
            result = list(state)
            for k in taps:
                place = w.address(bases[k], w.mul(p, across), self.each)
                pairs = [(x, d) for x in self._spread(place) for d in factors]
                for i, (x, d) in enumerate(pairs, k * len(pairs)):
                    result[i] = w.fma(x, d, state[i])
            return result

        for (first, last), taps in zip(pairwise(self.ends), inside_taps(kernel.taps), strict=True):

            def pixel(p: Value, state: list[Value], taps: range = taps) -> list[Value]:
                return products(p, taps, state)

            sums = w.loop(first, last, 1, sums, pixel)
        return sums

    def _vector(self, at: Value) -> Value:
        raw = memory.load_full(self.w, at, self.kernel.dtype, LANES)
        return memory.from_storage(self.w, raw, self.kernel.dtype)

    def _spread(self, place: Value) -> list[Value]:
        """Return the channels of a tile, each in all lanes of a vector."""
        w, rows = self.w, self.kernel.rows
        if self.kernel.dtype == "float32":
            scalars = [w.load_value(w.address(place, word(r), 4), "float32") for r in range(rows)]
            return [w.splat(x, LANES) for x in scalars]
        result = []
        for r in range(0, rows, 2):  # two channels at a time
            at = w.address(place, word(r), 2)
            pair = Value(w.load(at, "i32", 2), "uint32")
            both = w.splat(pair, LANES)
            high = w.bits_and(both, constant(0xFFFF0000, "uint32", LANES))
            result += [w.bitcast(w.shift_left(both, 16), "float32"), w.bitcast(high, "float32")]
        return result

    def _finish(
        self, row: Value, c: Value, f: Value, block: Value, final: Value, sums: list[Value]
    ) -> None:
        """Add the sums of a block to those before."""
        w, size, kernel = self.w, self.size, self.kernel
        tap = w.mul(w.mul(row, word(kernel.taps)), size["channels"])
        places = []
        for k in range(kernel.taps):
            for r in range(kernel.rows):
                at = w.add(w.add(tap, w.mul(size["channels"], word(k))), w.add(c, word(r)))
                at = w.add(w.mul(at, size["filters"]), f)
                places += [w.add(at, word(LANES * v)) for v in range(kernel.vectors)]

        def add() -> list[Value]:
            before = [w.load_value(w.address(self.sums, at, 4), "float32", LANES) for at in places]
            return [w.add(a, b) for a, b in zip(before, sums, strict=True)]

        total = w.branch(w.compare("eq", block, word(0)), lambda: sums, add)

        def store(to: Value, dtype: str) -> list[Value]:
            for at, x in zip(places, total, strict=True):
                stored = memory.to_storage(w, x, dtype)
                memory.store_full(w, stored, w.address(to, at, STORED[dtype][1]), dtype)
            return []

        if kernel.dtype == "float32":
            store(self.sums, "float32")
        else:
            w.branch(
                final, lambda: store(self.out, kernel.dtype), lambda: store(self.sums, "float32")
            )
