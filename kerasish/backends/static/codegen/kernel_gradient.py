"""Gradients of 2D convolutions with respect to their kernels.

    out[i, j, c, f] = sum over samples and pixels of x[n, y + i, x + j, c] * dy[n, y, x, f]

(with strides, dilations and padding). A tile is all taps of a kernel row, `rows` channels and a few
vectors of filters, in registers. It is added up over the pixels of a block of image rows; the sums
of the blocks are added in memory. Threads share the tiles, so no sum is divided among threads, and
results do not depend on their number. Taps outside an image are left out.

bfloat16: an instruction adds two products to a float32 sum. They are those of a pixel in two
samples: each thread first copies a block's rows of samples 2m and 2m + 1 to its scratch memory,
element by element in turn, so an element of the copy is a pair in 32 bits. Zeros stand for the
second sample of the last pair if the number of samples is odd. "Sample" means a pair below. A tile
is `rows` filters and vectors of channels, so that the taps share each filter that is loaded. The
sums are [..., filters, channels] until the last block.

Argument block (int64 words): 0 table, 1 threads, 2 image rows of dy (of all samples), 3 of these in
a block, then the words of `_SIZES`, and the addresses of x, dy, the sums (float32), the result (the
same if it is float32) and the scratch memory.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen import memory
from kerasish.backends.static.codegen.tiles import least, most, share, word, zeros
from kerasish.backends.static.machine.assembly import (
    Target,
    Value,
    Writer,
    entry_function,
)
from kerasish.typing import Array

LANES = 16  # filters of a vector: AVX-512
SUMS = 24  # vectors of sums in a tile: with the factors, they fill 32 registers
BLOCK = 768  # pixels of a block: with more, their rows leave the second-level cache
_SIZES = (
    "dy_height", "dy_width", "height", "width", "channels", "filters", "kernel_height",
    "stride", "dilation", "top", "left", "samples", "x_copy", "copies",
)  # fmt: skip
_POINTERS = 5
LEAST_COPIED = 32  # elements of an image row that is copied


class KernelGradient(NamedTuple):
    """Structure of a kernel gradient.

    Attributes:
        dtype: "float32" or "bfloat16".
        taps: the width of the kernel, 2 to 5.
        vectors: vectors of filters (bfloat16: channels) in a tile.
        stride, dilation: along the width.
    """

    dtype: str
    taps: int
    vectors: int
    stride: int
    dilation: int

    @property
    def rows(self) -> int:
        """Channels (bfloat16: filters) of a tile: a power of two."""
        return 1 << (SUMS // (self.taps * self.vectors)).bit_length() - 1

    @property
    def pairs(self) -> bool:
        """Whether an instruction multiplies pairs of numbers."""
        return self.dtype == "bfloat16"

    @property
    def channels(self) -> int:
        """Channels of a tile."""
        return LANES * self.vectors if self.pairs else self.rows

    @property
    def filters(self) -> int:
        """Filters of a tile."""
        return self.rows if self.pairs else LANES * self.vectors


def pack(
    *, table: int, threads: int, rows: int, sizes: dict[str, int], ends: list[int], x: int,
    dy: int, sums: int, out: int, scratch: int,
) -> Array:  # fmt: skip
    """Return the argument block.

    Args:
        rows: image rows of dy, of all samples.
        sizes: see `_SIZES`; stride and dilation are those along the height, "samples" is the number
            of single samples; the last two are from `copied_bytes`.
        ends: the first pixel of each part of a row, see `inside_taps`, and the last one's end.
        x, dy, sums, out: addresses; `sums` is that of the result if it is float32.
        scratch: the address of the copies of all threads, for bfloat16.
    """
    numbers = [sizes[name] for name in _SIZES]
    head = [table, threads, rows, block_rows(sizes), *numbers]
    return np.array([*head, x, dy, sums, out, scratch, *ends], np.int64)


def block_rows(sizes: dict[str, int]) -> int:
    """Return the number of image rows of dy in a block."""
    return max(1, BLOCK // sizes["dy_width"])


def copied_bytes(sizes: dict[str, int], rows: int) -> tuple[int, int]:
    """Return the bytes of a thread's copy of x, and of its copies of x and dy.

    Args:
        sizes: those of `_SIZES` that describe x, dy and the kernel.
        rows: image rows of dy, of all pairs of samples.
    """
    block = block_rows(sizes)
    start = np.arange(0, rows, block)
    stop = np.minimum(start + block, rows)
    most = int(np.max(_x_rows_end(sizes, stop) - _x_rows_start(sizes, start), initial=0))
    x = 4 * most * sizes["width"] * sizes["channels"]
    dy = 4 * min(block, rows) * sizes["dy_width"] * sizes["filters"]
    return -(-x // 64) * 64, -(-x // 64) * 64 + -(-dy // 64) * 64


def _x_rows_start(sizes: dict[str, int], row: Array) -> Array:
    """Return the first image row of x, of all samples, that a row of dy and later ones read."""
    sample, y = np.divmod(row, sizes["dy_height"])
    return sample * sizes["height"] + np.maximum(y * sizes["stride"] - sizes["top"], 0)


def _x_rows_end(sizes: dict[str, int], row: Array) -> Array:
    """Return the end of the image rows of x that the rows of dy before `row` read."""
    sample, y = np.divmod(row - 1, sizes["dy_height"])
    reach = (sizes["kernel_height"] - 1) * sizes["dilation"] + 1 - sizes["top"]
    return sample * sizes["height"] + np.minimum(y * sizes["stride"] + reach, sizes["height"])


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
        first = 4 + len(_SIZES)
        pointers = [w.load_word(args, first + i, "ptr") for i in range(_POINTERS)]
        self.x, self.dy, self.sums, self.out, self.scratch = pointers
        ends = range(first + _POINTERS, first + _POINTERS + 2 * kernel.taps)
        self.ends = [w.load_word(args, i) for i in ends]

    def write(self) -> str:
        w, size, kernel = self.w, self.size, self.kernel
        across = w.two("sdiv", size["channels"], word(kernel.channels))
        along = w.two("sdiv", size["filters"], word(kernel.filters))
        first, last = share(w, w.mul(w.mul(across, along), size["kernel_height"]))
        more = w.add(self.all_rows, w.sub(self.block, word(1)))
        blocks = w.two("sdiv", more, self.block)

        def block(b: Value, _: list[Value]) -> list[Value]:
            start = w.mul(b, self.block)
            stop = least(w, w.add(start, self.block), self.all_rows)
            final = w.compare("eq", w.add(b, word(1)), blocks)
            x, dy = self._copies(start, stop) if kernel.pairs else (self.x, self.dy)

            def tile(number: Value, _: list[Value]) -> list[Value]:
                rest = w.two("sdiv", number, across)
                c = w.mul(w.two("srem", number, across), word(kernel.channels))
                row = w.two("srem", rest, size["kernel_height"])
                f = w.mul(w.two("sdiv", rest, size["kernel_height"]), word(kernel.filters))
                x_at, dy_at = w.address(x, c, 4), w.address(dy, f, 4)
                self._finish(row, c, f, b, final, self._tile(row, x_at, dy_at, start, stop))
                return []

            return w.loop(first, last, 1, [], tile)

        w.loop(word(0), blocks, 1, [], block)
        w.do("ret void")
        return w.body()

    # --- copies of pairs of samples -----------------------------------------------------------

    def _copies(self, start: Value, stop: Value) -> tuple[Value, Value]:
        """Copy the rows that rows start .. stop of dy need.

        Returns:
            The addresses that row 0 of x and of dy would have in the copies.
        """
        w, size = self.w, self.size
        to = w.address(self.scratch, w.mul(Value("%t", "int64"), size["copies"]), 1)
        sample, y = self._place(start)
        y = most(w, w.sub(w.mul(y, size["stride"]), size["top"]), word(0))
        first = w.add(w.mul(sample, size["height"]), y)
        sample, y = self._place(w.sub(stop, word(1)))
        reach = w.mul(w.sub(size["kernel_height"], word(1)), size["dilation"])
        y = w.add(w.mul(y, size["stride"]), w.sub(w.add(reach, word(1)), size["top"]))
        last = w.add(w.mul(sample, size["height"]), least(w, y, size["height"]))
        length = w.mul(size["width"], size["channels"])
        x = self._copy(self.x, size["height"], length, first, last, to)
        to, length = w.address(to, size["x_copy"], 1), w.mul(size["dy_width"], size["filters"])
        return x, self._copy(self.dy, size["dy_height"], length, start, stop, to)

    def _place(self, row: Value) -> tuple[Value, Value]:
        """Return the sample and the row in it of a row of dy."""
        w, height = self.w, self.size["dy_height"]
        return w.two("sdiv", row, height), w.two("srem", row, height)

    def _copy(
        self, source: Value, height: Value, length: Value, first: Value, last: Value, to: Value
    ) -> Value:
        """Copy image rows first .. last; return the address that row 0 would have.

        Args:
            height: image rows of a sample.
            length: elements of an image row, at least `LEAST_COPIED`.
        """
        w, many = self.w, LEAST_COPIED
        to = w.address(to, w.mul(w.sub(word(0), first), length), 4)
        orders = [[i + j * many for i in range(k, k + many // 2) for j in range(2)]
                  for k in (0, many // 2)]  # fmt: skip

        def copy(r: Value, _: list[Value]) -> list[Value]:
            sample = w.shift_left(w.two("sdiv", r, height), 1)
            row = w.add(w.mul(sample, height), w.two("srem", r, height))
            even = w.address(source, w.mul(row, length), 2)
            odd = w.address(even, w.mul(height, length), 2)
            both = w.compare("slt", w.add(sample, word(1)), self.size["samples"])
            target = w.address(to, w.mul(r, length), 4)

            def vector(i: Value, _: list[Value]) -> list[Value]:
                i = least(w, i, w.sub(length, word(many)))  # the last vector may overlap
                a, b = (memory.load_full(w, w.address(at, i, 2), "uint16", many)
                        for at in (even, w.select(both, odd, even)))  # fmt: skip
                b = w.select(both, b, w.like(b, 0))
                for k, order in enumerate(orders):
                    at = w.address(target, w.add(i, word(k * many // 2)), 4)
                    memory.store_full(w, w.shuffle(a, b, order), at, "uint16")
                return []

            w.loop(word(0), length, many, [], vector)
            return []

        w.loop(first, last, 1, [], copy)
        return to

    # --- tiles --------------------------------------------------------------------------------

    def _tile(self, row: Value, x: Value, dy: Value, start: Value, stop: Value) -> list[Value]:
        """Return the sums over the pixels of image rows start .. stop.

        Args:
            row: of the kernel.
            x, dy: addresses of the tile's first channel and filter in row 0.
        """
        w, size = self.w, self.size
        down = w.sub(w.mul(row, size["dilation"]), size["top"])

        def image_row(r: Value, sums: list[Value]) -> list[Value]:
            sample, y = self._place(r)
            y = w.add(w.mul(y, size["stride"]), down)
            at = w.mul(w.add(w.mul(sample, size["height"]), y), size["width"])
            source = w.address(x, w.mul(w.sub(at, size["left"]), size["channels"]), 4)
            slope = w.address(dy, w.mul(w.mul(r, size["dy_width"]), size["filters"]), 4)
            inside = w.compare("ult", y, size["height"])
            return w.branch(inside, lambda: self._pixels(source, slope, sums), lambda: sums)

        count = self.kernel.taps * self.kernel.rows * self.kernel.vectors
        return w.loop(start, stop, 1, [zeros(LANES)] * count, image_row)

    def _pixels(self, source: Value, slope: Value, sums: list[Value]) -> list[Value]:
        """Add the products of the pixels of one row of an image.

        Args:
            source: the address of x for pixel 0 and tap 0.
            slope: the address of dy for pixel 0.
            sums: of each tap, each channel or vector of channels, each filter or vector of filters.
        """
        w, size, kernel = self.w, self.size, self.kernel
        bases = [source]
        for _ in range(kernel.taps - 1):
            step = w.mul(size["channels"], word(kernel.dilation))
            bases.append(w.address(bases[-1], step, 4))
        across = w.mul(size["channels"], word(kernel.stride))

        vectors, rows = range(kernel.vectors), range(kernel.rows)

        def products(p: Value, taps: range, state: list[Value]) -> list[Value]:
            at = w.address(slope, w.mul(p, size["filters"]), 4)
            places = {k: w.address(bases[k], w.mul(p, across), 4) for k in taps}
            result = list(state)
            if kernel.pairs:
                channels = {k: [self._vector(places[k], v) for v in vectors] for k in taps}
                for r in rows:
                    d = self._number(at, r)
                    for k, v in itertools.product(taps, vectors):
                        i = (k * kernel.vectors + v) * kernel.rows + r
                        result[i] = self._added(channels[k][v], d, state[i])
                return result
            filters = [self._vector(at, v) for v in vectors]
            for k, r in itertools.product(taps, rows):
                x = self._number(places[k], r)
                for i, d in enumerate(filters, (k * kernel.rows + r) * kernel.vectors):
                    result[i] = self._added(x, d, state[i])
            return result

        parts = zip(itertools.pairwise(self.ends), inside_taps(kernel.taps), strict=True)
        for (first, last), taps in parts:

            def pixel(p: Value, state: list[Value], taps: range = taps) -> list[Value]:
                return products(p, taps, state)

            sums = w.loop(first, last, 1, sums, pixel)
        return sums

    def _vector(self, at: Value, number: int) -> Value:
        return self.w.load_value(self.w.address(at, word(LANES * number), 4), "float32", LANES)

    def _number(self, at: Value, number: int) -> Value:
        """Return an element in all lanes of a vector."""
        one = self.w.load_value(self.w.address(at, word(number), 4), "float32")
        return self.w.splat(one, LANES)

    def _added(self, x: Value, d: Value, total: Value) -> Value:
        """Return total + x * d, or the sum of two products of bfloat16 numbers."""
        w = self.w
        if not self.kernel.pairs:
            return w.fma(x, d, total)
        symbol = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}"
        kind = f"<{2 * LANES} x bfloat>"
        w.declared.add(f"declare {total.llvm} {symbol}({total.llvm}, {kind}, {kind})")
        pairs = [w.let(f"bitcast {v.typed} to {kind}", "bfloat16", 2 * LANES) for v in (x, d)]
        factors = ", ".join(f"{kind} {p.text}" for p in pairs)
        return w.let(f"call {total.llvm} {symbol}({total.typed}, {factors})", "float32", LANES)

    def _finish(
        self, row: Value, c: Value, f: Value, block: Value, final: Value, sums: list[Value]
    ) -> None:
        """Add the sums of a block to those before."""
        w, size, kernel = self.w, self.size, self.kernel
        counts, steps = (kernel.rows, kernel.vectors), (1, LANES)
        if kernel.pairs:
            counts, steps = counts[::-1], steps[::-1]
        places, ends = [], []
        for k, i, j in itertools.product(range(kernel.taps), *map(range, counts)):
            tap = w.add(w.mul(row, word(kernel.taps)), word(k))
            channel, filter_ = w.add(c, word(i * steps[0])), w.add(f, word(j * steps[1]))
            at = w.add(w.mul(tap, size["channels"]), channel)
            ends.append(w.add(w.mul(at, size["filters"]), filter_))
            at = w.add(w.mul(tap, size["filters"]), filter_)
            places.append(w.add(w.mul(at, size["channels"]), channel))
        if not kernel.pairs:
            places = ends

        def add() -> list[Value]:
            before = [w.load_value(w.address(self.sums, at, 4), "float32", LANES) for at in places]
            return [w.add(a, b) for a, b in zip(before, sums, strict=True)]

        total = w.branch(w.compare("eq", block, word(0)), lambda: sums, add)

        def store_sums() -> list[Value]:
            for at, x in zip(places, total, strict=True):
                memory.store_full(w, x, w.address(self.sums, at, 4), "float32")
            return []

        def store_results() -> list[Value]:
            for at, x in zip(ends, total, strict=True):
                stored = memory.to_storage(w, x, kernel.dtype)
                to = w.address(self.out, at, 2)
                memory.store_apart(w, stored, to, kernel.dtype, size["filters"])
            return []

        if kernel.pairs:
            w.branch(final, store_results, store_sums)
        else:
            store_sums()
