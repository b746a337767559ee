"""Kernel gradients of 3x3 convolutions by Winograd's method: the gradient, of the sums U.

The gradient is G^T U G, see `winograd_sums.py`, which describes the argument block. An infinite or
very large number makes the sums of all taps infinite or NaN, also of those that it does not reach
in the direct formula. So where results are not finite, those of their tile of channels and filters
are computed again, as sums over the pixels.
"""

from __future__ import annotations

from typing import NamedTuple

from kerasish.backends.static.codegen.tiles import least, most, product, share, word, zeros
from kerasish.backends.static.codegen.winograd_sums import LANES, SUMS, Worker
from kerasish.backends.static.codegen.winograd_tiles import SIDE, kernel_slopes
from kerasish.backends.static.machine.assembly import Target, Value

TAPS = 3  # along both axes


class WinogradGradient(NamedTuple):
    """Structure of the record that computes the gradient.

    Attributes:
        vectors: vectors of filters in a tile of sums.
    """

    vectors: int


def generate(kernel: WinogradGradient, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    return _Gradient(kernel.vectors, target).function(symbol)


class _Gradient(Worker):
    """One thread's part of the gradient."""

    def write(self) -> None:
        """Write the code."""
        w, own = self.w, self.tile
        count, numbers = w.mul(self.high, self.wide), word(own.channels * own.filters)
        plane = w.mul(count, numbers)

        def tile(number: Value) -> None:
            c = w.mul(w.two("sdiv", number, self.wide), word(own.channels))
            f = w.mul(w.two("srem", number, self.wide), word(own.filters))
            sums = w.address(self.at["sums"], w.mul(number, numbers), 4)

            def vector(k: Value, checks: list[Value]) -> list[Value]:
                at, parts = w.address(sums, w.mul(k, word(LANES)), 4), []
                for _ in range(SIDE * SIDE):
                    parts.append(w.load_value(at, "float32", LANES))
                    at = w.address(at, plane, 4)
                row = w.add(c, w.two("sdiv", k, word(own.vectors)))
                column = w.add(f, w.mul(w.two("srem", k, word(own.vectors)), word(LANES)))
                check = checks[0]
                for tap, x in enumerate(kernel_slopes(w, parts)):
                    w.store_value(x, self._place(word(tap), row, column))
                    check = w.fma(x, zeros(LANES), check)  # NaN if x is not finite
                return [check]

            (check,) = w.loop(word(0), word(SUMS), 1, [zeros(LANES)], vector)
            wrong = w.compare("uno", check, check)
            bits = w.let(f"bitcast {wrong.typed} to i{LANES}", "uint16")
            w.branch(w.compare("ne", bits, w.like(bits, 0)), lambda: self._directly(c, f))

        self.each(*share(w, count), 1, tile)

    def _place(self, tap: Value, c: Value, f: Value) -> Value:
        """Return the address of a result."""
        w, size = self.w, self.size
        row = w.add(w.mul(tap, size["channels"]), c)
        return w.address(self.at["out"], w.add(w.mul(row, size["filters"]), f), 4)

    def _directly(self, c: Value, f: Value) -> list[Value]:
        """Compute a tile of channels and filters as sums over the pixels; returns nothing."""
        w, size = self.w, self.size
        rows = w.mul(size["samples"], size["dy_height"])

        def tap(number: Value) -> None:
            down = w.sub(w.two("sdiv", number, word(TAPS)), size["top"])
            along = w.sub(w.two("srem", number, word(TAPS)), size["left"])
            start = most(w, w.sub(word(0), along), word(0))
            stop = least(w, w.sub(size["width"], along), size["dy_width"])
            pixels = most(w, w.sub(stop, start), word(0))

            def row(r: Value, sums: list[Value]) -> list[Value]:
                y = w.add(w.two("srem", r, size["dy_height"]), down)
                line = w.add(w.mul(w.two("sdiv", r, size["dy_height"]), size["height"]), y)
                pixel = w.add(w.mul(line, size["width"]), w.add(start, along))
                x = w.address(self.at["x"], w.add(w.mul(pixel, size["channels"]), c), 4)
                slope = w.add(w.mul(r, size["dy_width"]), start)
                dy = w.address(self.at["dy"], w.add(w.mul(slope, size["filters"]), f), 4)

                def products() -> list[Value]:
                    return product(
                        w, self.rows(x), size["channels"], dy, size["filters"], pixels,
                        self.columns, sums,
                    )  # fmt: skip

                return w.branch(w.compare("ult", y, size["height"]), products, lambda: sums)

            sums = w.loop(word(0), rows, 1, [zeros(LANES)] * SUMS, row)
            places = self.places(self._place(number, c, f), size["filters"])
            for at, x in zip(places, sums, strict=True):
                w.store_value(x, at)

        self.each(word(0), word(TAPS * TAPS), 1, tap)
        return []
