"""The strict mode of the tests: every wrong use of a program's memory is an error.

With KERASISH_STRICT_MEMORY (its values are in `guard_pages`) an executable

- checks its plan by `graph.plan_check`, which does not use lifetimes;
- places its blocks between guard pages;
- fills a block with signaling NaNs (0xA5 for integers and booleans) before the unit that first
  writes it and after the unit that reads it last, and variables that are written but not read;
- checks before a unit that its inputs contain none of these, and after it that its outputs contain
  none and were computed from none, and that nothing around those blocks has changed;
- writes the name of each record into a file before it runs (`records.name_file`): after a crash it
  names the record that accessed a guard page.

Records between those of the units do all of this, so the driver, loops over rows and control flow
stay the same. Integers of 8 and 16 bits are filled but not checked: any of their values may be
correct.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kerasish.backends.static.codegen.driver import Record
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.lowering.units import (
    CopyUnit,
    Locate,
    Place,
    Unit,
    UnitGroup,
    nbytes_of,
)
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.machine.guard_pages import Range
from kerasish.backends.static.strict.plan import check_compiled_plan
from kerasish.backends.static.strict.records import compare, fill, search
from kerasish.graph.ir import Value


def watch_of(compiled_plan: CompiledPlan) -> MemoryWatch | None:
    """Return the Watch for an executable's memory; None if strict mode is off."""
    mode = guard_pages.mode()
    return MemoryWatch(compiled_plan, mode) if mode else None


class MemoryWatch:
    """The memory of one executable, and the records that check it.

    Args:
        compiled_plan: the units; the memory plan is checked.
        mode: one of `guard_pages.mode`, not "".

    Attributes:
        offsets: key -> offset from `address`; keys as in the compiled plan's plan.
        owner: keeps the memory alive.
    """

    def __init__(self, compiled_plan: CompiledPlan, mode: str) -> None:
        check_compiled_plan(compiled_plan)
        self._compiled_plan, self._shared = compiled_plan, mode == "shared"
        plan, sizes = compiled_plan.plan, compiled_plan.sizes
        if self._shared:
            self.owner, self.address = guard_pages.block(plan.nbytes)
            self.offsets = dict(plan.offsets)
        else:
            keys = list(plan.offsets)
            blocks = guard_pages.Blocks([sizes[k] for k in keys], mode == "start")
            self.owner, self.address = blocks.owner, int(blocks.owner.ctypes.data)
            self.offsets = {k: at - self.address for k, at in zip(keys, blocks.addresses)}
        self.units = [*compiled_plan.units, *(CopyUnit(*ends) for ends in compiled_plan.copies)]
        self._first, self._last = self._uses()
        self._late = self._read_by_several()

    def _uses(self) -> tuple[dict[Any, int], dict[Any, int]]:
        """Return, by key, the index of the first writer, and of the last reader."""
        root = self._compiled_plan.root
        first: dict[Any, int] = {}
        last: dict[Any, int] = {}
        for step, unit in enumerate(self.units):
            for v in unit.writes:
                first.setdefault(root(v), step)
            for key in _further(unit):
                first.setdefault(key, step)
            last.update(dict.fromkeys(self._touched(unit), step))
        for v in (*self._compiled_plan.graph.inputs, *self._compiled_plan.constants):
            first.pop(v, None)  # they exist before the first unit
        for v in self._compiled_plan.graph.outputs:
            last.pop(root(v), None)
        return first, last

    def _read_by_several(self) -> dict[UnitGroup, list[Any]]:
        """Return, by group, the keys that several of its lists use, and no unit after it."""
        results: dict[UnitGroup, list[Any]] = {}
        for group in self._compiled_plan.groups:
            users: dict[Any, set[range]] = {}
            for lane in group.lanes:
                for step in lane:
                    for key in self._touched(self.units[step]):
                        users.setdefault(key, set()).add(lane)
            results[group] = [
                key for key, lanes in users.items()
                if len(lanes) > 1 and self._last.get(key, -1) in range(group.first, group.stop)
            ]  # fmt: skip
            for key in results[group]:
                del self._last[key]
        return results

    # --- the records around a unit ----------------------------------------------------------------

    def before(self, step: int, locate: Locate) -> list[Record]:
        """Return the records that check a unit's inputs and fill its outputs."""
        unit = self.units[step]
        results = []
        for v in dict.fromkeys(unit.reads):
            if v not in unit.unchecked and not self._begins(v, step):
                results += search(v, locate(v), f"{unit.name} reads {v!r}")
        for key in self._touched(unit):
            if self._begins(key, step):
                results += self._fill(key, locate(key))
        return results

    def after(self, step: int, locate: Locate) -> list[Record]:
        """Return the records that check outputs and their surroundings, and fill unused blocks."""
        unit = self.units[step]
        results = []
        for v in unit.writes:
            if v in unit.unchecked:
                continue
            results += search(v, locate(v), f"{unit.name} writes {v!r}")
        for key in self._touched(unit):
            for part in self._slack(key, locate(key)):
                results.append(compare(part, f"{unit.name} writes outside of {key!r}"))
            if self._last.get(key) == step and key in self.offsets:
                results += self._fill(key, locate(key))
        return results

    def after_group(self, group: UnitGroup, locate: Locate) -> list[Record]:
        """Return the records that fill what several lists of a group have read last."""
        keys = [key for key in self._late[group] if key in self.offsets]
        return [record for key in keys for record in self._fill(key, locate(key))]

    def _touched(self, unit: Unit) -> list[Any]:
        keys = [*map(self._compiled_plan.root, (*unit.reads, *unit.writes)), *_further(unit)]
        return list(dict.fromkeys(keys))

    def _begins(self, key: Any, step: int) -> bool:
        """Return whether the content of a block before this unit does not matter."""
        root = self._compiled_plan.root
        key = root(key) if isinstance(key, Value) else key
        if self._first.get(key) != step:
            return False
        variable = self._compiled_plan.buffer_of(key)
        return variable is None or variable not in map(root, self.units[step].reads)

    def _fill(self, key: Any, place: Place) -> Iterator[Record]:
        """Yield records that fill a block, and in a shared arena the bytes up to the next one."""
        nbytes = nbytes_of(key) if isinstance(key, Value) else place.nbytes
        yield from fill(key, Place(place.address, nbytes))
        if self._shared and key in self.offsets:
            for part in self._slack(key, place):
                yield from fill(None, Place(part.start, part.stop - part.start))

    def _slack(self, key: Any, place: Place) -> list[Range]:
        """Return the bytes around a block that must not change."""
        address, nbytes = place
        if isinstance(key, Value):
            nbytes = nbytes_of(key)
        if key in self.offsets and self._shared:
            end = address + nbytes
            return [Range(end, -(-end // 64) * 64)] if key in self._first and end % 64 else []
        if key in self._compiled_plan.constants:
            return []  # their pages cannot be written
        guarded = key in self.offsets or guard_pages.is_guarded(address)
        return guard_pages.slack(address, nbytes) if guarded else []


def _further(unit: Unit) -> list[Any]:
    """Return the keys of a unit's memory that is not for values."""
    keys: list[Any] = [("scratch", unit)] if unit.scratch else []
    return keys if unit.workspace_key is None else [*keys, unit.workspace_key]
