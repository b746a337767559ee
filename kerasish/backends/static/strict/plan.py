"""Describes a compiled plan for `graph.plan_check`: what each unit reads and writes, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.lowering.units import CopyUnit, Unit, nbytes_of
from kerasish.graph.ir import Value
from kerasish.graph.plan_check import Access, PlanError, PlanStep, check_plan


def check_compiled_plan(compiled_plan: CompiledPlan) -> None:
    """Raise if a unit of a compiled plan would read other bytes than it expects.

    Raises:
        PlanError: names the unit, the expected content and the actual content.
    """
    walk = _Walk(compiled_plan)
    graph = compiled_plan.graph
    sizes: dict[Any, int] = {"arena": compiled_plan.plan.nbytes}
    before = [walk.access(v) for v in (*graph.inputs, *graph.constants) if v.size]
    before += [walk.access(old) for old, _ in compiled_plan.updates if old.size]
    for access in before:
        if access.memory != "arena":
            sizes[access.memory] = access.nbytes
    asked: dict[int, list[Value]] = {}
    for v, number in zip(compiled_plan.conditions, compiled_plan.condition_units()):
        asked.setdefault(number, []).append(v)
    lane_of = {
        number: (group.first, lane.start)
        for group in compiled_plan.groups
        for lane in group.lanes
        for number in lane
    }
    steps = [walk.check(v) for v in asked.get(-1, [])]
    for number, unit in enumerate(compiled_plan.units):
        step = walk.step(unit)._replace(lane=lane_of.get(number))
        steps += [step, *map(walk.check, asked.get(number, []))]
    steps += [walk.copy(root, old) for root, old in compiled_plan.copies]
    after = [walk.access(v) for v in graph.outputs[: _results(compiled_plan)] if v.size]
    after += [
        walk.access(new, compiled_plan.root(old)) for old, new in compiled_plan.updates if new.size
    ]
    check_plan(sizes, before, steps, after)


def _results(compiled_plan: CompiledPlan) -> int:
    """Return the number of outputs of the graph that are results.

    Neither new values of variables nor conditions, which are read in the middle of a run.
    """
    plan = compiled_plan
    return len(plan.graph.outputs) - len(plan.updates) - len(plan.conditions)


class _Walk:
    """The contents and their places in memory.

    A value that no unit writes has the content of the value that it aliases. A value that a unit
    writes is a new content, even in the memory of another value: a product that is added to an
    existing value ends the lifetime of that value.
    """

    def __init__(self, compiled_plan: CompiledPlan) -> None:
        self._compiled_plan = compiled_plan
        writers: dict[Value, list[Unit]] = {}
        for unit in compiled_plan.units:
            for v in unit.writes:
                writers.setdefault(v, []).append(unit)
        self._written = set(writers)
        self._copied = {
            v: units[0].reads[0]
            for v, units in writers.items()
            if len(units) == 1 and isinstance(units[0], CopyUnit)
        }

    def content(self, v: Value) -> Value:
        aliases = self._compiled_plan.aliases
        while True:
            if v in self._copied:
                v = self._copied[v]
            elif v not in self._written and v in aliases:
                v = aliases[v]
            else:
                return v

    def access(self, v: Value, where: Value | None = None) -> Access:
        """Return the bytes of v, at its own place or at that of another value."""
        return self._at(self.content(v), v if where is None else where, nbytes_of(v))

    def check(self, v: Value) -> PlanStep:
        """Return the step that compares a condition's value with its answer."""
        return PlanStep("condition", (self.access(v),) if v.size else (), ())

    def _at(self, content: Any, key: Any, nbytes: int) -> Access:
        compiled_plan = self._compiled_plan
        root = compiled_plan.root(key) if isinstance(key, Value) else key
        variable = compiled_plan.buffer_of(root)
        if variable is not None:
            return Access(content, ("variable", variable), 0, nbytes)
        if root in compiled_plan.constants:
            return Access(content, ("constant", root), 0, nbytes)
        if root not in compiled_plan.plan.offsets:
            raise PlanError(f"{root} has no place in the arena")
        return Access(content, "arena", compiled_plan.plan.offsets[root], nbytes)

    def step(self, unit: Unit) -> PlanStep:
        reads = [self.access(v) for v in unit.reads if v.size]
        writes = [self.access(v) for v in unit.writes if v.size]
        key = unit.workspace_key
        if key is not None:
            access = self._at(key, key, unit.workspace_bytes)
            (writes if unit.fills_workspace else reads).append(access)
        if unit.scratch:
            scratch = ("scratch", unit)
            writes.append(self._at(scratch, scratch, unit.scratch))
        return PlanStep(unit.name, tuple(reads), tuple(writes), self._in_place(unit))

    def copy(self, root: Value, old: Value) -> PlanStep:
        """Return the step that copies a new value into its variable after all units."""
        new = next((n for o, n in self._compiled_plan.updates if o is old), root)
        source = self._at(self.content(new), root, nbytes_of(root))
        return PlanStep("copy", (source,), (self._at(source.content, old, nbytes_of(old)),))

    def _in_place(self, unit: Unit) -> frozenset[Any]:
        """Return the values that may share memory according to the unit or the builder."""
        pairs = set()
        for v in unit.writes:
            read = unit.in_place_of(v)
            if read is not None:
                if not unit.may_share(v, read):
                    raise PlanError(f"{unit.name} writes {v} in place of {read}, but may not")
                pairs.add((self.content(v), self.content(read)))
            pairs |= {(self.content(v), self.content(a)) for a in self._begun(v, unit.reads)}
        return frozenset(pairs)

    def _begun(self, v: Value, reads: Sequence[Value]) -> list[Value]:
        """Return the initial value of v: the read value whose memory the builder assigned to v."""
        before = self._compiled_plan.aliases.get(v)
        return [r for r in reads if before is not None and r is before]
