"""Helpers: threads that take shares of short work, and for which no caller waits.

OpenMP's threads synchronize at the start and the end of each part: if another process keeps one of
them from running, all wait for a time slice. Here the calling thread offers shares, and also takes
shares itself. A helper that is awake takes some; for a late helper none remains. The caller waits
only for shares that a helper has started.

A caller that waits long checks whether its helpers had a processor. If not, callers make no offers
for a while: while other processes are busy, a step is as fast as on one thread. Shares do not
depend on the thread, and so the bits do not either.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import ctypes
import functools
import os
import platform
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen.driver import Record, aligned, load_runtime, table_of
from kerasish.backends.static.codegen.kernel_table import using_table
from kerasish.backends.static.codegen.kernels import compile_many
from kerasish.backends.static.codegen.nested_records import Kept, Lists
from kerasish.backends.static.codegen.team_code import (
    ASLEEP,
    CLOCKS,
    CLOSED,
    CPU_CLOCK,
    FUTEX,
    HELP,
    HELPERS,
    MOST_CLOCKS,
    ONCE,
    OWNER,
    PARALLEL,
    STOP,
    SYSCALL,
    TICKET,
    TOGETHER,
    WAKE,
    WORDS,
)
from kerasish.backends.static.codegen.vector_math import TABLE_OPENMP


class _Team:
    """The helpers of this process, and the state that they share with callers.

    Attributes:
        function: the address of the record function.
        once: that of records which run once, in the first thread that reaches them.
        table: the address of a table for kernels, whose parallel loop offers shares to helpers.
        state: the address of the state, which is never freed: a helper may still read it.
    """

    def __init__(self) -> None:
        self.function, help_at, parallel, self.once = compile_many([TOGETHER, HELP, PARALLEL, ONCE])
        library = ctypes.CDLL(None)
        library.calloc.restype = ctypes.c_void_p
        block = library.calloc(ctypes.c_size_t(WORDS + 8), ctypes.c_size_t(8))
        self.state = -(-block // 64) * 64
        self._words = (ctypes.c_int64 * WORDS).from_address(self.state)
        self._words[TICKET] = CLOSED
        self._words[SYSCALL] = ctypes.cast(library.syscall, ctypes.c_void_p).value or 0
        self._syscall = library.syscall
        self._help = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(help_at)
        self._kernel_words = load_runtime().words.copy()
        self._kernel_words[0], self._kernel_words[TABLE_OPENMP] = parallel, self.state
        self.table: int = self._kernel_words.ctypes.data
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        atexit.register(self.stop)
        os.register_at_fork(after_in_child=self._forget)

    def have(self, helpers: int) -> None:
        """Start helpers until there are at least this number."""
        with self._lock:
            while len(self._threads) < helpers:
                thread = threading.Thread(target=self._run, name="kerasish helper", daemon=True)
                thread.start()
                if len(self._threads) < MOST_CLOCKS:
                    clock = (~(thread.native_id or 0) << 3) | CPU_CLOCK
                    self._words[CLOCKS + len(self._threads)] = clock
                self._threads.append(thread)
            self._words[HELPERS] = len(self._threads)

    def _run(self) -> None:
        with native.use_threads(1):  # of OpenMP, in primitives of one thread
            self._help(self.state)

    def stop(self) -> None:
        """End all helpers: none may run while Python frees their code."""
        with self._lock:
            self._words[HELPERS], self._words[STOP] = 0, 1
            for thread in self._threads:
                while thread.is_alive():
                    asleep = ctypes.c_int32.from_address(self.state + 8 * ASLEEP)
                    asleep.value = 0
                    self._syscall(FUTEX, ctypes.byref(asleep), WAKE, len(self._threads))
                    thread.join(0.001)
            self._threads.clear()
            self._words[STOP] = 0

    def _forget(self) -> None:
        """A forked child has no helpers, and no thread there owns the state."""
        self._lock = threading.Lock()
        self._threads = []
        self._words[HELPERS], self._words[OWNER], self._words[TICKET] = 0, 0, CLOSED


_helpers: contextvars.ContextVar[int] = contextvars.ContextVar("helpers", default=0)


@contextlib.contextmanager
def using_helpers(helpers: int) -> Iterator[None]:
    """Let units that are created in the block, in this thread, expect this number of helpers."""
    token = _helpers.set(helpers)
    try:
        yield
    finally:
        _helpers.reset(token)


def most_helpers() -> int:
    """Return the number of `using_helpers`; 0 outside of it."""
    return _helpers.get()


def helpers_for(work: float, grain: float) -> int:
    """Return the number of helpers with which each thread has at least `grain` of the work."""
    return max(0, min(_helpers.get(), int(work // grain) - 1))


def can_help() -> bool:
    """Return whether this machine supports helpers: Linux on x86-64."""
    return sys.platform == "linux" and platform.machine().lower() in ("x86_64", "amd64")


@functools.cache
def _team() -> _Team:
    load_runtime()
    return _Team()


_shares: contextvars.ContextVar[int] = contextvars.ContextVar("shares", default=1)


@contextlib.contextmanager
def using_team(shares: int) -> Iterator[None]:
    """Let units and records that are created in the block, in this thread, use the team.

    Their loops offer shares to helpers, not to OpenMP's threads, and large products are divided.

    Args:
        shares: of a large product, one per thread; 1: use OpenMP's threads instead.
    """
    token = _shares.set(shares)
    try:
        if shares == 1:
            yield
            return
        team = _team()
        team.have(shares - 1)
        with using_table(team.table):
            yield
    finally:
        _shares.reset(token)


def team_shares() -> int:
    """Return the number of `using_team`; 1 outside of it."""
    return _shares.get()


def together_record(lists: Sequence[Sequence[Record]], helpers: int, name: str = "") -> Record:
    """Return a record that offers lists of records to helpers, and runs those that none takes.

    Args:
        lists: none reads or writes what another one writes. Each record uses one thread; a list
            that fails ends there, the others run to their ends.
        helpers: the number that may take lists.
        name: for messages.
    """
    team = _team()
    team.have(helpers)
    tables = [table_of(records) for records in lists]
    places = np.array([(t.ctypes.data, len(t)) for t in tables], np.int64)
    keep = Lists(lists, [*tables, places], lambda lists: together_record(lists, helpers, name), 1)
    words: list[Any] = [team.state, len(tables), places.ctypes.data, keep.statuses.ctypes.data]
    return Record(team.function, np.array(words, np.int64), name, keep)


_LINE = 64  # bytes between two words that several threads write


def ahead_records(
    pairs: Sequence[tuple[Sequence[Record], Sequence[Record]]], helpers: int, name: str = ""
) -> list[Record]:
    """Return records that run both lists of each pair, in order; helpers run first lists ahead.

    Args:
        pairs: a second list may read what earlier second lists, and first lists up to its own, have
            written. Each record uses one thread.
        helpers: the number that may run first lists.
        name: for messages.
    """
    team, runtime = _team(), load_runtime()
    size = _LINE * len(pairs)
    owner, at = aligned(size)
    zeros = np.zeros(size, np.uint8)
    clear = np.array([runtime.memmove, at, zeros.ctypes.data, size], np.int64)

    def once(number: int, waits: bool) -> Record:
        records = pairs[number][0]
        table = table_of(records)
        words = [team.state, at + _LINE * number, table.ctypes.data, len(table), waits]
        return Record(team.once, np.array(words, np.int64), name, Kept([table], [*records], None))

    calls = [record for i, (_, second) in enumerate(pairs) for record in (once(i, True), *second)]
    # Helpers take lists from the last one on.
    others = [[once(i, False)] for i in range(len(pairs) - 1, 0, -1)]
    return [
        Record(runtime.call_copy, clear, name, Kept([zeros, owner], [], None)),
        together_record([calls, *others], helpers, name),
    ]
