"""Kernel -> LLVM IR: a worker that each thread runs on its share, what follows when all are done, and the entry.

`generate(kernel, symbol, target)` gives the text of `i32 symbol(ptr arguments)`, the function of a record. The
code holds no address: everything outside is reached through the argument block (see `arguments`).
"""

from __future__ import annotations

from collections.abc import Callable

from kerasish.backends.static.assembly import (
    STORED,
    Target,
    Value,
    Writer,
    constant,
    is_float,
    lane_numbers,
)
from kerasish.backends.static.loops import arguments as words
from kerasish.backends.static.loops import memory, scalars
from kerasish.backends.static.loops.description import SIZES, Kernel, Node, constant_value
from kerasish.backends.static.loops.plan import Loop, LoopPlan

BLOCK = 4096  # columns added up before their sum joins the row's
ROW_BLOCK = 8  # rows added up before their sums join the group's (as many streams as are prefetched)
NO_INDEX = 2**31 - 1

State = list[Value]


def word(number: int) -> Value:
    return constant(number, "int64")


def largest(w: Writer, a: Value, b: Value) -> Value:
    return w.select(w.compare("sgt", a, b), a, b)


def smallest(w: Writer, a: Value, b: Value) -> Value:
    return w.select(w.compare("slt", a, b), a, b)


def divide(w: Writer, a: Value, b: Value) -> Value:
    return w.two("sdiv", a, b)


class Part:
    """What the worker and the closing part have in common: sizes, operands, scratch memory."""

    def __init__(self, plan: LoopPlan, target: Target) -> None:
        self.plan, self.kernel = plan, plan.kernel
        self.w = w = Writer(target)
        self.lanes = plan.lanes(target)
        self.args = Value("%args", "ptr")
        w.table = w.load_word(self.args, words.TABLE, "ptr")
        self.rows = w.load_word(self.args, words.ROWS)
        self.columns = w.load_word(self.args, words.COLUMNS)
        self.groups = w.load_word(self.args, words.GROUPS)
        self.scratch = w.load_word(self.args, words.SCRATCH, "ptr")
        self.outer = [w.load_word(self.args, words.SIZES + k) for k in range(self.kernel.rank)]
        pad = w.bits_and(w.add(self.columns, word(words.PAD - 1)), word(-words.PAD))
        self.scratch_row = w.shift_left(pad, 3)
        self.bases: list[Value] = []
        self.strides: list[list[Value]] = []
        self.column_strides: list[Value] = []
        self.limits: list[Value] = []
        for number in range(len(self.kernel.inputs) + len(self.kernel.outputs)):
            self._load_operand(number)
        self.scalar_values: dict[int, Value] = {}

    def _load_operand(self, number: int) -> None:
        first = words.operand_word(self.kernel, number)
        rank, w = self.kernel.rank, self.w
        self.bases.append(w.load_word(self.args, first, "ptr"))
        self.strides.append([w.load_word(self.args, first + 1 + k) for k in range(rank)])
        self.column_strides.append(w.load_word(self.args, first + 1 + rank))
        self.limits.append(w.load_word(self.args, first + 2 + rank))

    def dtype(self, value: int) -> str:
        return self.kernel.dtype_of(value)

    # --- scratch ---------------------------------------------------------------------------------
    def slots(self, threads: Value) -> Value:
        return largest(self.w, threads, self.groups)

    def column_part(self, slot: Value, place: int) -> Value:
        """The row of partial results of column reduction `place` in a slot."""
        w, count = self.w, len(self.plan.column_reductions)
        index = w.add(w.mul(slot, word(count)), word(place))
        return w.address(self.scratch, w.mul(index, self.scratch_row), 1)

    def total_part(self, threads: Value, thread: Value, place: int) -> Value:
        w = self.w
        count = len(self.plan.column_reductions)
        start = w.mul(w.mul(self.slots(threads), word(count)), self.scratch_row)
        index = w.add(w.mul(thread, word(len(self.plan.all_reductions))), word(place))
        return w.address(self.scratch, w.add(start, w.shift_left(index, 6)), 1)

    def kept_part(self, threads: Value, thread: Value, place: int) -> Value:
        w = self.w
        count, totals = len(self.plan.column_reductions), len(self.plan.all_reductions)
        start = w.mul(w.mul(self.slots(threads), word(count)), self.scratch_row)
        start = w.add(start, w.mul(threads, word(64 * totals)))
        index = w.add(w.mul(thread, word(len(self.plan.spills))), word(place))
        return w.address(self.scratch, w.add(start, w.mul(index, self.scratch_row)), 1)

    # --- values of one lane -----------------------------------------------------------------------
    def scalar(self, value: int) -> Value:
        """A scalar-level value that needs no reduction; made once, where it is first asked for."""
        if value not in self.scalar_values:
            if not self.plan.is_node(value):
                dtype = self.kernel.inputs[value].dtype
                made = memory.load_one(self.w, self.bases[value], dtype)
            else:
                node = self.plan.node(value)
                made = self.narrow_node(node, [self.scalar(a) for a in node.args])
            self.scalar_values[value] = made
        return self.scalar_values[value]

    def narrow_node(self, node: Node, args: list[Value]) -> Value:
        w = self.w
        if node.op == "constant":
            return constant(constant_value(node), self._computed(node))
        if node.op in SIZES:
            return scalars.cast(w, self._size(node.op), self._computed(node))
        return scalars.apply(w, node, args)

    def _computed(self, node: Node) -> str:
        return memory.computed(node.dtype)

    def _size(self, name: str) -> Value:
        if name == "rows":
            return self.rows
        return self.columns if name == "columns" else divide(self.w, self.rows, self.groups)

    def total_dtype(self, value: int) -> str:
        """Full reductions of floats add up in float64."""
        return "float64" if is_float(self.dtype(value)) else self.dtype(value)

    def shares(self, threads: Value) -> tuple[Value, Value, Value]:
        """Who shares what in a by-column kernel: (by groups, by columns, by rows)."""
        w = self.w
        many = w.compare("sge", self.groups, threads)
        wide = w.compare("sge", self.columns, w.mul(threads, word(words.PAD)))
        single = w.compare("eq", self.groups, word(1))
        by_columns = w.select(many, constant(0, "bool"), wide)
        neither = w.bits_xor(w.bits_or(many, wide), constant(1, "bool"))
        # One thread of one group takes the first way: its slot is 0 in each of them.
        return many, by_columns, w.bits_and(neither, single)


class Worker(Part):
    """One thread's share: `void worker(ptr args, i64 thread, i64 threads)`."""

    def __init__(self, plan: LoopPlan, target: Target) -> None:
        super().__init__(plan, target)
        self.thread, self.threads = Value("%t", "int64"), Value("%n", "int64")
        for v in range(plan.count):
            if plan.levels.level[v] == "scalar" and not plan.after(v):
                self.scalar(v)

    def write(self) -> str:
        if self.plan.by_column:
            totals = self._by_column()
        elif self.kernel.segments:
            totals = self._over_segments()
        else:
            totals = self._over_rows()
        for place, total in enumerate(totals):
            self.w.store_value(total, self.total_part(self.threads, self.thread, place), 8)
        self.w.do("ret void")
        return self.w.body()

    # --- shares -------------------------------------------------------------------------------------
    def _row_share(self, rows: Value) -> tuple[Value, Value]:
        w = self.w
        first = divide(w, w.mul(rows, self.thread), self.threads)
        last = divide(w, w.mul(rows, w.add(self.thread, word(1))), self.threads)
        return first, last

    def _column_share(self, columns: Value) -> tuple[Value, Value]:
        w = self.w
        each = divide(w, w.add(columns, w.sub(self.threads, word(1))), self.threads)
        each = w.bits_and(w.add(each, word(words.PAD - 1)), word(-words.PAD))
        first = smallest(w, w.mul(self.thread, each), columns)
        return first, smallest(w, w.add(first, each), columns)

    def _either(self, by_columns: Value, rows: Value) -> tuple[Value, Value, Value, Value]:
        """(first row, last row, first column, last column) of this thread."""
        w = self.w
        r0, r1 = self._row_share(rows)
        c0, c1 = self._column_share(self.columns)
        return (
            w.select(by_columns, word(0), r0),
            w.select(by_columns, rows, r1),
            w.select(by_columns, c0, word(0)),
            w.select(by_columns, c1, self.columns),
        )

    def _initial_totals(self) -> State:
        return [
            scalars.neutral(self.plan.node(v).op, self.total_dtype(v), 1)
            for v in self.plan.all_reductions
        ]

    # --- walking rows ---------------------------------------------------------------------------------
    def _over_rows(self) -> State:
        w, plan = self.w, self.plan
        if plan.scatters:
            by_columns = constant(1, "bool")
        elif plan.columns_free or self._only_totals():
            by_columns = w.compare("slt", self.rows, w.shift_left(self.threads, 2))
        else:
            by_columns = constant(0, "bool")
        r0, r1, c0, c1 = self._either(by_columns, self.rows)
        self._clear_columns(self.thread, word(0), self.columns)

        def row(r: Value, outer: list[Value], totals: State) -> State:
            one = Row(self, r, outer)
            return one.run(c0, c1, totals)

        return self._walk(r0, r1, self._initial_totals(), row)

    def _only_totals(self) -> bool:
        plan = self.plan
        return not (
            plan.row_reductions or plan.row_outputs or plan.row_alls or plan.column_reductions
        )

    def _walk(
        self,
        first: Value,
        last: Value,
        carried: State,
        row: Callable[[Value, list[Value], State], State],
    ) -> State:
        """Rows first .. last with the outer indices counted along."""
        w, rank = self.w, self.kernel.rank
        if rank == 1:
            return w.loop(first, last, 1, carried, lambda r, c: row(r, [r], c))
        start: list[Value] = []
        rest = first
        for size in reversed(self.outer):
            safe = largest(w, size, word(1))
            start.insert(0, w.two("srem", rest, safe))
            rest = divide(w, rest, safe)

        def step(r: Value, state: State) -> State:
            outer = state[:rank]
            after = row(r, outer, state[rank:])
            return self._count(outer) + after

        return w.loop(first, last, 1, start + carried, step)[rank:]

    def _count(self, outer: list[Value]) -> list[Value]:
        w = self.w
        carry = word(1)
        following = list(outer)
        for k in reversed(range(self.kernel.rank)):
            value = w.add(outer[k], carry)
            full = w.compare("sge", value, self.outer[k])
            following[k] = w.select(full, word(0), value)
            carry = w.select(full, word(1), word(0))
        return following

    def _over_segments(self) -> State:
        w, plan = self.w, self.plan
        table = w.load_word(self.args, words.SEGMENTS, "ptr")
        width = 2 + len(self.bases)
        first, last = self._column_share(self.columns)
        whole = not self._only_totals()
        final = w.compare("eq", w.add(self.thread, word(1)), self.threads)
        last_start = w.select(final, word(2**62), last)

        def segment(r: Value, totals: State) -> State:
            record = w.address(table, w.mul(r, word(width)), 8)
            start = w.load_value(record, "int64")
            size = w.load_value(w.address(record, word(1), 8), "int64")
            if not whole:
                c0 = smallest(w, largest(w, w.sub(first, start), word(0)), size)
                c1 = smallest(w, largest(w, w.sub(last, start), word(0)), size)
                return Row(self, r, [r], record).run(c0, c1, totals)
            mine = w.bits_and(
                w.compare("sge", start, first), w.compare("slt", start, last_start)
            )
            return w.branch(
                mine,
                lambda: Row(self, r, [r], record).run(word(0), size, totals),
                lambda: totals,
            )

        return w.loop(word(0), self.rows, 1, self._initial_totals(), segment)

    # --- column reductions in registers ------------------------------------------------------------------
    def _clear_columns(self, slot: Value, c0: Value, c1: Value) -> None:
        for place, v in enumerate(self.plan.column_reductions):
            base = self.column_part(slot, place)
            start = scalars.neutral(self.plan.node(v).op, self.dtype(v), self.lanes)
            size = memory.computed_size(self.dtype(v))

            def clear(
                c: Value, _: State, base: Value = base, start: Value = start, size: int = size
            ) -> State:
                self.w.store_value(start, self.w.address(base, c, size), size)
                return []

            self.w.loop(c0, c1, self.lanes, [], clear)

    def _by_column(self) -> State:
        w = self.w
        by_groups, by_columns, by_rows = self.shares(self.threads)
        nobody = w.bits_xor(
            w.bits_or(by_groups, w.bits_or(by_columns, by_rows)), constant(1, "bool")
        )
        idle = w.bits_and(nobody, w.compare("ne", self.thread, word(0)))
        g0, g1 = self._row_share(self.groups)
        g0 = w.select(by_groups, g0, word(0))
        g1 = w.select(by_groups, g1, w.select(idle, word(0), self.groups))
        height = divide(w, self.rows, largest(w, self.groups, word(1)))
        r0, r1 = self._row_share(height)
        r0, r1 = w.select(by_rows, r0, word(0)), w.select(by_rows, r1, height)
        c0, c1 = self._column_share(self.columns)
        c0, c1 = w.select(by_columns, c0, word(0)), w.select(by_columns, c1, self.columns)

        def group(g: Value, totals: State) -> State:
            slot = w.select(by_rows, self.thread, g)
            start = w.mul(g, height)
            self._clear_columns(slot, c0, c1)
            return self._row_blocks(slot, w.add(start, r0), w.add(start, r1), c0, c1, totals)

        return w.loop(g0, g1, 1, self._initial_totals(), group)

    def _row_blocks(
        self, slot: Value, r0: Value, r1: Value, c0: Value, c1: Value, totals: State
    ) -> State:
        w = self.w
        loop = self.plan.loops[0]
        bases = [self.column_part(slot, k) for k in range(len(self.plan.column_reductions))]

        def block(first: Value, totals: State) -> State:
            last = smallest(w, w.add(first, word(ROW_BLOCK)), r1)

            def columns(c: Value, totals: State) -> State:
                reduced = loop.column_reductions + loop.all_reductions
                starts = [
                    scalars.neutral(self.plan.node(v).op, self.dtype(v), self.lanes)
                    for v in reduced
                ]
                ends = self._walk(
                    first, last, starts, lambda r, o, s: Row(self, r, o).columns_at(loop, c, c1, s)
                )
                for base, v in zip(bases, loop.column_reductions, strict=True):
                    self.join_column(v, base, c, ends[loop.column_reductions.index(v)])
                return self.join_totals(
                    loop.all_reductions, ends[len(loop.column_reductions):], totals
                )

            return w.loop(c0, c1, self.lanes, totals, columns)

        return w.loop(r0, r1, ROW_BLOCK, totals, block)

    def join_column(self, value: int, base: Value, c: Value, part: Value) -> None:
        """Combine one vector of partial results with what the scratch row holds."""
        w, size = self.w, memory.computed_size(self.dtype(value))
        at = w.address(base, c, size)
        before = Value(w.load(at, part.llvm, size), part.dtype, part.lanes)
        w.store_value(scalars.reduction(self.plan.node(value).op, w, before, part), at, size)

    def join_totals(self, reduced: list[int], parts: State, totals: State) -> State:
        """Fold vectors of partial results of full reductions into this thread's totals."""
        result = list(totals)
        for v, part in zip(reduced, parts, strict=True):
            op = self.plan.node(v).op
            one = self.w.fold(part, lambda a, b, op=op: scalars.reduction(op, self.w, a, b))
            place = self.plan.all_reductions.index(v)
            one = scalars.cast(self.w, one, self.total_dtype(v))
            result[place] = scalars.reduction(op, self.w, result[place], one)
        return result


class Row:
    """The code of one row: its addresses, its values, its loops over columns."""

    def __init__(
        self, worker: Worker, r: Value, outer: list[Value], record: Value | None = None
    ) -> None:
        self.worker, self.w, self.plan = worker, worker.w, worker.plan
        self.kernel, self.lanes = worker.kernel, worker.lanes
        self.r, self.outer, self.record = r, outer, record
        self.values: dict[int, Value] = dict(worker.scalar_values)
        self.addresses: dict[int, Value] = {}
        self.kept: dict[int, Value] = {}
        self.indices: dict[tuple[int, str], Value] = {}

    # --- addresses ---------------------------------------------------------------------------------
    def address(self, number: int) -> Value:
        """Where this row of operand `number` starts."""
        if number not in self.addresses:
            self.addresses[number] = self._find(number)
        return self.addresses[number]

    def _find(self, number: int) -> Value:
        w, plan = self.w, self.plan
        inputs = len(self.kernel.inputs)
        if number < inputs:
            operand = self.kernel.inputs[number]
            dtype, level, index = operand.dtype, operand.level, operand.gather
        else:
            output = self.kernel.outputs[number - inputs]
            dtype, level, index = output.dtype, plan.levels.level[output.value], output.scatter
            level = "row" if level == "row" else "element"
        base = self.worker.bases[number]
        if level in ("scalar", "column"):
            return base
        if self.record is not None and level == "element":
            return Value(w.load(w.address(self.record, word(2 + number), 8), "ptr", 8), "ptr")
        outer = list(self.outer)
        if index is not None:
            outer = [self._checked(index, self.worker.limits[number])]
        offset = word(0)
        for i, stride in zip(outer, self.worker.strides[number], strict=True):
            term = w.mul(i, stride)
            offset = term if offset.text == "0" else w.add(offset, term)
        return w.address(base, offset, STORED[dtype][1])

    def _checked(self, index: int, limit: Value) -> Value:
        """A row index in range: negative ones from the end; beyond, row 0 and a bad status."""
        key = (index, limit.text)
        if key not in self.indices:
            self.indices[key] = self._bounded(self.narrow(index), limit)
        return self.indices[key]

    def _bounded(self, value: Value, limit: Value) -> Value:
        w = self.w
        i = scalars.cast(w, value, "int64")
        i = w.select(w.compare("slt", i, word(0)), w.add(i, limit), i)
        good = w.compare("ult", i, limit)

        def complain() -> list[Value]:
            at = w.let(f"getelementptr i64, ptr %args, i64 {words.STATUS}", "ptr")
            w.store_value(word(words.BAD_INDEX), at, 8)
            return [word(0)]

        return w.branch(good, lambda: [i], complain)[0]

    # --- row and scalar values -------------------------------------------------------------------------
    def narrow(self, value: int) -> Value:
        """A row- or scalar-level value (its reductions have been made)."""
        if value not in self.values:
            self.values[value] = self._make_narrow(value)
        return self.values[value]

    def _make_narrow(self, value: int) -> Value:
        w = self.w
        if not self.plan.is_node(value):
            return memory.load_one(w, self.address(value), self.kernel.inputs[value].dtype)
        node = self.plan.node(value)
        if node.op == "row_index":
            return scalars.cast(w, self.r, node.dtype)
        if node.op == "outer_index":
            return scalars.cast(w, self.outer[node.attr("axis", 0)], node.dtype)
        if node.op == "pick":
            return self._pick(node)
        if node.op.startswith("row_"):
            raise ValueError(f"{node}: reduces a value that is not wide")
        return self.worker.narrow_node(node, [self.narrow(a) for a in node.args])

    def _pick(self, node: Node) -> Value:
        number = node.args[0]
        operand = self.kernel.inputs[number]
        column = self._checked_column(node.args[1])
        if operand.strided:
            column = self.w.mul(column, self.worker.column_strides[number])
        at = self.w.address(self.address(number), column, STORED[operand.dtype][1])
        return memory.load_one(self.w, at, operand.dtype)

    def _checked_column(self, index: int) -> Value:
        return self._checked(index, self.worker.columns)

    # --- the whole row -----------------------------------------------------------------------------------
    def run(self, c0: Value, c1: Value, totals: State) -> State:
        """All loops of this row over columns c0 .. c1, its row outputs, its share of the totals."""
        for place, v in enumerate(self.plan.spills):
            self.kept[v] = self.worker.kept_part(self.worker.threads, self.worker.thread, place)
        for loop in self.plan.loops:
            totals = self._run_loop(loop, c0, c1, totals)
        w = self.w
        for n in self.plan.row_outputs:
            output = self.kernel.outputs[n]
            at = self.address(len(self.kernel.inputs) + n)
            value = self.narrow(output.value)
            if output.combine == "add":
                value = w.add(memory.load_one(w, at, output.dtype), value)
            memory.store_one(w, value, at, output.dtype)
        result = list(totals)
        for v in self.plan.row_alls:
            place, node = self.plan.all_reductions.index(v), self.plan.node(v)
            one = scalars.cast(w, self.narrow(node.args[0]), self.worker.total_dtype(v))
            result[place] = scalars.reduction(node.op, w, result[place], one)
        return result

    def _prepare(self, loop: Loop) -> None:
        """Make addresses and narrow values before the loop, so that they are made once."""
        for v in sorted(loop.loads):
            self.address(v)
        for n in loop.stores:
            self.address(len(self.kernel.inputs) + n)
        for v in sorted(self.plan.narrow_needs(loop.nodes) | self._narrow_roots(loop)):
            self.narrow(v)

    def _narrow_roots(self, loop: Loop) -> set[int]:
        return {v for v in self.plan.roots(loop) if not self.plan.wide(v)}

    def _run_loop(self, loop: Loop, c0: Value, c1: Value, totals: State) -> State:
        self._prepare(loop)
        starts = self._starts(loop)
        if self.plan.sums_floats(loop.row_reductions + loop.all_reductions):
            ends = self._blocked(loop, c0, c1, starts)
        else:
            ends = self._vectors(loop, c0, c1, c1, starts)
        used = 0
        for v in loop.row_reductions:
            width = self._width(v)
            self.values[v] = self._fold(v, ends[used : used + width])
            used += width
        return self.worker.join_totals(loop.all_reductions, ends[used:], totals)

    def _width(self, v: int) -> int:
        return 2 if self.plan.node(v).op in ("row_argmax", "row_argmin") else 1

    def _starts(self, loop: Loop) -> State:
        starts: State = []
        for v in loop.row_reductions + loop.all_reductions:
            node = self.plan.node(v)
            if self._width(v) == 2:
                kind = "row_max" if node.op == "row_argmax" else "row_min"
                source = self.worker.dtype(node.args[0])
                starts.append(scalars.neutral(kind, source, self.lanes))
                starts.append(constant(NO_INDEX, "int32", self.lanes))
            else:
                starts.append(scalars.neutral(node.op, self.worker.dtype(v), self.lanes))
        return starts

    def _fold(self, v: int, parts: State) -> Value:
        node, w = self.plan.node(v), self.w
        if len(parts) == 1:
            return w.fold(parts[0], lambda a, b: scalars.reduction(node.op, w, a, b))
        value, index = parts
        while value.lanes > 1:
            low, high = w.halve(value)
            low_index, high_index = w.halve(index)
            better = self._beats(node.op, high, high_index, low, low_index)
            value = w.select(better, high, low)
            index = w.select(better, high_index, low_index)
        unset = w.compare("eq", index, constant(NO_INDEX, "int32"))
        return scalars.cast(w, w.select(unset, constant(0, "int32"), index), node.dtype)

    def _beats(self, op: str, a: Value, i: Value, b: Value, j: Value | None) -> Value:
        """Whether (a, i) goes before (b, j): larger, or NaN first; among equals the lower index."""
        w = self.w
        better = scalars.compare(w, "greater" if op == "row_argmax" else "less", a, b)
        same = scalars.compare(w, "equal", a, b)
        if is_float(a.dtype):
            nan_a, nan_b = w.compare("uno", a, a), w.compare("uno", b, b)
            fresh = w.bits_and(nan_a, w.bits_xor(nan_b, w.like(nan_b, 1)))
            better = w.bits_or(better, fresh)
            same = w.bits_or(same, w.bits_and(nan_a, nan_b))
        if j is None:
            return better
        return w.bits_or(better, w.bits_and(same, w.compare("slt", i, j)))

    def _combine(self, loop: Loop, a: State, b: State) -> State:
        result: State = []
        used = 0
        for v in loop.row_reductions + loop.all_reductions:
            node = self.plan.node(v)
            if self._width(v) == 2:
                better = self._beats(node.op, b[used], b[used + 1], a[used], a[used + 1])
                result.append(self.w.select(better, b[used], a[used]))
                result.append(self.w.select(better, b[used + 1], a[used + 1]))
            else:
                result.append(scalars.reduction(node.op, self.w, a[used], b[used]))
            used += self._width(v)
        return result

    def _blocked(self, loop: Loop, c0: Value, c1: Value, starts: State) -> State:
        w = self.w

        def block(first: Value, sums: State) -> State:
            last = smallest(w, w.add(first, word(BLOCK)), c1)
            return self._combine(loop, sums, self._vectors(loop, first, last, c1, starts))

        return w.loop(c0, c1, BLOCK, starts, block)

    def _vectors(self, loop: Loop, c0: Value, last: Value, end: Value, starts: State) -> State:
        before = self._splats(loop)
        masked = bool(loop.row_reductions or loop.all_reductions)

        def vector(c: Value, state: State) -> State:
            body = Body(self, loop, c, end, dict(before), masked)
            body.run()
            reduced = loop.row_reductions + loop.all_reductions
            self._join_columns(loop, body)
            result: State = []
            for v in reduced:
                result += self._accumulate(v, body, state[len(result):])
            body.store()
            return result

        return self.w.loop(c0, last, self.lanes, starts, vector)

    def _join_columns(self, loop: Loop, body: Body) -> None:
        for v in loop.column_reductions:
            place = self.plan.column_reductions.index(v)
            base = self.worker.column_part(self.worker.thread, place)
            self.worker.join_column(v, base, body.c, body.value(self.plan.node(v).args[0]))

    def _splats(self, loop: Loop) -> dict[int, Value]:
        needs = self.plan.narrow_needs(loop.nodes) | self._narrow_roots(loop)
        return {v: self.w.splat(self.narrow(v), self.lanes) for v in sorted(needs)}

    def _accumulate(self, v: int, body: Body, state: State) -> State:
        node = self.plan.node(v)
        x = body.value(node.args[0])
        if self._width(v) == 2:
            kind = "row_max" if node.op == "row_argmax" else "row_min"
            x = body.only_inside(x, scalars.neutral(kind, x.dtype, self.lanes))
            index = body.column_numbers("int32")
            better = self._beats(node.op, x, index, state[0], None)
            return [self.w.select(better, x, state[0]), self.w.select(better, index, state[1])]
        x = body.only_inside(x, scalars.neutral(node.op, x.dtype, self.lanes))
        return [scalars.reduction(node.op, self.w, state[0], x)]

    def columns_at(self, loop: Loop, c: Value, end: Value, state: State) -> State:
        """One vector of columns of this row in a by-column kernel."""
        self._prepare(loop)
        body = Body(self, loop, c, end, self._splats(loop), bool(loop.all_reductions))
        body.run()
        result: State = []
        for v in loop.column_reductions + loop.all_reductions:
            x = body.value(self.plan.node(v).args[0])
            if v in loop.all_reductions:
                x = body.only_inside(x, scalars.neutral(self.plan.node(v).op, x.dtype, self.lanes))
            result.append(scalars.reduction(self.plan.node(v).op, self.w, state[len(result)], x))
        body.store()
        return result


class Body:
    """One vector of columns: its loads, its nodes, its stores."""

    def __init__(
        self,
        row: Row,
        loop: Loop,
        c: Value,
        end: Value,
        values: dict[int, Value],
        masked: bool,
    ) -> None:
        self.row, self.loop, self.c, self.masked = row, loop, c, masked
        self.w, self.plan, self.kernel, self.lanes = row.w, row.plan, row.kernel, row.lanes
        self.values = values
        self.rest = self.w.sub(end, c)
        self.full = self.w.compare("sge", self.rest, word(self.lanes))
        self.mask: Value | None = None
        self.added: dict[int, Value] = {}

    def value(self, number: int) -> Value:
        return self.w.splat(self.values[number], self.lanes)

    def run(self) -> None:
        """Loads and nodes."""
        self._load()
        for v in sorted(self.loop.restored):
            self.values[v] = self._restore(v)
        for v in sorted(self.loop.nodes):
            self.values[v] = self._node(v)
            if v in self.loop.spilled:
                self._keep(v)

    # --- loads ---------------------------------------------------------------------------------------
    def _load(self) -> None:
        w = self.w
        operands = sorted(self.loop.loads)
        inputs = len(self.kernel.inputs)
        added = [n for n in self.loop.stores if self.kernel.outputs[n].combine == "add"]
        items = [(v, self.kernel.inputs[v].dtype, self.kernel.inputs[v].strided) for v in operands]
        items += [
            (inputs + n, self.kernel.outputs[n].dtype, self.kernel.outputs[n].strided)
            for n in added
        ]
        if not items and not self.masked:
            return

        def all_lanes() -> list[Value]:
            loaded = [self._load_item(*item, count=word(self.lanes), mask=None) for item in items]
            ones = constant(-1, "int32", self.lanes)
            return loaded + ([ones] if self.masked else [])

        def some_lanes() -> list[Value]:
            mask = memory.tail_mask(w, self.rest, self.lanes)
            loaded = [self._load_item(*item, count=self.rest, mask=mask) for item in items]
            return loaded + ([w.convert("sext", mask, "int32")] if self.masked else [])

        loaded = w.branch(self.full, all_lanes, some_lanes)
        if self.masked:
            bits = loaded.pop()
            self.mask = w.compare("slt", bits, w.like(bits, 0))
        for (number, dtype, _), raw in zip(items, loaded, strict=True):
            value = memory.from_storage(w, raw, dtype)
            if number < inputs:
                self.values[number] = value
            else:
                self.added[number - inputs] = value

    def _load_item(
        self, number: int, dtype: str, strided: bool, count: Value, mask: Value | None
    ) -> Value:
        w = self.w
        size = STORED[dtype][1]
        if strided:
            stride = self.row.worker.column_strides[number]
            at = w.address(self.row.address(number), w.mul(self.c, stride), size)
            return memory.load_lanes(w, at, dtype, self.lanes, count, stride)
        at = w.address(self.row.address(number), self.c, size)
        if mask is None:
            return memory.load_full(w, at, dtype, self.lanes)
        return memory.load_tail(w, at, dtype, self.lanes, count, mask)

    # --- nodes -----------------------------------------------------------------------------------------
    def _node(self, v: int) -> Value:
        node = self.plan.node(v)
        if node.op == "column_index":
            return self.column_numbers(node.dtype)
        if node.op == "random_bits":
            return self._random_bits(node)
        return scalars.apply(self.w, node, [self.value(a) for a in node.args])

    def column_numbers(self, dtype: str) -> Value:
        w = self.w
        start = w.splat(scalars.cast(w, self.c, "int32"), self.lanes)
        numbers = w.add(start, lane_numbers("int32", self.lanes))
        return scalars.cast(w, numbers, dtype)

    def _random_bits(self, node: Node) -> Value:
        """The word of element i: word i % 4 of Philox's block i // 4."""
        w = self.w
        element = w.add(w.mul(self.row.r, self.row.worker.columns), self.c)
        count = self.lanes // 4 if node.attr("aligned") else self.lanes
        if node.attr("aligned"):
            first = w.splat(w.shift_right(element, 2), count)
            block = w.add(first, lane_numbers("int64", count))
        else:
            index = w.add(w.splat(element, count), lane_numbers("int64", count))
            block = w.shift_right(index, 2)
        low = w.convert("trunc", block, "uint32")
        high = w.convert("trunc", w.shift_right(block, 32), "uint32")
        keys = [w.splat(w.extract(self.value(a), 0), count) for a in node.args]
        found = scalars.philox(w, [low, high, keys[2], keys[3]], keys[:2])
        if node.attr("aligned"):
            return self._interleave(found)
        which = w.bits_and(w.convert("trunc", index, "uint32"), constant(3, "uint32", count))
        result = found[3]
        for k in (2, 1, 0):
            result = w.select(w.compare("eq", which, w.like(which, k)), found[k], result)
        return result

    def _interleave(self, four: list[Value]) -> Value:
        w, n = self.w, four[0].lanes
        pairs = [w.shuffle(four[k], four[k + 1], range(2 * n)) for k in (0, 2)]
        order = [(k % 4 % 2) * n + k // 4 + (2 * n if k % 4 >= 2 else 0) for k in range(4 * n)]
        return w.shuffle(pairs[0], pairs[1], order)

    def only_inside(self, x: Value, otherwise: Value) -> Value:
        """x in lanes that are columns, `otherwise` beyond the last."""
        assert self.mask is not None
        return self.w.select(self.mask, x, otherwise)

    # --- values kept between loops ------------------------------------------------------------------------
    def _kept_at(self, v: int) -> tuple[Value, str]:
        dtype = self.kernel.dtype_of(v)
        return self.w.address(self.row.kept[v], self.c, memory.computed_size(dtype)), dtype

    def _keep(self, v: int) -> None:
        at, dtype = self._kept_at(v)
        stored = memory.to_storage(self.w, self.value(v), dtype)
        self.w.store_value(stored, at, memory.computed_size(dtype))

    def _restore(self, v: int) -> Value:
        at, dtype = self._kept_at(v)
        return memory.from_storage(
            self.w, memory.load_full(self.w, at, dtype, self.lanes), dtype
        )

    # --- stores -------------------------------------------------------------------------------------------
    def store(self) -> None:
        """Write the loop's outputs."""
        if not self.loop.stores:
            return
        w = self.w
        ready = []
        for n in self.loop.stores:
            output = self.kernel.outputs[n]
            value = self.value(output.value)
            if n in self.added:
                value = w.add(self.added[n], value)
            ready.append((n, memory.to_storage(w, value, output.dtype)))

        def all_lanes() -> list[Value]:
            for n, value in ready:
                self._store_item(n, value, word(self.lanes), None)
            return []

        def some_lanes() -> list[Value]:
            mask = memory.tail_mask(w, self.rest, self.lanes)
            for n, value in ready:
                self._store_item(n, value, self.rest, mask)
            return []

        w.branch(self.full, all_lanes, some_lanes)

    def _store_item(self, n: int, value: Value, count: Value, mask: Value | None) -> None:
        w, output = self.w, self.kernel.outputs[n]
        number = len(self.kernel.inputs) + n
        size = STORED[output.dtype][1]
        if output.strided:
            stride = self.row.worker.column_strides[number]
            at = w.address(self.row.address(number), w.mul(self.c, stride), size)
            memory.store_lanes(w, value, at, output.dtype, count, stride)
            return
        at = w.address(self.row.address(number), self.c, size)
        if mask is None:
            memory.store_full(w, value, at, output.dtype)
        else:
            memory.store_tail(w, value, at, output.dtype, count, mask)
