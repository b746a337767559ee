"""An executable: a compiled plan with memory; its records form one table, run by one native call.

The NumPy kernel of an op without native code runs between native stretches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen.driver import (
    Program,
    Record,
    aligned,
    callback_record,
    condition_record,
)
from kerasish.backends.static.codegen.nested_records import (
    bytes_of_records,
    concurrent_record,
    with_nested,
)
from kerasish.backends.static.codegen.team import using_team
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.lowering.units import (
    CopyUnit,
    EffectUnit,
    Place,
    PythonUnit,
    Unit,
    UnitGroup,
    nbytes_of,
    place_of,
    threads_records,
    view_of,
)
from kerasish.backends.static.runtime.kept import KeptWeights
from kerasish.backends.static.strict import memory as strict_memory
from kerasish.backends.static.strict import records as strict_records
from kerasish.changes import note_change
from kerasish.graph.ir import Value
from kerasish.ops.basic import printing
from kerasish.typing import Array


class Executable:
    """A compiled plan with memory: an arena, and the buffers of its variables.

    Args:
        compiled_plan: the units, and the offsets of values in an arena.
        buffers: graph input -> the buffer of that variable: its array, and the number of writes.
        answers: the arrays that the plan's conditions must be equal to.
        kept: the kept weights of another executable of this plan and these buffers, to share them;
            None: new ones.
    """

    def __init__(
        self,
        compiled_plan: CompiledPlan,
        buffers: Mapping[Value, Any],
        answers: Sequence[Array] = (),
        kept: KeptWeights | None = None,
    ) -> None:
        self._answers = list(answers)
        self.lock = threading.Lock()
        self.compiled_plan = compiled_plan
        self._views: dict[Value, Array] = {}
        self.units, self.plan = compiled_plan.units, compiled_plan.plan
        self._buffers = {v: place_of(b.array) for v, b in buffers.items()}
        self._keep = list(buffers.values())
        self._changed = [buffers[old] for old, _ in compiled_plan.updates]
        self.kept = KeptWeights(self.units, buffers) if kept is None else kept
        self._watch = strict_memory.watch_of(compiled_plan)
        if self._watch is None:
            self._owner, self._address = aligned(self.plan.nbytes)
            self._offsets = self.plan.offsets
        else:
            self._owner, self._address = self._watch.owner, self._watch.address
            self._offsets = self._watch.offsets
        with compiled_plan.lock, using_team(compiled_plan.team):
            self.parts = self._assemble()
        graph = compiled_plan.graph
        self.inputs = [view_of(self.locate(v), v) for v in graph.inputs if v not in buffers]

    @property
    def is_native(self) -> bool:
        """Whether a run is one native call."""
        return all(isinstance(p, Program) for p in self.parts)

    @property
    def most_threads(self) -> int:
        """The largest number of threads of a part."""
        return max((unit.threads or 1 for unit in self.units), default=1)

    @property
    def nbytes_of_records(self) -> int:
        """The bytes of the native calls: their arguments, and the lists of them."""
        programs = [part for part in self.parts if isinstance(part, Program)]
        return sum(p.table.nbytes + bytes_of_records(p.records) for p in programs)

    def locate(self, key: Any) -> Place:
        """Return the place of a value, or of a unit's scratch memory."""
        compiled_plan = self.compiled_plan
        key = compiled_plan.root(key) if isinstance(key, Value) else key
        buffer = compiled_plan.buffer_of(key)
        if buffer is not None:
            return self._buffers[buffer]
        constant = compiled_plan.constants.get(key) or self.kept.place(key)
        if constant is not None:
            return constant
        return Place(self._address + self._offsets[key], compiled_plan.sizes[key])

    def _assemble(self) -> list[Any]:
        parts: list[Any] = []
        records: list[Record] = []

        def close() -> None:
            if records:
                parts.append(Program(_with_threads(records)))
                records.clear()

        watch = self._watch
        self._units_of: dict[int, Unit] = {}  # by the record's id; the programs keep the records
        checks = self._conditions()
        # What is printed before the last condition holds must be printed by one path only.
        holds = bool(self._answers) and any(map(_may_print, self.units))
        if holds:
            records.append(callback_record(printing.hold, "hold prints"))
        records.extend(checks.get(-1, ()))
        decided = max(checks, default=-1)
        if holds and decided == -1:
            records.append(callback_record(printing.release, "release prints"))
        copies = [CopyUnit(root, old) for root, old in self.compiled_plan.copies]
        groups = {group.first: group for group in self.compiled_plan.groups}
        together = {n for group in groups.values() for n in range(group.first + 1, group.stop)}
        for step, unit in enumerate([*self.units, *copies]):
            if step in groups:
                records.extend(self._together(groups[step]))
            elif isinstance(unit, PythonUnit):
                records.extend([] if watch is None else watch.before(step, self.locate))
                close()
                parts.append(unit.make_call(self.locate))
                records.extend([] if watch is None else watch.after(step, self.locate))
            elif step not in together:
                records.extend(self._records(step, unit))
            records.extend(checks.get(step, ()))
            if holds and step == decided:
                records.append(callback_record(printing.release, "release prints"))
        close()
        return parts

    def _records(self, step: int, unit: Unit) -> list[Record]:
        """Return the records of a unit, with those that check it in strict memory."""
        records = unit.records(self.locate)
        self._units_of.update((id(record), unit) for record in with_nested(records))
        watch = self._watch
        if watch is None:
            return records
        checked = strict_records.named(records)
        return [*watch.before(step, self.locate), *checked, *watch.after(step, self.locate)]

    def _together(self, group: UnitGroup) -> list[Record]:
        """Return the records of units that run at the same time."""
        one = threads_records(1)  # in each thread OpenMP starts with its default number
        lists = [
            [*one, *(record for step in lane for record in self._records(step, self.units[step]))]
            for lane in group.lanes
        ]
        record = concurrent_record(lists, f"{len(lists)} branches at the same time")
        late = [] if self._watch is None else self._watch.after_group(group, self.locate)
        return [record, *late]

    def _conditions(self) -> dict[int, list[Record]]:
        """Return number of a unit -> the records that check conditions after it."""
        results: dict[int, list[Record]] = {}
        plan = self.compiled_plan
        pairs = zip(plan.conditions, plan.condition_units(), self._answers)
        for number, (value, unit, answer) in enumerate(pairs):
            if answer.nbytes != nbytes_of(value):
                raise ValueError(
                    f"condition {number}: {value!r} cannot be compared with {answer!r}"
                )
            record = condition_record(number, self.locate(value).address, answer)
            results.setdefault(unit, []).append(record)
        return results

    def describe(self) -> str:
        """Return a text with the units in order and the memory that they share."""
        lines = [
            f"  {'native' if u.native else 'numpy '} {u.name} -> "
            + ", ".join(f"{v.dtype}{list(v.shape)}" for v in u.writes)
            for u in self.units
        ]
        for group in self.compiled_plan.groups:
            for number, lane in enumerate(group.lanes):
                for step in lane:
                    lines[step] += f" (branch {number + 1} of {len(group.counts)})"
        plan = self.plan
        return "\n".join([*lines, f"  arena {plan.nbytes:,} bytes, unshared {plan.naive:,}"])

    def output(self, v: Value) -> Array:
        """Return a copy of an output of the last run."""
        return self.view(v).copy()

    def view(self, v: Value) -> Array:
        """Return the array in which runs leave an output."""
        view = self._views.get(v)
        if view is None:
            view = self._views[v] = view_of(self.locate(v), v)
        return view

    def unit_of(self, record: Record) -> Unit | None:
        """Return the unit that a record belongs to; None for those between units."""
        return self._units_of.get(id(record))

    def run_timed(self) -> list[tuple[str, Unit | None, float]]:
        """Run once; return the name, the unit if there is one, and the seconds of each record."""
        results: list[tuple[str, Unit | None, float]] = []
        python = iter(unit for unit in self.units if isinstance(unit, PythonUnit))

        def run(part: Any) -> None:
            if isinstance(part, Program):
                for record, seconds in part.run_timed():
                    results.append((record.name or "record", self.unit_of(record), seconds))
            else:
                start = time.perf_counter()
                part()
                unit = next(python)
                results.append((unit.name, unit, time.perf_counter() - start))

        self._run_parts(run)
        return results

    def run(self) -> None:
        """Run once on the content of `inputs` and the variables' buffers.

        Raises:
            RecordError: an index is out of range, for example; see `inspection.explained`.
        """
        self._run_parts(_run_part)

    def run_sharing(self) -> None:
        """Run once, with kept weights that are up to date: concurrent runs share them.

        Raises:
            RecordError: see `run`.
        """
        for part in self.parts:
            part.run()

    def begin(self) -> None:
        """Note which weights have been written since they were last reordered."""
        self.kept.begin()

    def done(self) -> None:
        """Note that what ran since `begin` has ended."""
        self.kept.done()

    def _run_parts(self, run: Callable[[Any], None]) -> None:
        self.begin()
        try:
            for part in self.parts:
                run(part)
        except BaseException:
            for buffer in self._changed:  # some may have been written already
                buffer.writes += 1
            note_change()
            raise
        self.done()


def _run_part(part: Any) -> None:
    if isinstance(part, Program):
        part.run()
        return
    try:
        part()
    except BaseException:
        printing.release()
        raise


def _may_print(unit: Unit) -> bool:
    control = isinstance(unit, PythonUnit) and unit.node.op.kind == "control"
    return control or isinstance(unit, EffectUnit)


def _with_threads(records: Sequence[Record]) -> list[Record]:
    """Insert a change of OpenMP's number of threads before each oneDNN call that needs it."""
    if native.available():
        return list(records)
    usual = native.openmp_threads()
    now = usual
    result: list[Record] = []
    for record in records:
        threads = getattr(record.keep, "threads", None)
        if threads is not None and threads != now:
            result += threads_records(threads)
            now = threads
        result.append(record)
    if now != usual:
        result += threads_records(usual)
    return result
