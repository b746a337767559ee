"""3x3 convolutions with strides 1 by Winograd's F(2x2, 3x3), see `winograd_tiles`.

A thread takes up to `TILES` tiles of 2x2 outputs at a time, numbered over all samples. It
transforms their windows into its scratch memory, [blocks of 16 channels, 16, tiles, 16 channels].
For each block of filters, it multiplies them by the transformed kernel (`winograd_kernel`), 28 sums
in registers, writes the products to scratch memory, [16, tiles, filters], and transforms them to
outputs. So everything that is read more than once stays in the second-level cache.

Infinity minus infinity, and numbers above a quarter of the largest one, give NaN or infinity where
a direct sum need not. So outputs that are not finite are computed once more as direct sums. Each
sum has one order of its terms: the bits do not depend on the threads, nor on other tiles.

Argument block (int64 words): 0 table, 1 threads, then the words of `_SIZES`, and the addresses of
`_POINTERS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen import winograd_tiles as tiles
from kerasish.backends.static.codegen.tiles import least, share, word, zeros
from kerasish.backends.static.machine.assembly import (
    Target,
    Value,
    Writer,
    entry_function,
)
from kerasish.typing import Array

LANES = 16  # AVX-512
TILES = 28  # that a thread computes at a time
SUMS = 28  # vectors of sums in a tile of products: with the factors, they fill 32 registers
PRODUCTS = tiles.SIDE**2  # of a tile
_UNROLLED = 4  # channels
_SIZES = (
    "height", "width", "channels", "out_height", "out_width", "filters", "top", "left", "down",
    "across", "tiles", "each", "scratch_bytes",
)  # fmt: skip
_POINTERS = ("x", "transformed", "kernel", "bias", "y", "scratch")


class Winograd(NamedTuple):
    """Structure of a convolution.

    Attributes:
        vectors: of filters in a block, 1 or 2.
        bias: whether one is added.
        relu: whether relu is applied, to the sum with the bias.
        added: whether the result is added to what its memory holds before.
    """

    vectors: int
    bias: bool
    relu: bool
    added: bool

    @property
    def rows(self) -> int:
        """Tiles whose products are in registers at the same time."""
        return SUMS // self.vectors


def pack(*, table: int, threads: int, sizes: dict[str, int], pointers: dict[str, int]) -> Array:
    """Return the argument block.

    Args:
        sizes: height, width and channels of x, those of the result (its channels are "filters"),
            the padding above and on the left, tiles along both axes of an image and in all, the
            tiles that are computed at a time, and the scratch memory of a thread.
        pointers: addresses; "kernel" is that of the kernel as it is.
    """
    numbers = [sizes[name] for name in _SIZES] + [pointers[name] for name in _POINTERS]
    return np.array([table, threads, *numbers], np.int64)


def scratch_bytes(vectors: int, channels: int) -> int:
    """Return the scratch memory of a thread."""
    floats = PRODUCTS * TILES * (channels + vectors * LANES) + channels + vectors * LANES
    return 4 * floats


def generate(kernel: Winograd, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    worker = _Worker(kernel, target)
    head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
    return f"{head} {{\n{worker.write()}\n}}\n{entry_function(symbol)}", worker.w.declared


class _Tile(NamedTuple):
    """The place of a tile: its sample, and its number along both axes of an image."""

    sample: Value
    down: Value
    across: Value


class _Worker:
    """One thread's tiles."""

    def __init__(self, kernel: Winograd, target: Target) -> None:
        self.kernel, self.w = kernel, Writer(target)
        w, args = self.w, Value("%args", "ptr")
        self.width = LANES * kernel.vectors  # filters of a block
        self.size = {name: w.load_word(args, 2 + i) for i, name in enumerate(_SIZES)}
        first = 2 + len(_SIZES)
        self.at = {name: w.load_word(args, first + i, "ptr") for i, name in enumerate(_POINTERS)}
        own = w.mul(Value("%t", "int64"), self.size["scratch_bytes"])
        self.windows = w.address(self.at["scratch"], own, 1)
        numbers = w.mul(self.size["channels"], word(PRODUCTS * TILES))
        self.products = w.address(self.windows, numbers, 4)
        self.outside = w.address(self.products, word(PRODUCTS * TILES * self.width), 4)
        self.zeros = w.address(self.outside, word(self.width), 4)

    def write(self) -> str:
        w, size = self.w, self.size
        channel_blocks = w.two("sdiv", size["channels"], word(LANES))
        filter_blocks = w.two("sdiv", size["filters"], word(self.width))
        items = w.two("sdiv", w.add(size["tiles"], w.sub(size["each"], word(1))), size["each"])
        first, last = share(w, items)

        def clear(c: Value, _: list[Value]) -> list[Value]:
            w.store_value(zeros(LANES), w.address(self.zeros, c, 4))
            return []

        w.loop(word(0), size["channels"], LANES, [], clear)

        def item(number: Value, _: list[Value]) -> list[Value]:
            start = w.mul(number, size["each"])
            count = least(w, size["each"], w.sub(size["tiles"], start))
            self._over_tiles(start, count, lambda t, tile: self._window(t, tile, channel_blocks))

            def filters(block: Value, _: list[Value]) -> list[Value]:
                self._multiply(block, count, channel_blocks)
                self._over_tiles(start, count, lambda t, tile: self._outputs(t, tile, block))
                return []

            w.loop(word(0), filter_blocks, 1, [], filters)
            return []

        w.loop(first, last, 1, [], item)
        w.do("ret void")
        return w.body()

    def _over_tiles(self, start: Value, count: Value, body: Callable[[Value, _Tile], None]) -> None:
        """Write body(t, tile) for tiles start .. start + count; t counts from 0."""
        w, size = self.w, self.size
        across = w.two("srem", start, size["across"])
        lines = w.two("sdiv", start, size["across"])
        sample, down = w.two("sdiv", lines, size["down"]), w.two("srem", lines, size["down"])

        def one(t: Value, place: list[Value]) -> list[Value]:
            sample, down, across = place
            body(t, _Tile(sample, down, across))
            across, right = self._wrapped(w.add(across, word(1)), size["across"])
            down, below = self._wrapped(w.add(down, right), size["down"])
            return [w.add(sample, below), down, across]

        w.loop(word(0), count, 1, [sample, down, across], one)

    def _wrapped(self, number: Value, count: Value) -> tuple[Value, Value]:
        """Return a number, 0 if it is `count`; and 1 if it is `count`, else 0."""
        w = self.w
        over = w.compare("eq", number, count)
        return w.select(over, word(0), number), w.convert("zext", over, "int64")

    def _corner(self, tile: _Tile) -> tuple[Value, Value]:
        """Return the first row and column of x that a tile reads; they may be outside."""
        w, size = self.w, self.size
        y = w.sub(w.shift_left(tile.down, 1), size["top"])
        return y, w.sub(w.shift_left(tile.across, 1), size["left"])

    def _image(self, tile: _Tile) -> Value:
        """Return the address of a tile's sample of x."""
        w, size = self.w, self.size
        pixels = w.mul(w.mul(tile.sample, size["height"]), size["width"])
        return w.address(self.at["x"], w.mul(pixels, size["channels"]), 4)

    # --- windows ------------------------------------------------------------------------------

    def _window(self, t: Value, tile: _Tile, channel_blocks: Value) -> None:
        """Transform a tile's window."""
        w, size = self.w, self.size
        sizes = size["height"], size["width"], size["channels"]
        pixels = tiles.window(w, self._image(tile), *self._corner(tile), sizes, self.zeros)
        out = w.address(self.windows, w.mul(t, word(LANES)), 4)

        def block(c: Value, _: list[Value]) -> list[Value]:
            first = w.mul(c, word(LANES))
            loaded = [w.load_value(w.address(at, first, 4), "float32", LANES) for at in pixels]
            to = w.address(out, w.mul(c, word(PRODUCTS * TILES * LANES)), 4)
            for k, x in enumerate(tiles.transformed_window(w, loaded)):
                w.store_value(x, w.address(to, word(k * TILES * LANES), 4))
            return []

        w.loop(word(0), channel_blocks, 1, [], block)

    # --- products -----------------------------------------------------------------------------

    def _multiply(self, block: Value, count: Value, channel_blocks: Value) -> None:
        """Multiply the transformed windows by a block of filters of the transformed kernel.

        Products of the tiles from `count` to a multiple of `rows` are not used.
        """
        w, size, rows = self.w, self.size, self.kernel.rows
        matrix = w.mul(size["channels"], word(self.width))
        kernel = w.address(self.at["transformed"], w.mul(block, w.mul(matrix, word(PRODUCTS))), 4)

        def product(k: Value, _: list[Value]) -> list[Value]:
            right = w.address(kernel, w.mul(k, matrix), 4)
            left = w.address(self.windows, w.mul(k, word(TILES * LANES)), 4)
            out = w.address(self.products, w.mul(k, word(TILES * self.width)), 4)

            def some(r: Value, _: list[Value]) -> list[Value]:
                sums = self._sums(w.address(left, w.mul(r, word(LANES)), 4), right, channel_blocks)
                to = w.address(out, w.mul(r, word(self.width)), 4)
                for i, x in enumerate(sums):
                    w.store_value(x, w.address(to, word(i * LANES), 4))
                return []

            w.loop(word(0), count, rows, [], some)
            return []

        w.loop(word(0), word(PRODUCTS), 1, [], product)

    def _sums(self, left: Value, right: Value, channel_blocks: Value) -> list[Value]:
        """Return the sums over all channels of `rows` tiles, for each vector of filters."""
        w, vectors = self.w, range(self.kernel.vectors)

        def block(c: Value, sums: list[Value]) -> list[Value]:
            rows = w.address(left, w.mul(c, word(PRODUCTS * TILES * LANES)), 4)
            filters = w.address(right, w.mul(c, word(LANES * self.width)), 4)

            def some(i: Value, sums: list[Value]) -> list[Value]:
                for n in range(_UNROLLED):
                    at = w.address(filters, w.mul(w.add(i, word(n)), word(self.width)), 4)
                    own = [self._vector(at, v) for v in vectors]
                    result = []
                    for r in range(self.kernel.rows):
                        place = w.address(rows, w.add(i, word(r * LANES + n)), 4)
                        x = w.splat(w.load_value(place, "float32"), LANES)
                        result += [w.fma(x, f, s) for f, s in zip(own, sums[r * len(own) :])]
                    sums = result
                return sums

            return w.loop(word(0), word(LANES), _UNROLLED, sums, some)

        return w.loop(word(0), channel_blocks, 1, [zeros(LANES)] * SUMS, block)

    def _vector(self, at: Value, number: int) -> Value:
        return self.w.load_value(self.w.address(at, word(LANES * number), 4), "float32", LANES)

    # --- outputs ------------------------------------------------------------------------------

    def _outputs(self, t: Value, tile: _Tile, block: Value) -> None:
        """Write the outputs of a tile for a block of filters."""
        w, size = self.w, self.size
        y, x = w.shift_left(tile.down, 1), w.shift_left(tile.across, 1)
        row = w.add(w.mul(tile.sample, size["out_height"]), y)
        first = w.mul(w.add(w.mul(row, size["out_width"]), x), size["filters"])
        filters = w.mul(block, word(self.width))
        at = w.address(self.at["y"], w.add(first, filters), 4)
        right = w.compare("slt", w.add(x, word(1)), size["out_width"])
        below = w.compare("slt", w.add(y, word(1)), size["out_height"])
        line = w.address(at, w.mul(size["out_width"], size["filters"]), 4)
        to = [at, self._if(right, w.address(at, size["filters"], 4)), self._if(below, line)]
        to.append(self._if(w.bits_and(right, below), w.address(line, size["filters"], 4)))
        products = w.address(self.products, w.mul(t, word(self.width)), 4)
        for v in range(self.kernel.vectors):
            offset = word(v * LANES)
            own = w.address(products, offset, 4)
            loaded = [self._vector(own, k * TILES * self.kernel.vectors) for k in range(PRODUCTS)]
            f = w.add(filters, offset)
            results = self._finite(tiles.outputs(w, loaded), tile, f)
            if self.kernel.bias:
                bias = w.load_value(w.address(self.at["bias"], f, 4), "float32", LANES)
                results = [w.add(x, bias) for x in results]
            if self.kernel.relu:
                zero = zeros(LANES)
                results = [w.select(w.compare("olt", x, zero), zero, x) for x in results]
            for place, x in zip(to, results, strict=True):
                place = w.address(place, offset, 4)
                if self.kernel.added:
                    x = w.add(w.load_value(place, "float32", LANES), x)
                w.store_value(x, place)

    def _if(self, inside: Value, place: Value) -> Value:
        """Return the place of an output; one in scratch memory if it is outside the image."""
        return self.w.select(inside, place, self.outside)

    def _finite(self, results: list[Value], tile: _Tile, f: Value) -> list[Value]:
        """Return the outputs; the direct sums for those that are not finite."""
        w = self.w
        test = zeros(LANES)
        for x in results:
            test = w.fma(x, zeros(LANES), test)  # NaN if x is not finite
        wrong = w.compare("uno", test, test)
        some = w.let(f"bitcast {wrong.typed} to i{LANES}", "uint16")

        def again() -> list[Value]:
            direct = self._direct(tile, f)
            chosen = []
            for x, sums in zip(results, direct, strict=True):
                nothing = w.mul(x, zeros(LANES))
                chosen.append(w.select(w.compare("uno", nothing, nothing), sums, x))
            return chosen

        return w.branch(w.compare("ne", some, w.like(some, 0)), again, lambda: results)

    def _direct(self, tile: _Tile, f: Value) -> list[Value]:
        """Return the outputs of a tile for a vector of filters, as direct sums."""
        w, size = self.w, self.size
        y, x = self._corner(tile)
        image, buffer = self._image(tile), w.allocate("float", 4 * LANES)

        def output(n: Value, _: list[Value]) -> list[Value]:
            top = w.add(y, w.shift_right(n, 1))
            left = w.add(x, w.bits_and(n, word(1)))

            def tap(k: Value, sums: list[Value]) -> list[Value]:
                i = w.add(top, w.two("sdiv", k, word(3)))
                j = w.add(left, w.two("srem", k, word(3)))
                inside = w.compare("ult", i, size["height"])
                inside = w.bits_and(inside, w.compare("ult", j, size["width"]))
                pixel = w.mul(w.add(w.mul(i, size["width"]), j), size["channels"])
                row = w.mul(k, size["channels"])

                def channels(c: Value, sums: list[Value]) -> list[Value]:
                    results = []
                    for i, total in enumerate(sums):
                        own = w.add(c, word(i))
                        number = w.load_value(w.address(image, w.add(pixel, own), 4), "float32")
                        at = w.add(w.mul(w.add(row, own), size["filters"]), f)
                        taps = w.load_value(w.address(self.at["kernel"], at, 4), "float32", LANES)
                        results.append(w.fma(w.splat(number, LANES), taps, total))
                    return results

                return w.branch(
                    inside,
                    lambda: w.loop(word(0), size["channels"], _UNROLLED, sums, channels),
                    lambda: sums,
                )

            sums = w.loop(word(0), word(9), 1, [zeros(LANES)] * _UNROLLED, tap)
            total = functools.reduce(w.add, sums)
            w.store_value(total, w.address(buffer, w.mul(n, word(LANES)), 4))
            return []

        w.loop(word(0), word(4), 1, [], output)
        return [self._vector(buffer, n) for n in range(4)]
