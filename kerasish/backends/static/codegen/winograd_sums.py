"""Kernel gradients of 3x3 convolutions with strides 1 by Winograd's method: sums of products.

A sum over 2x2 pixels of the output's gradient takes 16 multiplications instead of 36:

    gradient = G^T U G      U[i, j, c, f] = sum over tiles of V[i, j, c] * W[i, j, f]

where V = B^T d B is the transformed 4x4 window of the image and W = A dy A^T that of 2x2 pixels,
see `winograd_tiles.py`; here both have the other sign where i or j is 3. A record computes U, a
second one the gradient (`winograd_gradient.py`). Both read the same argument block.

A block is a few rows of tiles. For each i, a thread transforms row i of the block's V and W into
its own memory, multiplies, and adds the products to U. Threads share the rows i and the filters, so
no sum is divided among threads, and results do not depend on their number. Row i of V and W needs
only two rows of an image, so threads with different i share the transforms as well.

V is stored as [j, channels / 16, tiles, 16], W as [j, filters / width, tiles, width] and U as
[i, j, channels / height, filters / width, height, width]: the last two are a tile of sums in
registers.

Argument block (int64 words): 0 table, 1 threads, then the words of `_SIZES` and of `_POINTERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen.tiles import Columns, least, most, product, share, word, zeros
from kerasish.backends.static.codegen.winograd_tiles import SIDE
from kerasish.backends.static.machine.assembly import (
    Target,
    Value,
    Writer,
    constant,
    entry_function,
)
from kerasish.typing import Array

LANES = 16  # AVX-512
SUMS = 16  # vectors of sums in a tile: more than hide an instruction's latency
BLOCK = 96  # tiles of a block: V and W of one i stay in the second-level cache
APART = 16  # numbers between the four parts of V and W: their addresses must differ in 12 bits
_SIZES = (
    "samples", "height", "width", "channels", "dy_height", "dy_width", "filters", "top", "left",
    "down", "across", "whole", "rows", "own", "x_ahead", "dy_ahead",
)  # fmt: skip
_DEPTHS = ("channels", "filters")  # of x and of dy
_POINTERS = ("x", "dy", "out", "sums", "own_memory")


class WinogradSums(NamedTuple):
    """Structure of the sums U.

    Attributes:
        vectors: vectors of filters in a tile, 1 or 2.
    """

    vectors: int

    @property
    def channels(self) -> int:
        """Channels of a tile, its height."""
        return SUMS // self.vectors

    @property
    def filters(self) -> int:
        """Filters of a tile, its width."""
        return LANES * self.vectors


def pack(*, table: int, threads: int, sizes: dict[str, int], pointers: dict[str, int]) -> Array:
    """Return the argument block of both records.

    Args:
        sizes: of x ("samples" to "channels"), of dy, the padding, and those of `tile_sizes`.
        pointers: the addresses of x, dy, the result, U and the memory of the threads.
    """
    numbers = [sizes[name] for name in _SIZES]
    return np.array([table, threads, *numbers, *(pointers[name] for name in _POINTERS)], np.int64)


def tile_sizes(sizes: dict[str, int], threads: int) -> dict[str, int]:
    """Return sizes that follow from those of x and dy.

    "down" and "across": tiles of an image. "whole": tiles of a row, from the left, whose last two
    columns are in the image. "rows": rows of tiles in a block. "own": bytes of a thread's memory,
    which is V, W and a row of zeros. "x_ahead" and "dy_ahead": vectors of the next block that a
    thread prefetches before each tile of sums.
    """
    channels, filters = sizes["channels"], sizes["filters"]
    down, across = -(-sizes["dy_height"] // 2), -(-sizes["dy_width"] // 2)
    whole = (sizes["width"] + sizes["left"]) // 2 - 1
    rows = max(1, BLOCK // across)
    own = SIDE * (rows * across * (channels + filters) + 2 * APART) + max(channels, filters)
    products = SIDE * SIDE * channels * filters // threads  # of a tile, and `SUMS` vectors at once
    lines = {"x": sizes["width"] * channels, "dy": sizes["dy_width"] * filters}
    ahead = {f"{k}_ahead": -(-2 * rows * n * SUMS // products) for k, n in lines.items()}
    return {
        "down": down, "across": across, "whole": max(0, min(whole, across)), "rows": rows,
        "own": -(-4 * own // 64) * 64, **ahead,
    }  # fmt: skip


def generate(kernel: WinogradSums, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    return _Sums(kernel, target).function(symbol)


class Worker:
    """One thread's share of one of the two records."""

    def __init__(self, vectors: int, target: Target) -> None:
        self.tile, self.w = WinogradSums(vectors), Writer(target)
        w, args = self.w, Value("%args", "ptr")
        self.size = {name: w.load_word(args, 2 + i) for i, name in enumerate(_SIZES)}
        first = 2 + len(_SIZES)
        self.at = {name: w.load_word(args, first + i, "ptr") for i, name in enumerate(_POINTERS)}
        self.high = w.two("sdiv", self.size["channels"], word(self.tile.channels))
        self.wide = w.two("sdiv", self.size["filters"], word(self.tile.filters))
        self.columns = [Columns(w, LANES)] * vectors

    def write(self) -> None:
        """Write the code."""
        raise NotImplementedError

    def function(self, symbol: str) -> tuple[str, set[str]]:
        """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
        self.write()
        self.w.do("ret void")
        head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
        return f"{head} {{\n{self.w.body()}\n}}\n{entry_function(symbol)}", self.w.declared

    def each(self, first: Value, last: Value, step: int, body: Callable[[Value], None]) -> None:
        """Write a loop that carries nothing."""

        def one(i: Value, _: list[Value]) -> list[Value]:
            body(i)
            return []

        self.w.loop(first, last, step, [], one)

    def rows(self, first: Value) -> list[Value]:
        """Return the addresses of the channels of a tile, which are adjacent."""
        return [self.w.address(first, word(r), 4) for r in range(self.tile.channels)]

    def places(self, base: Value, row: Value) -> list[Value]:
        """Return the addresses of the vectors of a tile, whose rows are `row` numbers apart."""
        w, places = self.w, []
        for _ in range(self.tile.channels):
            places += [w.address(base, word(v * LANES), 4) for v in range(self.tile.vectors)]
            base = w.address(base, row, 4)
        return places


class _Image(NamedTuple):
    """One of the two arrays that are transformed.

    Attributes:
        at: its address. to: that of the transformed numbers of a block.
        height, width, depth: of a sample.
        whole: tiles of a row, from the left, whose last two columns are in the image.
        panel: channels that are adjacent in the transformed numbers.
        part: transformed numbers from one j to the next.
    """

    at: Value
    to: Value
    height: Value
    width: Value
    depth: Value
    whole: Value
    panel: int
    part: Value


_Column = Callable[[Value, bool], Value]


class _Sums(Worker):
    """One thread's sums."""

    def __init__(self, kernel: WinogradSums, target: Target) -> None:
        super().__init__(kernel.vectors, target)
        w, size = self.w, self.size
        self.tiles = w.mul(size["rows"], size["across"])
        parts = [w.add(w.mul(self.tiles, size[name]), word(APART)) for name in _DEPTHS]
        v = w.address(self.at["own_memory"], w.mul(Value("%t", "int64"), size["own"]), 1)
        slopes = w.address(v, w.mul(parts[0], word(SIDE)), 4)
        self.zeros = w.address(slopes, w.mul(parts[1], word(SIDE)), 4)
        self.x = _Image(
            self.at["x"], v, size["height"], size["width"], size["channels"], size["whole"],
            LANES, parts[0],
        )  # fmt: skip
        self.dy = _Image(
            self.at["dy"], slopes, size["dy_height"], size["dy_width"], size["filters"],
            w.two("sdiv", size["dy_width"], word(2)), self.tile.filters, parts[1],
        )  # fmt: skip

    def write(self) -> None:
        """Write the code."""
        w, size = self.w, self.size

        def clear(c: Value) -> None:
            w.store_value(zeros(LANES), w.address(self.zeros, c, 4))

        self.each(word(0), most(w, size["channels"], size["filters"]), LANES, clear)
        first, last = share(w, w.mul(self.wide, word(SIDE)))
        start = w.two("sdiv", first, self.wide)
        stop = w.two("sdiv", w.add(last, w.sub(self.wide, word(1))), self.wide)
        rows = w.mul(size["samples"], size["down"])

        def block(row: Value) -> list[Value]:
            end = least(w, w.add(row, size["rows"]), rows)
            tiles = w.mul(w.sub(end, row), size["across"])

            def one(i: Value, ahead: list[Value]) -> list[Value]:
                before = w.mul(i, self.wide)
                f = most(w, w.sub(first, before), word(0))
                f_end = least(w, w.sub(last, before), self.wide)
                self._transform(i, row, end, f, f_end)
                return self._multiply(i, tiles, f, f_end, w.compare("eq", row, word(0)), ahead)

            w.loop(start, stop, 1, self._next(end), one)
            return [end]

        w.repeat([word(0)], lambda c: w.compare("slt", c[0], rows), lambda c: block(c[0]))

    def _next(self, row: Value) -> list[Value]:
        """Return the addresses of x and dy for a row of tiles."""
        w = self.w
        sample, y = self._place(row)
        results = []
        for image, line in (self.x, w.sub(y, self.size["top"])), (self.dy, y):
            pixel = w.mul(w.add(w.mul(sample, image.height), line), image.width)
            results.append(w.address(image.at, w.mul(pixel, image.depth), 4))
        return results

    def _place(self, row: Value) -> tuple[Value, Value]:
        """Return the sample of a row of tiles, and its row of dy."""
        w, down = self.w, self.size["down"]
        return w.two("sdiv", row, down), w.shift_left(w.two("srem", row, down), 1)

    # --- transforms ---------------------------------------------------------------------------

    def _transform(self, i: Value, row: Value, end: Value, f: Value, f_end: Value) -> None:
        """Write row i of V, and of W for some filters.

        Args:
            row, end: the rows of tiles.
            f, f_end: the tiles of filters.
        """
        w, size, one = self.w, self.size, word(1)
        x, dy, filters = self.x, self.dy, word(self.tile.filters)
        f, f_end = w.mul(f, filters), w.mul(f_end, filters)
        # Row i of B^T d is d[i] + sign * d[other]. That of A dy is dy[0 or, for i = 3, 1], and for
        # i = 1 and 2 + sign * dy[1].
        positive = w.compare("eq", i, one)
        sign = w.select(positive, constant(1.0, "float32"), constant(-1.0, "float32"))
        sign = w.splat(sign, LANES)
        other = w.select(w.compare("slt", i, word(2)), word(2), one)
        middle = w.compare("ult", w.sub(i, one), word(2))
        below = w.select(w.compare("eq", i, word(SIDE - 1)), one, word(0))

        def tiles(r: Value) -> None:
            sample, y = self._place(r)
            to = w.mul(w.sub(r, row), size["across"])
            top = w.sub(y, size["top"])
            pair = [self._line(x, sample, w.add(top, k)) for k in (i, other)]
            self._row(x, pair, sign, to, (word(0), x.depth), self._windows)
            second = w.select(middle, w.add(y, one), word(-1))
            pair = [self._line(dy, sample, k) for k in (w.add(y, below), second)]
            self._row(dy, pair, sign, to, (f, f_end), self._pairs)

        self.each(row, end, 1, tiles)

    def _line(self, image: _Image, sample: Value, y: Value) -> tuple[Value, Value]:
        """Return the address of a row, and the numbers from a pixel to the next.

        A row outside is that of zeros, with steps of 0.
        """
        w = self.w
        inside = w.compare("ult", y, image.height)
        pixel = w.mul(w.add(w.mul(sample, image.height), y), image.width)
        at = w.address(image.at, w.mul(pixel, image.depth), 4)
        return w.select(inside, at, self.zeros), w.select(inside, image.depth, word(0))

    def _row(
        self, image: _Image, pair: Sequence[tuple[Value, Value]], sign: Value, tile: Value,
        channels: tuple[Value, Value], write: Callable[[_Column, Value], None],
    ) -> None:  # fmt: skip
        """Transform a row of tiles.

        Args:
            pair: the two rows of the image, see `_line`.
            sign: the factor of the second one.
            tile: the number of the first tile in the block.
            channels: the first one and the end.
            write: writes the tiles of a vector of channels, see `_windows` and `_pairs`.
        """
        w, panel = self.w, word(image.panel)

        def vector(c: Value) -> None:
            def column(q: Value, may_be_outside: bool) -> Value:
                terms = []
                for at, step in pair:
                    place = w.address(w.address(at, c, 4), w.mul(q, step), 4)
                    if may_be_outside:
                        inside = w.compare("ult", q, image.width)
                        place = w.select(inside, place, self.zeros)
                    terms.append(w.load_value(place, "float32", LANES))
                return w.fma(terms[1], sign, terms[0])

            before = w.add(w.mul(w.two("sdiv", c, panel), self.tiles), tile)
            to = w.add(w.mul(before, panel), w.two("srem", c, panel))
            write(column, w.address(image.to, to, 4))

        self.each(*channels, LANES, vector)

    def _windows(self, column: _Column, to: Value) -> None:
        """Write the tiles of V: each takes two columns from the one before."""
        w, left = self.w, self.size["left"]
        before = [column(w.sub(word(k), left), True) for k in (0, 1)]
        for first, last, checked in self._parts(self.x):

            def tile(t: Value, before: list[Value], checked: bool = checked) -> list[Value]:
                q = w.sub(w.shift_left(t, 1), left)
                a, b = before
                c, d = (column(w.add(q, word(k)), checked) for k in (2, 3))
                self._store(self.x, to, t, [w.sub(a, c), w.add(b, c), w.sub(c, b), w.sub(d, b)])
                return [c, d]

            before = w.loop(first, last, 1, before, tile)

    def _pairs(self, column: _Column, to: Value) -> None:
        """Write the tiles of W."""
        w = self.w
        for first, last, checked in self._parts(self.dy):

            def tile(t: Value, checked: bool = checked) -> None:
                q = w.shift_left(t, 1)
                a, b = column(q, False), column(w.add(q, word(1)), checked)
                self._store(self.dy, to, t, [a, w.add(a, b), w.sub(a, b), b])

            self.each(first, last, 1, tile)

    def _parts(self, image: _Image) -> list[tuple[Value, Value, bool]]:
        """Return the parts of a row of tiles: first, last, and whether columns may be outside."""
        return [(word(0), image.whole, False), (image.whole, self.size["across"], True)]

    def _store(self, image: _Image, to: Value, tile: Value, row: list[Value]) -> None:
        w = self.w
        at = w.address(to, w.mul(tile, word(image.panel)), 4)
        for x in row:
            w.store_value(x, at)
            at = w.address(at, image.part, 4)

    # --- products -----------------------------------------------------------------------------

    def _multiply(
        self, i: Value, tiles: Value, f: Value, f_end: Value, first: Value, ahead: list[Value]
    ) -> list[Value]:
        """Add the products of a block to U.

        Args:
            tiles: of the block.
            f, f_end: the tiles of filters.
            first: whether it is the first block.
            ahead: the addresses in x and dy of what is prefetched next.

        Returns:
            `ahead`, advanced.
        """
        w, size, own = self.w, self.size, self.tile

        def part(j: Value, ahead: list[Value]) -> list[Value]:
            v, slopes = (
                w.address(image.to, w.mul(j, image.part), 4) for image in (self.x, self.dy)
            )
            plane = w.mul(w.add(w.mul(i, word(SIDE)), j), self.high)

            def panel(across: Value, ahead: list[Value]) -> list[Value]:
                start = w.mul(w.mul(across, self.tiles), word(own.filters))
                matrix = w.address(slopes, start, 4)

                def tile(down: Value, ahead: list[Value]) -> list[Value]:
                    ahead = [
                        self._prefetch(at, size[f"{name}_ahead"])
                        for name, at in zip(("x", "dy"), ahead, strict=True)
                    ]
                    c = w.mul(down, word(own.channels))
                    inner = w.two("srem", c, word(LANES))
                    at = w.add(w.mul(w.sub(c, inner), self.tiles), inner)
                    sums = product(
                        w, self.rows(w.address(v, at, 4)), word(LANES), matrix,
                        word(own.filters), tiles, self.columns,
                    )  # fmt: skip
                    number = w.add(w.mul(w.add(plane, down), self.wide), across)
                    number = w.mul(number, word(own.channels * own.filters))
                    to = w.address(self.at["sums"], number, 4)
                    self._add(sums, self.places(to, word(own.filters)), first)
                    return ahead

                return w.loop(word(0), self.high, 1, ahead, tile)

            return w.loop(f, f_end, 1, ahead, panel)

        return w.loop(word(0), word(SIDE), 1, ahead, part)

    def _prefetch(self, at: Value, vectors: Value) -> Value:
        w = self.w

        def one(k: Value) -> None:
            w.prefetch(w.address(at, w.mul(k, word(LANES)), 4), 2)

        self.each(word(0), vectors, 1, one)
        return w.address(at, w.mul(vectors, word(LANES)), 4)

    def _add(self, sums: list[Value], places: list[Value], first: Value) -> None:
        """Add the sums of a block to those before."""
        w = self.w

        def add() -> list[Value]:
            before = [w.load_value(at, "float32", LANES) for at in places]
            return [w.add(a, b) for a, b in zip(before, sums, strict=True)]

        for at, x in zip(places, w.branch(first, lambda: sums, add), strict=True):
            w.store_value(x, at)
