"""`map`: a function of each element, in this thread or in several; optionally with random draws."""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.data.elements import to_element, to_elements
from kerasish.data.node import END, Counting, Cursor, DataNode, Seed, Stacked, named, rows_in
from kerasish.data.processes import WorkerProcesses
from kerasish.data.row_calls import RowCalls
from kerasish.data.selecting import call
from kerasish.data.threads import Workers
from kerasish.engine.data.rows import RowsAhead
from kerasish.engine.data.streams import add_place
from kerasish.typing import Array

_MOST_PER_TASK = 16
_SMALL_BYTES = 1 << 15  # larger elements: the arithmetic takes most of the time


class MapNode(DataNode):
    """What a function returns for each element.

    Args:
        source: the node.
        function: of the parts of an element, which are a tuple; else of the element.
        workers: threads; 1 calls it in the thread that reads.
        seed: None; else the function gets a `numpy.random.Generator` first, which is a function of
            the seed, the pass and the number of the element.
        automatic: whether threads are only for large elements, and for functions that cannot be
            called for many elements at once.
        processes: whether the workers are processes.
    """

    orders_input = True

    def __init__(
        self,
        source: DataNode,
        function: Callable[..., Any],
        workers: int,
        seed: Seed | None = None,
        automatic: bool = False,
        processes: bool = False,
    ) -> None:
        self.inputs, self.function, self.workers = (source,), function, workers
        self.seed, self.automatic, self.processes = seed, automatic, processes

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def open(self, number: int, order: Array | None = None) -> Cursor:
        cursor = self.inputs[0].open(number, order)
        key = None if self.seed is None else (self.seed.value % 2**64, number % 2**64)
        one = _One(self.function, key, order)
        if self.workers == 1 and not self.processes:
            return _MapCursor(cursor, one)
        start: Any = Workers
        if self.processes:
            start = functools.partial(WorkerProcesses, what=f"map({named(self.function)})")
        return _Parallel(cursor, one, self.workers, start, self.automatic and not self.processes)

    def describe(self) -> str:
        if self.seed is None:
            return f"map({named(self.function)})"
        return f"random_map({named(self.function)}, seed={self.seed})"


class _One:
    """Calls the function for one element; refers to no cursor, so that threads may hold it."""

    def __init__(
        self, function: Callable[..., Any], key: tuple[int, int] | None, order: Array | None
    ) -> None:
        self.function, self.key, self._order = function, key, order
        self._by_rows = RowCalls(function) if key is None else None

    def __call__(self, element: Any, place: int) -> Any:
        """Return the result for the element that is read at a place in the order."""
        number = place if self._order is None else int(self._order[place])
        try:
            if self.key is None:
                result = call(self.function, element)
            else:
                parts = element if type(element) is tuple else (element,)
                counter = np.array([0, self.key[1], number, 2], np.uint64)
                bits = np.random.Philox(key=self.key[0], counter=counter)
                result = self.function(np.random.Generator(bits), *parts)
        except Exception as error:
            self._add_place(error, place)
            raise
        return to_element(result, self._place)

    def chunk(self, chunk: list[Any] | Stacked, first: int) -> list[Any] | Stacked:
        """Return the results for a chunk that is read from the place `first` on."""
        result = self.by_rows(chunk) if isinstance(chunk, Stacked) else None
        return self.many(rows_in(chunk), first) if result is None else result

    def by_rows(self, chunk: Stacked) -> Stacked | None:
        """Return the results for stacked elements by one call; None: call it for each."""
        if self._by_rows is None or _bytes_per_element(chunk) > _SMALL_BYTES:
            return None
        block = self._by_rows(chunk.block, chunk.count)
        return None if block is None else Stacked(chunk.count, block)

    def numbers(self, first: int, count: int) -> Array | None:
        """Return the numbers of elements that are read from the place `first` on; None: these."""
        return None if self._order is None else self._order[first : first + count]

    def ahead(self, source: Cursor) -> RowsAhead | None:
        """Return the results for what a cursor reads next; None: call the function."""
        calls = self._by_rows
        ahead = None if calls is None or not calls.may_have_formulas else source.rows_ahead()
        return None if calls is None or ahead is None else calls.formulas(ahead)

    def many(self, elements: list[Any], first: int) -> list[Any]:
        """Return the results for elements that are read from the place `first` on."""
        if self.key is not None or not elements:
            return [self(element, place) for place, element in enumerate(elements, first)]
        function, rest = self.function, iter(elements)
        try:
            if type(elements[0]) is tuple:
                results = [function(*element) for element in rest]
            else:
                results = [function(element) for element in rest]
        except Exception as error:
            self._add_place(error, first + len(elements) - operator.length_hint(rest) - 1)
            raise
        return to_elements(results, self._place)

    def _place(self) -> str:
        return f"{named(self.function)} of map()"

    def _add_place(self, error: Exception, place: int) -> None:
        number = place if self._order is None else int(self._order[place])
        add_place(error, f"element {number} of the pass, in {named(self.function)} of map()")


def _call_many(
    function: Callable[..., Any], key: tuple[int, int] | None, task: tuple[list[Any], int, Any]
) -> list[Any]:
    """Return the results for a task: elements, the place of the first one, their numbers."""
    elements, first, numbers = task
    return _One(function, key, numbers).many(elements, first if numbers is None else 0)


class _MapCursor(Counting):
    def __init__(self, source: Cursor, one: _One) -> None:
        super().__init__(source)
        self._one = one

    def read(self) -> Any:
        element = self.source.read()
        if element is END:
            return END
        result = self._one(element, self._number)
        self._number += 1
        return result

    def read_many(self, count: int) -> list[Any]:
        results = self._one.many(self.source.read_many(count), self._number)
        self._number += len(results)
        return results

    def read_chunk(self, count: int) -> list[Any] | Stacked:
        results = self._one.chunk(self.source.read_chunk(count), self._number)
        self._number += results.count if isinstance(results, Stacked) else len(results)
        return results

    def rows_ahead(self) -> RowsAhead | None:
        return self._one.ahead(self.source)


class _Parallel(Cursor):
    """Reads the source in this thread, calls the function in others or in processes, keeps order.

    At most twice as many tasks as workers are in work or done; a task is one element, or several
    where many are asked for at once.
    """

    def __init__(
        self,
        source: Cursor,
        one: _One,
        workers: int,
        start: Callable[[Callable[[Any], Any], int], Workers | WorkerProcesses],
        automatic: bool,
    ) -> None:
        self._source, self._one, self._count = source, one, workers
        self._start, self._automatic = start, automatic
        self._workers: Workers | WorkerProcesses | None = None
        self._per_task = 1
        self._number = 0  # of the next element to be read
        self._places: deque[Any] = deque()  # before each task that is not taken
        self._results: list[Any] = []  # of the task that was taken last
        self._taken = 0  # of these results
        self._place: Any = None  # before that task
        self._first = 0  # the number of its first element
        self._ended = False

    def _started(self) -> Workers | WorkerProcesses:
        if self._workers is None:
            work = functools.partial(_call_many, self._one.function, self._one.key)
            self._workers = self._start(work, self._count)
        return self._workers

    def _put(self, elements: list[Any], place: Any) -> None:
        numbers = self._one.numbers(self._number, len(elements))
        self._places.append((self._number, place))
        self._started().put((elements, self._number, numbers))
        self._number += len(elements)

    def _feed(self) -> Workers | WorkerProcesses:
        workers = self._started()
        while not self._ended and workers.pending < 2 * self._count:
            place = self._source.state()
            elements = self._source.read_many(self._per_task)
            if not elements:
                self._ended = True
                break
            self._put(elements, place)
        return workers

    def read(self) -> Any:
        while self._taken == len(self._results):
            workers = self._feed()
            if not workers.pending:
                return END
            self._first, self._place = self._places.popleft()
            try:
                self._results, self._taken = workers.take(), 0
            except BaseException:
                self.close()
                raise
            self._feed()
        self._taken += 1
        result, self._results[self._taken - 1] = self._results[self._taken - 1], None
        return result

    def read_many(self, count: int) -> list[Any]:
        self._per_task = max(1, min(_MOST_PER_TASK, count // (2 * self._count)))
        return super().read_many(count)

    def read_chunk(self, count: int) -> list[Any] | Stacked:
        if not self._automatic or self._workers is not None:
            return self.read_many(count)
        place = self._source.state()
        chunk = self._source.read_chunk(count)
        result = self._one.by_rows(chunk) if isinstance(chunk, Stacked) else None
        if result is not None:
            self._number += result.count
            return result
        elements = rows_in(chunk)
        if not elements:
            return []
        self._put(elements, place)
        return self.read_many(count)

    def rows_ahead(self) -> RowsAhead | None:
        if not self._automatic or self._workers is not None:
            return None
        return self._one.ahead(self._source)

    def state(self) -> list[Any]:
        if self._taken == len(self._results):  # between two tasks
            first, place = self._places[0] if self._places else (self._number, self._source.state())
            return [first, place, 0]
        return [self._first, self._place, self._taken]

    def restore(self, state: list[Any]) -> None:
        first, place, taken = state
        self._source.restore(place)
        self._number = first + self._source.skip(taken)

    def skip(self, count: int) -> int:
        if self._workers is None:
            number = self._source.skip(count)
            self._number += number
            return number
        return super().skip(count)

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
        self._source.close()


def _bytes_per_element(chunk: Stacked) -> float:
    parts = chunk.block if type(chunk.block) is tuple else tree.flatten(chunk.block)
    return sum([getattr(part, "nbytes", 0) for part in parts]) / chunk.count
