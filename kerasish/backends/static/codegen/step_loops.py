"""The code of `time_steps`: the packed recurrent kernel, its products, and the cells.

A tile of a product is several rows times a few vectors, in registers. Forward, the products of a
time step are computed first, then the cells, row by row. Backward, the gradients of the gates are
computed first; their product with the transposed kernel is the gradient by the previous state. A
mask that excludes a row keeps its states.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from kerasish.backends.static.codegen import recurrent, scalars
from kerasish.backends.static.codegen.description import Kernel, constant_value
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.codegen.tiles import (
    Columns,
    least,
    lines,
    most,
    over_rows,
    product,
    share,
    word,
    zeros,
)
from kerasish.backends.static.machine.assembly import Target, Value, Writer, constant

GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}  # columns of the recurrent kernel per unit
FIRST = 6  # the word of the first address
WIDEST = 16  # lanes of the widest vector
_FORWARD: dict[str, Callable[..., Kernel]] = {
    "lstm": recurrent.lstm_forward,
    "gru": recurrent.gru_forward,
    "simple_rnn": recurrent.simple_forward,
}
_BACKWARD: dict[str, Callable[..., Kernel]] = {
    "lstm": recurrent.lstm_backward,
    "gru": recurrent.gru_backward,
    "simple_rnn": recurrent.simple_backward,
}
_KEPT = {"lstm": 4, "gru": 4}  # numbers per unit of `gates`
_STRIP = 4  # vectors of a strip
_SQUARE = 16  # rows and columns that are transposed at a time


def tile_rows(target: Target) -> int:
    """Return the rows of a tile: the most that registers hold with the vectors of a strip."""
    return 4 if target.level == "avx512" else 2


def make_loops(
    cell: str, backward: bool, masked: bool, names: Sequence[str], given: tuple[str, str],
    target: Target,
) -> StepLoops:  # fmt: skip
    """Return the writer of a loop; see `time_steps.TimeSteps`."""
    kind = _Backward if backward else _Forward
    return kind(cell, masked, names, given, target)


class StepLoops:
    """The base of the forward and the backward function.

    Args:
        cell: the kind of the recurrence.
        masked: whether there is a mask.
        names: the arrays, in the order of their addresses.
        given: see `time_steps.TimeSteps`.
        target: the processor.
    """

    def __init__(
        self, cell: str, masked: bool, names: Sequence[str], given: tuple[str, str], target: Target
    ) -> None:
        self.w = w = Writer(target)
        self.cell, self.masked, self.given = cell, masked, given
        self.count = GATES[cell]
        self.lanes, self.tile = target.lanes, tile_rows(target)
        args = Value("%args", "ptr")
        w.table = w.load_word(args, 0, "ptr")
        self.steps, self.rows, self.units = (w.load_word(args, i) for i in (2, 3, 4))
        start = w.load_word(args, 5)
        start = w.bits_and(w.add(start, word(63)), word(-64))
        self.packed = w.let(f"inttoptr {start.typed} to ptr", "ptr")
        self.at = {name: w.load_word(args, FIRST + i, "ptr") for i, name in enumerate(names)}
        self.width = w.mul(self.units, word(self.count))
        self.vectors = w.two("sdiv", w.add(self.units, word(self.lanes - 1)), word(self.lanes))
        self.padded = w.mul(self.vectors, word(self.lanes))
        self.spare = w.address(self.packed, w.mul(self.width, self.padded), 4)

    def pack(self) -> str:
        """Return the body of the function that packs this thread's strips of the kernel."""
        raise NotImplementedError

    def work(self) -> str:
        """Return the body of the function that computes all time steps of this thread's rows."""
        raise NotImplementedError

    def moved(self, base: Value, *parts: Value) -> Value:
        """Return the address of the number at the sum of the parts."""
        index = parts[0]
        for part in parts[1:]:
            index = self.w.add(index, part)
        return self.w.address(base, index, 4)

    def over_columns(self, first: Value, last: Value, body: Callable[..., None]) -> None:
        """Write body(column, columns) for each vector of columns, complete or not.

        Args:
            first: the first vector.
            last: the one after the last.
            body: writes the code of a vector.
        """
        w = self.w
        whole = least(w, w.two("sdiv", self.units, word(self.lanes)), last)

        def full(v: Value, _: list[Value]) -> list[Value]:
            body(w.mul(v, word(self.lanes)), Columns(w, self.lanes))
            return []

        def part(v: Value, _: list[Value]) -> list[Value]:
            c = w.mul(v, word(self.lanes))
            body(c, Columns(w, self.lanes, w.sub(self.units, c)))
            return []

        w.loop(first, whole, 1, [], full)
        start = most(w, first, whole)
        w.loop(start, last, 1, [], part)

    def over(self, first: Value, last: Value, body: Callable[..., None]) -> None:
        """Write body(row, column, columns) for each vector of columns of a range of rows."""

        def row(r: Value, _: list[Value]) -> list[Value]:
            self.over_columns(word(0), self.vectors, lambda u, columns: body(r, u, columns))
            return []

        self.w.loop(first, last, 1, [], row)

    def over_strips(
        self, first: Value, last: Value, group: int, body: Callable[[Value, int], None]
    ) -> None:
        """Write body(vector, vectors) for each strip of `group` vectors, and the others one by one.

        Args:
            first: the first vector, that of a strip.
            last: the one after the last.
            group: the vectors of units of a strip.
            body: writes the code of a strip.
        """
        w = self.w
        wide = least(w, self._in_groups(group), last)

        def many(v: Value, _: list[Value]) -> list[Value]:
            body(v, group)
            return []

        def one(v: Value, _: list[Value]) -> list[Value]:
            body(v, 1)
            return []

        w.loop(first, wide, group, [], many)
        if group > 1:
            w.loop(most(w, first, wide), last, 1, [], one)

    def _in_groups(self, group: int) -> Value:
        """Return the number of vectors in strips of `group` vectors."""
        w = self.w
        return w.mul(w.two("sdiv", self.vectors, word(group)), word(group))

    def write_tile(
        self, rows: Sequence[Value], strip: Value, terms: Value, vectors: int, at: Value,
        row: Value, adds: bool = False,
    ) -> None:  # fmt: skip
        """Write the sums of a tile: for each row its vectors.

        Args:
            rows: the addresses of the rows' first terms.
            strip: the address of packed weights.
            terms: of each sum.
            vectors: of the strip.
            at: the address of those of the first row.
            row: numbers from one row of sums to the next.
            adds: whether they are added to the numbers that are there.
        """
        w, lanes = self.w, self.lanes
        places = [
            w.address(line, word(j * lanes), 4)
            for line in lines(w, at, word(0), row, len(rows))
            for j in range(vectors)
        ]
        starts = [w.load_value(place, "float32", lanes) for place in places] if adds else []
        columns = [Columns(w, lanes)] * vectors
        width = word(vectors * lanes)
        sums = product(w, rows, word(1), strip, width, terms, columns, starts)
        for x, place in zip(sums, places, strict=True):
            w.store_value(x, place)

    def results(self, kernel: Kernel, inputs: Sequence[Value]) -> list[Value]:
        """Return the outputs of a loop's kernel for vectors of its inputs."""
        w, plan = self.w, plan_loops(kernel)
        values = dict(enumerate(inputs))
        for v in range(len(kernel.inputs), plan.count):
            node = plan.node(v)
            if node.op == "constant":
                values[v] = constant(constant_value(node), kernel.dtype_of(v), self.lanes)
            else:
                values[v] = scalars.apply(w, node, [values[a] for a in node.args])
        return [values[o.value] for o in kernel.outputs]

    def parts(self, base: Value, row: Value, c: Value, count: int) -> list[Value]:
        """Return the addresses of column c of each part of a row of `count` parts."""
        w = self.w
        start = self.moved(base, w.mul(row, w.mul(self.units, word(count))), c)
        return [
            w.address(start, w.mul(self.units, word(g)), 4) if g else start for g in range(count)
        ]

    def mask(self, line: Value) -> list[Value]:
        """Return the mask of a row of a time step as a vector in a list, which may be empty.

        Args:
            line: the number of the row among those of all time steps.
        """
        if not self.masked:
            return []
        x = self.w.load_value(self.w.address(self.at["mask"], line, 4), "float32")
        return [self.w.splat(x, self.lanes)]


class _Forward(StepLoops):
    def pack(self) -> str:
        """Copy the kernel: strips of vectors of units, each with the vectors of all gates."""
        w, lanes, group = self.w, self.lanes, self._group()
        wide = self._in_groups(group)

        def vector(c: Value, columns: Columns) -> None:
            v = w.two("sdiv", c, word(lanes))
            grouped = w.compare("slt", v, wide)
            first = w.select(grouped, w.sub(v, w.two("srem", v, word(group))), v)
            width = w.select(grouped, word(group), word(1))
            row = w.mul(width, word(self.count * lanes))
            offset = w.mul(w.sub(v, first), word(self.count * lanes))
            to = self.moved(self.packed, w.mul(w.mul(first, word(lanes)), self.width), offset)

            def line(k: Value, _: list[Value]) -> list[Value]:
                end = w.address(to, w.mul(k, row), 4)
                for g, at in enumerate(self.parts(self.at["recurrent"], k, c, self.count)):
                    w.store_value(columns.load(at), w.address(end, word(g * lanes), 4))
                return []

            w.loop(word(0), self.units, 1, [], line)

        self.over_columns(*share(w, self.vectors), vector)
        w.do("ret void")
        return w.body()

    def _group(self) -> int:
        """Return the vectors of units of a strip."""
        return max(1, _STRIP // self.count)

    def work(self) -> str:
        """Write all time steps of this thread's rows."""
        w = self.w
        first, last = share(w, self.rows, self.tile)
        block = w.mul(self.rows, self.units)
        cells = [name for name in ("states", "cells") if name in self.at]

        def step(t: Value, before: list[Value]) -> list[Value]:
            now, place = w.mul(t, self.rows), w.mul(t, block)
            after = [w.address(self.at[name], place, 4) for name in cells]

            def strip(v: Value, vectors: int) -> None:
                u = w.mul(v, word(self.lanes))
                weights, count = w.address(self.packed, w.mul(u, self.width), 4), self.count

                def some(r: Value, height: int) -> None:
                    rows, at = lines(w, before[0], r, self.units, height), self._sums_at(r, u)
                    to = w.mul(self.padded, word(count))
                    self.write_tile(rows, weights, self.units, vectors * count, at, to)

                over_rows(w, first, last, self.tile, some)

            def row(r: Value, u: Value, columns: Columns) -> None:
                at, line = w.add(w.mul(r, self.units), u), w.add(now, r)
                old = [columns.load(w.address(base, at, 4)) for base in before]
                x = [columns.load(p) for p in self.parts(self.at["x"], line, u, self.count)]
                kernel, inputs = self._cell(x, self._sums_of(r, u), old, u, columns)
                outputs = self.results(kernel, [*inputs, *self.mask(line)])
                kept = _KEPT.get(self.cell, 0)
                places = self.parts(self.at["gates"], line, u, kept) if kept else []
                places += [w.address(base, at, 4) for base in reversed(after)]
                for output, end in zip(outputs, places, strict=True):
                    columns.store(output, end)

            self.over_strips(word(0), self.vectors, self._group(), strip)
            self.over(first, last, row)
            return after

        firsts = [self.at[name] for name in ("h", "c") if name in self.at]
        w.loop(word(0), self.steps, 1, firsts, step)
        w.do("ret void")
        return w.body()

    def _cell(
        self, x: list[Value], sums: list[Value], old: list[Value], u: Value, columns: Columns
    ) -> tuple[Kernel, list[Value]]:
        """Return the loop of a cell, and its inputs but the mask.

        Args:
            x: the vectors of the inputs of each gate.
            sums: those of the products by the state.
            old: those of the states before.
            u: the column.
            columns: the lanes that are valid.
        """
        w = self.w
        kernel = functools.partial(_FORWARD[self.cell], masked=self.masked, mask_dtype="float32")
        if self.cell == "gru":
            bias = self.parts(self.at["bias"], word(0), u, self.count)
            s = [w.add(a, columns.load(b)) for a, b in zip(sums, bias, strict=True)]
            return kernel(sequence=True), [*x, *s, *old]
        z = [w.add(a, b) for a, b in zip(x, sums, strict=True)]
        if self.cell == "lstm":
            h = old[:1] if self.masked else []
            return kernel(), [*z, old[1], *h]
        return kernel(), [*z, *(old if self.masked else [])]

    def _sums_at(self, r: Value, u: Value) -> Value:
        """Return the address of the sums of all gates of one vector of units of a row."""
        w = self.w
        return self.moved(self.spare, w.mul(w.add(w.mul(r, self.padded), u), word(self.count)))

    def _sums_of(self, r: Value, u: Value) -> list[Value]:
        w, lanes, at = self.w, self.lanes, self._sums_at(r, u)
        places = [w.address(at, word(g * lanes), 4) for g in range(self.count)]
        return [w.load_value(place, "float32", lanes) for place in places]


class _Backward(StepLoops):
    def pack(self) -> str:
        """Transpose the kernel: strips of vectors of units, with a row for each gate's unit."""
        w, lanes = self.w, self.lanes
        source = self.at["recurrent"]

        def strip(v: Value, vectors: int) -> None:
            start = w.mul(v, word(lanes))
            to = w.address(self.packed, w.mul(start, self.width), 4)
            row = vectors * lanes

            def square(m0: Value, _: list[Value]) -> list[Value]:
                m1 = least(w, w.add(m0, word(_SQUARE)), self.width)

                def column(j: Value, _: list[Value]) -> list[Value]:
                    c = w.add(start, j)
                    counts = w.compare("slt", c, self.units)
                    line = w.mul(w.select(counts, c, start), self.width)

                    def number(m: Value, _: list[Value]) -> list[Value]:
                        x = w.load_value(self.moved(source, line, m), "float32")
                        x = w.select(counts, x, zeros(1))
                        w.store_value(x, self.moved(to, w.mul(m, word(row)), j))
                        return []

                    w.loop(m0, m1, 1, [], number)
                    return []

                w.loop(word(0), word(row), 1, [], column)
                return []

            w.loop(word(0), self.width, _SQUARE, [], square)

        self.over_strips(*share(w, self.vectors, _STRIP), _STRIP, strip)
        w.do("ret void")
        return w.body()

    def work(self) -> str:
        """Write all time steps of this thread's rows, the last one first."""
        w = self.w
        first, last = share(w, self.rows, self.tile)
        block = w.mul(self.rows, self.units)
        kernel = self._kernel()
        self._begin(first, last)

        def step(i: Value, _: list[Value]) -> list[Value]:
            t = w.sub(w.sub(self.steps, word(1)), i)
            now, place = w.mul(t, self.rows), w.mul(t, block)
            is_last = w.compare("eq", i, word(0))
            before = self._before(t, place, block)

            def row(r: Value, u: Value, columns: Columns) -> None:
                at, line = w.add(w.mul(r, self.units), u), w.add(now, r)
                kept = _KEPT.get(self.cell, 0)
                places = self.parts(self.at["gates"], line, u, kept) if kept else []
                if before is not None:
                    places.append(w.address(before, at, 4))
                if self.cell != "gru":  # the state after the step
                    name = "cells" if self.cell == "lstm" else "states"
                    places.append(self.moved(self.at[name], place, at))
                given = [columns.load(p) for p in places]
                given.append(w.load_value(self._past(r, u), "float32", self.lanes))
                if "dc" in self.at:
                    given.append(columns.load(w.address(self.at["dc"], at, 4)))
                given += self._arriving(place, at, is_last, columns)
                outputs = self.results(kernel, [*given, *self.mask(line)])
                ends = self.parts(self.at["dx"], line, u, self.count)
                if "ds" in self.at:
                    ends += self.parts(self.at["ds"], line, u, self.count)
                if "dc" in self.at:
                    ends.append(w.address(self.at["dc"], at, 4))
                if self._adds():
                    w.store_value(outputs.pop(), self._past(r, u))
                for output, end in zip(outputs, ends, strict=True):
                    columns.store(output, end)

            self.over(first, last, row)
            by_states = self.at["ds" if "ds" in self.at else "dx"]
            dz = w.address(by_states, w.mul(now, self.width), 4)

            def strip(v: Value, vectors: int) -> None:
                self._by_states(dz, first, last, v, vectors)

            self.over_strips(word(0), self.vectors, _STRIP, strip)
            return []

        w.loop(word(0), self.steps, 1, [], step)
        self._end(first, last)
        w.do("ret void")
        return w.body()

    def _kernel(self) -> Kernel:
        """Return the loop of a cell."""
        return _BACKWARD[self.cell](sequence=True, masked=self.masked, mask_dtype="float32")

    def _adds(self) -> bool:
        """Return whether the cell writes a part of the gradient by the state before."""
        return self.masked or self.cell == "gru"

    def _before(self, t: Value, place: Value, block: Value) -> Value | None:
        """Return the address of the states before a time step that its cell reads, or None."""
        first, later = {"lstm": ("c", "cells"), "gru": ("h", "states")}.get(self.cell, ("", ""))
        if not first:
            return None
        w = self.w
        before = w.address(self.at[later], w.sub(place, block), 4)
        return w.select(w.compare("eq", t, word(0)), self.at[first], before)

    def _arriving(self, place: Value, at: Value, is_last: Value, columns: Columns) -> list[Value]:
        """Return the gradients that arrive at the states of a time step."""
        w, results = self.w, []
        names = ("g_states", "g_cells") if self.cell == "lstm" else ("g_states",)
        for name, steps in zip(names, self.given, strict=False):
            x = zeros(self.lanes)
            if steps == "every":
                x = columns.load(self.moved(self.at[name], place, at))
            elif steps == "last":
                x = w.select(is_last, columns.load(w.address(self.at[name], at, 4)), x)
            results.append(x)
        return results

    def _past(self, r: Value, u: Value) -> Value:
        """Return the address of the gradient by the state, at column u of row r."""
        return self.moved(self.spare, self.w.mul(r, self.padded), u)

    def _begin(self, first: Value, last: Value) -> None:
        """Fill the gradients by the states of this thread's rows with zeros."""
        w = self.w

        def zero(r: Value, u: Value, columns: Columns) -> None:
            w.store_value(zeros(self.lanes), self._past(r, u))
            if "dc" in self.at:
                at = self.moved(self.at["dc"], w.mul(r, self.units), u)
                columns.store(zeros(self.lanes), at)

        self.over(first, last, zero)

    def _end(self, first: Value, last: Value) -> None:
        """Write the gradient by the first state."""
        w = self.w

        def copy(r: Value, u: Value, columns: Columns) -> None:
            x = w.load_value(self._past(r, u), "float32", self.lanes)
            columns.store(x, self.moved(self.at["dh"], w.mul(r, self.units), u))

        self.over(first, last, copy)

    def _by_states(self, dz: Value, first: Value, last: Value, v: Value, vectors: int) -> None:
        """Write the products of the rows' gradients with a strip of the transposed kernel."""
        w = self.w
        c = w.mul(v, word(self.lanes))
        strip = w.address(self.packed, w.mul(c, self.width), 4)

        def some(r: Value, count: int) -> None:
            rows = lines(w, dz, r, self.width, count)
            at = self._past(r, c)
            self.write_tile(rows, strip, self.width, vectors, at, self.padded, self._adds())

        over_rows(w, first, last, self.tile, some)
