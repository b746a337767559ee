"""Threads of a pipeline: ordered work by several, and one that reads ahead. All of them end.

Nothing that a thread refers to refers to the cursor that started it. So a cursor that is dropped is
collected, which ends its threads; so do `close`, an error in any of them, and the end of the
process. A thread that hangs in user code cannot keep the process from ending.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kerasish.data.node import AUTOTUNE, END, Cursor
from kerasish.engine.data.py_dataset import do_tasks

_JOIN_SECONDS = 1.0  # a slow read may end by itself later
GIVEN_BACK = object()
_SAMPLE = 16  # elements whose times are looked at
_SMALL_SHARE = 0.1  # of the time between two elements


def worker_count(calls: int | None) -> int:
    """Return the number of threads for an argument `num_parallel_calls`.

    Raises:
        ValueError: it is no positive number, AUTOTUNE or None.
    """
    if calls is None:
        return 1
    if calls == AUTOTUNE:
        return min(os.cpu_count() or 1, 16)
    if isinstance(calls, bool) or not isinstance(calls, int) or calls < 1:
        raise ValueError(
            "num_parallel_calls: expected a number of threads >= 1, AUTOTUNE or None, got "
            f"{calls!r}."
        )
    return calls


class OfOneProcess:
    """What holds threads or processes, which a copy of the process made by fork has not."""

    _end: Callable[[], Any]  # ends them

    def __init__(self) -> None:
        self._process = os.getpid()

    def check_process(self) -> None:
        """Raise RuntimeError in another process."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "This iterator of a Dataset was made before a fork: its threads are in the other "
                "process. Make the iterator in the process that reads it: iter(dataset)."
            )

    def close(self) -> None:
        """Cancel what has not begun, and end the threads or processes."""
        if os.getpid() == self._process:
            self._end()


class Workers(OfOneProcess):
    """Threads that work on tasks; the results are in the order of the tasks.

    Args:
        work: task -> result; runs in the threads.
        count: the number of threads.
    """

    def __init__(self, work: Callable[[Any], Any], count: int) -> None:
        super().__init__()
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pending: deque[Future[Any]] = deque()
        threads = [
            threading.Thread(
                target=do_tasks,
                args=(work, self._tasks),
                daemon=True,
                name=f"kerasish-data-map-{n}",
            )
            for n in range(count)
        ]
        for thread in threads:
            thread.start()
        self._end = weakref.finalize(self, _end_workers, self._tasks, self._pending, threads)

    @property
    def pending(self) -> int:
        """The number of tasks whose results have not been taken."""
        return len(self._pending)

    def put(self, task: Any) -> None:
        """Hand a task to the threads."""
        self.check_process()
        future: Future[Any] = Future()
        self._pending.append(future)
        self._tasks.put((future, task))

    def take(self) -> Any:
        """Return the result of the first task whose result was not taken; raise its error.

        The error is the one that was raised in the thread, with its traceback.
        """
        self.check_process()
        return self._pending.popleft().result()


def _end_workers(
    tasks: queue.SimpleQueue[Any], pending: deque[Future[Any]], threads: list[threading.Thread]
) -> None:
    for future in pending:
        future.cancel()
    pending.clear()
    for _ in threads:
        tasks.put(None)
    _join(threads)


def _join(threads: list[threading.Thread]) -> None:
    until = time.monotonic() + _JOIN_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(timeout=max(until - time.monotonic(), 0.0))


class Ahead(OfOneProcess):
    """One thread that reads a cursor ahead, at most `depth` elements.

    The cursor belongs to the thread from now on: it is read and closed there. The thread may give
    it back: where all cores compute, and reading takes a small part of what is done with the
    elements, handing them from thread to thread costs more than it gains.

    Args:
        source: the cursor.
        depth: elements read ahead, >= 1.
        gives_back: whether the cursor may be given back.
    """

    def __init__(self, source: Cursor, depth: int, gives_back: bool = False) -> None:
        super().__init__()
        self._channel = _Channel(depth)
        thread = threading.Thread(
            target=_read_ahead, args=(source, self._channel, gives_back), daemon=True,
            name="kerasish-data-prefetch",
        )  # fmt: skip
        thread.start()
        self._end = weakref.finalize(self, _end_ahead, self._channel, thread)

    def take(self) -> tuple[Any, Any]:
        """Return (element or END, the place after it); raise the thread's error in its turn.

        (GIVEN_BACK, the cursor) says that the thread has ended and reads no more.
        """
        self.check_process()
        kind, value, place = self._channel.take()
        if kind == "error":
            raise value
        return value, place


class _Channel:
    """A bounded queue that can be closed from either end."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[tuple[str, Any, Any]] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._closed = False
        self._left: float | None = None  # when the reader had the last item
        self._between: deque[float] = deque(maxlen=_SAMPLE)

    def seconds_between(self) -> float:
        """Return how long the reader works on an item: a median; 0.0 where it is not known yet."""
        with self._changed:
            return _ranked(self._between, 0.5)

    def put(self, item: tuple[str, Any, Any]) -> bool:
        """Wait for a free place and put an item there; return False if no reader is left."""
        with self._changed:
            while len(self._items) >= self._depth and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def take(self) -> tuple[str, Any, Any]:
        with self._changed:
            if self._left is not None:
                self._between.append(time.perf_counter() - self._left)
            while not self._items and not self._closed:
                self._changed.wait()
            if not self._items:
                return ("element", END, None)
            item = self._items.popleft()
            self._changed.notify_all()
            self._left = time.perf_counter()
            return item

    def close(self) -> None:
        with self._changed:
            self._closed = True
            items = list(self._items)
            self._items.clear()
            self._changed.notify_all()
        for _, value, place in items:
            if value is GIVEN_BACK:
                place.close()

    @property
    def closed(self) -> bool:
        return self._closed


def _ranked(seconds: deque[float], share: float) -> float:
    """Return the time that a share of a full sample is below; 0.0 where the sample is not full."""
    return sorted(seconds)[int(share * _SAMPLE)] if len(seconds) == _SAMPLE else 0.0


def _read_ahead(source: Cursor, channel: _Channel, gives_back: bool) -> None:
    reads: deque[float] = deque(maxlen=_SAMPLE)
    try:
        more = True
        while more and not channel.closed:
            start = time.perf_counter()
            element = source.read()
            # A quarter of the reads at most is waited for by the system's scheduler.
            reads.append(time.perf_counter() - start)
            more = channel.put(("element", element, source.state())) and element is not END
            del element
            limit = _SMALL_SHARE * channel.seconds_between() if gives_back and more else 0.0
            if 0.0 < _ranked(reads, 0.25) < limit and channel.put(("element", GIVEN_BACK, source)):
                return
    except BaseException as error:  # noqa: BLE001 - raised again where the element is due
        channel.put(("error", error, None))
    source.close()


def _end_ahead(channel: _Channel, thread: threading.Thread) -> None:
    channel.close()
    _join([thread])
