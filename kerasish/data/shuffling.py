"""Shuffles: by the numbers of the elements where these can be read by number, else by a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.data.node import END, Cursor, DataNode, Numbered, Passing, Seed, Selection
from kerasish.data.orders import Draws, buffer_order
from kerasish.typing import Array

_MOST_NUMBERS = 2**26  # elements whose order is computed at once: half a gigabyte of numbers


class ShuffleNode(Selection):
    """The elements of a node in the order in which a buffer of random draws gives them.

    Args:
        source: the node.
        buffer: the size of the buffer, >= 1.
        seed: the seed.
        reshuffles: whether each pass has its own order.
    """

    def __init__(self, source: DataNode, buffer: int, seed: Seed, reshuffles: bool) -> None:
        self.inputs = (source,)
        self.buffer, self.seed, self._reshuffles = buffer, seed, reshuffles

    @property
    def indexed(self) -> bool:
        return self.inputs[0].indexed and self.inputs[0].cardinality() <= _MOST_NUMBERS

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def open(self, number: int, order: Array | None = None) -> Cursor:
        source, drawn = self.inputs[0], number if self._reshuffles else 0
        if not self.indexed:
            return _BufferCursor(source.open(number), Draws(self.seed.value, drawn, self.buffer),
                                 self.buffer)  # fmt: skip
        whole = buffer_order(source.cardinality(), self.buffer, self.seed.value, drawn)
        return _OrderCursor(source.open(number, whole if order is None else whole[order]))

    def describe(self) -> str:
        each = "" if self._reshuffles else ", reshuffle_each_iteration=False"
        return f"shuffle({self.buffer}, seed={self.seed}{each})"


class _OrderCursor(Passing):
    """Reads by number; counts, since the next process may have to use a buffer."""

    def state(self) -> dict[str, Any]:
        return {"step": self._number, "ordered": self.source.state()}

    def restore(self, state: dict[str, Any]) -> None:
        if "ordered" in state:
            self._number = state["step"]
            self.source.restore(state["ordered"])
        else:  # saved by a buffer, before a cache below had been filled
            self.skip(state["step"])


class _BufferCursor(Cursor):
    """Reads in the order of the source and holds a buffer of elements.

    Its state is the place before the oldest element in the buffer.
    """

    def __init__(self, source: Cursor, draws: Draws, buffer: int) -> None:
        self._numbered = Numbered(source, max(buffer // 8, 1))
        self._draws, self._buffer = draws, buffer
        self._slots: list[Any] = []
        self._numbers = np.zeros(buffer, np.int64)
        self._step = 0
        self._rest: Array | None = None
        self._given = 0  # of the rest

    def _fill(self) -> None:
        while len(self._slots) < self._buffer and self._rest is None:
            element = self._numbered.read(lambda: 0)
            if element is END:
                self._rest = self._draws.rest(len(self._slots))
                return
            self._numbers[len(self._slots)] = len(self._slots)
            self._slots.append(element)

    def _oldest(self) -> int:
        return int(self._numbers.min())

    def read(self) -> Any:
        self._fill()
        if self._rest is None:
            slot = self._draws.slot(self._step)
            element, following = self._slots[slot], self._numbered.read(self._oldest)
            if following is not END:
                self._slots[slot] = following
                self._numbers[slot] = self._buffer + self._step
                self._step += 1
                return element
            self._rest = self._draws.rest(len(self._slots))
        if self._given == len(self._rest):
            return END
        slot = int(self._rest[self._given])
        self._given += 1
        self._step += 1
        element, self._slots[slot] = self._slots[slot], None
        return element

    def state(self) -> dict[str, Any]:
        return {"step": self._step, "given": self._given, "buffer": self._numbered.state()}

    def restore(self, state: dict[str, Any]) -> None:
        if "buffer" not in state:  # saved by numbers: a cache below had been filled then
            self.skip(state["step"])
            return
        saved = state["buffer"]
        read, given, step = saved["read"], state["given"], state["step"]
        filled = min(read, self._buffer)
        numbers = self._draws.held(max(read - self._buffer, 0))
        self._numbers = numbers
        self._step, self._given = step, given
        rest = self._draws.rest(filled) if saved["ended"] else None
        left = range(filled) if rest is None else rest[given:]
        held = {int(numbers[slot]) for slot in left}
        elements = self._numbered.restore(saved, held)
        self._slots = [elements.get(int(numbers[slot])) for slot in range(filled)]
        self._rest = rest

    def close(self) -> None:
        self._numbered.source.close()
