"""ProgressThread: lets MPI make progress with sums between machines while a step computes.

A nonblocking call of MPI makes progress only inside other calls of MPI. Compiled steps make such
calls between their units, but one unit may run longer than the network is busy. Between machines a
thread therefore also makes such calls. Its loop is native: it does not take the interpreter's lock,
and calls MPI only while a step has sums in flight.
"""

from __future__ import annotations

import atexit
import ctypes
import threading

import numpy as np

from kerasish.backends.static.codegen.driver import Record
from kerasish.backends.static.codegen.driver_code import KEEP_MOVING, SET_WORD
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.ranks import Group, NativeCalls

_LOOP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class ProgressThread(threading.Thread):
    """Tests a request of MPI at short intervals, as long as it is switched on.

    Args:
        test: the address of `MPI_Test`, which several threads may call.
        request: the address of a request that no other thread uses, and that never completes.
        no_status: the value of MPI_STATUS_IGNORE.
        sleep: the address of `usleep`.

    Attributes:
        active: one number: not 0 while sums are in flight.
    """

    def __init__(self, test: int, request: int, no_status: int, sleep: int) -> None:
        super().__init__(name="kerasish-progress", daemon=True)
        self.active, self._stop_word = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._flag = np.zeros(1, np.int64)
        places = [a.ctypes.data for a in (self.active, self._stop_word)]
        words = [test, request, self._flag.ctypes.data, no_status, sleep, *places]
        self._block = np.array(words, np.int64)
        self._loop = _LOOP(compile_one(KEEP_MOVING))

    def run(self) -> None:
        """Test until `stop`."""
        self._loop(self._block.ctypes.data)

    def stop(self) -> None:
        """End the thread; return once it makes no more calls."""
        self._stop_word[0] = 1
        if self.is_alive():
            self.join()

    def switch(self, on: bool) -> Record:
        """Return a record that switches the thread on or off."""
        block = np.array([self.active.ctypes.data, int(on)], np.int64)
        name = f"progress thread ({'on' if on else 'off'})"
        return Record(compile_one(SET_WORD), block, name, self.active)


class _Started:
    thread: ProgressThread | None = None


def progress_thread(group: Group, calls: NativeCalls | None) -> ProgressThread | None:
    """Return the thread of this process, started; None where sums need none.

    Args:
        group: the ranks; `Group.endless_request` tests whether they need one.
        calls: their native calls.
    """
    if _Started.thread is None and calls is not None and calls.sleep:
        request = group.endless_request()
        if request:
            test = calls.functions["MPI_Test"]
            thread = ProgressThread(test, request, calls.no_status, calls.sleep)
            thread.start()
            # Before MPI ends, and before the group takes its request back.
            atexit.register(thread.stop)
            _Started.thread = thread
    return _Started.thread
