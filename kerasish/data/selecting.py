"""Verbs that choose elements: take, skip, shard, repeat, filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish.data.elements import join
from kerasish.data.node import (
    END,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    CountedSelection,
    Cursor,
    DataNode,
    Passing,
    Selection,
    Stacked,
    Through,
    evenly,
    named,
    rows_in,
)
from kerasish.engine.data.rows import RowsAhead
from kerasish.engine.data.streams import add_place
from kerasish.typing import Array, Structure

_ENDLESS_PASSES = 2**40  # passes that one pass over an endless repetition may have


class TakeNode(CountedSelection):
    """The first `count` elements; all for count -1."""

    orders_input = True

    def cardinality(self) -> int:
        known = self.inputs[0].cardinality()
        if self._count < 0 or known == UNKNOWN_CARDINALITY:
            return known if self._count else 0
        return self._count if known == INFINITE_CARDINALITY else min(known, self._count)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _TakeCursor(self.inputs[0].open(number, order), self._count if order is None else -1)

    def describe(self) -> str:
        return f"take({self._count})"


class _TakeCursor(Passing):
    def __init__(self, source: Cursor, count: int) -> None:
        super().__init__(source)
        self._count = count

    def _most(self, count: int) -> int:
        return count if self._count < 0 else min(count, self._count - self._number)

    def read(self) -> Any:
        return END if self._number == self._count else super().read()

    def read_many(self, count: int) -> list[Any]:
        return super().read_many(self._most(count)) if self._most(count) else []

    def read_rows(self, count: int) -> tuple[int, Any]:
        return super().read_rows(self._most(count))

    def read_chunk(self, count: int) -> list[Any] | Stacked:
        return super().read_chunk(self._most(count)) if self._most(count) else []

    def skip(self, count: int) -> int:
        return super().skip(self._most(count))

    def rows_ahead(self) -> RowsAhead | None:
        ahead = super().rows_ahead()
        return None if ahead is None else ahead.first(self._most(len(ahead.order)))


class SkipNode(CountedSelection):
    """All but the first `count` elements; none for count -1."""

    orders_input = True

    def cardinality(self) -> int:
        known = self.inputs[0].cardinality()
        if self._count < 0:
            return 0
        return known if known < 0 else max(known - self._count, 0)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        source = self.inputs[0]
        if order is not None:
            return source.open(number, order + self._count)
        return _SkipCursor(source.open(number), self._count)

    def describe(self) -> str:
        return f"skip({self._count})"


class _SkipCursor(Through):
    place_attribute = "_left"

    def __init__(self, source: Cursor, count: int) -> None:
        super().__init__(source)
        self.columnar = source.columnar
        self._left = count

    def _begin(self) -> None:
        left, self._left = self._left, 0
        if left < 0:
            while self.source.skip(1024):
                pass
        elif left:
            self.source.skip(left)

    def read(self) -> Any:
        if self._left:
            self._begin()
        return self.source.read()

    def read_many(self, count: int) -> list[Any]:
        self._begin()
        return self.source.read_many(count)

    def read_rows(self, count: int) -> tuple[int, Any]:
        self._begin()
        return self.source.read_rows(count)

    def read_chunk(self, count: int) -> list[Any] | Stacked:
        self._begin()
        return self.source.read_chunk(count)

    def skip(self, count: int) -> int:
        self._begin()
        return self.source.skip(count)

    def rows_ahead(self) -> RowsAhead | None:
        self._begin()
        return self.source.rows_ahead()


class ShardNode(Selection):
    """Every `count`-th element, from element `index` on."""

    orders_input = True

    def __init__(self, source: DataNode, count: int, index: int) -> None:
        self.inputs, self._count, self._index = (source,), count, index

    def cardinality(self) -> int:
        known = self.inputs[0].cardinality()
        return known if known < 0 else max(-(-(known - self._index) // self._count), 0)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        source = self.inputs[0]
        if self.indexed:
            rows = evenly(order, self.cardinality())
            return source.open(number, rows * self._count + self._index)
        return _ShardCursor(source.open(number), self._count, self._index)

    def describe(self) -> str:
        return f"shard({self._count}, {self._index})"


class _ShardCursor(Through):
    place_attribute = "_left"

    def __init__(self, source: Cursor, count: int, index: int) -> None:
        super().__init__(source)
        self._between, self._left = count - 1, index

    def read(self) -> Any:
        if self._left:
            self.source.skip(self._left)
        self._left = self._between
        return self.source.read()


class RepeatNode(CountedSelection):
    """Several passes one after the other; without end for count -1."""

    def cardinality(self) -> int:
        known = self.inputs[0].cardinality()
        if self._count == 0 or known == 0:
            return 0
        if self._count < 0:
            return INFINITE_CARDINALITY
        return known if known < 0 else known * self._count

    def open(self, number: int, order: Array | None = None) -> Cursor:
        first = number * (_ENDLESS_PASSES if self._count < 0 else self._count)
        return _RepeatCursor(self.inputs[0], first, self._count)

    def describe(self) -> str:
        return f"repeat({'' if self._count < 0 else self._count})"


class _RepeatCursor(Cursor):
    def __init__(self, node: DataNode, first: int, count: int) -> None:
        self._node, self._first, self._count = node, first, count
        self._pass = 0
        self._read = False  # whether this pass has given an element
        self._source: Cursor | None = None if count == 0 else node.open(first)
        self.columnar = self._source is not None and self._source.columnar

    def _next_pass(self) -> bool:
        """Open the next pass; return whether there is one."""
        source = self._source
        if source is None:
            return False
        source.close()
        self._pass += 1
        if self._pass == self._count or not self._read:  # an empty pass: there would be no end
            self._source = None
            return False
        self._read, self._source = False, self._node.open(self._first + self._pass)
        self.columnar = self._source.columnar
        return True

    def read(self) -> Any:
        while self._source is not None:
            element = self._source.read()
            if element is not END:
                self._read = True
                return element
            self._next_pass()
        return END

    def read_rows(self, count: int) -> tuple[int, Any]:
        blocks, total = [], 0
        while total < count and self._source is not None:
            number, block = self._source.read_rows(count - total)
            if number:
                self._read = True
                blocks.append(block)
                total += number
            elif not self._next_pass() or not self.columnar:
                break
        return total, join(blocks) if blocks else None

    def read_chunk(self, count: int) -> list[Any] | Stacked:
        if self._source is None:
            return []
        chunk = self._source.read_chunk(count)
        self._read = self._read or bool(chunk)
        if isinstance(chunk, Stacked) and chunk.count == count:
            return chunk
        elements = rows_in(chunk)  # the pass ends: the next one supplies what is missing
        if not elements:
            self._next_pass()
        return elements + self.read_many(count - len(elements))

    def read_many(self, count: int) -> list[Any]:
        elements: list[Any] = []
        while len(elements) < count and self._source is not None:
            more = self._source.read_many(count - len(elements))
            self._read = self._read or bool(more)
            elements += more
            if not more:
                self._next_pass()
        return elements

    def skip(self, count: int) -> int:
        total = 0
        while total < count and self._source is not None:
            number = self._source.skip(count - total)
            self._read = self._read or number > 0
            total += number
            if total < count:
                self._next_pass()
        return total

    def rows_ahead(self) -> RowsAhead | None:
        return None if self._source is None else self._source.rows_ahead()

    def state(self) -> list[Any]:
        place = None if self._source is None else self._source.state()
        return [self._pass, self._read, place]

    def restore(self, state: list[Any]) -> None:
        self._pass, self._read, place = state
        self.close()
        self._source = None
        if place is not None:
            self._source = self._node.open(self._first + self._pass)
            self._source.restore(place)
            self.columnar = self._source.columnar

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


class FilterNode(Selection):
    """The elements for which a function is true; with `ends`, those before the first other one."""

    def __init__(self, source: DataNode, predicate: Callable[..., Any], ends: bool = False) -> None:
        self.inputs, self._predicate, self._ends = (source,), predicate, ends

    def cardinality(self) -> int:
        return 0 if self.inputs[0].cardinality() == 0 else UNKNOWN_CARDINALITY

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _FilterCursor(self.inputs[0].open(number), self._predicate, self._ends)

    def describe(self) -> str:
        return f"{'take_while' if self._ends else 'filter'}({named(self._predicate)})"


class _FilterCursor(Through):
    place_attribute = "_over"

    def __init__(self, source: Cursor, predicate: Callable[..., Any], ends: bool) -> None:
        super().__init__(source)
        self._predicate, self._ends, self._over = predicate, ends, False

    def read(self) -> Any:
        while not self._over:
            element = self.source.read()
            if element is END:
                return END
            try:
                chosen = call(self._predicate, element)
            except Exception as error:
                add_place(error, f"an element for {named(self._predicate)} of filter()")
                raise
            if bool(chosen):
                return element
            self._over = self._ends
        return END


def call(function: Callable[..., Any], element: Structure) -> Any:
    """Return what a function of the user's returns for an element: a tuple is its arguments."""
    return function(*element) if type(element) is tuple else function(element)
