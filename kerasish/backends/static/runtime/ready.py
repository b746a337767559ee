"""Predictions of one array: what a call must look up is looked up once, before the calls.

A call of a small model takes a microsecond of computation. To find the compiled call, the memory
and the addresses takes several, and more where weights have displaced from the caches what Python
looks up. So a function is kept that has all of them.
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

# Nanoseconds of a run, estimated, up to which it keeps Python's lock and that of the lanes, so that
# it need not note which memory it takes. Longer runs let other threads go on.
SHORT = 20_000.0


class _Memory(NamedTuple):
    """An executable as a ready call uses it.

    Attributes:
        input: where the argument goes.
        run: the native call.
        arguments: of the call.
        output: where the result lies.
    """

    input: Array
    run: Any
    arguments: tuple[int, ...]
    output: Array


def ready_call(
    lanes: Lanes, graph: Graph, result: Value, x: Array, guards: Guards, mark: object
) -> Callable[[Array], Array | None] | None:
    """Return a function that runs a compiled call on an array of the shape of `x`; None: none can.

    It returns None, and has run nothing, where the dtype is another one, where settings, variables
    or what the trace used have changed since the mark, and where a run must be alone. It returns
    None after a failed run, too, which the usual way repeats and explains.

    Args:
        lanes: of the call.
        graph: what runs.
        result: the value that is returned.
        x: an array that the call has taken.
        guards: what the trace used.
        mark: `Changes.mark` before the compiled call was found.
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
        # A thread with the lock may use what is free without taking it: no other takes it then.
        with lock:
            if not free or lanes.alone or mark is not Changes.mark:
                return None
            executable = free[-1]
            own = memories.get(executable) or memory_of(executable)
            if is_short:
                copy(own.input, x)
                return None if own.run(*own.arguments) else own.output.copy()
            if not lanes.take_ready():
                return None
        try:
            copy(own.input, x)
            return None if own.run(*own.arguments) else own.output.copy()
        finally:
            lanes.leave()

    return call


def _memory(executable: Executable, result: Value, is_short: bool) -> _Memory:
    (program,), (view,) = executable.parts, executable.inputs
    run, arguments = program.call(holding=is_short)
    return _Memory(view, run, arguments, executable.view(result))
