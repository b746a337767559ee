"""Independent branches of a program at the same time, one thread each.

The towers of a model with several inputs, its heads, the branches of a block, and their gradients
are chains of units that do not depend on each other. Where a unit has too little work for two
threads, the threads can share the chains: each thread takes some of them, and both synchronize
once, at the end of the group. A unit computes the same bits as without groups.

Groups hold small units only (`Unit.threads` is 1). Units that write variables, run Python or
communicate with other processes stay outside. No unit that writes a variable moves ahead of a unit
that may fail, so after an error variables are as they would be without groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from kerasish.backends.static.codegen.cost import estimate
from kerasish.backends.static.lowering.dependencies import predecessors
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.units import Unit, UnitGroup, nbytes_of
from kerasish.graph.ir import Node, Value

# Nanoseconds that a group must save, by the estimates below. Starting and ending a group costs two
# to five microseconds while the second thread spins, and up to fifty if it has to wake up.
WORTH = 20_000.0
MEETING = 5_000.0  # nanoseconds to begin and end a group
MOST_WAITING = 256  # units that are considered together
_CALL = 300.0  # nanoseconds of overhead per record
_FLOP = 1 / 60  # nanoseconds per floating-point operation of a small product
_BYTE = 1 / 40  # nanoseconds per byte that is read or written
# Joining branches become one branch if all but one are at most this share of the work.
_SHARES = (0.0, 1 / 32, 1 / 8, 1 / 4)

_Needs = Mapping[int, Sequence[int]]


def nanoseconds(unit: Unit) -> float:
    """Return an estimate of a unit's time on one thread, within about a factor of two."""
    if isinstance(unit, LoopUnit):
        return _CALL + estimate(unit.kernel, math.prod(unit.axes.outer), unit.axes.columns)
    nbytes = sum(map(nbytes_of, {*unit.reads, *unit.writes}))
    return _CALL + _FLOP * unit.flops + _BYTE * nbytes


def grouped(
    units: Sequence[Unit],
    key_of: Callable[[Value], Any],
    variables: Container[Any],
    threads: int,
) -> tuple[list[Unit], list[UnitGroup]]:
    """Return the units in an order in which independent branches are adjacent, and the groups.

    If no group pays, the order does not change.

    Args:
        units: in execution order.
        key_of: value -> the key of its memory; values in the same memory have equal keys.
        variables: the keys of memory that outlives a run.
        threads: how many branches may run at the same time.
    """
    if threads < 2:
        return list(units), []
    work = _Work(units, list(map(nanoseconds, units)), key_of, variables, threads)
    if not work.groups:
        return list(units), []
    return [units[number] for number in work.order], work.groups


def saved_by_groups(nodes: Sequence[Node], times: Mapping[Node, float], threads: int) -> float:
    """Return the nanoseconds that groups would save if each node took one thread, an estimate.

    Args:
        nodes: those of an optimized graph, in order.
        times: the nanoseconds of each.
        threads: how many branches may run at the same time.
    """
    units = []
    for node in nodes:
        units.append(Unit(node.op.name, node.inputs, node.outputs))
        units[-1].threads = 0 if node.op.kind in ("recurrent", "control") else 1
        units[-1].movable = not (node.op.effect or node.op.communicates)
    return _Work(units, [times[node] for node in nodes], lambda v: v, (), threads).saved


class _Lanes(NamedTuple):
    """Lists of units that may run at the same time, and the time that it saves."""

    saved: float
    lists: list[list[int]]


class _Work:
    """Units in a new order: small ones wait until they form a group, or another one needs them.

    Attributes:
        order: the numbers of the units, in their new order.
        groups: which of them run at the same time.
        saved: the nanoseconds that the groups save, by the estimates.
    """

    def __init__(
        self, units: Sequence[Unit], times: Sequence[float], key_of: Callable[[Value], Any],
        variables: Container[Any], threads: int,
    ) -> None:  # fmt: skip
        self.order: list[int] = []
        self.groups: list[UnitGroup] = []
        self.saved = 0.0
        self._units, self._times, self._threads = units, times, threads
        self._before = predecessors(units, key_of)
        self._writes = [any(key_of(v) in variables for v in unit.writes) for unit in units]
        self._cost: dict[int, float] = {}  # of the units that wait
        self._new = False  # whether one was added since the last search for groups
        for number in range(len(units)):
            self._add(number)
        self._finish()

    def _add(self, number: int) -> None:
        """Take the next unit."""
        unit, writes = self._units[number], self._writes[number]
        if not unit.native or not unit.movable:
            self._finish()
        elif unit.threads == 1 and not writes:
            self._cost[number] = self._times[number]
            self._new = True
            if len(self._cost) > MOST_WAITING:
                self._finish()
            return
        else:
            first = [other for other in self._before[number] if other in self._cost]
            if writes:
                first += [other for other in self._cost if self._units[other].may_fail()]
            if first:
                self._form_groups()
                self._run_needed(first)
        self.order.append(number)

    def _finish(self) -> None:
        """Run all units that wait."""
        self._form_groups()
        self._run(list(self._cost))

    def _run(self, numbers: Sequence[int]) -> None:
        self.order += numbers
        for number in numbers:
            del self._cost[number]

    def _run_needed(self, numbers: Sequence[int]) -> None:
        """Run those of these units that wait, and what they need, in their order."""
        needed: set[int] = set()
        stack = list(numbers)
        while stack:
            number = stack.pop()
            if number in self._cost and number not in needed:
                needed.add(number)
                stack += self._before[number]
        self._run(sorted(needed))

    def _form_groups(self) -> None:
        """Run waiting units in groups as long as one pays.

        Where none does, the units before the first fork run without a group, and its branches are
        considered again.
        """
        peeled = 1
        while self._new:
            needs = {
                number: [other for other in self._before[number] if other in self._cost]
                for number in self._cost
            }
            if self._most_saved(needs) < WORTH:
                break
            best = self._best(needs)
            if best.saved >= WORTH:
                lists = [lane for lane in best.lists if lane]
                self.groups.append(UnitGroup(len(self.order), tuple(map(len, lists))))
                self.saved += best.saved
                self._run([number for lane in lists for number in lane])
                continue
            forks = _forks(needs)
            if not forks:
                break
            self._run_needed(forks[:peeled])
            peeled *= 2  # so that long chains are searched few times
        self._new = False

    def _most_saved(self, needs: _Needs) -> float:
        """Return an upper bound of the saving: all but the longest chain of waiting units."""
        ends: dict[int, float] = {}
        for number, cost in self._cost.items():
            ends[number] = cost + max((ends[other] for other in needs[number]), default=0.0)
        return sum(self._cost.values()) - max(ends.values(), default=0.0) - MEETING

    def _best(self, needs: _Needs) -> _Lanes:
        """Return the lanes that save the most."""
        total = sum(self._cost.values())
        each = (self._lanes(needs, share * total) for share in _SHARES)
        return max(each, key=lambda lanes: lanes.saved)

    def _lanes(self, needs: _Needs, small: float) -> _Lanes:
        """Return the waiting units in lanes.

        A unit that needs several branches joins them into one if all but one are small. Otherwise
        it waits, with all units that need it.

        Args:
            needs: waiting unit -> the waiting ones that it needs.
            small: nanoseconds of a small branch.
        """
        branches: dict[int, list[int]] = {}
        times: dict[int, float] = {}
        branch_of: dict[int, int] = {}  # unit -> the first unit of its branch
        for number, cost in self._cost.items():
            meeting = {branch_of.get(other, -1) for other in needs[number]}
            if -1 in meeting:
                continue
            if not meeting:
                branches[number], times[number], branch_of[number] = [number], cost, number
                continue
            into = meeting.pop() if len(meeting) == 1 else max(meeting, key=times.__getitem__)
            meeting.discard(into)
            if any(times[branch] > small for branch in meeting):
                continue
            branches[into].append(number)
            times[into] += cost
            branch_of[number] = into
            for branch in meeting:
                branch_of.update(dict.fromkeys(branches[branch], into))
                branches[into] += branches.pop(branch)
                times[into] += times.pop(branch)
        lists: list[list[int]] = [[] for _ in range(self._threads)]
        loads = [0.0] * self._threads
        for branch in sorted(branches, key=times.__getitem__, reverse=True):
            lane = loads.index(min(loads))
            lists[lane] += branches[branch]
            loads[lane] += times[branch]
        return _Lanes(sum(loads) - max(loads) - MEETING, [sorted(lane) for lane in lists])


def _forks(needs: _Needs) -> list[int]:
    """Return the units that several others need, in order."""
    needed: set[int] = set()
    forks: set[int] = set()
    for required in needs.values():
        forks |= needed.intersection(required)
        needed.update(required)
    return sorted(forks)
