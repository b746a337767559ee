"""A column of Python structures (trees, lists, graphs): what a model with folded layers reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, overload

import numpy as np

from kerasish.typing import Array


class Structures:
    """One Python object per sample: a tree, a list, a graph, anything that a function walks.

    It has rows, as arrays have: `fit` shuffles them and cuts them into batches.

    Args:
        items: the objects, any number of them.

    Example:
        >>> column = Structures([[1, [2, 3]], 4])
        >>> column.shape, column[0], list(column[1:])
        ((2,), [1, [2, 3]], [4])
    """

    ndim = 1

    def __init__(self, items: Iterable[Any]) -> None:
        self._items: list[Any] = list(items)
        self._known: dict[Any, dict[int, Any]] = {}

    @property
    def shape(self) -> tuple[int]:
        """The number of objects, as an array's shape."""
        return (len(self._items),)

    @property
    def known(self) -> dict[Any, dict[int, Any]]:
        """What readers keep of the objects: reader -> id of the object -> anything."""
        return self._known

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    @overload
    def __getitem__(self, key: int) -> Any: ...

    @overload
    def __getitem__(self, key: slice | Array) -> Structures: ...

    def __getitem__(self, key: Any) -> Any:
        """Return an object, or the column of some of them."""
        if isinstance(key, slice):
            chosen = self._items[key]
        elif isinstance(key, np.ndarray):
            chosen = [self._items[i] for i in key.tolist()]
        else:
            return self._items[key]
        result = Structures(())
        result._items, result._known = chosen, self._known
        return result

    def __repr__(self) -> str:
        return f"<Structures: {len(self._items)} objects>"


class StructureRows:
    """The reader of a column of structures; see `rows.Rows`."""

    in_memory = False

    def __init__(self, column: Structures) -> None:
        self.source, self.count = column, len(column)
        self.shape: tuple[int, ...] = column.shape

    def part(self, start: int, stop: int) -> Structures:
        return self.source[start:stop]

    def take(self, indices: np.ndarray) -> Structures:
        return self.source[indices]
