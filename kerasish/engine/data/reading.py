"""Batches of rows on disk, read ahead by a thread where that is worth it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence

from kerasish import config
from kerasish.engine.data.batch import Batch
from kerasish.engine.data.py_dataset import read_ahead

_DEPTH = 2  # batches that the thread reads ahead
_SAMPLE = 8  # batches after which the share of reading is looked at
# The share of the time above which a thread reads: where all cores compute, and else.
_SHARE_BUSY, _SHARE_FREE = 0.15, 0.03
_LEAST = 1e-4  # seconds per batch: a switch of threads costs more than reading less


class DiskReader:
    """Reads the batches of epochs when they are asked for, or ahead by a thread.

    A thread reads where reading takes a considerable share of the time. The batches and their
    order are the same, and an error is raised where its batch is due.

    Attributes:
        threaded: whether a thread reads; it stays so in the next epoch.
    """

    def __init__(self) -> None:
        self.threaded = False
        self._reading = 0.0  # seconds in which the last batches were read
        self._count = 0
        self._since = 0.0

    def batches(self, read: Callable[[int], Batch], numbers: Sequence[int]) -> Iterator[Batch]:
        """Yield read(n) for each number, in order.

        Args:
            read: returns a batch; may run in another thread.
            numbers: of the batches.
        """

        def timed(number: int) -> Batch:
            start = time.perf_counter()
            batch = read(number)
            self._reading += time.perf_counter() - start
            self._count += 1
            return batch

        self._begin()
        for place, number in enumerate(numbers):
            if self.threaded:
                yield from read_ahead(timed, numbers[place:], 1, _DEPTH)
                self.threaded = self._is_slow(0.5)  # the cores that compute slow a thread down
                return
            batch = timed(number)
            yield batch
            del batch
            if self._count >= _SAMPLE:
                self.threaded = self._is_slow(1.0)
                self._begin()

    def _begin(self) -> None:
        self._reading, self._count, self._since = 0.0, 0, time.perf_counter()

    def _is_slow(self, factor: float) -> bool:
        """Return whether reading took more than the limit, times a factor, since `_begin`."""
        share = _SHARE_BUSY if all_cores_compute() else _SHARE_FREE
        least = max(share * (time.perf_counter() - self._since), _LEAST * self._count)
        return self._reading > factor * least


def all_cores_compute() -> bool:
    """Return whether the engine's threads take all cores, so that reading has no free core."""
    threads = config.threads() or os.environ.get("OMP_NUM_THREADS", "")
    return not str(threads).isdecimal() or int(threads) >= (os.cpu_count() or 1)
