"""Predictions for one array: the lookups of a call are done once, before the calls.

A call of a small model computes for a microsecond. Looking up the compiled call, the memory and the
addresses takes several microseconds, and more if weights have displaced Python's data from the
caches. So a function that holds all of them is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.lowering.program_threads import nanoseconds
from kerasish.backends.static.runtime.lanes import Lanes
from kerasish.backends.static.runtime.program import Executable
from kerasish.changes import Changes
from kerasish.config import threads_here
from kerasish.devices import device_here
from kerasish.graph.ir import Graph, Value
from kerasish.tensor import current_scope
from kerasish.typing import Array
from kerasish.watched import Guards

# Estimated nanoseconds of a run up to which it holds Python's lock and that of the lanes. So it
# need not record which memory it uses. During longer runs other threads continue.
SHORT = 20_000.0


class _Memory(NamedTuple):
    """An executable as a ready call uses it.

    Attributes:
        input: the memory of the argument.
        run: the native call.
        arguments: of the call.
        output: the memory of the result.
    """

    input: Array
    run: Any
    arguments: tuple[int, ...]
    output: Array


def ready_call(
    lanes: Lanes, graph: Graph, result: Value, x: Array, guards: Guards, mark: object
) -> Callable[[Array], Array | None] | None:
    """Return a function that runs a compiled call on an array of the shape of `x`, or None.

    The function returns None, and has run nothing, if the dtype differs, if settings, variables or
    what the trace used have changed since the mark, or if the run must be exclusive. It also
    returns None after a failed run, which the general path repeats and explains.

    Args:
        lanes: of the call.
        graph: what runs.
        result: the value that is returned.
        x: an array that the call has run on.
        guards: what the trace used.
        mark: `Changes.mark` before the compiled call was looked up.
    """
    if mark is not Changes.mark or not lanes.is_simple():
        return None
    stale = guards.stale if guards.may_change_unnoticed() else None
    dtype, threads_in, device_in = x.dtype, threads_here.get, device_here.get
    threads, device = threads_in(), device_in()
    lock, free = lanes._lock, lanes._free
    is_short = sum(map(nanoseconds, graph.nodes)) <= SHORT
    memories: dict[Any, _Memory] = {}
    copy = np.copyto

    def memory_of(executable: Any) -> _Memory:
        memory = memories[executable] = _memory(executable, result, is_short)
        return memory

    def call(x: Array) -> Array | None:
        if mark is not Changes.mark or x.dtype is not dtype or current_scope() is not None:
            return None
        if threads_in() != threads or device_in() is not device:
            return None
        if stale is not None and stale() is not None:
            return None
        # A thread with the lock may use a free executable without taking it: no other can take it.
        with lock:
            if not free or lanes.exclusive or mark is not Changes.mark:
                return None
            executable = free[-1]
            memory = memories.get(executable) or memory_of(executable)
            if is_short:
                copy(memory.input, x)
                return None if memory.run(*memory.arguments) else memory.output.copy()
            if not lanes.take_ready():
                return None
        try:
            copy(memory.input, x)
            return None if memory.run(*memory.arguments) else memory.output.copy()
        finally:
            lanes.leave()

    return call


def _memory(executable: Executable, result: Value, is_short: bool) -> _Memory:
    (program,), (view,) = executable.parts, executable.inputs
    run, arguments = program.call(holding=is_short)
    return _Memory(view, run, arguments, executable.view(result))
