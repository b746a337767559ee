"""An executable: units placed in memory, their records in one table, run as one native call.

Where some op has no native code, its NumPy kernel runs between native stretches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.backends.static import native
from kerasish.backends.static.build import Builder
from kerasish.backends.static.driver import (
    Program,
    Record,
    RecordError,
    aligned,
    load_runtime,
)
from kerasish.backends.static.kernels import compile_many
from kerasish.backends.static.onednn_primitive import threads_block
from kerasish.backends.static.units import CopyUnit, Place, PythonUnit, Unit, nbytes_of, view_of
from kerasish.graph.ir import Graph, Value
from kerasish.graph.plan import Lifetime, plan_memory


class Memory:
    """Where a program's values lie: the arena, constants, and the homes of variables."""

    def __init__(
        self,
        graph: Graph,
        units: Sequence[Unit],
        aliases: dict[Value, Value],
        homes: dict[Value, Any],
        updates: Sequence[tuple[Value, Value]],
    ) -> None:
        self.graph, self.units, self.aliases = graph, list(units), aliases
        self._homes = {v: _place_of(a) for v, a in homes.items()}
        self._fixed: dict[Any, Place] = dict(self._homes)
        self._keep: list[Any] = list(homes.values())
        for v, array in graph.constants.items():
            array = np.ascontiguousarray(array).reshape(np.shape(array))
            if array.size == 0:
                array = np.zeros(1, array.dtype)
            self._keep.append(array)
            self._fixed[v] = _place_of(array)
        self.copies: list[tuple[Any, Value]] = []
        self._place_updates(updates)
        self._plan()

    def root(self, v: Any) -> Any:
        """Return the value whose memory v is."""
        while v in self.aliases:
            v = self.aliases[v]
        return v

    # --- updates in place ---------------------------------------------------------------------

    def _place_updates(self, updates: Sequence[tuple[Value, Value]]) -> None:
        """Let new values of variables lie in the variables' homes where nobody is hurt by it."""
        maker: dict[Value, int] = {}
        last_read: dict[Value, int] = {}
        for i, unit in enumerate(self.units):
            for v in unit.writes:
                maker[self.root(v)] = i
            for v in unit.reads:
                last_read[self.root(v)] = i
        for old, new in updates:
            root = self.root(new)
            if root is old:
                continue
            at = maker.get(root)
            free = at is not None and root not in self._fixed
            if free:
                unit = self.units[at]  # type: ignore[index]
                reader = last_read.get(old, -1)
                alone = reader < at or (reader == at and _shares(unit, root, old))  # type: ignore[operator]
                if alone and nbytes_of(root) == nbytes_of(old):
                    if reader == at:
                        unit.share(root, old)  # type: ignore[attr-defined]
                    self._fixed[root] = self._homes[old]
                    continue
            self.copies.append((root, old))
        # A copy at the end must not read a home that another copy has overwritten by then.
        overwritten = {old for _, old in self.copies} | {
            old for old, new in updates if self._fixed.get(self.root(new)) == self._homes[old]
        }
        for i, (root, old) in enumerate(self.copies):
            if root in overwritten and root is not old:
                saved = Value(root.shape, root.dtype)
                self.units.insert(0, CopyUnit(root, saved))
                self.copies[i] = (saved, old)

    # --- arena ------------------------------------------------------------------------------------

    def _plan(self) -> None:
        first: dict[Any, int] = {}
        last: dict[Any, int] = {}
        size: dict[Any, int] = {}

        def touch(key: Any, step: int, nbytes: int) -> None:
            if key in self._fixed:
                return
            first.setdefault(key, step)
            last[key] = max(last.get(key, step), step)
            size[key] = max(size.get(key, 0), nbytes)

        for v in self.graph.inputs:
            if v not in self._fixed:
                touch(v, -1, nbytes_of(v))
        for step, unit in enumerate(self.units):
            for v in (*unit.reads, *unit.writes):
                touch(self.root(v), step, nbytes_of(v))
            if unit.scratch:
                touch(("scratch", unit), step, unit.scratch)
            key = getattr(unit, "workspace_key", None)
            if key is not None:
                workspace = unit.primitive.workspace  # type: ignore[attr-defined]
                touch(key, step, workspace.nbytes)
        end = len(self.units)
        for v in self.graph.outputs:
            touch(self.root(v), end, nbytes_of(v))
        for root, _ in self.copies:
            touch(root, end, nbytes_of(root))
        lives = {k: Lifetime(first[k], last[k], size[k]) for k in first}
        self.plan = plan_memory(lives)
        self._owner, self.address = aligned(self.plan.nbytes)
        self._sizes = size

    def locate(self, key: Any) -> Place:
        """Return where a value (or a unit's scratch) lies."""
        key = self.root(key) if isinstance(key, Value) else key
        fixed = self._fixed.get(key)
        if fixed is not None:
            return fixed
        return Place(self.address + self.plan.offsets[key], self._sizes[key])


def _shares(unit: Unit, written: Value, read: Value) -> bool:
    return unit.may_share(written, read)


def _place_of(array: Any) -> Place:
    return Place(array.ctypes.data, array.nbytes)


class Executable:
    """A graph ready to run.

    Args:
        graph: optimised and fused.
        homes: graph input -> the array where that variable lives.
        updates: (graph input, graph output): the output is the new value of the variable.
        kernel_of: op -> NumPy kernel, for ops without native code.
    """

    def __init__(
        self,
        graph: Graph,
        homes: dict[Value, Any],
        updates: Sequence[tuple[Value, Value]],
        kernel_of: Callable[[Any], Callable[..., Any]],
    ) -> None:
        self.lock = threading.Lock()
        builder = Builder(graph, kernel_of)
        units = builder.build()
        self.memory = Memory(graph, units, builder.aliases, homes, updates)
        self.units = self.memory.units
        self.graph = graph
        self.parts = self._assemble()
        self.inputs = [view_of(self.memory.locate(v), v) for v in graph.inputs if v not in homes]

    @property
    def is_native(self) -> bool:
        """Whether a run is one native call."""
        return all(isinstance(p, Program) for p in self.parts)

    def _assemble(self) -> list[Any]:
        kernels = [k for u in self.units if u.native for k in u.kernels()]
        compile_many(kernels)
        locate = self.memory.locate
        parts: list[Any] = []
        records: list[Record] = []

        def close() -> None:
            if records:
                parts.append(Program(_with_threads(records)))
                records.clear()

        for unit in self.units:
            if isinstance(unit, PythonUnit):
                close()
                parts.append(unit.make_call(locate))
            else:
                records.extend(unit.records(locate))
        for root, old in self.memory.copies:
            records.extend(CopyUnit(root, old).records(locate))
        close()
        return parts

    def describe(self) -> str:
        """Return the units in order, and how much memory they share."""
        lines = [
            f"  {'native' if u.native else 'numpy '} {u.name} -> "
            + ", ".join(f"{v.dtype}{list(v.shape)}" for v in u.writes)
            for u in self.units
        ]
        plan = self.memory.plan
        return "\n".join([*lines, f"  arena {plan.nbytes:,} bytes, unshared {plan.naive:,}"])

    def output(self, v: Value) -> Any:
        """Return a copy of an output of the last run."""
        return np.array(view_of(self.memory.locate(v), v))

    def run(self) -> None:
        """Run once on what lies in `inputs` and the homes."""
        for part in self.parts:
            if isinstance(part, Program):
                try:
                    part.run()
                except RecordError as error:
                    if "out of range" in str(error):
                        raise IndexError(
                            f"An index is out of range: {error}. Are all labels or token numbers "
                            "below the size of the table?"
                        ) from error
                    raise
            else:
                part()


def _with_threads(records: Sequence[Record]) -> list[Record]:
    """Put a change of OpenMP's number of threads before each oneDNN call that needs it."""
    if native.available():
        return list(records)
    usual = native.openmp_threads()
    runtime = load_runtime()
    now, made = usual, []

    def change(count: int) -> None:
        block = threads_block(count)
        if len(block):
            made.append(Record(runtime.call_threads, block, "threads"))

    for record in records:
        binding = getattr(record, "binding", None)
        wanted = getattr(binding, "threads", None)
        if wanted is not None and wanted != now:
            change(wanted)
            now = wanted
        made.append(record)
    if now != usual:
        change(usual)
    return made
