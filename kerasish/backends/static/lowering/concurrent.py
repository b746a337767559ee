"""Independent recurrences at the same time, one thread each.

The time steps of a short recurrence take one thread (`recurrent.STEP_FLOPS`). So two independent
recurrences, such as the directions of `Bidirectional`, can run in parallel and leave no processor
idle. Both compute the same bits as one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasish.backends.static.codegen.driver import Record
from kerasish.backends.static.codegen.nested_records import concurrent_record
from kerasish.backends.static.lowering.dependencies import predecessors
from kerasish.backends.static.lowering.recurrent import RecurrentUnit
from kerasish.backends.static.lowering.units import Locate, Place, Unit, threads_records
from kerasish.graph.ir import Value

# FLOPs of a recurrence on one thread, from which a second thread pays: it takes several
# microseconds to wake up, and up to a time slice if all processors are busy.
WORTH_FLOPS = 2e6


class ConcurrentUnit(Unit):
    """Recurrences that run at the same time.

    Args:
        members: independent of each other.
    """

    def __init__(self, members: Sequence[RecurrentUnit]) -> None:
        super().__init__(
            " beside ".join(u.name for u in members),
            list(dict.fromkeys(v for u in members for v in u.reads)),
            [v for u in members for v in u.writes],
        )
        self.members = tuple(members)
        self.unchecked = frozenset(v for u in members for v in u.unchecked)
        self.flops = sum(u.flops for u in members)
        self.scratch = sum(_aligned(u.scratch) for u in members)

    def kernels(self) -> list[Any]:
        """Return the loops of all members."""
        return [kernel for u in self.members for kernel in u.kernels()]

    def records(self, locate: Locate) -> list[Record]:
        """Return the records before the time steps, one for all time steps, and those after."""
        at = locate(("scratch", self)).address
        places: dict[Any, Place] = {}
        for unit in self.members:
            places["scratch", unit] = Place(at, unit.scratch)
            at += _aligned(unit.scratch)

        def of_member(key: Any) -> Place:
            return places[key] if key in places else locate(key)

        parts = [unit.parts(of_member) for unit in self.members]
        # Each list runs in a separate thread, in which OpenMP starts with its default number.
        one = threads_records(1)
        return [
            *(record for before, _, _ in parts for record in before),
            concurrent_record([[*one, *steps] for _, steps, _ in parts], self.name),
            *(record for _, _, after in parts for record in after),
        ]


def concurrent(units: Sequence[Unit], root: Callable[[Value], Value], threads: int) -> list[Unit]:
    """Return the units, with independent recurrences joined into units that run them together.

    Args:
        units: in execution order.
        root: value -> the value whose memory it uses.
        threads: the number of recurrences that may run at the same time.
    """
    result = list(units)
    while threads > 1:
        joined = _joined(result, root, threads)
        if joined is None:
            break
        result = joined
    return result


def _joined(units: list[Unit], root: Callable[[Value], Value], threads: int) -> list[Unit] | None:
    """Return the units with one more group joined; None if there is none."""
    long = [i for i, u in enumerate(units) if _is_long(u)]
    if len(long) < 2:
        return None
    needed = _needed(units, root)
    for number, first in enumerate(long):
        group, before = [first], needed[first]
        for other in long[number + 1 :]:
            independent = not any(needed[other] >> i & 1 for i in group)
            if len(group) < threads and independent and _may_move(units, needed[other], first):
                group.append(other)
                before |= needed[other]
        if len(group) > 1:
            rest = [i for i in range(len(units)) if i not in group]
            early = [units[i] for i in rest if i < first or before >> i & 1]
            late = [units[i] for i in rest if i > first and not before >> i & 1]
            members = [u for u in map(units.__getitem__, group) if isinstance(u, RecurrentUnit)]
            return [*early, ConcurrentUnit(members), *late]
    return None


def _is_long(unit: Unit) -> bool:
    """Return whether a unit is a long recurrence that one thread runs."""
    return isinstance(unit, RecurrentUnit) and unit.one_thread and unit.step_flops >= WORTH_FLOPS


def _may_move(units: list[Unit], needed: int, first: int) -> bool:
    """Return whether the needed units after `first` may run before it."""
    return all(u.movable for i, u in enumerate(units) if i > first and needed >> i & 1)


def _needed(units: list[Unit], root: Callable[[Value], Value]) -> list[int]:
    """Return for each unit those that must run before it: bit i is set for unit i."""
    results: list[int] = []
    for before in predecessors(units, root):
        needed = 0
        for other in before:
            needed |= results[other] | 1 << other
        results.append(needed)
    return results


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
