"""Numbers of elements: arguments that are counts, and `assert_cardinality`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.data.node import END, CountedSelection, Cursor, Through
from kerasish.typing import Array


def checked_count(verb: str, name: str, value: Any, least: int = 1) -> int:
    """Return an argument that counts elements.

    Raises:
        ValueError: it is no integer, or too small.
    """
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise ValueError(f"{verb}: {name} is an integer >= {least}, got {value!r}.")
    if int(value) < least:
        raise ValueError(f"{verb}: {name} is an integer >= {least}, got {int(value)}.")
    return int(value)


def batch_count(elements: int, size: int, drops: bool) -> int:
    """Return how many batches elements make; counts below 0 stay as they are.

    Args:
        elements: their number, or an unknown or infinite cardinality.
        size: elements per batch.
        drops: whether a smaller last batch is dropped.
    """
    if elements < 0:
        return elements
    return elements // size if drops else -(-elements // size)


class CountNode(CountedSelection):
    """The elements of a node that are known to be `count`; another number is an error."""

    @property
    def indexed(self) -> bool:
        return self.inputs[0].indexed and self.inputs[0].cardinality() == self._count

    def cardinality(self) -> int:
        return self._count

    def open(self, number: int, order: Array | None = None) -> Cursor:
        source = self.inputs[0]
        if order is not None:
            return source.open(number, order)
        return _CountCursor(source.open(number), self._count)

    def describe(self) -> str:
        return f"assert_cardinality({self._count})"


class _CountCursor(Through):
    place_attribute = "_at"

    def __init__(self, source: Cursor, count: int) -> None:
        super().__init__(source)
        self._count, self._at = count, 0

    def read(self) -> Any:
        element = self.source.read()
        if (element is END) != (self._at == self._count) and self._count >= 0:
            more = "more" if element is not END else f"only {self._at}"
            raise ValueError(f"assert_cardinality({self._count}): there are {more}.")
        self._at += element is not END
        return element
