"""The base of all parts of a kernel's code: sizes, operands, scratch memory, totals."""

from __future__ import annotations

from kerasish.backends.static.codegen import arguments as words
from kerasish.backends.static.codegen import memory, scalars
from kerasish.backends.static.codegen.description import SIZES, LoopNode, constant_value
from kerasish.backends.static.codegen.plan import LoopPlan
from kerasish.backends.static.machine.assembly import Target, Value, Writer, constant, is_float

State = list[Value]


def word(number: int) -> Value:
    return constant(number, "int64")


def largest(w: Writer, a: Value, b: Value) -> Value:
    return w.select(w.compare("sgt", a, b), a, b)


def smallest(w: Writer, a: Value, b: Value) -> Value:
    return w.select(w.compare("slt", a, b), a, b)


def divide(w: Writer, a: Value, b: Value) -> Value:
    """floor(a / b) of sizes, in float64: LLVM needs three blocks for each integer division."""
    quotient = w.div(w.convert("sitofp", a, "float64"), w.convert("sitofp", b, "float64"))
    return w.convert("fptosi", quotient, "int64")


class Part:
    """Sizes, operands and scratch memory, as the worker and the closing part use them."""

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
        """The number of rows of partial results of a column reduction."""
        if self.plan.by_column:
            return largest(self.w, threads, self.groups)
        return self.w.add(threads, self.groups)

    def column_part(self, slot: Value, place: int) -> Value:
        """The row of partial results of column reduction number `place` in a slot."""
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

    # --- shares of rows --------------------------------------------------------------------------
    def row_share(self, rows: Value, thread: Value, threads: Value) -> tuple[Value, Value]:
        """The first row of a thread's share, and the row after its last."""
        w = self.w
        first = divide(w, w.mul(rows, thread), threads)
        last = divide(w, w.mul(rows, w.add(thread, word(1))), threads)
        return first, last

    def height(self) -> Value:
        """Rows in a group."""
        return divide(self.w, self.rows, largest(self.w, self.groups, word(1)))

    # --- values of one lane -----------------------------------------------------------------------
    def scalar(self, value: int) -> Value:
        """A scalar-level value that needs no reduction; computed once, at its first use."""
        if value not in self.scalar_values:
            if not self.plan.is_node(value):
                dtype = self.kernel.inputs[value].dtype
                result = memory.load_one(self.w, self.bases[value], dtype)
            else:
                node = self.plan.node(value)
                result = self.narrow_node(node, [self.scalar(a) for a in node.args])
            self.scalar_values[value] = result
        return self.scalar_values[value]

    def narrow_node(self, node: LoopNode, args: list[Value]) -> Value:
        w = self.w
        if node.op == "constant":
            return constant(constant_value(node), self._computed(node))
        if node.op in SIZES:
            return scalars.cast(w, self._size(node.op), self._computed(node))
        return scalars.apply(w, node, args)

    def _computed(self, node: LoopNode) -> str:
        return memory.computed(node.dtype)

    def _size(self, name: str) -> Value:
        if name == "rows":
            return self.rows
        return self.columns if name == "columns" else divide(self.w, self.rows, self.groups)

    def total_dtype(self, value: int) -> str:
        """Full reductions of floats add up in float64."""
        return "float64" if is_float(self.dtype(value)) else self.dtype(value)

    def shares(self, threads: Value) -> tuple[Value, Value, Value]:
        """How threads divide a by-column kernel: flags (by groups, by columns, by rows)."""
        w = self.w
        many = w.compare("sge", self.groups, threads)
        wide = w.compare("sge", self.columns, w.mul(threads, word(words.PAD)))
        single = w.compare("eq", self.groups, word(1))
        by_columns = w.select(many, constant(0, "bool"), wide)
        neither = w.bits_xor(w.bits_or(many, wide), constant(1, "bool"))
        # One thread with one group divides by groups; its slot is 0 in each of the cases.
        return many, by_columns, w.bits_and(neither, single)


class Share(Part):
    """A part of which each thread runs its share."""

    def __init__(self, plan: LoopPlan, target: Target) -> None:
        super().__init__(plan, target)
        self.thread, self.threads = Value("%t", "int64"), Value("%n", "int64")
        for v in range(plan.count):
            if plan.levels.level[v] == "scalar" and not plan.after(v):
                self.scalar(v)

    def join_column(self, value: int, base: Value, c: Value, part: Value) -> None:
        """Combine one vector of partial results with the content of the scratch row."""
        w, size = self.w, memory.computed_size(self.dtype(value))
        at = w.address(base, c, size)
        before = Value(w.load(at, part.llvm, size), part.dtype, part.lanes)
        w.store_value(scalars.reduction(self.plan.node(value).op, w, before, part), at, size)

    def fold(self, op: str, part: Value) -> Value:
        """All lanes of a partial result reduced to one number."""
        return self.w.fold(part, lambda a, b: scalars.reduction(op, self.w, a, b))

    def join_totals(self, reduced: list[int], parts: State, totals: State) -> State:
        """Fold vectors of partial results of full reductions into this thread's totals."""
        result = list(totals)
        for v, part in zip(reduced, parts, strict=True):
            op = self.plan.node(v).op
            one = self.fold(op, part)
            place = self.plan.all_reductions.index(v)
            one = scalars.cast(self.w, one, self.total_dtype(v))
            result[place] = scalars.reduction(op, self.w, result[place], one)
        return result
