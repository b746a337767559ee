"""The loop plan of a kernel: its loops, the values of each, the values kept between them."""

from __future__ import annotations

from functools import lru_cache

from kerasish.backends.static.codegen.description import Kernel, LoopNode, verify
from kerasish.backends.static.codegen.loop_ops import (
    ALL_REDUCTIONS,
    COLUMN_REDUCTIONS,
    EXPENSIVE,
    ROW_REDUCTIONS,
)
from kerasish.backends.static.machine.assembly import STORED, Target


class Loop:
    """One pass over the columns of a row: what it computes, stores and reduces."""

    def __init__(self, phase: int) -> None:
        self.phase = phase
        self.nodes: set[int] = set()
        self.loads: set[int] = set()
        self.restored: set[int] = set()
        self.spilled: list[int] = []
        self.stores: list[int] = []
        self.row_reductions: list[int] = []
        self.column_reductions: list[int] = []
        self.all_reductions: list[int] = []

    @property
    def empty(self) -> bool:
        return not (
            self.stores or self.row_reductions or self.column_reductions or self.all_reductions
        )


@lru_cache(maxsize=4096)
def plan_loops(kernel: Kernel) -> LoopPlan:
    """The loop plan of a kernel, computed once.

    Raises:
        ValueError: the kernel's structure is wrong (see `verify`).
    """
    return LoopPlan(kernel)


class LoopPlan:
    """The loops of a kernel, and the properties that decide how threads share it.

    Attributes:
        by_column: whether the innermost loop runs over rows (column reductions stay in registers).
        columns_free: whether threads may share columns instead of rows.
        tiled: whether the innermost loop runs over a few rows at a time.
        narrow: the same, so that columns that are read in each row are loaded once.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.levels = verify(kernel)
        self.base = len(kernel.inputs)
        self.count = self.base + len(kernel.nodes)
        self.row_reductions = self._named(ROW_REDUCTIONS)
        self.column_reductions = self._named(COLUMN_REDUCTIONS)
        self.all_reductions = self._named(ALL_REDUCTIONS)
        self.picks = self._named(("pick",))
        self.scatters = any(o.scatter is not None for o in kernel.outputs)
        self.row_outputs = [n for n, o in enumerate(kernel.outputs) if self._is_row(o.value)]
        self.row_alls = [v for v in self.all_reductions if not self.wide(self.node(v).args[0])]
        self.columns_free = not (
            self.row_reductions or self.row_outputs or self.row_alls or self.column_reductions
        )
        self.by_column = bool(self.column_reductions) and not (
            self.row_reductions or self.row_outputs or self.row_alls
            or self.scatters or kernel.segments
        )  # fmt: skip
        if self.scatters and not self.columns_free:
            raise ValueError("a kernel that scatters rows can have no reductions or row outputs")
        self.loops = self._loops()
        # Strided columns are read or written in tiles, so that whole cache lines are used.
        self.tiled = self.columns_free and not self.scatters and self._strided()
        self.narrow = (
            self.columns_free and kernel.lanes > 0 and len(self.loops) == 1
            and not (self.scatters or self.picks or self.all_reductions or kernel.segments)
            and bool(self.columns_read(self.loops[0]))
        )  # fmt: skip
        self.spills = [v for loop in self.loops for v in loop.spilled]

    # --- questions ---------------------------------------------------------------------------
    def node(self, value: int) -> LoopNode:
        return self.kernel.nodes[value - self.base]

    def is_node(self, value: int) -> bool:
        return value >= self.base

    def wide(self, value: int) -> bool:
        """Whether a value has one number per column."""
        return self.levels.level[value] in ("element", "column")

    def is_rank_one(self, value: int) -> bool:
        """Whether a value is a number of the row times one of the column, of a float dtype.

        Such values are the terms of products, so they are also added without being rounded.
        """
        if not self.is_node(value) or self.node(value).op != "multiply":
            return False
        levels = {self.levels.level[a] for a in self.node(value).args}
        return levels == {"row", "column"} and self.kernel.dtype_of(value).startswith("float")

    def columns_read(self, loop: Loop) -> list[int]:
        """The inputs of a loop that are the same in each row."""
        level = self.levels.level
        loads = [v for v in loop.loads if level[v] == "column"]
        return sorted(v for v in loads if not self.kernel.inputs[v].strided)

    def _is_row(self, value: int) -> bool:
        return self.levels.level[value] == "row"

    def _strided(self) -> bool:
        read = any(i.strided for i in self.kernel.inputs)
        return len(self.loops) == 1 and (read or any(o.strided for o in self.kernel.outputs))

    def _named(self, names: tuple[str, ...]) -> list[int]:
        return [v for v in range(self.base, self.count) if self.node(v).op in names]

    def after(self, value: int) -> bool:
        return self.levels.after[value]

    def sums_floats(self, values: list[int]) -> bool:
        return any(
            self.node(v).op.endswith("_sum") and self.kernel.dtype_of(v).startswith("float")
            for v in values
        )

    def lanes(self, target: Target) -> int:
        """Values in one vector of this kernel."""
        if any(n.op == "random_bits" for n in self.kernel.nodes):
            return 4 * target.lanes
        most = self._most_lanes(target)
        return min(most, self.kernel.lanes or most)

    def _most_lanes(self, target: Target) -> int:
        ops = {n.op for n in self.kernel.nodes}
        wide = any(
            STORED[self.kernel.dtype_of(v)][1] == 8 and self.wide(v) for v in range(self.count)
        )
        if self.tiled or ops & EXPENSIVE - {"divide", "sqrt", "rsqrt"}:
            return target.lanes
        if self.kernel.segments:
            return target.lanes
        return target.lanes if wide else 2 * target.lanes

    # --- making the loops ----------------------------------------------------------------------
    def _loops(self) -> list[Loop]:
        loops = [Loop(p) for p in range(max(self.levels.phase, default=0) + 1)]
        phase = self.levels.phase
        for v in self.row_reductions:
            if self.wide(self.node(v).args[0]):
                loops[phase[self.node(v).args[0]]].row_reductions.append(v)
        for v in self.column_reductions:
            loops[phase[self.node(v).args[0]]].column_reductions.append(v)
        for v in self.all_reductions:
            if v not in self.row_alls:
                loops[phase[self.node(v).args[0]]].all_reductions.append(v)
        written = [
            n for n, o in enumerate(self.kernel.outputs)
            if self.wide(o.value) and not self.after(o.value)
        ]  # fmt: skip
        in_place = any(
            self.kernel.outputs[n].in_place is not None or self.kernel.outputs[n].combine == "add"
            for n in written
        )
        used = [loop.phase for loop in loops if not loop.empty]
        last = max(used + [phase[self.kernel.outputs[n].value] for n in written], default=0)
        for n in written:
            loops[last if in_place else phase[self.kernel.outputs[n].value]].stores.append(n)
        loops = [loop for loop in loops if not loop.empty]
        self._fill(loops)
        return loops

    def roots(self, loop: Loop) -> list[int]:
        """The wide values that a loop must compute."""
        reduced = loop.row_reductions + loop.column_reductions + loop.all_reductions
        return [self.kernel.outputs[n].value for n in loop.stores] + [
            self.node(v).args[0] for v in reduced
        ]

    def _fill(self, loops: list[Loop]) -> None:
        first: dict[int, Loop] = {}
        for loop in loops:
            todo = self.roots(loop)
            seen: set[int] = set()
            while todo:
                v = todo.pop()
                if v in seen or not self.wide(v):
                    continue
                seen.add(v)
                if not self.is_node(v):
                    loop.loads.add(v)
                    continue
                if v in first and self.node(v).op in EXPENSIVE:
                    loop.restored.add(v)
                    if v not in first[v].spilled:
                        first[v].spilled.append(v)
                    continue
                loop.nodes.add(v)
                todo.extend(self.node(v).args)
            for v in loop.nodes:
                first.setdefault(v, loop)

    def narrow_needs(self, values: set[int]) -> set[int]:
        """The row and scalar values that these wide values read directly."""
        return {a for v in values if self.is_node(v) for a in self.node(v).args if not self.wide(a)}
