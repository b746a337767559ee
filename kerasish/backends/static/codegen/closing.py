"""The code after the last row: combine the threads' parts in order, nodes after reductions."""

from __future__ import annotations

from kerasish.backends.static.codegen import arguments as words
from kerasish.backends.static.codegen import memory, scalars
from kerasish.backends.static.codegen.part import Part, State, word
from kerasish.backends.static.codegen.plan import LoopPlan
from kerasish.backends.static.machine.assembly import STORED, Target, Value


class Closing(Part):
    """`void closing(ptr args)`."""

    def __init__(self, plan: LoopPlan, target: Target) -> None:
        super().__init__(plan, target)
        self.threads = self.w.load_word(self.args, words.THREADS)

    @staticmethod
    def needed(plan: LoopPlan) -> bool:
        """Whether a kernel writes anything that is known only after all rows."""
        return any(
            plan.after(o.value) or plan.levels.level[o.value] == "scalar"
            for o in plan.kernel.outputs
        )

    def write(self) -> str:
        for place, v in enumerate(self.plan.all_reductions):
            self.scalar_values[v] = self._total(place, v)
        outputs = list(enumerate(self.kernel.outputs))
        columns = [n for n, o in outputs if self.plan.after(o.value) and self.plan.wide(o.value)]
        needed = self._needed(columns)
        # All scalars before the first store: an output may share memory with an input.
        for v in sorted(self.plan.narrow_needs(needed - set(self.plan.column_reductions))):
            self.scalar(v)
        scalar = [n for n, o in outputs if self.plan.levels.level[o.value] == "scalar"]
        values = [self.scalar(self.kernel.outputs[n].value) for n in scalar]
        for n, value in zip(scalar, values, strict=True):
            at = self.bases[len(self.kernel.inputs) + n]
            memory.store_one(self.w, value, at, self.kernel.outputs[n].dtype)
        if columns:
            self._columns(columns, needed)
        self.w.do("ret void")
        return self.w.body()

    def _total(self, place: int, v: int) -> Value:
        w, node, dtype = self.w, self.plan.node(v), self.total_dtype(v)

        def add(t: Value, state: State) -> State:
            part = w.load_value(self.total_part(self.threads, t, place), dtype)
            return [scalars.reduction(node.op, w, state[0], part)]

        start = scalars.neutral(node.op, dtype, 1)
        total = w.loop(word(0), self.threads, 1, [start], add)[0]
        return scalars.cast(w, total, self.dtype(v))

    def _columns(self, outputs: list[int], needed: set[int]) -> None:
        w = self.w
        find = self._slots_by_column if self.plan.by_column else self._slots_by_row

        def group(g: Value, _: State) -> State:
            slots = find(g)

            def vector(c: Value, _: State) -> State:
                self._vector(outputs, needed, slots, g, c)
                return []

            w.loop(word(0), self.columns, self.lanes, [], vector)
            return []

        w.loop(word(0), self.groups, 1, [], group)

    def _slots_by_column(self, g: Value) -> tuple[Value, Value]:
        """The slots of a group's parts: one slot, or those of all threads that share its rows."""
        w = self.w
        by_rows = self.shares(self.threads)[2]
        return (
            w.select(by_rows, word(0), g),
            w.select(by_rows, self.threads, w.add(g, word(1))),
        )

    def _slots_by_row(self, g: Value) -> tuple[Value, Value]:
        """The slots of a group's parts: those of all threads that processed rows of it."""
        w, height = self.w, self.height()
        start = w.mul(g, height)
        stop = w.add(start, height)

        def count(t: Value, state: State) -> State:
            first, last = self.row_share(self.rows, t, self.threads)
            done, begun = w.compare("sle", last, start), w.compare("slt", first, stop)
            return [
                w.add(state[0], w.convert("zext", done, "int64")),
                w.add(state[1], w.convert("zext", begun, "int64")),
            ]

        done, begun = w.loop(word(0), self.threads, 1, [word(0), word(0)], count)
        return w.add(g, done), w.add(g, begun)

    def _needed(self, outputs: list[int]) -> set[int]:
        todo = [self.kernel.outputs[n].value for n in outputs]
        seen: set[int] = set()
        while todo:
            v = todo.pop()
            if v in seen or not self.plan.wide(v):
                continue
            seen.add(v)
            if self.plan.is_node(v) and v not in self.plan.column_reductions:
                todo.extend(self.plan.node(v).args)
        return seen

    def _vector(
        self, outputs: list[int], needed: set[int], slots: tuple[Value, Value], g: Value, c: Value
    ) -> None:
        w, lanes = self.w, self.lanes
        rest = w.sub(self.columns, c)
        mask = memory.tail_mask(w, smallest_int(self, rest), lanes)
        count = smallest_int(self, rest)
        values: dict[int, Value] = {}

        def value(v: int) -> Value:
            return values[v] if v in values else w.splat(self.scalar(v), lanes)

        for v in sorted(needed):
            if not self.plan.is_node(v):
                operand = self.kernel.inputs[v]
                at = w.address(self.bases[v], c, STORED[operand.dtype][1])
                raw = memory.load_tail(w, at, operand.dtype, lanes, count, mask)
                values[v] = memory.from_storage(w, raw, operand.dtype)
            elif v in self.plan.column_reductions:
                values[v] = self._reduced(v, slots, c)
            elif self.plan.node(v).op == "column_index":
                start = w.splat(scalars.cast(w, c, "int32"), lanes)
                numbers = w.add(start, memory.lane_numbers("int32", lanes))
                values[v] = scalars.cast(w, numbers, self.plan.node(v).dtype)
            else:
                node = self.plan.node(v)
                values[v] = scalars.apply(w, node, [value(a) for a in node.args])
        for n in outputs:
            output, number = self.kernel.outputs[n], len(self.kernel.inputs) + n
            at = w.add(w.mul(g, self.columns), c)
            at = w.address(self.bases[number], at, STORED[output.dtype][1])
            result = values[output.value]
            if output.combine == "add":
                raw = memory.load_tail(w, at, output.dtype, lanes, count, mask)
                result = w.add(memory.from_storage(w, raw, output.dtype), result)
            stored = memory.to_storage(w, result, output.dtype)
            memory.store_tail(w, stored, at, output.dtype, count, mask)

    def _reduced(self, v: int, slots: tuple[Value, Value], c: Value) -> Value:
        """One vector of a column reduction: the parts in a group's slots, in order."""
        w, node, dtype = self.w, self.plan.node(v), self.dtype(v)
        place = self.plan.column_reductions.index(v)
        size = memory.computed_size(dtype)

        def add(slot: Value, state: State) -> State:
            at = w.address(self.column_part(slot, place), c, size)
            part = Value(w.load(at, state[0].llvm, size), dtype, self.lanes)
            return [scalars.reduction(node.op, w, state[0], part)]

        start = scalars.neutral(node.op, dtype, self.lanes)
        return w.loop(*slots, 1, [start], add)[0]


def smallest_int(part: Part, rest: Value) -> Value:
    """The columns in this vector."""
    limit = word(part.lanes)
    return part.w.select(part.w.compare("slt", rest, limit), rest, limit)
