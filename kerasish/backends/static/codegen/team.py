"""Helpers: threads that take shares of short work, and that no caller waits for.

OpenMP's threads meet at the begin and the end of each part: one that another process keeps from
running makes all wait for a time slice. Here the calling thread offers shares, and takes them
itself as well. A helper that is awake takes some. One that comes late finds none left. The caller
waits only for shares that a helper has begun.

The state (64-bit words, on cache lines of their own) holds a ticket: the number of the offer, and
the next share. Who raises it from a value that it has read owns that share. What is offered changes
only while the ticket is closed.
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

from kerasish.backends.static.codegen.driver import Record, load_runtime, table_of
from kerasish.backends.static.codegen.driver_code import WALK
from kerasish.backends.static.codegen.kernels import Text, compile_many
from kerasish.backends.static.codegen.nested_records import Lists
from kerasish.backends.static.machine.assembly import words_of

# Words of the state.
_TICKET, _COUNT, _FUNCTION, _ARGUMENT = 0, 8, 9, 10
_DONE, _ASLEEP, _OWNER, _HELPERS, _STOP, _SYSCALL, _ALONE = 16, 24, 32, 40, 41, 42, 43
_WORDS = 48
_SHARES = 16  # bits of a ticket that count shares
_CLOSED = (1 << _SHARES) - 1
_CYCLES = 250_000  # a helper looks for work as long, about 100 microseconds, before it sleeps
_LONG_WAIT = 250_000  # cycles that a caller waits for a helper only where others have its processor
_ROUNDS = 500  # offers that callers keep to themselves after such a wait, or after they have met
_LOOKS, _WAITS = 64, 1 << 14  # between two offers of the processor to others: some microseconds
_FUTEX, _YIELD, _WAIT, _WAKE = 202, 24, 128, 129  # Linux on x86-64; "private" futexes


_CLOCK = ("declare i64 @llvm.readcyclecounter()",)


def _at(name: str, word: int) -> str:
    return f"  %{name} = getelementptr i64, ptr %state, i64 {word}"


# void SYMBOL.offer(state, function, argument, shares): function(argument, share, shares) for all.
_OFFER = f"""define internal void @SYMBOL.offer(ptr %state, ptr %function, ptr %arg, i64 %n) #0 {{
entry:
{_at("ticket.at", _TICKET)}
{_at("count.at", _COUNT)}
{_at("function.at", _FUNCTION)}
{_at("arg.at", _ARGUMENT)}
{_at("done.at", _DONE)}
{_at("asleep.at", _ASLEEP)}
{_at("owner.at", _OWNER)}
{_at("helpers.at", _HELPERS)}
{_at("syscall.at", _SYSCALL)}
{_at("alone.at", _ALONE)}
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  %helped = icmp sgt i64 %helpers, 0
  br i1 %helped, label %ask, label %alone
ask:
  %rounds = load atomic i64, ptr %alone.at monotonic, align 8
  %free = icmp sle i64 %rounds, 0
  br i1 %free, label %own, label %keep
keep:
  %fewer = sub i64 %rounds, 1
  store atomic i64 %fewer, ptr %alone.at monotonic, align 8
  br label %alone
own:
  %pair = cmpxchg ptr %owner.at, i64 0, i64 1 acquire monotonic
  %owned = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %owned, label %offer, label %met
met:
  store atomic i64 {_ROUNDS}, ptr %alone.at monotonic, align 8
  br label %alone
alone:
  br label %alone.head
alone.head:
  %a = phi i64 [ 0, %alone ], [ %a.next, %alone.body ]
  %a.more = icmp slt i64 %a, %n
  br i1 %a.more, label %alone.body, label %exit
alone.body:
  call void %function(ptr %arg, i64 %a, i64 %n)
  %a.next = add i64 %a, 1
  br label %alone.head
offer:
  store atomic i64 %n, ptr %count.at monotonic, align 8
  store atomic ptr %function, ptr %function.at monotonic, align 8
  store atomic ptr %arg, ptr %arg.at monotonic, align 8
  store atomic i64 0, ptr %done.at monotonic, align 8
  %old = load atomic i64, ptr %ticket.at monotonic, align 8
  %old.number = ashr i64 %old, {_SHARES}
  %number = add i64 %old.number, 1
  %first = shl i64 %number, {_SHARES}
  %before = atomicrmw xchg ptr %ticket.at, i64 %first seq_cst
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %sleeps = icmp ne i32 %asleep, 0
  br i1 %sleeps, label %wake, label %take
wake:
  store atomic i32 0, ptr %asleep.at seq_cst, align 4
  %syscall = load ptr, ptr %syscall.at, align 8
  %woken = call i64 (i64, ...) %syscall(i64 {_FUTEX}, ptr %asleep.at, i64 {_WAKE}, i64 %helpers)
  br label %take
take:
  %t = load atomic i64, ptr %ticket.at monotonic, align 8
  %share = and i64 %t, {_CLOSED}
  %left = icmp slt i64 %share, %n
  br i1 %left, label %try, label %begin.wait
try:
  %t.next = add i64 %t, 1
  %t.pair = cmpxchg ptr %ticket.at, i64 %t, i64 %t.next acq_rel monotonic
  %mine = extractvalue {{ i64, i1 }} %t.pair, 1
  br i1 %mine, label %work, label %take
work:
  call void %function(ptr %arg, i64 %share, i64 %n)
  %unused = atomicrmw add ptr %done.at, i64 1 acq_rel
  br label %take
begin.wait:
  %began = call i64 @llvm.readcyclecounter()
  br label %wait
wait:
  %looks = phi i64 [ 1, %begin.wait ], [ %looks.next, %on ]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %all = icmp eq i64 %done, %n
  br i1 %all, label %ready, label %polite
polite:
  %looks.next = add i64 %looks, 1
  %some = and i64 %looks, {_WAITS - 1}
  %yields = icmp eq i64 %some, 0
  br i1 %yields, label %yield, label %on
yield:
  %yield.syscall = load ptr, ptr %syscall.at, align 8
  %yielded = call i64 (i64, ...) %yield.syscall(i64 {_YIELD})
  br label %on
on:
  br label %wait
ready:
  %ended = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %ended, %began
  %long = icmp sgt i64 %waited, {_LONG_WAIT}
  br i1 %long, label %avoid, label %close
avoid:
  store atomic i64 {_ROUNDS}, ptr %alone.at monotonic, align 8
  br label %close
close:
  %closed = or i64 %first, {_CLOSED}
  store atomic i64 %closed, ptr %ticket.at release, align 8
  store atomic i64 0, ptr %owner.at release, align 8
  br label %exit
exit:
  ret void
}}"""

# i32 SYMBOL(state): takes shares until the word `stop` is set.
_HELP = Text(
    f"""define i32 @SYMBOL(ptr %state) #0 {{
entry:
{_at("ticket.at", _TICKET)}
{_at("count.at", _COUNT)}
{_at("function.at", _FUNCTION)}
{_at("arg.at", _ARGUMENT)}
{_at("done.at", _DONE)}
{_at("asleep.at", _ASLEEP)}
{_at("stop.at", _STOP)}
{_at("syscall.at", _SYSCALL)}
  br label %rested
rested:
  %since = call i64 @llvm.readcyclecounter()
  br label %head
head:
  %start = phi i64 [ %since, %rested ], [ %start, %on ], [ %start, %try ], [ %now.done, %work ]
  %looks = phi i64 [ 1, %rested ], [ %looks.next, %on ], [ %looks, %try ], [ 1, %work ]
  %t = load atomic i64, ptr %ticket.at acquire, align 8
  %n = load atomic i64, ptr %count.at monotonic, align 8
  %share = and i64 %t, {_CLOSED}
  %left = icmp slt i64 %share, %n
  br i1 %left, label %try, label %look
try:
  %function = load atomic ptr, ptr %function.at monotonic, align 8
  %arg = load atomic ptr, ptr %arg.at monotonic, align 8
  %t.next = add i64 %t, 1
  %t.pair = cmpxchg ptr %ticket.at, i64 %t, i64 %t.next acq_rel monotonic
  %mine = extractvalue {{ i64, i1 }} %t.pair, 1
  br i1 %mine, label %work, label %head
work:
  call void %function(ptr %arg, i64 %share, i64 %n)
  %unused = atomicrmw add ptr %done.at, i64 1 acq_rel
  %now.done = call i64 @llvm.readcyclecounter()
  br label %head
look:
  %now = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %now, %start
  %long = icmp sgt i64 %waited, {_CYCLES}
  br i1 %long, label %rest, label %polite
polite:
  %looks.next = add i64 %looks, 1
  %some = and i64 %looks, {_LOOKS - 1}
  %yields = icmp eq i64 %some, 0
  br i1 %yields, label %yield, label %on
yield:
  %yield.syscall = load ptr, ptr %syscall.at, align 8
  %yielded = call i64 (i64, ...) %yield.syscall(i64 {_YIELD})
  br label %on
on:
  br label %head
rest:
  store atomic i32 1, ptr %asleep.at seq_cst, align 4
  %again = load atomic i64, ptr %ticket.at seq_cst, align 8
  %same = icmp eq i64 %again, %t
  br i1 %same, label %ask, label %rested
ask:
  %stop = load atomic i64, ptr %stop.at seq_cst, align 8
  %stops = icmp ne i64 %stop, 0
  br i1 %stops, label %exit, label %sleep
sleep:
  %syscall = load ptr, ptr %syscall.at, align 8
  %slept = call i64 (i64, ...) %syscall(i64 {_FUTEX}, ptr %asleep.at, i64 {_WAIT}, i64 1, ptr null)
  br label %rested
exit:
  ret i32 0
}}""",
    _CLOCK,
)

# Words: 0 the state, 1 how many lists of records run at the same time, 2 for each list its address
# and length, 3 two words per list: its status, and the number of the record that failed.
_TOGETHER = Text(
    WALK
    + _OFFER
    + f"""
define internal void @SYMBOL.list(ptr %args, i64 %t, i64 %n) #0 {{
entry:
{words_of("args", "ptr state", "i64 lists", "ptr tables", "ptr statuses")}
  %twice = shl i64 %t, 1
  %status.at = getelementptr i64, ptr %statuses, i64 %twice
  %failed = getelementptr i64, ptr %status.at, i64 1
  %at = getelementptr i64, ptr %tables, i64 %twice
  %count.at = getelementptr i64, ptr %at, i64 1
  %records = load ptr, ptr %at, align 8
  %count = load i64, ptr %count.at, align 8
  %status32 = call i32 @SYMBOL.walk(ptr %records, i64 %count, ptr %failed)
  %status = sext i32 %status32 to i64
  store i64 %status, ptr %status.at, align 8
  ret void
}}
define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words_of("args", "ptr state", "i64 lists", "ptr tables", "ptr statuses")}
  call void @SYMBOL.offer(ptr %state, ptr @SYMBOL.list, ptr %args, i64 %lists)
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %lists
  br i1 %more, label %body, label %good
body:
  %twice = shl i64 %i, 1
  %status.at = getelementptr i64, ptr %statuses, i64 %twice
  %status = load i64, ptr %status.at, align 8
  %next = add i64 %i, 1
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %head, label %bad
bad:
  %status32 = trunc i64 %status to i32
  ret i32 %status32
good:
  ret i32 0
}}""",
    _CLOCK,
)


class _Team:
    """The helpers of this process, and the state that they share with callers.

    Attributes:
        function: the address of the record function.
        state: the address of the state, which is never freed: a helper may still look at it.
    """

    def __init__(self) -> None:
        self.function, help_at = compile_many([_TOGETHER, _HELP])
        library = ctypes.CDLL(None)
        library.calloc.restype = ctypes.c_void_p
        block = library.calloc(ctypes.c_size_t(_WORDS + 8), ctypes.c_size_t(8))
        self.state = -(-block // 64) * 64
        self._words = (ctypes.c_int64 * _WORDS).from_address(self.state)
        self._words[_TICKET] = _CLOSED
        self._words[_SYSCALL] = ctypes.cast(library.syscall, ctypes.c_void_p).value or 0
        self._syscall = library.syscall
        self._help = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(help_at)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        atexit.register(self.stop)
        os.register_at_fork(after_in_child=self._forget)

    def have(self, helpers: int) -> None:
        """Let there be at least this many helpers."""
        with self._lock:
            while len(self._threads) < helpers:
                thread = threading.Thread(
                    target=self._help, args=(self.state,), name="kerasish helper", daemon=True
                )
                thread.start()
                self._threads.append(thread)
            self._words[_HELPERS] = len(self._threads)

    def stop(self) -> None:
        """End all helpers: no code may run while Python frees what it belongs to."""
        with self._lock:
            self._words[_HELPERS], self._words[_STOP] = 0, 1
            for thread in self._threads:
                while thread.is_alive():
                    asleep = ctypes.c_int32.from_address(self.state + 8 * _ASLEEP)
                    asleep.value = 0
                    self._syscall(_FUTEX, ctypes.byref(asleep), _WAKE, len(self._threads))
                    thread.join(0.001)
            self._threads.clear()
            self._words[_STOP] = 0

    def _forget(self) -> None:
        """A forked child has no helpers, and no thread there owns the state."""
        self._lock = threading.Lock()
        self._threads = []
        self._words[_HELPERS], self._words[_OWNER], self._words[_TICKET] = 0, 0, _CLOSED


_helpers: contextvars.ContextVar[int] = contextvars.ContextVar("helpers", default=0)


@contextlib.contextmanager
def using_helpers(helpers: int) -> Iterator[None]:
    """Let units that are made in the block, in this thread, count on this number of helpers."""
    token = _helpers.set(helpers)
    try:
        yield
    finally:
        _helpers.reset(token)


def most_helpers() -> int:
    """Return the number of `using_helpers`; 0 outside of it."""
    return _helpers.get()


def helpers_for(work: float, grain: float) -> int:
    """Return how many helpers pay, such that each thread has at least `grain` of the work."""
    return max(0, min(_helpers.get(), int(work // grain) - 1))


def can_help() -> bool:
    """Return whether there may be helpers on this machine: Linux on x86-64."""
    return sys.platform == "linux" and platform.machine().lower() in ("x86_64", "amd64")


@functools.cache
def _team() -> _Team:
    load_runtime()
    return _Team()


def together_record(lists: Sequence[Sequence[Record]], helpers: int, name: str = "") -> Record:
    """Return a record that offers lists of records to helpers, and runs those that none takes.

    Args:
        lists: none reads or writes what another one writes. Each record uses one thread; a list
            that fails ends there, the others run to their ends.
        helpers: how many may take lists.
        name: for messages.
    """
    team = _team()
    team.have(helpers)
    tables = [table_of(records) for records in lists]
    places = np.array([(t.ctypes.data, len(t)) for t in tables], np.int64)
    keep = Lists(lists, [*tables, places], lambda lists: together_record(lists, helpers, name))
    words: list[Any] = [team.state, len(tables), places.ctypes.data, keep.statuses.ctypes.data]
    return Record(team.function, np.array(words, np.int64), name, keep)
