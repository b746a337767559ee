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

All kernels use one parallel loop: `runtime.table` holds its address and OpenMP's, so the thread
pool is that of libgomp, which oneDNN also uses. Without OpenMP the loop runs the shares one after
the other on the calling thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen.c_library import address_of, c_library, clock_of
from kerasish.backends.static.codegen.driver_code import (
    CALL_BLAS,
    CALL_CBLAS,
    CALL_COPY,
    CALL_DNNL,
    CALL_THREADS,
    CHOOSE,
    CONCURRENT,
    EXPECT,
    INTERRUPTED,
    OUT_OF_RANGE,
    PARALLEL,
    RUN,
    RUN_STEPS,
    RUN_TIMED,
    UNMET,
    UNWRITTEN,
)
from kerasish.backends.static.codegen.kernel_table import other_table
from kerasish.backends.static.codegen.kernels import compile_many
from kerasish.backends.static.codegen.vector_math import LIBRARY, OPENMP, TABLE_OPENMP, TABLE_WORDS
from kerasish.backends.static.machine import guard_pages
from kerasish.ops.basic import printing

ALIGNMENT = 64  # bytes: a cache line
RAISED = -7301  # the status of a record whose Python function raised


class Runtime(NamedTuple):
    """Addresses of the driver's functions and of the table that every kernel reads.

    Args:
        own_table: see `table`. parallel: whether OpenMP's thread pool exists.
        call_dnnl: block {execute, primitive, stream, nargs, args}; returns oneDNN's status.
        call_cblas: block {cblas_sgemm, its 14 arguments, one per word (floats as float32 bits)}.
        call_blas: block {sgemm, addresses of its 13 arguments}.
        call_threads: block {omp_set_num_threads, threads} (`onednn.threads_block`).
        call_copy: block {memmove, to, from, bytes}.
        expect: block {address of a value, of the expected value, bytes}.
        choose: see `nested_records.choice_record`.
        concurrent: see `nested_records.concurrent_record`.
        run_holding: `run` for a caller that holds Python's lock: for short programs.
        run_timed: like `run`, with the time before each record (see `RUN_TIMED`).
        timed: the address of `run_timed`, which is also the function of a record.
    """

    own_table: int
    parallel: bool
    run: Any
    run_holding: Any
    run_steps: Any
    run_timed: Any
    timed: int
    call_dnnl: int
    call_cblas: int
    call_blas: int
    call_threads: int
    call_copy: int
    expect: int
    choose: int
    concurrent: int
    memmove: int
    clock_gettime: int
    words: Any

    @property
    def table(self) -> int:
        """Word 0 of each argument block: the address of functions that kernels call."""
        return other_table() or self.own_table


_runtime: Runtime | None = None
_lock = threading.Lock()


def load_runtime() -> Runtime:
    """Return the process's runtime, created on first use."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = _make_runtime()
            os.register_at_fork(after_in_child=_after_fork)
        return _runtime


def _make_runtime() -> Runtime:
    texts = [PARALLEL, RUN, RUN_STEPS, CALL_DNNL, CALL_CBLAS, CALL_BLAS]
    texts += [CALL_THREADS, CALL_COPY, EXPECT, RUN_TIMED, CHOOSE, CONCURRENT]
    compiled = compile_many(texts)
    parallel, run, steps, dnnl, cblas, blas, threads, copy, expect, timed, *more = compiled
    choose, concurrent = more
    words = np.zeros(TABLE_WORDS, np.int64)
    words[0] = parallel
    library = c_library()
    for n, name in enumerate(LIBRARY, 1):
        words[n] = address_of(library, name)
    openmp = [] if native.forked() else [native.symbol(name) for name in OPENMP]
    if openmp and all(openmp):
        words[TABLE_OPENMP:] = openmp
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    return Runtime(
        own_table=words.ctypes.data,
        parallel=bool(words[TABLE_OPENMP]),
        run=ctypes.CFUNCTYPE(integer, pointer, ctypes.c_int64, pointer)(run),
        run_holding=ctypes.PYFUNCTYPE(integer, pointer, ctypes.c_int64, pointer)(run),
        run_steps=ctypes.CFUNCTYPE(integer, pointer)(steps),
        run_timed=ctypes.CFUNCTYPE(integer, pointer)(timed),
        timed=timed,
        call_dnnl=dnnl,
        call_cblas=cblas,
        call_blas=blas,
        call_threads=threads,
        call_copy=copy,
        expect=expect,
        choose=choose,
        concurrent=concurrent,
        memmove=ctypes.cast(ctypes.memmove, pointer).value or 0,
        clock_gettime=clock_of(library),
        words=words,
    )


def _after_fork() -> None:
    """A forked child has no pool threads: its kernels run on the calling thread."""
    if _runtime is not None:
        _runtime.words[TABLE_OPENMP] = 0


class Record(NamedTuple):
    """One call of a program.

    Args:
        function: address of `i32 f(block)`. block: its argument block, an int64 array kept alive
        here. name: shown if the record fails. keep: what the block points to.
    """

    function: int
    block: Any
    name: str = ""
    keep: Any = None


class RecordError(RuntimeError):
    """A record returned an error status; the message names the record and the status.

    Attributes:
        record: the record; None if the error is not that of a single record.
        out_of_range: whether an index was out of range.
        memory: the executable whose record it is; None: the one that the caller ran.
    """

    record: Record | None = None
    memory: Any = None
    out_of_range = False


class _Callback:
    """The data of the record of a Python function.

    Args:
        function: called without arguments.

    Attributes:
        pointer: the function as a C function, which returns a status.
        error: the exception of the function's last call.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.error: BaseException | None = None
        self.pointer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._run)

    def _run(self, block: int) -> int:
        # A function that C calls must not raise: Ctrl-C is raised when the program ends.
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 (kept and raised)
            self.error = error
            return RAISED
        return 0


def callback_record(function: Callable[[], object], name: str) -> Record:
    """Return a record that calls a Python function, which holds the GIL while it runs.

    Args:
        function: called without arguments; an exception ends the run and is raised there.
        name: for messages.
    """
    callback = _Callback(function)
    address = ctypes.cast(callback.pointer, ctypes.c_void_p).value or 0
    return Record(address, np.zeros(1, np.int64), name, callback)


class UnmetConditionError(RecordError):
    """A value is not what the program assumes; `number` is the number of the condition."""

    def __init__(self, number: int) -> None:
        super().__init__(f"condition {number} does not hold")
        self.number = number


def table_of(records: Sequence[Record]) -> Any:
    """Return the addresses of functions and blocks, one row per record."""
    pairs = [(r.function, r.block.ctypes.data) for r in records]
    return np.array(pairs, np.int64).reshape(-1, 2)


class Nested:
    """The data of a record that runs lists of other records at the same time."""

    def failed(self) -> tuple[Record, int]:
        """Return the first of the records that failed in the last run, and its status."""
        raise NotImplementedError

    def timed(self) -> TimedLists:
        """Return lists that do the same and measure the time of each record."""
        raise NotImplementedError


class TimedLists:
    """Concurrent lists: `record` runs them and measures the times of their records."""

    record: Record

    def shares(self, seconds: float) -> list[tuple[Record, float]]:
        """Return the records of all lists with their shares of the time of the last run."""
        raise NotImplementedError

    def failed(self) -> None:
        """Note which records failed, for `Nested.failed`."""
        raise NotImplementedError


class Stopwatch:
    """The argument of `RUN_TIMED` for a list of records, and the times that it measures.

    Attributes:
        job: the argument.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._table = table_of(records)
        count = len(self._table)
        self._times = np.zeros((count + 1, 2), np.int64)
        words = [self._table.ctypes.data, count, load_runtime().clock_gettime]
        words += [time.CLOCK_MONOTONIC, self._times.ctypes.data, 0]
        self.job = np.array(words, np.int64)

    def seconds(self) -> list[float]:
        """Return the seconds that each record took in the last run."""
        times = self._times
        seconds: list[float] = np.diff(times[:, 0] - times[0, 0] + times[:, 1] * 1e-9).tolist()
        return seconds


class Program:
    """Records in the order in which they run.

    Args:
        records: the records. A program reads their blocks again in each run, so blocks may change.

    Attributes:
        seconds: the duration of the last timed run, including its call.

    Example:
        >>> Program([]).run()
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = tuple(records)
        self.runtime = load_runtime()
        self.seconds = 0.0
        self.table = table_of(self.records)
        self._failed = np.zeros(1, np.int64)
        self._call = (self.table.ctypes.data, len(self.records), self._failed.ctypes.data)

    def call(self, holding: bool) -> tuple[Any, tuple[int, ...]]:
        """Return a function that runs every record once, and its arguments.

        It returns a status: 0, or that of the record that failed.

        Args:
            holding: whether it holds Python's lock.
        """
        return self.runtime.run_holding if holding else self.runtime.run, self._call

    def run(self) -> None:
        """Run every record once.

        Raises:
            RecordError: a record returned a status other than 0; the records before it have run.
        """
        status = self.runtime.run(*self._call)
        if status:
            raise self.error(int(self._failed[0]), status)

    def run_timed(self) -> list[tuple[Record, float]]:
        """Run every record once; return the records with the seconds that each took.

        Records of concurrent lists share the time of all lists in proportion to their own times, so
        that all times add up to that of the program.

        Raises:
            RecordError: a record returned a status other than 0; the records before it have run.
            OSError: the platform has no clock for it.
        """
        if not self.runtime.clock_gettime:
            raise OSError("records cannot be timed here: there is no clock_gettime")
        lists = [r.keep.timed() if isinstance(r.keep, Nested) else None for r in self.records]
        watch = Stopwatch([r if t is None else t.record for r, t in zip(self.records, lists)])
        start = time.perf_counter()
        status = self.runtime.run_timed(watch.job.ctypes.data)
        self.seconds = time.perf_counter() - start
        if status:
            number = int(watch.job[5])
            inside = lists[number]
            if inside is not None:
                inside.failed()
            raise self.error(number, status)
        results: list[tuple[Record, float]] = []
        for record, inside, seconds in zip(self.records, lists, watch.seconds()):
            results += [(record, seconds)] if inside is None else inside.shares(seconds)
        return results

    def error(self, index: int, status: int) -> BaseException:
        """Return the error for a record that failed."""
        record = self.records[index]
        while isinstance(record.keep, Nested):
            record, status = record.keep.failed()
        if status == UNMET:
            printing.forget()  # another path prints
            return UnmetConditionError(record.keep.number)
        printing.release()
        if status == RAISED:
            error: BaseException = record.keep.error
            return error
        name = record.name or self.records[index].name or "unnamed"
        reason = f"status {status}"
        if record.function == self.runtime.call_dnnl:
            reason = f"oneDNN's status {status}"
        elif status == OUT_OF_RANGE:
            reason = "an index is out of range"
        elif status == UNWRITTEN:
            reason = f"element {int(record.block[-1])} comes from unwritten memory"
        error = RecordError(f"record {index} ({name}): {reason}")
        error.record, error.out_of_range = record, status == OUT_OF_RANGE
        return error


class Steps:
    """A program run many times in one native call.

    Args:
        program: the records of one step.
        advances: (block, word, amount): after each step `amount` is added to word `word` of the
            int64 array `block` (the address of the next batch's indices, a counter, ...).
    """

    def __init__(self, program: Program, advances: Sequence[tuple[Any, int, int]] = ()) -> None:
        self.program = program
        self._before = 0  # steps done when the last run started
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

        Python handles signals (Ctrl-C) only between calls: a caller that passes `seconds=0.1` stays
        responsive at no measurable cost.

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
        """Return the number of steps of the native function's run that returned `status`.

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


class Expected(NamedTuple):
    """The data of a record of `condition_record`.

    Attributes:
        number: the number of the condition.
        answer: the expected value.
    """

    number: int
    answer: Any


def condition_record(number: int, address: int, answer: Any) -> Record:
    """Return a record that ends the run with `UnmetConditionError` if a value differs.

    Args:
        number: the number of the condition.
        address: the address of the value.
        answer: the expected array, byte for byte.
    """
    runtime = load_runtime()
    answer = np.ascontiguousarray(answer)
    block = np.array([address, answer.ctypes.data, answer.nbytes], np.int64)
    return Record(runtime.expect, block, f"condition {number}", Expected(number, answer))


def aligned(size: int) -> tuple[Any, int]:
    """(owner, address) of `size` bytes of zeros, aligned to `ALIGNMENT`.

    With KERASISH_STRICT_MEMORY the memory is between guard pages and is filled with NaNs.
    """
    if guard_pages.mode():
        return guard_pages.block(size)
    owner = np.zeros(size + ALIGNMENT, np.uint8)
    return owner, -(-owner.ctypes.data // ALIGNMENT) * ALIGNMENT
