"""ProgressThread: lets MPI go on with nonblocking sums while native code computes.

A nonblocking call of MPI goes on inside other calls of MPI alone. Compiled steps make short calls
between their units, but one unit may take longer than the network has data for. Between machines a
thread therefore calls MPI every millisecond; native code holds no lock that it waits for.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from kerasish.ranks.group import Progress

IN_STEPS, BETWEEN = 0.001, 0.02  # seconds from call to call


class ProgressThread(threading.Thread):
    """Calls MPI at short intervals while a step runs.

    Args:
        progress: says whether a step runs.
        call: any short call of MPI; the library must allow calls of several threads.
    """

    def __init__(self, progress: Progress, call: Callable[[], object]) -> None:
        super().__init__(name="kerasish-progress", daemon=True)
        self._progress, self._call = progress, call
        self._ended = threading.Event()
        atexit.register(self.stop)  # runs before MPI ends

    def run(self) -> None:
        """Call until `stop`."""
        while not self._ended.wait(IN_STEPS if self._progress.since else BETWEEN):
            if self._progress.since:
                self._call()

    def stop(self) -> None:
        """End the thread; return when it makes no more calls."""
        self._ended.set()
        if self.is_alive():
            self.join()
        atexit.unregister(self.stop)
