"""`interleave` and `flat_map`: the elements of data sets that a function makes of each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish import config
from kerasish.data.node import (
    END,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Cursor,
    DataNode,
    first_element,
    named,
    place_error,
    seed_of,
)
from kerasish.data.reading_ahead import PrefetchCursor
from kerasish.data.selecting import call
from kerasish.typing import Array


class InterleaveNode(DataNode):
    """Elements of several data sets in turn, `block` elements of each.

    Args:
        source: the node.
        function: element -> node of a data set.
        cycle: data sets that are open at the same time.
        block: elements taken from one before the next one's turn.
        threads: whether each open data set is read ahead by a thread.
        text: the verb.
    """

    def __init__(
        self, source: DataNode, function: Callable[..., Any], cycle: int, block: int, threads: bool,
        text: str = "interleave",
    ) -> None:  # fmt: skip
        self.inputs, self.function = (source,), function
        self.seed = seed_of(None)  # of the shuffles that the function makes without a seed
        self.cycle, self.block, self.threads, self._text = cycle, block, threads, text

    def cardinality(self) -> int:
        known = self.inputs[0].cardinality()
        return known if known in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _InterleaveCursor(self, number)

    def spec(self) -> Any:
        return self.node_of(first_element(self.inputs[0], self), 0, 0).spec()

    def node_of(self, element: Any, number: int, earlier: int) -> DataNode:
        """Return the node of the data set that the function makes of an element.

        Args:
            element: of the source.
            number: of the pass.
            made: data sets made in it before.
        """
        with config.seeded((self.seed.value * 1_000_003 + number) * 1_000_003 + earlier):
            dataset = call(self.function, element)
        node = getattr(dataset, "node", None)
        if not isinstance(node, DataNode):
            raise TypeError(
                f"{self.describe()}: the function must return a Dataset, got "
                f"{type(dataset).__name__}. Use map() for a function that returns an element."
            )
        return node

    def describe(self) -> str:
        if self._text != "interleave":
            return f"{self._text}({named(self.function)})"
        return f"interleave({named(self.function)}, {self.cycle}, {self.block})"


class _Open:
    """An open data set: its cursor, and the place of the source before its element."""

    def __init__(self, cursor: Cursor, place: Any, number: int) -> None:
        self.cursor, self.place, self.number = cursor, place, number


class _InterleaveCursor(Cursor):
    def __init__(self, node: InterleaveNode, number: int) -> None:
        self._node, self._number = node, number
        self._source = node.inputs[0].open(number)
        self._slots: list[_Open | None] = [None] * node.cycle
        self._slot = self._given = 0  # the slot whose turn it is, and elements it has given
        self._opened = 0  # data sets opened so far
        self._ended = False  # whether the source has

    def _make(self, source: Cursor, number: int) -> _Open | None:
        """Make a data set of the source's next element."""
        place = source.state()
        element = source.read()
        if element is END:
            return None
        node = self._node
        cursor = node.node_of(element, self._number, number).open(self._number)
        if node.threads:
            cursor = PrefetchCursor(cursor, max(node.block, 2))
        return _Open(cursor, place, number)

    def _fill(self, slot: int) -> None:
        if not self._ended and self._slots[slot] is None:
            self._slots[slot] = self._make(self._source, self._opened)
            self._ended = self._slots[slot] is None
            self._opened += not self._ended

    def read(self) -> Any:
        idle = 0
        while idle < len(self._slots):
            self._fill(self._slot)
            opened = self._slots[self._slot]
            if opened is None:
                idle += 1
                self._turn()
                continue
            element = opened.cursor.read()
            if element is END:
                opened.cursor.close()
                self._slots[self._slot] = None
                self._turn()
                idle = 0
                continue
            self._given += 1
            if self._given == self._node.block:
                self._turn()
            return element
        return END

    def _turn(self) -> None:
        self._slot, self._given = (self._slot + 1) % len(self._slots), 0

    def state(self) -> dict[str, Any]:
        return {
            "source": self._source.state(),
            "slot": self._slot,
            "given": self._given,
            "made": self._opened,
            "ended": self._ended,
            "open": [
                None if s is None else [s.number, s.place, s.cursor.state()] for s in self._slots
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        for slot, saved in enumerate(state["open"]):
            if saved is None:
                continue
            number, place, inner = saved
            source = self._node.inputs[0].open(self._number)
            try:
                source.restore(place)
                opened = self._make(source, number)
            finally:
                source.close()
            if opened is None:
                raise place_error(f"element {number}")
            opened.cursor.restore(inner)
            self._slots[slot] = opened
        self._source.restore(state["source"])
        self._slot, self._given = state["slot"], state["given"]
        self._opened, self._ended = state["made"], state["ended"]

    def close(self) -> None:
        for opened in self._slots:
            if opened is not None:
                opened.cursor.close()
        self._source.close()
