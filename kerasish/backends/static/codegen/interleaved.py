"""A time step's product by the recurrent weights, and a part of the inputs of later time steps.

With one row, the product by the recurrent weights takes as long as reading them from the L2 cache,
and uses half of the multiplications that the processor can do in this time. The product of the
inputs of all time steps needs few loads and all multiplications. Here a time step computes both,
alternating term by term: its own sums, and an eighth of the inputs of a later group of eight time
steps. The terms are added in the order that `direct` has on AVX-512, on all processors.

The inputs of the first time steps (`rows_before`) are computed before. With `rest` = time steps
modulo 8, time step t >= rest computes for those from rest + 8 * ((t - rest) // 8 + 1) on, as far as
there are any.

Argument block (int64 words): 0 table, 1 the time step, 2 address of the state, 3 address of the
recurrent weights, 4 address of the first time step's row, 5 address of the weights of the inputs,
then for both epilogues, that of the time step first, address and row stride of each input after the
first, and of each output. Both weights are packed by `direct.pack_weights`. One thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerasish.backends.static.codegen.direct import BLOCK, STRIP, Direct
from kerasish.backends.static.codegen.epilogue import EpilogueWriter
from kerasish.backends.static.machine.assembly import Target, Value, Writer, constant
from kerasish.typing import Array

ROWS = 8  # time steps of a group
COLUMNS = 2 * STRIP  # of which the number of results is a multiple: all time steps do the same
TIME, STATE, OPERANDS = 1, 2, 6  # words


@dataclass(frozen=True)
class Interleaved:
    """Structure of a time step.

    Attributes:
        step: the product of one row, the state, by the recurrent weights.
        ahead: the product of the rows of all time steps by the weights of the inputs; as many
            columns.
    """

    step: Direct
    ahead: Direct

    @property
    def times(self) -> int:
        """The number of time steps."""
        return self.ahead.result[0]


def rows_before(times: int) -> int:
    """Return how many rows of the inputs are computed before the first time step."""
    return ROWS + times % ROWS


def pack(
    structure: Interleaved, *, table: int, time: int, state: int, weights: int, x: int,
    input_weights: int, operands: Sequence[tuple[int, int]],
) -> Array:  # fmt: skip
    """Return the argument block (see the module).

    Args:
        structure: the structure.
        table, time, state, weights, x, input_weights: words 0 to 5.
        operands: (address, row stride) of the operands of both epilogues.
    """
    both = structure.step.epilogue, structure.ahead.epilogue
    expected = sum(len(e.inputs) - 1 + len(e.outputs) for e in both)
    if len(operands) != expected:
        raise ValueError(f"pack: the epilogues have {expected} operands, got {len(operands)}")
    words = [table, time, state, weights, x, input_weights, *itertools.chain(*operands)]
    return np.array(words, dtype=np.int64)


def generate(structure: Interleaved, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    writer = _StepWriter(structure, target)
    text = f"define i32 @{symbol}(ptr %args) #0 {{\n{writer.write()}\n}}"
    return text, writer.w.declared


class _Tile:
    """The sums of some rows and vectors of columns, to which terms are added one after the other.

    Args:
        w: where the code is written.
        product: the product.
        data: the address of the first row.
        rows: how many, each `product.pixel` numbers after the last.
        weights: the address of all packed weights.
        column: the first column.
        vectors: how many; all in one strip.
    """

    def __init__(
        self, w: Writer, product: Direct, data: Value, rows: int, weights: Value, column: Value,
        vectors: int,
    ) -> None:  # fmt: skip
        self.w, self.data, self.column = w, data, column
        self.pixel, self.rows, self.vectors = product.pixel, rows, vectors
        strip = w.two("sdiv", column, _int(STRIP))
        start = w.add(
            w.mul(strip, _int(STRIP * product.channels)),
            w.sub(column, w.mul(strip, _int(STRIP))),
        )
        self.weights = w.address(weights, start, 4)
        self.zeros = [constant(0.0, "float32", w.target.lanes)] * (rows * vectors)
        self.sums = self.totals = self.zeros
        # As in `direct`: blocks of a long sum are summed separately, except for its last terms.
        whole = product.channels // BLOCK if product.channels >= 2 * BLOCK else 0
        self.blocks, self.terms, self.at = whole, product.channels, 0

    @property
    def left(self) -> int:
        """How many terms of the current block are left, or behind all blocks."""
        end = BLOCK * (self.at // BLOCK + 1) if self.at < BLOCK * self.blocks else self.terms
        return end - self.at

    def add(self, p: Value, sums: list[Value]) -> list[Value]:
        """Return the sums plus the term `at` + p."""
        w, lanes, count = self.w, self.w.target.lanes, self.vectors
        term = w.add(p, _int(self.at))
        row = w.address(self.weights, w.mul(term, _int(STRIP)), 4)
        b = [
            w.load_value(w.address(row, _int(v * lanes), 4), "float32", lanes) for v in range(count)
        ]
        results = []
        for i in range(self.rows):
            at = w.address(w.address(self.data, term, 4), _int(i * self.pixel), 4)
            a = w.splat(w.load_value(at, "float32"), lanes)
            results += [w.fma(a, b[v], sums[i * count + v]) for v in range(count)]
        return results

    def moved(self, count: int, sums: list[Value]) -> None:
        """Take the sums after `count` more terms."""
        self.sums = sums
        self.at += count
        if self.at <= BLOCK * self.blocks and self.at % BLOCK == 0:
            self.totals = [self.w.add(a, b) for a, b in zip(self.totals, sums)]
            self.sums = self.totals if self.at == BLOCK * self.blocks else self.zeros


def _advance(w: Writer, tiles: Sequence[tuple[_Tile, int]], turns: int) -> None:
    """Write a loop that adds the next terms of some tiles, a given number of each per turn."""
    sums = [s for tile, _ in tiles for s in tile.sums]

    def turn(p: Value, carried: list[Value]) -> list[Value]:
        results = []
        for tile, count in tiles:
            own, carried = carried[: len(tile.sums)], carried[len(tile.sums) :]
            for i in range(count):
                own = tile.add(w.add(w.mul(p, _int(count)), _int(i)), own)
            results += own
        return results

    sums = w.loop(_int(0), _int(turns), 1, sums, turn)
    for tile, count in tiles:
        own, sums = sums[: len(tile.sums)], sums[len(tile.sums) :]
        tile.moved(turns * count, own)


class _StepWriter:
    def __init__(self, structure: Interleaved, target: Target) -> None:
        self.d = structure
        self.w = w = Writer(target)
        args = Value("%args", "ptr")
        w.table = w.load_word(args, 0, "ptr")
        self.time = w.load_word(args, TIME)
        self.state, self.weights, self.x, self.input_weights = (
            w.load_word(args, STATE + i, "ptr") for i in range(4)
        )
        step, ahead = structure.step.epilogue, structure.ahead.epilogue
        second = OPERANDS + 2 * (len(step.inputs) - 1 + len(step.outputs))
        self.epilogue = EpilogueWriter(w, step, args, OPERANDS, target.lanes)
        self.input_epilogue = EpilogueWriter(w, ahead, args, second, target.lanes)
        # A tile of the inputs takes as many registers as two of the time step, and stays in them
        # while both of these are computed.
        self.vectors = 2 if target.level in ("avx512", "generic") else 1
        self.own = ROWS * self.vectors // 2

    def write(self) -> str:
        """Return the function's body."""
        w, times = self.w, self.d.times
        rest = times % ROWS
        since = w.sub(self.time, _int(rest))
        some = w.compare("sge", since, _int(0))
        some = w.bits_and(some, w.compare("slt", self.time, _int(times - ROWS)))
        # The first row of the group, and the number of the time step among those that compute it.
        group = w.two("sdiv", since, _int(ROWS))
        first = w.add(w.mul(group, _int(ROWS)), _int(rest + ROWS))
        turn = w.sub(since, w.mul(group, _int(ROWS)))
        pairs = self.d.step.filters // (2 * self.own * w.target.lanes)

        def both(n: Value, _: list[Value]) -> list[Value]:
            number = w.add(w.mul(turn, _int(pairs)), n)
            column = w.mul(number, _int(self.vectors * w.target.lanes))
            row = w.address(self.x, w.mul(first, _int(self.d.ahead.pixel)), 4)
            tile = _Tile(w, self.d.ahead, row, ROWS, self.input_weights, column, self.vectors)
            self._pair(n, tile)
            self._store(self.input_epilogue, first, tile)
            return []

        def alone(n: Value, _: list[Value]) -> list[Value]:
            self._pair(n, None)
            return []

        w.branch(
            some,
            lambda: w.loop(_int(0), _int(pairs), 1, [], both),
            lambda: w.loop(_int(0), _int(pairs), 1, [], alone),
        )
        w.do("ret i32 0")
        return w.body()

    def _pair(self, n: Value, other: _Tile | None) -> None:
        """Write two tiles of the time step, and the terms of the other one between theirs."""
        w, width = self.w, self.own * self.w.target.lanes
        for i in range(2):
            column = w.add(w.mul(n, _int(2 * width)), _int(i * width))
            tile = _Tile(w, self.d.step, self.state, 1, self.weights, column, self.own)
            while tile.left:
                if other is not None and other.left and tile.left > 1:
                    _advance(w, [(tile, 2), (other, 1)], min(tile.left // 2, other.left))
                else:
                    each = 2 if tile.left > 1 else 1
                    _advance(w, [(tile, each)], tile.left // each)
            self._store(self.epilogue, _int(0), tile)
        while other is not None and other.left:
            _advance(w, [(other, 1)], other.left)

    def _store(self, epilogue: EpilogueWriter, first: Value, tile: _Tile) -> None:
        w = self.w
        columns = [w.add(tile.column, _int(v * w.target.lanes)) for v in range(tile.vectors)]
        known = [epilogue.columns(c, None, None) for c in columns]
        for i in range(tile.rows):
            r = w.add(first, _int(i))
            for v, c in enumerate(columns):
                epilogue.store(r, c, tile.sums[i * tile.vectors + v], None, None, known[v])


def _int(number: int) -> Value:
    return constant(number, "int64")
