"""One thread's share of a kernel: its rows and columns, and their order."""

from __future__ import annotations

from collections.abc import Callable

from kerasish.backends.static.codegen import arguments as words
from kerasish.backends.static.codegen import memory, scalars
from kerasish.backends.static.codegen.part import Share, State, divide, largest, smallest, word
from kerasish.backends.static.codegen.plan import Loop
from kerasish.backends.static.codegen.rows import Row
from kerasish.backends.static.machine.assembly import STORED, Value, constant

# Rows summed before their sums are added to those of the group: a number that prefetchers handle.
ROW_BLOCK = 8
SHORT_ROWS = 64  # rows of one or two vectors that are computed vector by vector


class Worker(Share):
    """One thread's share: `void worker(ptr args, i64 thread, i64 threads)`."""

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

    # --- shares -----------------------------------------------------------------------------------
    def _row_share(self, rows: Value) -> tuple[Value, Value]:
        return self.row_share(rows, self.thread, self.threads)

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

    # --- loops over rows --------------------------------------------------------------------------
    def _over_rows(self) -> State:
        w, plan = self.w, self.plan
        if plan.scatters:
            by_columns = constant(1, "bool")
        elif plan.columns_free or self._only_totals():
            by_columns = w.compare("slt", self.rows, w.shift_left(self.threads, 2))
        else:
            by_columns = constant(0, "bool")
        r0, r1, c0, c1 = self._either(by_columns, self.rows)
        if plan.tiled and not self.kernel.segments:
            height = self.w.target.lanes
            return self._row_blocks(height, word(0), r0, r1, c0, c1, self._initial_totals())
        if plan.narrow:
            return self._row_blocks(SHORT_ROWS, word(0), r0, r1, c0, c1, [])
        if plan.column_reductions:
            return self._over_groups(r0, r1)

        def row(r: Value, outer: list[Value], totals: State) -> State:
            return Row(self, r, outer).run(c0, c1, totals)

        return self._walk(r0, r1, self._initial_totals(), row)

    def _over_groups(self, r0: Value, r1: Value) -> State:
        """Rows with row reductions and reductions into the columns of their group.

        Rows of thread t that belong to group g reduce into slot g + t. Each thread's rows follow
        those of the thread before, so no two pairs (thread, group) use the same slot. A thread
        without rows also clears its slot.
        """
        w = self.w
        height = largest(w, self.height(), word(1))
        g0 = divide(w, r0, height)
        g1 = divide(w, w.add(r1, w.sub(height, word(1))), height)

        def group(g: Value, totals: State) -> State:
            slot = w.add(g, self.thread)
            self._clear_columns(slot, word(0), self.columns)
            start = w.mul(g, height)
            first, last = largest(w, r0, start), smallest(w, r1, w.add(start, height))

            def row(r: Value, outer: list[Value], totals: State) -> State:
                return Row(self, r, outer, slot=slot).run(word(0), self.columns, totals)

            return self._walk(first, last, totals, row)

        return w.loop(g0, largest(w, g1, w.add(g0, word(1))), 1, self._initial_totals(), group)

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
        """Rows first .. last, tracking the outer indices."""
        w, rank = self.w, self.kernel.rank
        if rank == 1:
            return w.loop(first, last, 1, carried, lambda r, c: row(r, [r], c))
        start: list[Value] = []
        rest = first
        for size in reversed(self.outer):
            safe = largest(w, size, word(1))
            start.insert(0, w.two("srem", rest, safe))
            rest = w.two("sdiv", rest, safe)

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
        w = self.w
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
            mine = w.bits_and(w.compare("sge", start, first), w.compare("slt", start, last_start))
            return w.branch(
                mine,
                lambda: Row(self, r, [r], record).run(word(0), size, totals),
                lambda: totals,
            )

        return w.loop(word(0), self.rows, 1, self._initial_totals(), segment)

    # --- column reductions in registers -----------------------------------------------------------
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
        unshared = w.bits_xor(
            w.bits_or(by_groups, w.bits_or(by_columns, by_rows)), constant(1, "bool")
        )
        idle = w.bits_and(unshared, w.compare("ne", self.thread, word(0)))
        g0, g1 = self._row_share(self.groups)
        g0 = w.select(by_groups, g0, word(0))
        g1 = w.select(by_groups, g1, w.select(idle, word(0), self.groups))
        height = self.height()
        r0, r1 = self._row_share(height)
        r0, r1 = w.select(by_rows, r0, word(0)), w.select(by_rows, r1, height)
        c0, c1 = self._column_share(self.columns)
        c0, c1 = w.select(by_columns, c0, word(0)), w.select(by_columns, c1, self.columns)

        def group(g: Value, totals: State) -> State:
            slot = w.select(by_rows, self.thread, g)
            start = w.mul(g, height)
            self._clear_columns(slot, c0, c1)
            first, last = w.add(start, r0), w.add(start, r1)
            return self._row_blocks(ROW_BLOCK, slot, first, last, c0, c1, totals)

        return w.loop(g0, g1, 1, self._initial_totals(), group)

    def _row_blocks(
        self, height: int, slot: Value, r0: Value, r1: Value, c0: Value, c1: Value, totals: State
    ) -> State:
        w = self.w
        loop = self.plan.loops[0]
        bases = [self.column_part(slot, k) for k in range(len(self.plan.column_reductions))]

        def block(first: Value, totals: State) -> State:
            last = smallest(w, w.add(first, word(height)), r1)

            def columns(c: Value, totals: State) -> State:
                reduced = loop.column_reductions + loop.all_reductions
                starts = [
                    scalars.neutral(self.plan.node(v).op, self.dtype(v), self.lanes)
                    for v in reduced
                ]
                known = self._columns_read(loop, c, c1)

                def row(r: Value, outer: list[Value], sums: State) -> State:
                    return Row(self, r, outer).columns_at(loop, c, c1, sums, known)

                ends = self._walk(first, last, starts, row)
                for base, v in zip(bases, loop.column_reductions, strict=True):
                    self.join_column(v, base, c, ends[loop.column_reductions.index(v)])
                return self.join_totals(
                    loop.all_reductions, ends[len(loop.column_reductions) :], totals
                )

            return w.loop(c0, c1, self.lanes, totals, columns)

        return w.loop(r0, r1, height, totals, block)

    def _columns_read(self, loop: Loop, c: Value, end: Value) -> dict[int, Value]:
        """Load one vector of each input that is the same in all rows."""
        w, lanes = self.w, self.lanes
        numbers = self.plan.columns_read(loop)
        if not numbers:
            return {}
        dtypes = [self.kernel.inputs[v].dtype for v in numbers]
        places = [w.address(self.bases[v], c, STORED[d][1]) for v, d in zip(numbers, dtypes)]
        rest = w.sub(end, c)

        def every() -> list[Value]:
            return [memory.load_full(w, at, d, lanes) for at, d in zip(places, dtypes)]

        def some() -> list[Value]:
            mask = memory.tail_mask(w, rest, lanes)
            return [memory.load_tail(w, at, d, lanes, rest, mask) for at, d in zip(places, dtypes)]

        loaded = w.branch(w.compare("sge", rest, word(lanes)), every, some)
        return {v: memory.from_storage(w, raw, d) for v, raw, d in zip(numbers, loaded, dtypes)}
