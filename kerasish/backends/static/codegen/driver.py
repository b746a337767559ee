"""The native driver: runs a table of records without Python, for one step or many.

A record is a pair of addresses {function, argument}; the function is `i32 f(argument)` and returns
0 or an error. A fused loop is a record by itself (`kernels.compile_many`, `arguments.pack`).
`call_dnnl`, `call_cblas`, `call_blas`, `call_threads` and `call_copy` are functions that turn
library calls into records. All calls release Python's GIL.

    runtime = load_runtime()
    program = Program([Record(address, block), ...])
    program.run()                        # once
    steps = Steps(program, advances=[(index_block, word, bytes_per_step)])
    done = steps.run(100)                # 100 times; stops early at `steps.interrupt()`

One parallel loop serves all kernels: `runtime.table` holds its address and OpenMP's, so the thread
pool is that of libgomp, which oneDNN uses, too. Without OpenMP the loop runs the shares one after
the other on the calling thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.kernels import Text, compile_many
from kerasish.backends.static.codegen.vector_math import LIBRARY, OPENMP, TABLE_OPENMP, TABLE_WORDS
from kerasish.backends.static.machine import guard_pages, native

INTERRUPTED = -1
OUT_OF_RANGE, UNWRITTEN = 2, 1001  # statuses: an index out of range; a strict memory check failed

# Runs share(arg, t, n) for t in 0 .. n-1 on OpenMP's threads; arg's first word is the table's
# address. Fewer threads than asked for take several shares each, so that the result stays the
# same.
_PARALLEL = Text(
    f"""define internal void @SYMBOL.share(ptr %job) #0 {{
entry:
  %arg.at = getelementptr i64, ptr %job, i64 1
  %n.at = getelementptr i64, ptr %job, i64 2
  %function = load ptr, ptr %job, align 8
  %arg = load ptr, ptr %arg.at, align 8
  %n = load i64, ptr %n.at, align 8
  %table = load ptr, ptr %arg, align 8
  %me.at = getelementptr i64, ptr %table, i64 {TABLE_OPENMP + 1}
  %me.function = load ptr, ptr %me.at, align 8
  %count.at = getelementptr i64, ptr %table, i64 {TABLE_OPENMP + 2}
  %count.function = load ptr, ptr %count.at, align 8
  %me32 = call i32 %me.function()
  %count32 = call i32 %count.function()
  %me = sext i32 %me32 to i64
  %count = sext i32 %count32 to i64
  br label %head
head:
  %t = phi i64 [ %me, %entry ], [ %next, %body ]
  %more = icmp slt i64 %t, %n
  br i1 %more, label %body, label %exit
body:
  call void %function(ptr %arg, i64 %t, i64 %n)
  %next = add i64 %t, %count
  br label %head
exit:
  ret void
}}
define void @SYMBOL(ptr %function, ptr %arg, i64 %n) #0 {{
entry:
  %job = alloca [3 x i64], align 16
  %table = load ptr, ptr %arg, align 8
  %openmp.at = getelementptr i64, ptr %table, i64 {TABLE_OPENMP}
  %openmp = load ptr, ptr %openmp.at, align 8
  %there = icmp ne ptr %openmp, null
  br i1 %there, label %many, label %head
many:
  %arg.at = getelementptr i64, ptr %job, i64 1
  %n.at = getelementptr i64, ptr %job, i64 2
  store ptr %function, ptr %job, align 8
  store ptr %arg, ptr %arg.at, align 8
  store i64 %n, ptr %n.at, align 8
  %n32 = trunc i64 %n to i32
  call void %openmp(ptr @SYMBOL.share, ptr %job, i32 %n32, i32 0)
  ret void
head:
  %t = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %t, %n
  br i1 %more, label %body, label %exit
body:
  call void %function(ptr %arg, i64 %t, i64 %n)
  %next = add i64 %t, 1
  br label %head
exit:
  ret void
}}"""
)

_WALK = """define {linkage}i32 @{name}(ptr %records, i64 %count, ptr %failed) #0 {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %good
body:
  %twice = shl i64 %i, 1
  %at = getelementptr i64, ptr %records, i64 %twice
  %arg.at = getelementptr i64, ptr %at, i64 1
  %function = load ptr, ptr %at, align 8
  %arg = load ptr, ptr %arg.at, align 8
  %status = call i32 %function(ptr %arg)
  %next = add i64 %i, 1
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %head, label %bad
bad:
  store i64 %i, ptr %failed, align 8
  ret i32 %status
good:
  ret i32 0
}}"""

_RUN = Text(_WALK.format(linkage="", name="SYMBOL"))

# Words: 0 records, 1 their number, 2 steps to do, 3 address of the interrupt byte, 4 steps done, 5
# advances (address of a word, amount), 6 their number, 7 the record that failed, 8 clock_gettime or
# 0, 9 its clock, 10 the time, in that clock's nanoseconds, after which no step begins.
_RUN_STEPS = Text(
    _WALK.format(linkage="internal ", name="SYMBOL.walk")
    + f"""
define i32 @SYMBOL(ptr %job) #0 {{
entry:
  %w1 = getelementptr i64, ptr %job, i64 1
  %w2 = getelementptr i64, ptr %job, i64 2
  %w3 = getelementptr i64, ptr %job, i64 3
  %done.at = getelementptr i64, ptr %job, i64 4
  %w5 = getelementptr i64, ptr %job, i64 5
  %w6 = getelementptr i64, ptr %job, i64 6
  %failed = getelementptr i64, ptr %job, i64 7
  %w8 = getelementptr i64, ptr %job, i64 8
  %w9 = getelementptr i64, ptr %job, i64 9
  %w10 = getelementptr i64, ptr %job, i64 10
  %now.at = alloca [2 x i64], align 16
  %clock.get = load ptr, ptr %w8, align 8
  %clock = load i32, ptr %w9, align 8
  %last = load i64, ptr %w10, align 8
  %timed = icmp ne ptr %clock.get, null
  %records = load ptr, ptr %job, align 8
  %count = load i64, ptr %w1, align 8
  %steps = load i64, ptr %w2, align 8
  %flag = load ptr, ptr %w3, align 8
  %advances = load ptr, ptr %w5, align 8
  %pairs = load i64, ptr %w6, align 8
  br label %head
head:
  %s = phi i64 [ 0, %entry ], [ %s.next, %finish ], [ %s.next, %look ]
  %more = icmp slt i64 %s, %steps
  br i1 %more, label %ask, label %good
ask:
  %stop = load atomic volatile i8, ptr %flag monotonic, align 1
  %go = icmp eq i8 %stop, 0
  br i1 %go, label %step, label %interrupted
step:
  %status = call i32 @SYMBOL.walk(ptr %records, i64 %count, ptr %failed)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %advance, label %bad
advance:
  %p = phi i64 [ 0, %step ], [ %p.next, %move ]
  %p.more = icmp slt i64 %p, %pairs
  br i1 %p.more, label %move, label %finish
move:
  %p2 = shl i64 %p, 1
  %pair = getelementptr i64, ptr %advances, i64 %p2
  %by.at = getelementptr i64, ptr %pair, i64 1
  %where = load ptr, ptr %pair, align 8
  %by = load i64, ptr %by.at, align 8
  %before = load i64, ptr %where, align 8
  %now = add i64 %before, %by
  store i64 %now, ptr %where, align 8
  %p.next = add i64 %p, 1
  br label %advance
finish:
  %done = load i64, ptr %done.at, align 8
  %done.next = add i64 %done, 1
  store atomic volatile i64 %done.next, ptr %done.at monotonic, align 8
  %s.next = add i64 %s, 1
  br i1 %timed, label %look, label %head
look:
  %unused = call i32 %clock.get(i32 %clock, ptr %now.at)
  %nano.at = getelementptr i64, ptr %now.at, i64 1
  %seconds = load i64, ptr %now.at, align 8
  %nano = load i64, ptr %nano.at, align 8
  %scaled = mul i64 %seconds, 1000000000
  %time = add i64 %scaled, %nano
  %late = icmp sge i64 %time, %last
  br i1 %late, label %good, label %head
interrupted:
  ret i32 {INTERRUPTED}
bad:
  ret i32 %status
good:
  ret i32 0
}}"""
)


def library_call(kinds: str, result: str = "i32") -> Text:
    """A function that calls word 0 with the words after it.

    Args:
        kinds: of each word: p pointer, i int, l int64, f the bits of a float.
    """
    types = {"p": "ptr", "i": "i32", "l": "i64", "f": "float"}
    lines = ["  %f = load ptr, ptr %args, align 8"]
    given = []
    for n, kind in enumerate(kinds, 1):
        lines.append(f"  %at{n} = getelementptr i64, ptr %args, i64 {n}")
        lines.append(f"  %v{n} = load {types[kind]}, ptr %at{n}, align 8")
        given.append(f"{types[kind]} %v{n}")
    call = f"call {result} %f({', '.join(given)})"
    lines.append(
        f"  %status = {call}\n  ret i32 %status"
        if result == "i32"
        else f"  {'%unused = ' if result != 'void' else ''}{call}\n  ret i32 0"
    )
    return Text("define i32 @SYMBOL(ptr %args) #0 {\nentry:\n" + "\n".join(lines) + "\n}")


# dnnl_primitive_execute(primitive, stream, nargs, args) -> status
_CALL_DNNL = library_call("ppip")
# cblas_sgemm(order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
_CALL_CBLAS = library_call("iiiiiifpipifpi", "void")
# Fortran's sgemm: every argument by address
_CALL_BLAS = library_call("p" * 13, "void")
# omp_set_num_threads(threads)
_CALL_THREADS = library_call("i", "void")
# memmove(to, from, bytes)
_CALL_COPY = library_call("ppl", "ptr")


@dataclass(frozen=True)
class Runtime:
    """Addresses of the driver's functions and of the table that every kernel reads.

    Args:
        table: word 0 of each argument block. parallel: whether OpenMP's thread pool exists.
        call_dnnl: block {execute, primitive, stream, nargs, args}; returns oneDNN's status.
        call_cblas: block {cblas_sgemm, its 14 arguments, one per word (floats as float32 bits)}.
        call_blas: block {sgemm, addresses of its 13 arguments}.
        call_threads: block {omp_set_num_threads, threads} (`onednn.threads_block`).
        call_copy: block {memmove, to, from, bytes}.
    """

    table: int
    parallel: bool
    run: Any
    run_steps: Any
    call_dnnl: int
    call_cblas: int
    call_blas: int
    call_threads: int
    call_copy: int
    memmove: int
    clock_gettime: int
    words: Any = field(repr=False)


_runtime: Runtime | None = None
_lock = threading.Lock()


def load_runtime() -> Runtime:
    """The process's runtime, made on first use."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = _make_runtime()
            os.register_at_fork(after_in_child=_after_fork)
        return _runtime


def _make_runtime() -> Runtime:
    texts = [_PARALLEL, _RUN, _RUN_STEPS, _CALL_DNNL, _CALL_CBLAS, _CALL_BLAS]
    texts += [_CALL_THREADS, _CALL_COPY]
    parallel, run, steps, dnnl, cblas, blas, threads, copy = compile_many(texts)
    words = np.zeros(TABLE_WORDS, np.int64)
    words[0] = parallel
    library = _c_library()
    for n, name in enumerate(LIBRARY, 1):
        words[n] = _address(library, name)
    openmp = [] if native.forked() else [native.symbol(name) for name in OPENMP]
    if openmp and all(openmp):
        words[TABLE_OPENMP:] = openmp
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    return Runtime(
        table=words.ctypes.data,
        parallel=bool(words[TABLE_OPENMP]),
        run=ctypes.CFUNCTYPE(integer, pointer, ctypes.c_int64, pointer)(run),
        run_steps=ctypes.CFUNCTYPE(integer, pointer)(steps),
        call_dnnl=dnnl,
        call_cblas=cblas,
        call_blas=blas,
        call_threads=threads,
        call_copy=copy,
        memmove=ctypes.cast(ctypes.memmove, pointer).value or 0,
        clock_gettime=_clock(library),
        words=words,
    )


def _after_fork() -> None:
    """A forked child has no pool threads: its kernels run on the calling thread."""
    if _runtime is not None:
        _runtime.words[TABLE_OPENMP] = 0


def _c_library() -> Any:
    for name in (None, "libm.so.6", "libSystem.dylib", "ucrtbase.dll"):
        try:
            library = ctypes.CDLL(name)
        except (OSError, TypeError):
            continue
        if hasattr(library, "lgamma"):
            return library
    raise OSError("no C library with the functions of <math.h> was found")


def _clock(library: Any) -> int:
    """The address of clock_gettime; 0 where steps cannot be timed natively (Windows)."""
    if not hasattr(time, "CLOCK_MONOTONIC"):
        return 0
    for result in (library, ctypes.CDLL(None)):
        if hasattr(result, "clock_gettime"):
            return _address(result, "clock_gettime")
    return 0


def _address(library: Any, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


@dataclass(frozen=True)
class Record:
    """One call of a program.

    Args:
        function: address of `i32 f(block)`. block: its argument block, an int64 array kept alive
        here. name: shown where the record fails. keep: what the block points to.
    """

    function: int
    block: Any
    name: str = ""
    keep: Any = None


class RecordError(RuntimeError):
    """A record gave an error status; the message names the record and the status."""


class Program:
    """Records in the order in which they run.

    Args:
        records: the records. A program reads their blocks again in each run, so blocks may change.

    Example:
        >>> Program([]).run()
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = tuple(records)
        self.runtime = load_runtime()
        self.table = np.array(
            [(r.function, r.block.ctypes.data) for r in self.records], dtype=np.int64
        ).reshape(-1, 2)
        self._failed = np.zeros(1, np.int64)
        self._call = (self.table.ctypes.data, len(self.records), self._failed.ctypes.data)

    def run(self) -> None:
        """Run every record once.

        Raises:
            RecordError: a record returned a status other than 0; the records before it have run.
        """
        status = self.runtime.run(*self._call)
        if status:
            raise self.error(int(self._failed[0]), status)

    def error(self, index: int, status: int) -> RecordError:
        """The error for a record that failed."""
        record = self.records[index]
        name = record.name or "unnamed"
        reason = f"status {status}"
        if record.function == self.runtime.call_dnnl:
            reason = f"oneDNN's status {status}"
        elif status == OUT_OF_RANGE:
            reason = "an index is out of range"
        elif status == UNWRITTEN:
            reason = f"element {int(self.records[index].block[-1])} comes of unwritten memory"
        return RecordError(f"record {index} ({name}): {reason}")


class Steps:
    """A program run many times in one native call.

    Args:
        program: the records of one step.
        advances: (block, word, amount): after each step `amount` is added to word `word` of the
            int64 array `block` (the address of the next batch's indices, a counter, ...).
    """

    def __init__(self, program: Program, advances: Sequence[tuple[Any, int, int]] = ()) -> None:
        self.program = program
        self._before = 0  # steps done when the last run began
        self._blocks = [block for block, _, _ in advances]
        self._advances = np.array(
            [(block.ctypes.data + 8 * word, amount) for block, word, amount in advances],
            dtype=np.int64,
        ).reshape(-1, 2)
        self.flag = np.zeros(1, np.uint8)
        table = program.table
        self._job = np.array(
            [table.ctypes.data, len(table), 0, self.flag.ctypes.data, 0,
             self._advances.ctypes.data, len(self._advances), 0, 0, 0, 0],
            dtype=np.int64,
        )  # fmt: skip

    @property
    def done(self) -> int:
        """Steps finished since this object was created; may be read while it runs."""
        return int(self._job[4])

    def interrupt(self) -> None:
        """Make a running `run` return after its current step (from any thread or signal)."""
        self.flag[0] = 1

    def run(self, steps: int, seconds: float | None = None) -> int:
        """Run up to `steps` steps; return the number of steps done.

        Python answers signals (Ctrl-C) only between calls: a caller that asks for 0.1 `seconds` at
        a time stays responsive at no measurable cost.

        Args:
            seconds: no step starts later than this; at least one step runs (None: no limit).

        Raises:
            RecordError: a record failed; the steps before have been done.
        """
        return self.finish(self.program.runtime.run_steps(self.begin(steps, seconds)))

    def begin(self, steps: int, seconds: float | None = None) -> int:
        """Return the argument of the native function that runs up to `steps` steps."""
        self._before = self.done
        self._job[2] = steps
        self._job[8:] = self._deadline(seconds)
        return int(self._job.ctypes.data)

    def finish(self, status: int) -> int:
        """Return how many steps the native function did that gave `status`.

        Raises:
            RecordError: a record failed.
        """
        self.flag[0] = 0
        if status not in (0, INTERRUPTED):
            raise self.program.error(int(self._job[7]), status)
        return self.done - self._before

    def _deadline(self, seconds: float | None) -> tuple[int, int, int]:
        get = self.program.runtime.clock_gettime
        if seconds is None or not get:
            return 0, 0, 0
        clock = time.CLOCK_MONOTONIC
        return get, clock, time.clock_gettime_ns(clock) + int(seconds * 1e9)


def aligned(size: int) -> tuple[Any, int]:
    """(owner, address) of `size` bytes of zeros, aligned to 64 bytes.

    With KERASISH_STRICT_MEMORY the memory lies between guard pages and is filled with NaNs.
    """
    if guard_pages.mode():
        return guard_pages.block(size)
    owner = np.zeros(size + 64, np.uint8)
    return owner, -(-owner.ctypes.data // 64) * 64
