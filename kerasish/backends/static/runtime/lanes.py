"""Concurrent runs of a compiled call by several threads: runs that change nothing may overlap."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from kerasish import config
from kerasish.backends.onednn import native
from kerasish.backends.static.lowering.interpreted import Interpreted
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.runtime.program import Executable
from kerasish.graph.ir import Value
from kerasish.tensor import Variable

MOST_MEMORY = 1 << 28  # bytes of all arenas beyond the first
# Seconds after which the thread that has waited longest runs first. Before that, a later thread may
# run first: it does not sleep, and a switch of threads would cost more than its run.
PATIENCE = 0.005
LOST = 1.0  # seconds: what is free for longer was reserved for a thread that no longer waits


def may_share(executable: Executable | Interpreted) -> bool:
    """Return whether runs may overlap, each in a separate arena.

    They may not if a run changes variables, has conditions, prints, or communicates with other
    processes.
    """
    if not isinstance(executable, Executable) or not executable.is_native or guard_pages.mode():
        return False
    plan = executable.compiled_plan
    exclusive = plan.updates or plan.copies or plan.conditions
    return not exclusive and all(unit.movable for unit in plan.units)


def most_at_once(executable: Executable) -> int:
    """Return the number of runs that may overlap: one per processor, within the limit of memory."""
    spare = MOST_MEMORY // max(executable.plan.nbytes, 1)
    return 1 + min(native.processors() - 1, spare)


class Lanes:
    """The executables of one compiled call. A run enters, uses one exclusively, and leaves.

    A run is exclusive if it copies variables into their buffers or reorders kept weights, which all
    executables read. Then all other runs wait. Each run of a call that may not share is exclusive.
    No thread waits forever: after `PATIENCE` seconds it runs before threads that arrived later.

    Ctrl-C may end a run before it leaves: what its thread held is returned when the thread enters
    again.

    Args:
        first: the existing executable.
        variables: those that it reads.
        buffers: graph input -> the buffer of that variable, for further executables; None: runs
            do not overlap.
    """

    def __init__(
        self,
        first: Executable | Interpreted,
        variables: Sequence[Variable],
        buffers: Mapping[Value, Any] | None = None,
    ) -> None:
        self.first = first
        self._variables = variables
        self._shares = buffers is not None and may_share(first)
        self._buffers = buffers or {}
        self._left = most_at_once(first) - 1 if self._shares else 0  # type: ignore[arg-type]
        self._free: list[Executable | Interpreted] = [first]
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._runs: dict[int, Executable | Interpreted | None] = {}  # thread -> what it has
        self._more: dict[int, list[Executable]] = {}  # thread -> what else it holds
        self._waiting: dict[int, float] = {}  # thread -> start of its wait, the longest first
        self.exclusive = False  # whether the current run must be the only one

    def enter(self, exclusive: bool = False) -> Executable | Interpreted:
        """Wait for memory and return it; `leave` must follow.

        Args:
            exclusive: whether the run must be the only one, in the first executable.
        """
        thread = threading.get_ident()
        with self._lock:
            if thread in self._runs:
                self._take_back(thread)
            single = exclusive or not self._is_ready()
            if self._is_taken(single) or self._waiting and self._is_overdue():
                single = self._wait(thread, exclusive)
            if single:
                # In this order: an interrupt after any of these statements loses nothing.
                self._runs[thread] = self.first
                self.exclusive = True
                self._free.remove(self.first)
                return self.first
            if self._free:
                return self._take_free(thread)
            self._left -= 1
            self._runs[thread] = None
        try:
            self._runs[thread] = another = self._another()
        except BaseException:
            self.leave()
            raise
        return another

    def is_simple(self) -> bool:
        """Return whether runs may overlap now, are native, and take one argument."""
        first: Any = self.first
        return self._is_ready() and len(first.parts) == len(first.inputs) == 1

    def take_ready(self) -> bool:
        """Take the last free executable in a thread that holds the lock; `leave` must follow.

        Returns:
            False if the thread holds one from an interrupted run, which `enter` returns, or if
            another thread has waited long, which `enter` lets run first.
        """
        thread = threading.get_ident()
        if thread in self._runs or self._waiting and self._is_overdue():
            return False
        self._take_free(thread)
        return True

    def others(self, most: int) -> list[Executable]:
        """Return up to `most` further executables for a run that has entered; it keeps them.

        Only executables are returned that no other run uses or waits for. While more than one of
        them runs, the kept weights may be read, but not reordered.
        """
        thread, results = threading.get_ident(), []
        while len(results) < most:
            with self._lock:
                taken = self._more.setdefault(thread, results)
                if self._waiting or not (self._free or self._left > 0):
                    break
                if self._free:
                    taken.append(self._free.pop())  # type: ignore[arg-type]
                    continue
                self._left -= 1
            another = None
            try:
                another = self._another()
            finally:
                with self._lock:
                    if another is None:
                        self._left += 1
                    else:
                        results.append(another)
        return results

    def leave(self) -> None:
        """End a run; in the thread that entered."""
        with self._lock:
            self._take_back(threading.get_ident())
            if self._waiting:
                self._change.notify_all()

    def _wait(self, thread: int, exclusive: bool) -> bool:
        """Wait until a run may start; return whether it must be the only one."""
        since, notified = monotonic(), True
        try:
            while True:
                self._waiting.setdefault(thread, since)
                single = exclusive or not self._is_ready()
                if not self._is_taken(single):
                    first = next(iter(self._waiting))
                    if first == thread or not self._is_overdue():
                        return single
                    if not notified:  # Ctrl-C ended it before the `finally` below
                        del self._waiting[first]
                        return single
                notified = self._change.wait(LOST)
        finally:
            self._waiting.pop(thread, None)
            if self._waiting:
                self._change.notify_all()  # another thread is first now

    def _is_overdue(self) -> bool:
        """Return whether the thread that has waited longest runs before new ones."""
        return monotonic() - next(iter(self._waiting.values())) > PATIENCE

    def _is_taken(self, single: bool) -> bool:
        """Return whether no executable is available for a run, `single` or not."""
        if single:
            return bool(self._runs)
        return self.exclusive or not (self._free or self._left > 0)

    def _take_free(self, thread: int) -> Executable | Interpreted:
        self._runs[thread] = executable = self._free[-1]
        self._free.pop()
        return executable

    def _take_back(self, thread: int) -> None:
        """Return all that a thread holds."""
        for other in self._more.pop(thread, ()):
            if other not in self._free:
                self._free.append(other)
        executable = self._runs[thread]
        if executable is None:
            self._left += 1  # it was not finished
        elif executable not in self._free:
            self._free.append(executable)
        self.exclusive = False
        del self._runs[thread]

    def _is_ready(self) -> bool:
        """Return whether a run would only read variables and kept weights."""
        if not self._shares:
            return False
        for v in self._variables:
            if not v.in_buffer:
                return False
        return self.first.kept.is_fresh()  # type: ignore[union-attr]

    def _another(self) -> Executable:
        first: Any = self.first
        plan = first.compiled_plan
        with config.using_threads(plan.threads):
            return Executable(plan, self._buffers, kept=first.kept)
