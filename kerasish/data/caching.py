"""`cache`: elements are made once, in memory or in a file, and read from there afterwards."""

from __future__ import annotations

import os
import weakref
from typing import Any

from kerasish.data.cache_file import CacheReader, CacheWriter
from kerasish.data.elements import read_only
from kerasish.data.node import END, Cursor, DataNode, PlaceCursor, Selection, chain
from kerasish.typing import Array


class CacheNode(Selection):
    """The elements of the first pass of a node, kept.

    The first complete pass fills it; what a pass that was left early has read is dropped.

    Args:
        source: the node.
        path: the file; "" keeps the elements in memory.
    """

    def __init__(self, source: DataNode, path: str) -> None:
        self.inputs, self.path = (source,), path
        self._kept: list[Any] | CacheReader | None = None

    def kept(self) -> list[Any] | CacheReader | None:
        """Return the elements if there are all."""
        if self._kept is None and self.path and os.path.exists(self.path):
            self._kept = CacheReader(self.path, self.pipeline())
        return self._kept

    def pipeline(self) -> str:
        """Return the description of what makes the elements."""
        contents = "".join(node.contents() for node in self.inputs[0].walk())
        return f"{chain(self.inputs[0])} {contents}".strip()

    def keep(self, elements: list[Any]) -> None:
        """Take the elements of a complete pass."""
        if self._kept is None:
            self._kept = elements

    @property
    def indexed(self) -> bool:
        return self.kept() is not None

    def cardinality(self) -> int:
        kept = self._kept
        if kept is not None:
            return len(kept) if isinstance(kept, list) else kept.count
        return self.inputs[0].cardinality()

    def open(self, number: int, order: Array | None = None) -> Cursor:
        kept = self.kept()
        if kept is not None:
            return _KeptCursor(kept, order)
        return _FillCursor(self, self.inputs[0].open(0))

    def describe(self) -> str:
        return "cache()" if not self.path else f"cache({os.path.basename(self.path)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}  # a copy in another process fills its own


class _KeptCursor(PlaceCursor):
    def __init__(self, kept: list[Any] | CacheReader, order: Array | None) -> None:
        self._kept, self._order = kept, order
        known = len(kept) if isinstance(kept, list) else kept.count
        self._count = known if order is None else len(order)

    def read(self) -> Any:
        if self._at >= self._count:
            return END
        number = self._at if self._order is None else int(self._order[self._at])
        self._at += 1
        kept = self._kept
        return kept[number] if isinstance(kept, list) else kept.read(number)


class _FillCursor(Cursor):
    """Reads the source and keeps what it reads; going to a place reads all before it."""

    def __init__(self, node: CacheNode, source: Cursor) -> None:
        self._node, self._source = node, source
        self._elements: list[Any] = []
        self._writer: CacheWriter | None = None
        self._drop: Any = None
        self._at = 0
        self._over = False

    def read(self) -> Any:
        if self._over:
            return END
        node, element = self._node, self._source.read()
        if node.path and self._writer is None:
            self._writer = CacheWriter(node.path, node.pipeline())
            self._drop = weakref.finalize(self, self._writer.drop)
        if element is END:
            self._over = True
            if self._writer is None:
                node.keep(self._elements)
            else:
                self._writer.finish()
            return END
        self._at += 1
        if self._writer is None:
            element = read_only(element)
            self._elements.append(element)
        else:
            self._writer.write(element)
        return element

    def state(self) -> int:
        return self._at

    def restore(self, state: int) -> None:
        self.skip(int(state) - self._at)

    def close(self) -> None:
        if self._drop is not None:
            self._drop()
        self._elements = []
        self._over = True
        self._source.close()
