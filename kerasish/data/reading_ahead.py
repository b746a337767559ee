"""`prefetch`: elements are read ahead by a thread while the ones before are used."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kerasish.data.node import AUTOTUNE, END, Cursor, DataNode, Selection
from kerasish.data.threads import GIVEN_BACK, Ahead
from kerasish.engine.data.reading import all_cores_compute
from kerasish.engine.data.rows import RowsAhead
from kerasish.typing import Array

_DEFAULT_DEPTH = 2
_SLOW_SECONDS = 0.003  # a read of this length ends reading without a thread
_MOST_THREADS = 4  # after the last one, reading stays in its thread


class Habit:
    """What one pass over a node passes to the next.

    Attributes:
        at_once: whether reading took a small part of the time, so that no thread read ahead.
    """

    at_once = False


class PrefetchNode(Selection):
    """The elements of a node, read ahead by a thread.

    Args:
        source: the node.
        depth: the most elements that are read ahead; AUTOTUNE: 2; 0: none.
    """

    orders_input = True

    def __init__(self, source: DataNode, depth: int) -> None:
        self.inputs = (source,)
        self._depth = _DEFAULT_DEPTH if depth == AUTOTUNE else depth
        self._habit = Habit()

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def open(self, number: int, order: Array | None = None) -> Cursor:
        def reopen() -> Cursor:
            return self.inputs[0].open(number, order)

        if not self._depth:
            return reopen()
        return PrefetchCursor(reopen(), self._depth, reopen, self._habit)

    def describe(self) -> str:
        return f"prefetch({self._depth})"


class PrefetchCursor(Cursor):
    """Reads a cursor ahead in a thread, which starts with the first element.

    Where reading takes a small part of the time of what is done with the elements, on a machine
    whose cores all compute, the cursor is read without a thread, until a read takes long.

    Args:
        source: the cursor.
        depth: the most elements that are read ahead.
        reopen: returns a cursor before its first element.
        habit: what the passes before have shown.
    """

    def __init__(
        self,
        source: Cursor,
        depth: int,
        reopen: Callable[[], Cursor] | None = None,
        habit: Habit | None = None,
    ) -> None:
        self._source: Cursor | None = source
        self._reopen = reopen
        self._depth = depth
        self._ahead: Ahead | None = None
        self._place: Any = None
        self._over = False
        self._threads = 0  # started so far
        self._rows = False  # whether the elements that the thread reads are rows in memory
        self._habit = habit or Habit()
        # Whether elements are read when they are asked for.
        self._at_once = self._habit.at_once and all_cores_compute()

    def read(self) -> Any:
        if self._over:
            return END
        try:
            return self._read_at_once() if self._at_once else self._take()
        except BaseException:
            self.close()
            raise

    def _take(self) -> Any:
        """Return the next element that the thread has read."""
        if self._ahead is None:
            source, self._source = self._source, None  # the thread's from now on
            if source is None:
                return END
            self._place = source.state()
            self._rows = self._reopen is not None and source.rows_ahead() is not None
            self._threads += 1
            gives_back = self._threads < _MOST_THREADS and all_cores_compute()
            self._ahead = Ahead(source, self._depth, gives_back)
        element, place = self._ahead.take()
        if element is GIVEN_BACK:
            self._source, self._ahead, self._at_once = place, None, True
            self._habit.at_once = True
            return self._read_at_once()
        if element is END:
            self._over = True
            if place is not None:
                self._place = place
            self._ahead.close()
        else:
            self._place = place
        return element

    def _read_at_once(self) -> Any:
        """Return the next element of the cursor, which no thread has."""
        if self._source is None:
            return END
        start = time.perf_counter()
        element = self._source.read()
        self._at_once = self._habit.at_once = time.perf_counter() - start < _SLOW_SECONDS
        self._over = element is END
        return element

    def rows_ahead(self) -> RowsAhead | None:
        if self._source is None and self._reopen is not None and self._rows and not self._over:
            if self._ahead is not None:
                self._ahead.close()
            source = self._reopen()  # what the thread has read ahead was not used
            source.restore(self._place)
            self._source, self._ahead = source, None
        return None if self._source is None else self._source.rows_ahead()

    def skip(self, count: int) -> int:
        return super().skip(count) if self._source is None else self._source.skip(count)

    def state(self) -> Any:
        return self._place if self._source is None else self._source.state()

    def restore(self, state: Any) -> None:
        if self._source is not None:
            self._source.restore(state)

    def close(self) -> None:
        self._over = True
        if self._ahead is not None:
            self._ahead.close()
        elif self._source is not None:
            self._source.close()
