"""The code of one row: its addresses, its row values, its loops over columns, its reductions."""

from __future__ import annotations

from kerasish.backends.static.codegen import arguments as words
from kerasish.backends.static.codegen import memory, scalars
from kerasish.backends.static.codegen.body import Body, RowPosition
from kerasish.backends.static.codegen.description import LoopNode
from kerasish.backends.static.codegen.part import Share, State, smallest, word
from kerasish.backends.static.codegen.plan import Loop
from kerasish.backends.static.machine.assembly import STORED, Value, constant, is_float

BLOCK = 4096  # columns that are summed before their sum is added to that of the row
NO_INDEX = 2**31 - 1


class Row:
    """The code of one row: its addresses, its values, its loops over columns."""

    def __init__(
        self,
        worker: Share,
        r: Value,
        outer: list[Value],
        record: Value | None = None,
        slot: Value | None = None,
    ) -> None:
        self.worker, self.w, self.plan = worker, worker.w, worker.plan
        self.kernel, self.lanes = worker.kernel, worker.lanes
        self.r, self.outer, self.record, self.slot = r, outer, record, slot
        self.values: dict[int, Value] = dict(worker.scalar_values)
        self.addresses: dict[int, Value] = {}
        self.kept: dict[int, Value] = {}
        self.indices: dict[tuple[int, str], Value] = {}
        self.place = RowPosition(r, self.address, self.kept)

    # --- addresses --------------------------------------------------------------------------------
    def address(self, number: int) -> Value:
        """The address of this row of operand `number`."""
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
        """A row index in range, negative ones from the end; else row 0, and status 2 is set."""
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

    # --- row and scalar values --------------------------------------------------------------------
    def narrow(self, value: int) -> Value:
        """A row- or scalar-level value (its reductions are done)."""
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

    def _pick(self, node: LoopNode) -> Value:
        number = node.args[0]
        operand = self.kernel.inputs[number]
        column = self._checked_column(node.args[1])
        if operand.strided:
            column = self.w.mul(column, self.worker.column_strides[number])
        at = self.w.address(self.address(number), column, STORED[operand.dtype][1])
        return memory.load_one(self.w, at, operand.dtype)

    def _checked_column(self, index: int) -> Value:
        return self._checked(index, self.worker.columns)

    # --- the whole row ----------------------------------------------------------------------------
    def run(self, c0: Value, c1: Value, totals: State) -> State:
        """All loops of this row over columns c0 .. c1, its row outputs, its share of the totals."""
        for place, v in enumerate(self.plan.spills):
            self.kept[v] = self.worker.kept_part(self.worker.threads, self.worker.thread, place)
        for loop in self.plan.loops:
            totals = self._run_loop(loop, c0, c1, totals)
        w = self.w
        # All values before the first store: an output may use the memory of an input.
        values = [self.narrow(self.kernel.outputs[n].value) for n in self.plan.row_outputs]
        for n, value in zip(self.plan.row_outputs, values, strict=True):
            output = self.kernel.outputs[n]
            at = self.address(len(self.kernel.inputs) + n)
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
        """Compute addresses and narrow values before the loop, so that they are computed once."""
        # Elements picked from an input are read before the input may be overwritten.
        for v in self.plan.picks:
            if self.plan.levels.phase[v] <= loop.phase:
                self.narrow(v)
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
        """Whether (a, i) ranks before (b, j): larger, or NaN first; for equals the lower index."""
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
            body = Body(self.worker, self.place, loop, c, end, dict(before), masked)
            body.run()
            reduced = loop.row_reductions + loop.all_reductions
            self._join_columns(loop, body)
            result: State = []
            for v in reduced:
                result += self._accumulate(v, body, state[len(result) :])
            body.store()
            return result

        return self.w.loop(c0, last, self.lanes, starts, vector)

    def _join_columns(self, loop: Loop, body: Body) -> None:
        for v in loop.column_reductions:
            assert self.slot is not None
            base = self.worker.column_part(self.slot, self.plan.column_reductions.index(v))
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

    def columns_at(
        self, loop: Loop, c: Value, end: Value, state: State, known: dict[int, Value]
    ) -> State:
        """One vector of columns of this row in a by-column kernel.

        Args:
            known: the vectors of `LoopPlan.columns_read`.
        """
        self._prepare(loop)
        masked = bool(loop.all_reductions)
        values = {**self._splats(loop), **known}
        body = Body(self.worker, self.place, loop, c, end, values, masked)
        body.run()
        result: State = []
        for v in loop.column_reductions + loop.all_reductions:
            x = body.value(self.plan.node(v).args[0])
            if v in loop.all_reductions:
                x = body.only_inside(x, scalars.neutral(self.plan.node(v).op, x.dtype, self.lanes))
            result.append(scalars.reduction(self.plan.node(v).op, self.w, state[len(result)], x))
        body.store()
        return result
