"""An independent check of a memory plan: simulate the program and track the memory's contents.

`plan.py` works with lifetimes. This module does not use them. It keeps a table of lines of 64
bytes, each with the content that was last written there, and every read must match the content that
it expects. Live values that overlap, values read before they are written or after they are
overwritten, and outputs that are never written all appear as reads of the wrong content.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.graph.plan import ALIGNMENT


class PlanError(RuntimeError):
    """A plan in which a step would read other bytes than it expects."""


class Access(NamedTuple):
    """A part of the memory that is read or written.

    Attributes:
        content: identifies the expected content; equal contents are equal numbers.
        memory: the memory, a key of the `sizes` of `check_plan`.
        start: the first byte, a multiple of 64.
        nbytes: the number of bytes.
    """

    content: Hashable
    memory: Hashable
    start: int
    nbytes: int

    @property
    def lines(self) -> slice:
        """The lines of 64 bytes that it covers."""
        return slice(self.start // ALIGNMENT, -(-(self.start + self.nbytes) // ALIGNMENT))


class PlanStep(NamedTuple):
    """One step of a program.

    Attributes:
        name: for messages.
        reads: what it reads, all before the first write.
        writes: what it writes.
        in_place: (written content, read content) that may share memory in this step.
        lane: (group, list): steps of one group that are in different lists run at the same time,
            those of one list one after the other; None for a step outside of groups.
    """

    name: str
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    in_place: frozenset[tuple[Hashable, Hashable]] = frozenset()
    lane: tuple[Hashable, Hashable] | None = None


def check_plan(
    sizes: Mapping[Hashable, int],
    before: Sequence[Access],
    steps: Sequence[PlanStep],
    after: Sequence[Access],
) -> None:
    """Raise if a read of the program would not match the content that it expects.

    Args:
        sizes: memory -> its size in bytes.
        before: the content of the memory when the program starts.
        steps: the program, in order.
        after: what is read after the last step.

    Raises:
        PlanError: names the step, the expected content and the actual content.

    Example:
        >>> x, y = Access("x", "arena", 0, 8), Access("y", "arena", 0, 8)
        >>> check_plan({"arena": 64}, [x], [PlanStep("twice", (x,), (y,))], [y])
        Traceback (most recent call last):
        ...
        kerasish.graph.plan_check.PlanError: step 0 (twice): writes y over x, which it reads
    """
    _check_lanes(steps)
    memory = _Memory(sizes)
    for access in before:
        memory.write(access, "before the first step")
    for number, step in enumerate(steps):
        where = f"step {number} ({step.name})"
        for access in step.reads:
            memory.expect(access, f"{where}: reads")
        for access in step.writes:
            _check_write(access, step, where)
            memory.write(access, where)
        for access in step.writes:
            memory.expect(access, f"{where}: after all its writes, has")
    for access in after:
        memory.expect(access, "after the last step: reads")


def _check_lanes(steps: Sequence[PlanStep]) -> None:
    """Raise if a step writes what another concurrent step reads or writes."""
    groups: dict[Hashable, dict[Hashable, list[PlanStep]]] = {}
    for step in steps:
        if step.lane is not None:
            group, lane = step.lane
            groups.setdefault(group, {}).setdefault(lane, []).append(step)
    for lanes in groups.values():
        for one, other in itertools.permutations(lanes.values(), 2):
            _check_apart(one, other)


def _check_apart(writers: Sequence[PlanStep], others: Sequence[PlanStep]) -> None:
    """Raise if one of these steps writes what another one reads or writes."""
    used = [(access, step) for step in others for access in (*step.reads, *step.writes)]
    lines: dict[Hashable, set[int]] = {}
    for access, _ in used:
        lines.setdefault(access.memory, set()).update(range(*access.lines.indices(1 << 62)))
    for step in writers:
        for written in step.writes:
            if lines.get(written.memory, set()).isdisjoint(range(*written.lines.indices(1 << 62))):
                continue
            access, other = next((a, s) for a, s in used if _meet(written, a))
            raise PlanError(
                f"{step.name} writes {written.content} over {access.content}, which {other.name} "
                "uses at the same time"
            )


def _check_write(access: Access, step: PlanStep, where: str) -> None:
    for read in step.reads:
        if read.content == access.content or not _meet(read, access):
            continue
        if (access.content, read.content) not in step.in_place:
            raise PlanError(f"{where}: writes {access.content} over {read.content}, which it reads")
        if (read.memory, read.start, read.nbytes) != (access.memory, access.start, access.nbytes):
            raise PlanError(
                f"{where}: {access.content} is written in place of {read.content}, "
                "but they are not the same bytes"
            )


def _meet(a: Access, b: Access) -> bool:
    return (
        a.memory == b.memory
        and a.lines.start < b.lines.stop
        and b.lines.start < a.lines.stop
    )  # fmt: skip


class _Memory:
    """The content of every line of every memory."""

    def __init__(self, sizes: Mapping[Hashable, int]) -> None:
        self._sizes = dict(sizes)
        self._lines = {k: np.full(-(-n // ALIGNMENT), -1, np.int64) for k, n in sizes.items()}
        self._numbers: dict[Hashable, int] = {}
        self._contents: list[Any] = []

    def write(self, access: Access, where: str) -> None:
        self._check_bounds(access, where)
        if access.content not in self._numbers:
            self._numbers[access.content] = len(self._contents)
            self._contents.append(access.content)
        self._lines[access.memory][access.lines] = self._numbers[access.content]

    def expect(self, access: Access, where: str) -> None:
        self._check_bounds(access, where)
        result = self._lines[access.memory][access.lines]
        wrong = result[result != self._numbers.get(access.content, -2)]
        if wrong.size:
            there = "nothing yet" if wrong[0] < 0 else self._contents[wrong[0]]
            raise PlanError(
                f"{where} {access.content} at bytes {access.start} to "
                f"{access.start + access.nbytes} of {access.memory}, where there is {there}"
            )

    def _check_bounds(self, access: Access, where: str) -> None:
        size = self._sizes[access.memory]
        if access.start % ALIGNMENT:
            raise PlanError(f"{where}: {access.content} begins at byte {access.start}, no 64th")
        if access.start < 0 or access.start + access.nbytes > size:
            raise PlanError(
                f"{where}: {access.content} takes bytes {access.start} to "
                f"{access.start + access.nbytes} of {access.memory}, which has {size}"
            )
