"""Convolutions and products with packed weights: register tiles, no copies of the input.

`Direct` is y = epilogue(convolution(x, weights), ...): x is (n, *space, pixel) of which `channels`
numbers per pixel are read, y has one row per output pixel. A product of (m, k) by (k, filters) is a
convolution by one pixel over m pixels of k channels. All sizes but n are part of the structure. So
offsets are constants in the code, and positions outside the input are skipped when the code is
generated: no padding is read.

A tile is several adjacent output pixels times several vectors of filters, all in registers. Each
number of its input is multiplied by one vector of weights per vector of filters; both are read once
for the whole tile.

With `lanewise` each filter reads its own channel (a depthwise convolution): a vector of the input
replaces one number.

Weights are packed by `pack_weights`: strips of `STRIP` filters, in each strip one row per (place of
the kernel, channel), padded to `GRAIN` numbers. All processors read the same layout.

Argument block (int64 words): 0 table, 1 the first place along the output's first axis in space, 2
n, 3 address of x, 4 address of the weights, 5 the place after the last one, then for each input of
the epilogue after the first, and each output, address and row stride. One thread. If the output
has a single axis in space, all of it is computed, and words 1 and 5 are ignored; with `skips`, word
1 is the address of the note of `skipping.finite_note`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen import memory, skipping
from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.codegen.epilogue import EpilogueWriter
from kerasish.backends.static.machine.assembly import Target, Value, Writer, constant
from kerasish.typing import Array

STRIP = 128  # filters of a strip of packed weights
GRAIN = 16  # rows of a narrower strip are padded to a multiple of this: a cache line
_WIDEST = 8  # vectors of a tile
FIRST, X, LAST = 1, 3, 5  # words: the places along the first axis, the address of x
OPERANDS = 6  # the first word of the epilogue's operands
_IN_FLIGHT = 8  # sums that the processor computes at the same time
BLOCK = 128  # terms of a long sum that are added up separately: rounding grows with their number
_UNROLLED = 12  # terms of a sum that are written one by one


class Direct(NamedTuple):
    """Structure of a convolution or product (see the module).

    Attributes:
        epilogue: the kernel that is applied to the results; its input 0 is the product.
        space: sizes of the input's axes in space.
        pixel: numbers from one pixel of the input to the next.
        channels: numbers of a pixel that are read.
        result: sizes of the output's axes in space.
        kernel, strides, dilations, before: per axis of space; `before` is the padding.
        filters: numbers per output pixel.
        lanewise: whether filter i reads only channel i; `channels` is 1 then.
        skips: whether the weights of numbers that are 0 are not read (see `skipping`).
    """

    epilogue: Kernel
    space: tuple[int, ...]
    pixel: int
    channels: int
    result: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    filters: int
    lanewise: bool = False
    skips: bool = False

    @property
    def depth(self) -> int:
        """The number of terms of each sum."""
        return math.prod(self.kernel) * self.channels


def product(epilogue: Kernel, m: int, k: int, n: int, row: int, skips: bool = False) -> Direct:
    """Return the product of (m, k), rows `row` numbers apart, by packed (k, n).

    Args:
        skips: whether a note follows the weights, so that a single row may skip some of them.
    """
    one, long = (1,), m == 1 and k >= 2 * BLOCK
    return Direct(epilogue, (m,), row, k, (m,), one, one, one, (0,), n, skips=skips and long)


def packed_size(depth: int, filters: int) -> int:
    """Return the number of elements of packed weights."""
    return depth * -(-filters // GRAIN) * GRAIN


def pack_weights(matrix: Array) -> Array:
    """Return weights of (depth, filters) in strips, as one row of numbers."""
    depth, filters = matrix.shape
    padded = np.zeros((depth, -(-filters // GRAIN) * GRAIN), matrix.dtype)
    padded[:, :filters] = matrix
    strips = range(0, padded.shape[1], STRIP)
    return np.concatenate([padded[:, at : at + STRIP].reshape(-1) for at in strips])


def pack(direct: Direct, *, table: int, n: int, x: int, weights: int,
         operands: Sequence[tuple[int, int]], note: int = 0) -> Array:  # fmt: skip
    """Return the argument block for all of the output.

    Args:
        direct: the structure.
        table, n, x, weights: see the module.
        operands: (address, row stride) of the epilogue's inputs after the first, then of its
            outputs.
        note: with `skips`, the address of the note after the weights.
    """
    expected = len(direct.epilogue.inputs) - 1 + len(direct.epilogue.outputs)
    if len(operands) != expected:
        raise ValueError(f"pack: the epilogue has {expected} operands, got {len(operands)}")
    if direct.skips and not note:
        raise ValueError("pack: the structure needs a note of the weights, got none")
    first = note if direct.skips else 0
    words = [table, first, n, x, weights, direct.result[0], *itertools.chain(*operands)]
    return np.array(words, dtype=np.int64)


def generate(direct: Direct, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    writer = _DirectWriter(direct, target)
    text = f"define i32 @{symbol}(ptr %args) #0 {{\n{writer.write()}\n}}"
    return text, writer.w.declared


class Block(NamedTuple):
    """Adjacent output pixels along the last axis that one tile computes, `turns` times.

    Attributes:
        start: the first output.
        size: the number of outputs.
        turns: the number of such consecutive blocks.
        runs: (first place of the kernel, places, pixels): terms of the same pixels.
    """

    start: int
    size: int
    turns: int
    runs: tuple[tuple[int, int, tuple[int, ...]], ...]


def choose_tile(direct: Direct, target: Target) -> tuple[int, int]:
    """Return (pixels, vectors) of the tiles that take the fewest cycles.

    A cycle is two products of vectors or two loads, as far as there are registers.
    """
    registers = 32 if target.level in ("avx512", "generic") else 16
    vectors = -(-direct.filters // target.lanes)
    strip = STRIP // target.lanes
    length = direct.result[-1]
    best, chosen = math.inf, (1, 1)
    for v in range(1, min(vectors, _WIDEST) + 1):
        most = (registers - 1 - v) // v if v > 1 else registers - 4
        for r in range(1, min(most, length) + 1):
            if r > 1 and v > 4:
                break
            parts = [size for size, n in _parts(vectors, strip, v) for _ in range(n)]
            sizes = [min(r, length - at) for at in range(0, length, r)]
            cycles = sum(_cycles(b, p) for p in parts for b in sizes)
            if cycles < best:
                best, chosen = cycles, (r, v)
    return chosen


def _cycles(pixels: int, vectors: int) -> float:
    return max(pixels * vectors, pixels + vectors) / 2 + 0.5


def _parts(vectors: int, strip: int, each: int) -> Iterator[tuple[int, int]]:
    """Yield (vectors of a tile, number of such tiles) over all strips of `strip` vectors."""
    for width, strips in ((strip, vectors // strip), (vectors % strip, 1)):
        if width and strips:
            if width // each:
                yield each, width // each * strips
            if width % each:
                yield width % each, strips


class _DirectWriter:
    def __init__(self, direct: Direct, target: Target) -> None:
        self.d = direct
        self.w = w = Writer(target)
        self.lanes = target.lanes
        args = Value("%args", "ptr")
        w.table = w.load_word(args, 0, "ptr")
        self.n = w.load_word(args, 2)
        self.first, self.last = w.load_word(args, FIRST), w.load_word(args, LAST)
        self.x, self.weights = w.load_word(args, 3, "ptr"), w.load_word(args, 4, "ptr")
        self.epilogue = EpilogueWriter(w, direct.epilogue, args, OPERANDS, self.lanes)
        self.pixels, self.tile = choose_tile(direct, target)
        self.blocks = blocks_of(direct, self.pixels)
        self.terms: skipping.Terms | None = None
        if direct.skips and min(self.tile, -(-direct.filters // self.lanes)) >= _IN_FLIGHT:
            note = w.load_value(w.load_word(args, FIRST, "ptr"), "float32")
            self.terms = skipping.Terms(w, self.x, note, direct.depth, BLOCK)

    def write(self) -> str:
        """Return the function's body."""
        w, filters = self.w, self.d.filters
        whole, last = divmod(filters, STRIP)

        def strip(s: Value, _: list[Value]) -> list[Value]:
            start = w.address(self.weights, w.mul(s, _int(STRIP * self.d.depth)), 4)
            self._strip(start, w.mul(s, _int(STRIP)), STRIP)
            return []

        if whole:
            self._times(whole, strip)
        if last:
            start = w.address(self.weights, _int(whole * STRIP * self.d.depth), 4)
            self._strip(start, _int(whole * STRIP), last)
        w.do("ret i32 0")
        return w.body()

    def _times(self, count: int, body: Any) -> None:
        if count == 1:
            body(_int(0), [])
        else:
            self.w.loop(_int(0), _int(count), 1, [], body)

    def _strip(self, start: Value, column: Value, filters: int) -> None:
        """Write the tiles of a strip of filters."""
        w, row = self.w, -(-filters // GRAIN) * GRAIN
        vectors, partial = -(-filters // self.lanes), filters % self.lanes
        each = min(self.tile, vectors)
        whole, rest = divmod(vectors, each)
        if partial and not rest:
            whole, rest = whole - 1, each

        def tile(t: Value, _: list[Value]) -> list[Value]:
            skip = w.mul(t, _int(each * self.lanes))
            self._tiles(w.address(start, skip, 4), w.add(column, skip), row, each, False)
            return []

        if whole:
            self._times(whole, tile)
        if rest:
            skip = _int(whole * each * self.lanes)
            at = w.address(start, skip, 4)
            self._tiles(at, w.add(column, skip), row, rest, bool(partial))

    def _tiles(self, weights: Value, c: Value, row: int, count: int, partial: bool) -> None:
        """Write the loops over all output pixels for `count` vectors of filters from column c.

        Args:
            weights: the address of the weights of the first one.
            c: the column.
            row: the length of a row of weights.
            count: the number of vectors.
            partial: whether the last one is not complete.
        """
        w, d = self.w, self.d
        tail = _int(d.filters % self.lanes)
        mask = memory.tail_mask(w, tail, self.lanes) if partial else None
        columns = [w.add(c, _int(v * self.lanes)) for v in range(count)]
        cuts = [(tail, mask) if partial and v == count - 1 else (None, None) for v in range(count)]
        known = [self.epilogue.columns(at, *cut) for at, cut in zip(columns, cuts)]
        sums = _Sums(self, weights, row, list(zip(columns, cuts)))

        def over(axis: int, place: Value, outputs: list[Value]) -> None:
            if axis < len(d.result) - 1:

                def body(o: Value, _: list[Value]) -> list[Value]:
                    here = w.add(w.mul(place, _int(d.result[axis])), o)
                    over(axis + 1, here, [*outputs, o])
                    return []

                if axis == 0 and d.result[0] > 1:
                    w.loop(self.first, self.last, 1, [], body)
                else:
                    self._times(d.result[axis], body)
                return
            first = w.mul(place, _int(d.result[-1]))
            for block in self.blocks:

                def one(b: Value, _: list[Value], block: Block = block) -> list[Value]:
                    o = w.add(_int(block.start), w.mul(b, _int(block.size)))
                    results = sums.write(outputs, o, block)
                    for i in range(block.size):
                        r = w.add(w.add(first, o), _int(i))
                        for v in range(count):
                            rest, mask = cuts[v]
                            y = results[i * count + v]
                            self.epilogue.store(r, columns[v], y, rest, mask, known[v])
                    return []

                self._times(block.turns, one)

        def example(n: Value, _: list[Value]) -> list[Value]:
            over(0, n, [n])
            return []

        w.loop(_int(0), self.n, 1, [], example)


class _Sums:
    """Writes the sums of one tile.

    Args:
        writer: of the function.
        weights: the address of the first vector's weights.
        row: numbers of a row of weights.
        columns: the column of each vector of the tile, and (rest, mask) if it is not complete.
    """

    def __init__(
        self, writer: _DirectWriter, weights: Value, row: int, columns: list[tuple[Value, Any]]
    ) -> None:
        self.w, self.d, self.x = writer.w, writer.d, writer.x
        self.load, self.terms = writer.epilogue.load, writer.terms
        self.lanes, self.weights, self.columns = writer.lanes, weights, columns
        self.row, self.count = row, len(columns)

    def write(self, outputs: list[Value], o: Value, block: Block) -> list[Value]:
        """Return the sums: for each pixel of the block its vectors.

        Args:
            outputs: the example, and the output's place along each axis but the last.
            o: the first output's place along the last axis.
            block: the outputs.
        """
        w, d = self.w, self.d
        each = block.size * self.count
        copies = -(-_IN_FLIGHT // each)  # partial sums, so that additions overlap
        zeros = [constant(0.0, "float32", self.lanes)] * (each * copies)
        last = w.sub(w.mul(o, _int(d.strides[-1])), _int(d.before[-1]))

        def over(axis: int, position: Value, kernel: Value, sums: list[Value]) -> list[Value]:
            """Add the terms of all places of the kernel along the axes from `axis`."""
            if axis == len(d.kernel) - 1:
                pixel = w.add(w.mul(position, _int(d.space[-1])), last)
                data = w.address(self.x, w.mul(pixel, _int(d.pixel)), 4)
                first = w.mul(kernel, _int(d.kernel[-1] * d.channels * self.row))
                return self._runs(data, w.address(self.weights, first, 4), block, sums)
            start = w.sub(w.mul(outputs[axis + 1], _int(d.strides[axis])), _int(d.before[axis]))

            def place(k: Value, carried: list[Value]) -> list[Value]:
                at = w.add(start, w.mul(k, _int(d.dilations[axis])))
                at = w.add(w.mul(position, _int(d.space[axis])), at)
                return over(axis + 1, at, w.add(w.mul(kernel, _int(d.kernel[axis])), k), carried)

            low, high = self._range(axis, start)
            if low.text == "0" and high.text == "1":
                return place(low, sums)
            return w.loop(low, high, 1, sums, place)

        sums = over(0, outputs[0], _int(0), zeros)
        for k in range(1, copies):
            sums[:each] = [w.add(a, b) for a, b in zip(sums, sums[k * each : (k + 1) * each])]
        return sums[:each]

    def _range(self, axis: int, start: Value) -> tuple[Value, Value]:
        """Return the first place of the kernel inside the input, and the one after the last.

        Args:
            axis: not the last.
            start: the position of the kernel's first place.
        """
        w, d = self.w, self.d
        size, step, count = d.space[axis], d.dilations[axis], d.kernel[axis]
        end = (d.result[axis] - 1) * d.strides[axis] - d.before[axis] + (count - 1) * step
        low, high = _int(0), _int(count)
        if d.before[axis]:
            low = self._quotient(w.sub(_int(0), start), step)
        if end >= size:
            inside = self._quotient(w.sub(_int(size), start), step)
            high = w.select(w.compare("slt", inside, high), inside, high)
        return low, high

    def _quotient(self, number: Value, by: int) -> Value:
        """Return max(number, 0) / by, rounded up."""
        w = self.w
        number = w.select(w.compare("sgt", number, _int(0)), number, _int(0))
        return number if by == 1 else w.two("sdiv", w.add(number, _int(by - 1)), _int(by))

    def _runs(self, data: Value, weights: Value, block: Block, sums: list[Value]) -> list[Value]:
        d = self.d
        joined = d.pixel == d.channels and d.dilations[-1] == 1
        for first, count, pixels in block.runs:
            pieces = [(first, count)] if joined else [(first + i, 1) for i in range(count)]
            for place, places in pieces:
                skip = place * d.dilations[-1] * d.pixel
                at = self.w.address(data, _int(skip), 4)
                rows = self.w.address(weights, _int(place * d.channels * self.row), 4)
                sums = self._run(at, rows, places * d.channels, pixels, block.size, sums)
        return sums

    def _run(
        self, data: Value, weights: Value, terms: int, pixels: tuple[int, ...], size: int,
        sums: list[Value],
    ) -> list[Value]:  # fmt: skip
        """Add adjacent terms for pixels of the tile."""
        w, each = self.w, size * self.count
        copies = len(sums) // each
        step = copies if copies > 1 else 2

        def term(p: Value, extra: int, sums: list[Value]) -> list[Value]:
            sums = list(sums)
            row = w.address(weights, w.mul(p, _int(self.row)), 4)
            row = w.address(row, _int(extra * self.row), 4)
            b = [
                w.load_value(w.address(row, _int(v * self.lanes), 4), "float32", self.lanes)
                for v in range(self.count)
            ]
            for i in pixels:
                skip = i * self.d.strides[-1] * self.d.pixel + extra
                at = w.address(w.address(data, p, 4), _int(skip), 4)
                a = self._input(at)
                for v in range(self.count):
                    place = (extra % copies) * each + i * self.count + v
                    sums[place] = w.fma(a[v], b[v], sums[place])
            return sums

        def some(p: Value, sums: list[Value]) -> list[Value]:
            for extra in range(step):
                sums = term(p, extra, sums)
            return sums

        size = BLOCK - BLOCK % step

        def block(p: Value, totals: list[Value]) -> list[Value]:
            zeros = [constant(0.0, "float32", self.lanes)] * len(totals)
            own = w.loop(p, w.add(p, _int(size)), step, zeros, some)
            return [w.add(a, b) for a, b in zip(totals, own)]

        rest = terms - terms % size if terms >= 2 * size else 0
        if rest and copies == 1 and self.terms is not None:
            sums = self.terms.add(sums, step, some, term, weights, self.row)
        elif rest:
            sums = w.loop(_int(0), _int(rest), size, sums, block)
        if terms - rest > _UNROLLED:
            first, rest = rest, terms - (terms - rest) % step
            sums = w.loop(_int(first), _int(rest), step, sums, some)
        for p in range(rest, terms):
            sums = term(_int(p), 0, sums) if copies == 1 else self._single(term, p, copies, sums)
        return sums

    def _input(self, at: Value) -> list[Value]:
        """Return the factor of each vector of filters."""
        w = self.w
        if not self.d.lanewise:
            return [w.splat(w.load_value(at, "float32"), self.lanes)] * self.count
        return [self.load(w.address(at, c, 4), "float32", *cut) for c, cut in self.columns]

    @staticmethod
    def _single(term: Any, p: int, copies: int, sums: list[Value]) -> list[Value]:
        """Add term p to the next partial sum."""
        extra = p % copies
        result: list[Value] = term(_int(p - extra), extra, sums)
        return result


def blocks_of(d: Direct, size: int) -> list[Block]:
    """Return the blocks of the last axis; equal ones that read only the input are one loop."""
    length = d.result[-1]
    results: list[Block] = []
    for start in range(0, length, size):
        block = Block(start, min(size, length - start), 1, ())
        block = block._replace(runs=_runs_of(d, block))
        previous = results[-1] if results else None
        inside = all(len(pixels) == block.size for _, _, pixels in block.runs)
        if previous and inside and (previous.size, previous.runs) == (block.size, block.runs):
            results[-1] = previous._replace(turns=previous.turns + 1)
        else:
            results.append(block)
    return results


def _runs_of(d: Direct, block: Block) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    runs: list[tuple[int, int, tuple[int, ...]]] = []
    for k in range(d.kernel[-1]):
        shift = k * d.dilations[-1] - d.before[-1]
        pixels = tuple(
            i
            for i in range(block.size)
            if 0 <= (block.start + i) * d.strides[-1] + shift < d.space[-1]
        )
        if runs and runs[-1][2] == pixels:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, pixels)
        elif pixels:
            runs.append((k, 1, pixels))
    return tuple(runs)


def _int(number: int) -> Value:
    return constant(number, "int64")
