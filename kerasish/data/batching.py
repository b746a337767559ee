"""`batch`, `unbatch` and `rebatch`: elements to rows of batches, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.data.counts import batch_count
from kerasish.data.elements import (
    TensorSpec,
    cut,
    join,
    map_specs,
    row_count,
    row_of,
    stack,
    with_rows,
)
from kerasish.data.node import END, Cursor, DataNode, Regrouped, Stacked, Through
from kerasish.data.sources import unbatched_specs
from kerasish.engine.data.rows import RowsAhead
from kerasish.typing import Array


class BatchNode(DataNode):
    """Batches of `size` elements; the last one may be smaller, or is dropped.

    Args:
        source: the node.
        size: elements per batch.
        drops: whether a smaller last batch is dropped.
        collate: elements -> batch; None stacks them.
    """

    orders_input = True

    def __init__(
        self, source: DataNode, size: int, drops: bool,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:  # fmt: skip
        self.inputs, self._size, self._drops = (source,), size, drops
        self._collate = collate

    def cardinality(self) -> int:
        return batch_count(self.inputs[0].cardinality(), self._size, self._drops)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        source, size = self.inputs[0], self._size
        if order is None:
            return _BatchCursor(source.open(number), size, self._drops, None, self._collate)
        rows = np.minimum((np.asarray(order) + 1) * size, source.cardinality()) - order * size
        starts = np.repeat(order * size - np.cumsum(rows) + rows, rows)
        elements = starts + np.arange(int(rows.sum()))
        return _BatchCursor(source.open(number, elements), size, False, rows, self._collate)

    def spec(self) -> Any:
        if self._collate is not None:
            return super().spec()
        return with_rows(self.inputs[0].spec(), self._size if self._drops else None)

    def describe(self) -> str:
        return f"batch({self._size}{', drop_remainder=True' if self._drops else ''})"


class _BatchCursor(Through):
    def __init__(
        self,
        source: Cursor,
        size: int,
        drops: bool,
        sizes: Array | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        super().__init__(source)
        self._size, self._drops, self._sizes = size, drops, sizes
        self._collate = collate
        self._at = 0  # elements read

    def _next_size(self) -> int:
        if self._sizes is None:
            return self._size
        sizes, at = self._sizes, self._at
        self._sizes, self._at = sizes[1:], at
        return int(sizes[0]) if len(sizes) else 0

    def read(self) -> Any:
        size = self._next_size()
        if not size:
            return END
        if self.source.columnar:
            number, block = self.source.read_rows(size)
        elif self._collate is not None:
            elements = self.source.read_many(size)
            number, block = len(elements), self._collate(elements) if elements else None
        else:
            chunk = self.source.read_chunk(size)
            if isinstance(chunk, Stacked):
                number, block = chunk.count, chunk.block
            else:
                number = len(chunk)
                block = stack(chunk, f"batch({self._size})", self._at) if chunk else None
        self._at += number
        return END if not number or self._drops and number < size else block

    def rows_ahead(self) -> RowsAhead | None:
        ahead = self.source.rows_ahead()
        whole = self._sizes is None and self._collate is None
        if ahead is None or ahead.size or not whole:
            return None
        return ahead._replace(size=self._size)

    def skip(self, count: int) -> int:
        if self._sizes is not None:
            return super().skip(count)
        number = self.source.skip(count * self._size)
        self._at += number
        return batch_count(number, self._size, self._drops)

    def state(self) -> list[Any]:
        left = -1 if self._sizes is None else len(self._sizes)
        return [self._at, left, self.source.state()]

    def restore(self, state: list[Any]) -> None:
        self._at, left, place = state
        if self._sizes is not None:
            self._sizes = self._sizes[len(self._sizes) - left :]
        self.source.restore(place)


class UnbatchNode(Regrouped):
    """The rows of batches, each an element."""

    def __init__(self, source: DataNode) -> None:
        self.inputs = (source,)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _RowCursor(self.inputs[0].open(number), "unbatch()")

    def spec(self) -> Any:
        return unbatched_specs(self.inputs[0].spec())

    def describe(self) -> str:
        return "unbatch()"


class _RowCursor(Cursor):
    """The rows of batches. Its place is the one before the current batch, and the row in it."""

    columnar = True

    def __init__(self, source: Cursor, what: str) -> None:
        self._source, self._what = source, what
        self._place = source.state()
        self._batch: Any = None
        self._row = self._rows = 0

    def _load(self) -> bool:
        """Read the next batch if the current one is used up; return whether there is a row."""
        while self._row == self._rows:
            self._place = self._source.state()
            self._row = self._rows = 0
            self._batch = None
            batch = self._source.read()
            if batch is END:
                return False
            self._batch, self._rows = batch, row_count(batch, self._what)
        return True

    def read(self) -> Any:
        if not self._load():
            return END
        self._row += 1
        return row_of(self._batch, self._row - 1)

    def read_rows(self, count: int) -> tuple[int, Any]:
        parts, total = [], 0
        while total < count and self._load():
            stop = min(self._row + count - total, self._rows)
            parts.append(cut(self._batch, self._row, stop))
            total += stop - self._row
            self._row = stop
        return total, join(parts) if parts else None

    def skip(self, count: int) -> int:
        total = 0
        while total < count and self._load():
            step = min(count - total, self._rows - self._row)
            self._row += step
            total += step
        return total

    def state(self) -> list[Any]:
        if self._row == self._rows:
            return [0, self._source.state()]
        return [self._row, self._place]

    def restore(self, state: list[Any]) -> None:
        row, place = state
        self._source.restore(place)
        self._place = place
        if row and self._load():
            self._row = row

    def close(self) -> None:
        self._source.close()


class RebatchNode(Regrouped):
    """Batches of another size: rows of the batches of a node, joined again in other numbers."""

    def __init__(self, source: DataNode, size: int, drops: bool) -> None:
        self.inputs, self._size, self._drops = (source,), size, drops

    def open(self, number: int, order: Array | None = None) -> Cursor:
        rows = _RowCursor(self.inputs[0].open(number), f"rebatch({self._size})")
        return _BatchCursor(rows, self._size, self._drops)

    def spec(self) -> Any:
        rows = self._size if self._drops else None
        return map_specs(
            lambda s: TensorSpec(None if s.shape is None else (rows, *s.shape[1:]), s.dtype),
            self.inputs[0].spec(),
        )

    def describe(self) -> str:
        return f"rebatch({self._size}{', drop_remainder=True' if self._drops else ''})"
