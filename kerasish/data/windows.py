"""`window`: data sets of a few adjacent elements each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kerasish.data.elements import spec_of
from kerasish.data.node import END, Cursor, DataNode, Numbered, PlaceCursor
from kerasish.typing import Array, Structure

_EVERY = 64  # elements between two remembered places


class ListNode(DataNode):
    """Elements in a list."""

    def __init__(self, elements: list[Any]) -> None:
        self._elements = elements

    @property
    def indexed(self) -> bool:
        return True

    def cardinality(self) -> int:
        return len(self._elements)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        elements = self._elements
        return _ListCursor(elements if order is None else [elements[int(i)] for i in order])

    def describe(self) -> str:
        return f"window of {len(self._elements)}"


class _ListCursor(PlaceCursor):
    def __init__(self, elements: list[Any]) -> None:
        self._elements, self._count = elements, len(elements)

    def read(self) -> Any:
        if self._at == self._count:
            return END
        self._at += 1
        return self._elements[self._at - 1]


class WindowNode(DataNode):
    """Windows of elements, each a data set, or a structure of data sets.

    Args:
        source: the node.
        size: elements per window.
        shift: elements between the starts of adjacent windows.
        stride: elements between adjacent elements of a window.
        drops: whether smaller windows at the end are dropped.
        make: node -> data set.
    """

    def __init__(
        self, source: DataNode, size: int, shift: int, stride: int, drops: bool,
        make: Callable[[DataNode], Any],
    ) -> None:  # fmt: skip
        self.inputs, self.size, self.shift, self.stride = (source,), size, shift, stride
        self.drops, self.make = drops, make

    def cardinality(self) -> int:
        known = self.inputs[0].cardinality()
        if known < 0:
            return known
        span = (self.size - 1) * self.stride + 1
        if self.drops:
            return max((known - span) // self.shift + 1, 0)
        return -(-known // self.shift)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _WindowCursor(self, self.inputs[0].open(number))

    def spec(self) -> Any:
        return spec_of(self.arranged([self.inputs[0].spec()]))

    def describe(self) -> str:
        return f"window({self.size}, {self.shift}, {self.stride})"

    def arranged(self, elements: list[Any]) -> Any:
        """Return the window of some elements: data sets in the structure of the elements."""
        return self._of(elements[0], elements)

    def _of(self, like: Structure, parts: list[Any]) -> Any:
        if isinstance(like, tuple):
            return tuple(self._of(like[i], [p[i] for p in parts]) for i in range(len(like)))
        if isinstance(like, Mapping):
            return {key: self._of(like[key], [p[key] for p in parts]) for key in like}
        return self.make(ListNode(parts))


class _WindowCursor(Cursor):
    def __init__(self, node: WindowNode, source: Cursor) -> None:
        self._node, self._numbered = node, Numbered(source, _EVERY)
        self._held: dict[int, Any] = {}  # by number, from the start of the next window on
        self._start = 0  # of the next window

    def read(self) -> Any:
        node, numbered, start = self._node, self._numbered, self._start
        stop = start + (node.size - 1) * node.stride + 1
        while numbered.count < stop and not numbered.ended:
            element = numbered.read(lambda: start)
            if element is not END and numbered.count > start:
                self._held[numbered.count - 1] = element
        rows = [self._held[n] for n in range(start, stop, node.stride) if n in self._held]
        if not rows or node.drops and len(rows) < node.size:
            return END
        self._start = start + node.shift
        for number in [n for n in self._held if n < self._start]:
            del self._held[number]
        return node.arranged(rows)

    def state(self) -> dict[str, Any]:
        return {"source": self._numbered.state(), "start": self._start}

    def restore(self, state: dict[str, Any]) -> None:
        self._start, saved = state["start"], state["source"]
        self._held = self._numbered.restore(saved, set(range(self._start, saved["read"])))

    def close(self) -> None:
        self._numbered.source.close()
