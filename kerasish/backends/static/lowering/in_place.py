"""Loops that write a large result to the memory of an operand that they read last.

Less memory is needed while the loop runs, and fewer cache lines are loaded. If a later unit reads
the same memory, it is moved before the loop where possible.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping, Sequence

from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.units import Unit, nbytes_of
from kerasish.graph.ir import Value

LARGE = 1 << 20  # bytes of a result; kernels that write smaller ones are shared by more programs


def written_in_place(
    units: Sequence[Unit], aliases: MutableMapping[Value, Value], needed: Collection[Value],
    buffers: Collection[Value],
) -> list[Unit]:  # fmt: skip
    """Return the units in the order in which they run.

    Args:
        units: in the order in which they can run.
        aliases: value -> the value whose memory it shares; new ones are added.
        needed: the values whose memory is outside the arena, or is read after the last unit.
        buffers: the values in the memory of variables. Units that write them do not move: others
            read the previous values of the variables.
    """
    return _Walk(units, aliases, set(needed), set(buffers)).run()


class _Walk:
    def __init__(
        self, units: Sequence[Unit], aliases: MutableMapping[Value, Value], needed: set[Value],
        buffers: set[Value],
    ) -> None:  # fmt: skip
        self.units, self.aliases = list(units), aliases
        self.needed, self.buffers = needed, buffers

    def run(self) -> list[Unit]:
        """Return the units."""
        self._note_places()
        for unit in list(self.units):
            if type(unit) is LoopUnit:
                for written in unit.writes:
                    if nbytes_of(written) >= LARGE:
                        self._place_in(unit, written)
        return self.units

    def _note_places(self) -> None:
        self.place = {unit: i for i, unit in enumerate(self.units)}
        self.users: dict[Value, set[Unit]] = {}
        self.makers: dict[Value, Unit] = {}
        for unit in self.units:
            for v in unit.writes:
                self.makers[self._root(v)] = unit
            for v in {*map(self._root, (*unit.reads, *unit.writes))}:
                self.users.setdefault(v, set()).add(unit)

    def _root(self, v: Value) -> Value:
        while v in self.aliases:
            v = self.aliases[v]
        return v

    def _place_in(self, unit: LoopUnit, written: Value) -> None:
        """Let a result use the memory of a value that nothing reads after the unit, if any."""
        if written in self.needed or written in self.aliases:
            return
        for read in dict.fromkeys(unit.reads):
            root = self._root(read)
            only_read = [v for v in unit.reads if self._root(v) is root] == [read]
            if root in self.needed or not only_read or nbytes_of(root) != nbytes_of(written):
                continue
            if not unit.may_share(written, read) or not self._is_last(unit, root):
                continue
            if not _share_for_nothing(unit, written, read):
                return
            self.aliases[written] = root
            self.users[root] |= self.users.pop(written)
            self.makers[root] = self.makers.pop(written)
            return

    def _is_last(self, unit: Unit, root: Value) -> bool:
        """Return whether no unit after this one uses a value; others are moved before it."""
        place = self.place[unit]
        later = [other for other in self.users[root] if self.place[other] > place]
        if not all(self._can_move(other, root, place) for other in later):
            return False
        for other in sorted(later, key=self.place.__getitem__):
            first, last = self.place[unit], self.place[other]
            self.units.insert(first, self.units.pop(last))
            for i in range(first, last + 1):
                self.place[self.units[i]] = i
        return True

    def _can_move(self, unit: Unit, root: Value, place: int) -> bool:
        """Return whether a unit that reads a value can run before the unit at `place`."""
        written = [self._root(v) for v in unit.writes]
        if not unit.movable or root in written or not self.buffers.isdisjoint(written):
            return False
        # It must write only its own results: other units may use shared memory until then.
        if any(v not in unit.writes for v in written) or unit.workspace_key is not None:
            return False
        makers = [self.makers.get(self._root(v)) for v in unit.reads]
        return all(maker is None or self.place[maker] < place for maker in makers)


def _share_for_nothing(unit: LoopUnit, written: Value, read: Value) -> bool:
    """Let a unit write in place; return False, without a change, if it would need more memory.

    A loop that reduces rows then writes in its last pass. Results of an earlier pass are kept until
    then, or computed again.
    """
    before = plan_loops(unit.kernel)
    unit.share(written, read)
    after = plan_loops(unit.kernel)
    if sum(len(loop.nodes) for loop in after.loops) > sum(len(loop.nodes) for loop in before.loops):
        unit.write_apart(written)
        return False
    return True
