"""Gradients of 3x3 convolutions with strides 1 with respect to their kernels, by Winograd's method.

The sum over 2x2 pixels of the output's gradient takes 16 multiplications instead of 36:

    gradient = G^T U G      U[i, j, c, f] = sum over tiles of V[i, j, c] * W[i, j, f]

where V = B^T d B is the transformed 4x4 window of the image, and W = A dy A^T that of 2x2 pixels
(`winograd_tiles.py`, here with both signs of the last row and column reversed). There are two
records. Each reads the same argument block.

The first one computes the sums U. A block is some rows of tiles. A thread transforms row i of a
block's V and W into its own memory, multiplies, and adds the products to U. Threads share the rows
i and the filters, so no sum is divided among threads, and results do not depend on their number.
Row i of V and W needs only two rows of an image, and so no thread computes all of both.

The second one computes G^T U G. The sum of infinite numbers and the difference of large ones are
not those of the direct formula. So where results are not finite, those of their tile of channels
and filters are computed again as sums over pixels.

V is stored as [j, channels / 8, tiles, 8], W as [j, filters / width, tiles, width], and U as
[i, j, channels / 8, filters / width, 8, width]; `width` is that of a tile of sums in registers.

Argument block (int64 words): 0 table, 1 threads, then the words of `_SIZES` and of `_POINTERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen.tiles import Columns, least, most, product, share, word, zeros
from kerasish.backends.static.codegen.winograd_tiles import SIDE, kernel_slopes
from kerasish.backends.static.machine.assembly import (
    Target,
    Value,
    Writer,
    constant,
    entry_function,
)
from kerasish.typing import Array

LANES = 16  # AVX-512
ROWS = 8  # channels of a tile of sums
BLOCK = 96  # tiles of a block: V and W of one i stay in the second-level cache
TAPS = 3
APART = 16  # numbers between the four parts of V, whose addresses would else agree in 12 bits
_SIZES = (
    "samples", "height", "width", "channels", "dy_height", "dy_width", "filters", "top", "left",
    "down", "across", "whole", "rows", "own",
)  # fmt: skip
_POINTERS = ("x", "dy", "out", "sums", "own_memory")


class WinogradGradient(NamedTuple):
    """Structure of one of the two records.

    Attributes:
        vectors: vectors of filters in a tile of sums.
        last: whether this is the second record.
    """

    vectors: int
    last: bool

    @property
    def filters(self) -> int:
        """Filters of a tile of sums."""
        return LANES * self.vectors


def pack(*, table: int, threads: int, sizes: dict[str, int], pointers: dict[str, int]) -> Array:
    """Return the argument block of both records.

    Args:
        sizes: of x ("samples" to "channels"), of dy, the padding, and those of `tile_sizes`.
        pointers: the addresses of x, dy, the result, U and the memory of the threads.
    """
    numbers = [sizes[name] for name in _SIZES]
    return np.array([table, threads, *numbers, *(pointers[name] for name in _POINTERS)], np.int64)


def tile_sizes(sizes: dict[str, int]) -> dict[str, int]:
    """Return sizes that follow from those of x and dy.

    "down" and "across": tiles of an image. "whole": tiles of a row, from the left, whose last two
    columns lie in the image. "rows": rows of tiles in a block. "own": bytes of a thread's memory,
    which is V, W and a row of zeros.
    """
    down, across = -(-sizes["dy_height"] // 2), -(-sizes["dy_width"] // 2)
    whole = (sizes["width"] + sizes["left"]) // 2 - 1
    rows = max(1, BLOCK // across)
    numbers = sizes["channels"] + sizes["filters"]
    own = SIDE * (rows * across * numbers + 2 * APART) + max(sizes["channels"], sizes["filters"])
    return {
        "down": down, "across": across, "whole": max(0, min(whole, across)), "rows": rows,
        "own": -(-4 * own // 64) * 64,
    }  # fmt: skip


def generate(kernel: WinogradGradient, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    worker = (_Last if kernel.last else _Sums)(kernel, target)
    worker.write()
    worker.w.do("ret void")
    head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
    return f"{head} {{\n{worker.w.body()}\n}}\n{entry_function(symbol)}", worker.w.declared


class _Worker:
    """One thread's share of a record."""

    def __init__(self, kernel: WinogradGradient, target: Target) -> None:
        self.kernel, self.w = kernel, Writer(target)
        w, args = self.w, Value("%args", "ptr")
        self.size = {name: w.load_word(args, 2 + i) for i, name in enumerate(_SIZES)}
        first = 2 + len(_SIZES)
        self.at = {name: w.load_word(args, first + i, "ptr") for i, name in enumerate(_POINTERS)}
        self.high = w.two("sdiv", self.size["channels"], word(ROWS))  # tiles of sums
        self.wide = w.two("sdiv", self.size["filters"], word(kernel.filters))

    def each(self, first: Value, last: Value, step: int, body: Callable[[Value], None]) -> None:
        """Write a loop that carries nothing."""

        def one(i: Value, _: list[Value]) -> list[Value]:
            body(i)
            return []

        self.w.loop(first, last, step, [], one)

    def columns(self) -> list[Columns]:
        """Return the vectors of a tile of sums."""
        return [Columns(self.w, LANES)] * self.kernel.vectors

    def rows(self, first: Value) -> list[Value]:
        """Return the addresses of adjacent numbers, those of a tile's channels."""
        return [self.w.address(first, word(r), 4) for r in range(ROWS)]

    def places(self, base: Value, row: Value) -> list[Value]:
        """Return the addresses of the vectors of a tile, whose rows are `row` numbers apart."""
        w, places = self.w, []
        for _ in range(ROWS):
            places += [w.address(base, word(v * LANES), 4) for v in range(self.kernel.vectors)]
            base = w.address(base, row, 4)
        return places


class _Images(NamedTuple):
    """One of the two images that are transformed, as a thread sees it.

    Attributes:
        at: the address. to: that of the transformed numbers of the block.
        height, width, depth: of a sample.
        left: the columns of zeros before it.
        across: tiles of a row before the ones of which some columns may be outside.
        panel: adjacent channels in the transformed numbers. part: numbers from one j to the next.
        first, last: the channels that are transformed.
    """

    at: Value
    to: Value
    height: Value
    width: Value
    depth: Value
    left: Value
    whole: Value
    panel: int
    part: Value
    first: Value
    last: Value


class _Sums(_Worker):
    """The sums U."""

    def write(self) -> None:
        w, size = self.w, self.size
        tiles = w.mul(size["rows"], size["across"])
        channels, filters = (w.mul(tiles, size[name]) for name in ("channels", "filters"))
        self.tiles = tiles
        self.v_part, self.w_part = (w.add(n, word(APART)) for n in (channels, filters))
        self.v = w.address(self.at["own_memory"], w.mul(Value("%t", "int64"), size["own"]), 1)
        self.transformed = w.address(self.v, w.mul(self.v_part, word(SIDE)), 4)
        self.zeros = w.address(self.transformed, w.mul(self.w_part, word(SIDE)), 4)
        longest = most(w, size["channels"], size["filters"])
        self.each(word(0), longest, LANES, self._clear)
        first, last = share(w, w.mul(self.wide, word(SIDE)))
        start = w.two("sdiv", first, self.wide)
        stop = w.two("sdiv", w.add(last, w.sub(self.wide, word(1))), self.wide)
        end = w.mul(size["samples"], size["down"])

        def block(b: Value) -> None:
            row = w.mul(b, size["rows"])
            row_end = least(w, w.add(row, size["rows"]), end)

            def one(i: Value) -> None:
                before = w.mul(i, self.wide)
                f = most(w, w.sub(first, before), word(0))
                f_end = least(w, w.sub(last, before), self.wide)
                self._transform(i, row, row_end, f, f_end)
                self._multiply(i, w.mul(w.sub(row_end, row), size["across"]), f, f_end, b)

            self.each(start, stop, 1, one)

        blocks = w.two("sdiv", w.add(end, w.sub(size["rows"], word(1))), size["rows"])
        self.each(word(0), blocks, 1, block)

    def _clear(self, c: Value) -> None:
        self.w.store_value(zeros(LANES), self.w.address(self.zeros, c, 4))

    # --- transforms ---------------------------------------------------------------------------

    def _transform(self, i: Value, row: Value, end: Value, f: Value, f_end: Value) -> None:
        """Write row i of V and W for rows `row` .. `end` of tiles and filters `f` .. `f_end`."""
        w, size, width = self.w, self.size, self.kernel.filters
        x = _Images(
            self.at["x"], self.v, size["height"], size["width"], size["channels"], size["left"],
            size["whole"], ROWS, self.v_part, word(0), size["channels"],
        )  # fmt: skip
        dy = _Images(
            self.at["dy"], self.transformed, size["dy_height"], size["dy_width"], size["filters"],
            word(0), w.two("sdiv", size["dy_width"], word(2)), width, self.w_part,
            w.mul(f, word(width)), w.mul(f_end, word(width)),
        )  # fmt: skip
        one, sum_ = word(1), w.compare("eq", i, word(1))
        sign = w.select(sum_, constant(1.0, "float32"), constant(-1.0, "float32"))
        sign = w.splat(sign, LANES)
        # Row i of B^T d is d[i] + sign * d[other]; that of A dy is dy[i > 2] + sign * dy[1], the
        # second term for i = 1 and 2 only.
        other = w.select(w.compare("slt", i, word(2)), word(2), one)
        middle = w.compare("ult", w.sub(i, one), word(2))
        below = w.select(w.compare("sgt", i, word(2)), one, word(0))

        def tiles(r: Value) -> None:
            sample, y = w.two("sdiv", r, size["down"]), w.two("srem", r, size["down"])
            y = w.shift_left(y, 1)
            to = w.mul(w.sub(r, row), size["across"])
            top = w.sub(y, size["top"])
            lines = [self._line(x, sample, w.add(top, k)) for k in (i, other)]
            self._row(x, lines, sign, to, self._window)
            pair = [self._line(dy, sample, w.add(y, below))]
            pair.append(self._line(dy, sample, w.select(middle, w.add(y, one), word(-1))))
            self._row(dy, pair, sign, to, self._pair)

        self.each(row, end, 1, tiles)

    def _line(self, images: _Images, sample: Value, y: Value) -> tuple[Value, Value]:
        """Return the address of a row of a sample, and the numbers from a pixel to the next.

        Rows outside are zeros, with steps of 0.
        """
        w = self.w
        inside = w.compare("ult", y, images.height)
        pixel = w.mul(w.add(w.mul(sample, images.height), y), images.width)
        at = w.address(images.at, w.mul(pixel, images.depth), 4)
        return w.select(inside, at, self.zeros), w.select(inside, images.depth, word(0))

    def _row(
        self, images: _Images, lines: list[tuple[Value, Value]], sign: Value, tile: Value,
        write: Callable[..., None],
    ) -> None:  # fmt: skip
        """Transform a row of tiles.

        Args:
            lines: the two rows of the image, see `_line`.
            sign: the factor of the second one.
            tile: the number of the first tile in the block.
            write: writes the tiles of a vector of channels.
        """
        w = self.w

        def vector(c: Value) -> None:
            def column(q: Value, checked: bool) -> Value:
                terms = []
                for at, step in lines:
                    place = w.address(w.address(at, c, 4), w.mul(q, step), 4)
                    if checked:
                        inside = w.compare("ult", q, images.width)
                        place = w.select(inside, place, self.zeros)
                    terms.append(w.load_value(place, "float32", LANES))
                return w.fma(terms[1], sign, terms[0])

            panel = w.two("sdiv", c, word(images.panel))
            to = w.add(w.mul(panel, self.tiles), tile)
            to = w.address(images.to, w.mul(to, word(images.panel)), 4)
            if images.panel > LANES:
                to = w.address(to, w.two("srem", c, word(images.panel)), 4)
            write(images, column, to)

        self.each(images.first, images.last, LANES, vector)

    def _window(self, x: _Images, column: Callable[[Value, bool], Value], to: Value) -> None:
        w = self.w

        def tiles(checked: bool) -> Callable[[Value, list[Value]], list[Value]]:
            def tile(t: Value, before: list[Value]) -> list[Value]:
                q = w.sub(w.shift_left(t, 1), x.left)
                (a, b), (c, d) = before, (column(w.add(q, word(k)), checked) for k in (2, 3))
                self._store(x, to, t, [w.sub(a, c), w.add(b, c), w.sub(c, b), w.sub(d, b)])
                return [c, d]

            return tile

        start = w.sub(word(0), x.left)
        before = [column(w.add(start, word(k)), True) for k in (0, 1)]
        before = w.loop(word(0), x.whole, 1, before, tiles(False))
        w.loop(x.whole, self.size["across"], 1, before, tiles(True))

    def _pair(self, dy: _Images, column: Callable[[Value, bool], Value], to: Value) -> None:
        w = self.w
        for first, last, checked in (
            (word(0), dy.whole, False), (dy.whole, self.size["across"], True)
        ):  # fmt: skip

            def tile(t: Value, checked: bool = checked) -> None:
                q = w.shift_left(t, 1)
                a, b = column(q, False), column(w.add(q, word(1)), checked)
                self._store(dy, to, t, [a, w.add(a, b), w.sub(a, b), b])

            self.each(first, last, 1, tile)

    def _store(self, images: _Images, to: Value, tile: Value, parts: list[Value]) -> None:
        """Store a vector of channels of a tile for each j."""
        w = self.w
        at = w.address(to, w.mul(tile, word(images.panel)), 4)
        for part in parts:
            if images.panel < LANES:
                low, high = w.halve(part)
                w.store_value(low, at)
                w.store_value(high, w.address(at, w.mul(self.tiles, word(images.panel)), 4))
            else:
                w.store_value(part, at)
            at = w.address(at, images.part, 4)

    # --- products -----------------------------------------------------------------------------

    def _multiply(self, i: Value, tiles: Value, f: Value, f_end: Value, block: Value) -> None:
        """Add the products of a block to U."""
        w, width = self.w, self.kernel.filters
        first = w.compare("eq", block, word(0))

        def part(j: Value) -> None:
            v = w.address(self.v, w.mul(j, self.v_part), 4)
            slopes = w.address(self.transformed, w.mul(j, self.w_part), 4)
            plane = w.mul(w.add(w.mul(i, word(SIDE)), j), self.high)

            def panel(across: Value) -> None:
                matrix = w.address(slopes, w.mul(w.mul(across, self.tiles), word(width)), 4)

                def tile(down: Value) -> None:
                    rows = self.rows(w.address(v, w.mul(w.mul(down, self.tiles), word(ROWS)), 4))
                    sums = product(
                        w, rows, word(ROWS), matrix, word(width), tiles, self.columns()
                    )  # fmt: skip
                    number = w.add(w.mul(w.add(plane, down), self.wide), across)
                    to = w.address(self.at["sums"], w.mul(number, word(ROWS * width)), 4)
                    places = self.places(to, word(width))

                    def add() -> list[Value]:
                        before = [w.load_value(at, "float32", LANES) for at in places]
                        return [w.add(a, b) for a, b in zip(before, sums, strict=True)]

                    for at, x in zip(places, w.branch(first, lambda: sums, add), strict=True):
                        w.store_value(x, at)

                self.each(word(0), self.high, 1, tile)

            self.each(f, f_end, 1, panel)

        self.each(word(0), word(SIDE), 1, part)


class _Last(_Worker):
    """The gradient, of the sums U."""

    def write(self) -> None:
        w, width = self.w, self.kernel.filters
        count = w.mul(self.high, self.wide)
        plane = w.mul(count, word(ROWS * width))

        def tile(number: Value) -> None:
            c = w.mul(w.two("sdiv", number, self.wide), word(ROWS))
            f = w.mul(w.two("srem", number, self.wide), word(width))
            sums = w.address(self.at["sums"], w.mul(number, word(ROWS * width)), 4)

            def vector(k: Value, checks: list[Value]) -> list[Value]:
                at = w.address(sums, w.mul(k, word(LANES)), 4)
                parts = []
                for _ in range(SIDE * SIDE):
                    parts.append(w.load_value(at, "float32", LANES))
                    at = w.address(at, plane, 4)
                row = w.add(c, w.two("sdiv", k, word(self.kernel.vectors)))
                column = w.mul(w.two("srem", k, word(self.kernel.vectors)), word(LANES))
                check = checks[0]
                for tap, x in enumerate(kernel_slopes(w, parts)):
                    w.store_value(x, self._place(word(tap), row, w.add(f, column)))
                    check = w.fma(x, zeros(LANES), check)  # NaN if x is not finite
                return [check]

            vectors = word(ROWS * self.kernel.vectors)
            (check,) = w.loop(word(0), vectors, 1, [zeros(LANES)], vector)
            wrong = w.compare("uno", check, check)
            bits = w.let(f"bitcast {wrong.typed} to i{LANES}", "uint16")
            w.branch(w.compare("ne", bits, w.like(bits, 0)), lambda: self._directly(c, f))

        first, last = share(w, count)
        self.each(first, last, 1, tile)

    def _place(self, tap: Value, c: Value, f: Value) -> Value:
        w, size = self.w, self.size
        row = w.add(w.mul(tap, size["channels"]), c)
        return w.address(self.at["out"], w.add(w.mul(row, size["filters"]), f), 4)

    def _directly(self, c: Value, f: Value) -> list[Value]:
        """Compute a tile of channels and filters as sums over the pixels."""
        w, size = self.w, self.size

        def tap(number: Value) -> None:
            down = w.sub(w.two("sdiv", number, word(TAPS)), size["top"])
            along = w.sub(w.two("srem", number, word(TAPS)), size["left"])
            start = most(w, w.sub(word(0), along), word(0))
            stop = least(w, w.sub(size["width"], along), size["dy_width"])
            terms = most(w, w.sub(stop, start), word(0))

            def row(r: Value, sums: list[Value]) -> list[Value]:
                sample = w.two("sdiv", r, size["dy_height"])
                y = w.add(w.two("srem", r, size["dy_height"]), down)
                inside = w.compare("ult", y, size["height"])
                pixel = w.mul(w.add(w.mul(sample, size["height"]), y), size["width"])
                pixel = w.add(pixel, w.add(start, along))
                x = w.address(self.at["x"], w.add(w.mul(pixel, size["channels"]), c), 4)
                slope = w.add(w.mul(r, size["dy_width"]), start)
                dy = w.address(self.at["dy"], w.add(w.mul(slope, size["filters"]), f), 4)

                def products() -> list[Value]:
                    return product(
                        w, self.rows(x), size["channels"], dy, size["filters"], terms,
                        self.columns(), sums,
                    )  # fmt: skip

                return w.branch(inside, products, lambda: sums)

            rows = w.mul(size["samples"], size["dy_height"])
            none = [zeros(LANES)] * (ROWS * self.kernel.vectors)
            sums = w.loop(word(0), rows, 1, none, row)
            places = self.places(self._place(number, c, f), size["filters"])
            for at, x in zip(places, sums, strict=True):
                w.store_value(x, at)

        self.each(word(0), word(TAPS * TAPS), 1, tap)
        return []
