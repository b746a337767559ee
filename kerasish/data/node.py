"""Nodes of a data pipeline, and cursors: what reads a node's elements and has a place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasish import config
from kerasish.data.elements import rows_of, spec_of
from kerasish.engine.data.rows import RowsAhead
from kerasish.typing import Array, Structure

INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2
AUTOTUNE = -1


class _End:
    """What `Cursor.read` returns after the last element."""

    def __repr__(self) -> str:
        return "END"


END = _End()


@dataclass(frozen=True)
class Stacked:
    """Elements that were read at once, as one block.

    Attributes:
        count: the number of elements, at least 1.
        block: the elements, stacked along a new first axis.
    """

    count: int
    block: Any


class Cursor:
    """One pass over the elements of a node.

    A cursor is used by one thread at a time. Its state is a small tree of plain values: it holds
    places, never elements. A cursor that was just opened by the same node for the same pass can be
    put to the state of another one, and then gives what that one would have given.
    """

    columnar = False  # whether `read_rows` reads many elements at once, stacked

    def read(self) -> Any:
        """Return the next element, or END."""
        raise NotImplementedError

    def read_many(self, count: int) -> list[Any]:
        """Return the next `count` elements; fewer at the end."""
        if self.columnar:
            number, block = self.read_rows(count)
            return list(rows_of(block, number)) if number else []
        elements: list[Any] = []
        while len(elements) < count and (element := self.read()) is not END:
            elements.append(element)
        return elements

    def read_rows(self, count: int) -> tuple[int, Any]:
        """Return (how many, the next elements stacked); only where `columnar` is true."""
        raise NotImplementedError

    def read_chunk(self, count: int) -> list[Any] | Stacked:
        """Return the next `count` elements, fewer at the end, in the form that takes less time."""
        if not self.columnar:
            return self.read_many(count)
        number, block = self.read_rows(count)
        return Stacked(number, block) if number else []

    def rows_ahead(self) -> RowsAhead | None:
        """Return the next elements where they are rows of arrays in memory, or batches of such.

        It may end before the elements do. The place stays: `skip` leaves out what was used. None
        where the elements must be read.
        """
        return None

    def skip(self, count: int) -> int:
        """Leave out `count` elements; return how many there were."""
        for number in range(count):
            if self.read() is END:
                return number
        return count

    def state(self) -> Any:
        """Return the place after what has been read."""
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """Go to a place; only directly after the cursor was opened."""
        raise NotImplementedError

    def close(self) -> None:
        """End threads and release files. Closing twice does no harm."""


class DataNode:
    """A step of a pipeline: a source of elements, or what is done with those of its inputs.

    Nodes are immutable and shared by all data sets that are made from them.

    Attributes:
        inputs: the nodes that this one reads.
        rereads: whether going to a place reads the elements before it again (generators).
        orders_input: whether it is read in an order by reading its input in one.
        names_inputs: whether `describe` describes the inputs too.
    """

    inputs: tuple[DataNode, ...] = ()
    rereads = False
    orders_input = False
    names_inputs = False

    @property
    def indexed(self) -> bool:
        """Whether a pass can be opened with an order: an array of the numbers of the elements."""
        return self.orders_input and self.inputs[0].indexed

    def cardinality(self) -> int:
        """Return the number of elements, INFINITE_CARDINALITY or UNKNOWN_CARDINALITY."""
        return UNKNOWN_CARDINALITY

    def open(self, number: int, order: Array | None = None) -> Cursor:
        """Return a cursor before the first element of a pass.

        Args:
            number: of the pass, from 0; shuffled orders are a function of it.
            order: the numbers of the elements to read, in turn; only where `indexed` is true.
        """
        raise NotImplementedError

    def spec(self) -> Any:
        """Return the structure, shapes and dtypes of the elements; may read the first one."""
        return spec_of(first_element(self, self))

    def describe(self) -> str:
        """Return the verb with its arguments: "batch(32)"."""
        raise NotImplementedError

    def contents(self) -> str:
        """Return a checksum of data in memory, "" where there is none."""
        return ""

    def walk(self) -> Iterator[DataNode]:
        """Yield this node and all those that it reads, each once."""
        seen: set[int] = set()
        waiting: list[DataNode] = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting.extend(node.inputs)


def first_element(node: DataNode, reader: DataNode) -> Any:
    """Return the first element of a node; `reader` is the node whose spec depends on it."""
    cursor = node.open(0)
    try:
        element = cursor.read()
    finally:
        cursor.close()
    if element is END:
        raise ValueError(f"element_spec: {reader.describe()} has no element to look at.")
    return element


class Selection(DataNode):
    """A step whose elements are elements of its first input, unchanged."""

    def spec(self) -> Any:
        return self.inputs[0].spec()


class CountedSelection(Selection):
    """A node that gives the elements of its input, as a number says."""

    def __init__(self, source: DataNode, count: int) -> None:
        self.inputs, self._count = (source,), count


class Regrouped(DataNode):
    """A node whose elements are those of its input in other portions: how many is not known."""

    def cardinality(self) -> int:
        known = self.inputs[0].cardinality()
        return known if known <= 0 else UNKNOWN_CARDINALITY


class PlaceCursor(Cursor):
    """A cursor whose place is the number `_at` of the next element, of `_count` elements."""

    _at = 0
    _count = 0

    def skip(self, count: int) -> int:
        start, self._at = self._at, min(self._at + count, self._count)
        return self._at - start

    def state(self) -> int:
        return self._at

    def restore(self, state: int) -> None:
        self._at = min(int(state), self._count)


class Through(Cursor):
    """A cursor over the elements of one other cursor.

    Its place is the place of that cursor, with one additional value where there is one.

    Attributes:
        place_attribute: the attribute that holds this value, "" where there is none.
    """

    place_attribute = ""

    def __init__(self, source: Cursor) -> None:
        self.source = source

    def state(self) -> Any:
        place = self.source.state()
        return [getattr(self, self.place_attribute), place] if self.place_attribute else place

    def restore(self, state: Any) -> None:
        if self.place_attribute:
            value, state = state
            setattr(self, self.place_attribute, value)
        self.source.restore(state)

    def close(self) -> None:
        self.source.close()


class Counting(Through):
    """A cursor over one other cursor that counts its elements; the count is part of its place."""

    place_attribute = "_number"

    def __init__(self, source: Cursor, number: int = 0) -> None:
        super().__init__(source)
        self._number = number

    def skip(self, count: int) -> int:
        number = self.source.skip(count)
        self._number += number
        return number


class Passing(Counting):
    """A cursor that counts the elements of one other cursor and gives them unchanged."""

    def __init__(self, source: Cursor) -> None:
        super().__init__(source)
        self.columnar = source.columnar

    def read(self) -> Any:
        element = self.source.read()
        self._number += element is not END
        return element

    def read_many(self, count: int) -> list[Any]:
        elements = self.source.read_many(count)
        self._number += len(elements)
        return elements

    def read_rows(self, count: int) -> tuple[int, Any]:
        number, block = self.source.read_rows(count)
        self._number += number
        return number, block

    def read_chunk(self, count: int) -> list[Any] | Stacked:
        chunk = self.source.read_chunk(count)
        self._number += chunk.count if isinstance(chunk, Stacked) else len(chunk)
        return chunk

    def rows_ahead(self) -> RowsAhead | None:
        return self.source.rows_ahead()


class Numbered:
    """Reads a cursor, numbers its elements, and remembers places from which to read them again.

    For verbs that hold elements back (a shuffle's buffer): their state is the place before the
    oldest element that they hold, so that no element is ever written to a file.

    Args:
        source: the cursor.
        every: elements between two remembered places.
    """

    def __init__(self, source: Cursor, every: int) -> None:
        self.source, self._every = source, max(every, 1)
        self.count = 0  # elements read
        self.ended = False
        self._places: deque[tuple[int, Any]] = deque()

    def read(self, oldest: Callable[[], int]) -> Any:
        """Return the next element, or END.

        Args:
            oldest: returns the number of the oldest element that is still held.
        """
        if self.count % self._every == 0 and not self.ended:
            self._places.append((self.count, self.source.state()))
            needed = oldest()
            while len(self._places) > 1 and self._places[1][0] <= needed:
                self._places.popleft()
        element = self.source.read()
        if element is END:
            self.ended = True
        else:
            self.count += 1
        return element

    def state(self) -> dict[str, Any]:
        """Return the place from which all held elements can be read again."""
        if not self._places:
            self._places.append((self.count, self.source.state()))
        first, place = self._places[0]
        return {"first": first, "place": place, "read": self.count, "ended": self.ended}

    def restore(self, state: dict[str, Any], held: set[int]) -> dict[int, Any]:
        """Go to a place; return number -> element of those that were held."""
        self.source.restore(state["place"])
        self.count = first = state["first"]
        self._places.append((first, state["place"]))
        elements: dict[int, Any] = {}
        for number in range(first, state["read"]):
            if self.count % self._every == 0 and number != first:
                self._places.append((self.count, self.source.state()))
            if number in held:
                element = self.source.read()
                if element is END:
                    raise place_error(f"element {number}")
                elements[number] = element
            elif not self.source.skip(1):
                raise place_error(f"element {number}")
            self.count += 1
        if state["ended"]:
            self.ended = self.source.read() is END
        return elements


def rows_in(chunk: list[Any] | Stacked) -> list[Any]:
    """Return the elements of a chunk one by one."""
    return list(rows_of(chunk.block, chunk.count)) if isinstance(chunk, Stacked) else chunk


def place_error(what: str) -> ValueError:
    """Return the error for data that has become shorter since its place was saved."""
    return ValueError(
        f"The saved place of the Dataset is after the end of the data ({what} is missing): the "
        "data has changed since. Start from the beginning."
    )


class Seed:
    """The seed of a shuffle: the user's, or one drawn when the data set was made.

    A drawn seed is part of the iterator's state, and is taken from there when it is restored.

    Attributes:
        value: the seed.
        drawn: whether the user gave none.
    """

    def __init__(self, value: int, drawn: bool) -> None:
        self.value, self.drawn = value, drawn

    def __repr__(self) -> str:
        return "None" if self.drawn else str(self.value)


def seed_of(given: int | None) -> Seed:
    """Return the user's seed, or one drawn from the process's generator.

    Raises:
        TypeError: it is no integer.
    """
    if given is None:
        return Seed(config.next_seed(), True)
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"seed: expected an integer or None, got {given!r}.")
    return Seed(int(given), False)


def named(function: Any) -> str:
    """Return how a description calls a function of the user's."""
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return str(name).rpartition("<locals>.")[2]


def evenly(order: Array | None, count: int) -> Array:
    """Return an order; that of all `count` elements for None."""
    return np.arange(count, dtype=np.int64) if order is None else order


def only_inputs(structure: Structure) -> tuple[DataNode, ...]:
    """Return the nodes in a nested structure as a tuple."""
    if isinstance(structure, DataNode):
        return (structure,)
    parts = structure.values() if isinstance(structure, dict) else structure
    return tuple(node for part in parts for node in only_inputs(part))


def chain(node: DataNode) -> str:
    """Return the description of a node and of those before it."""
    before = chain(node.inputs[0]) + "." if node.inputs and not node.names_inputs else ""
    return before + node.describe()
