"""Verbs that combine data sets: concatenate, zip, enumerate, sample_from_datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.data.elements import TensorSpec
from kerasish.data.node import (
    END,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Counting,
    Cursor,
    DataNode,
    Seed,
    Selection,
    chain,
    only_inputs,
)
from kerasish.typing import Array, Structure


class ConcatenateNode(Selection):
    """The elements of several nodes, one node after the other."""

    def __init__(self, sources: tuple[DataNode, ...]) -> None:
        self.inputs = sources

    def cardinality(self) -> int:
        known = [node.cardinality() for node in self.inputs]
        for special in (INFINITE_CARDINALITY, UNKNOWN_CARDINALITY):
            if special in known:
                return special
        return sum(known)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _ConcatenateCursor(self.inputs, number)

    def describe(self) -> str:
        rest = "; ".join(chain(node) for node in self.inputs[1:])
        return f"concatenate({rest})"


class _ConcatenateCursor(Cursor):
    def __init__(self, nodes: tuple[DataNode, ...], number: int) -> None:
        self._nodes, self._number = nodes, number
        self._at = 0
        self._source = nodes[0].open(number)

    def read(self) -> Any:
        while True:
            element = self._source.read()
            if element is not END or self._at == len(self._nodes) - 1:
                return element
            self._go(self._at + 1)

    def _go(self, at: int) -> None:
        self._source.close()
        self._at, self._source = at, self._nodes[at].open(self._number)

    def skip(self, count: int) -> int:
        total = self._source.skip(count)
        while total < count and self._at < len(self._nodes) - 1:
            self._go(self._at + 1)
            total += self._source.skip(count - total)
        return total

    def state(self) -> list[Any]:
        return [self._at, self._source.state()]

    def restore(self, state: list[Any]) -> None:
        self._go(state[0])
        self._source.restore(state[1])

    def close(self) -> None:
        self._source.close()


class ZipNode(DataNode):
    """Elements of several nodes side by side, in a structure; the shortest ends it."""

    def __init__(self, structure: Structure) -> None:
        self.inputs, self._structure = only_inputs(structure), structure

    @property
    def indexed(self) -> bool:
        return all(node.indexed for node in self.inputs)

    def cardinality(self) -> int:
        known = [node.cardinality() for node in self.inputs]
        finite = [c for c in known if c >= 0]
        if UNKNOWN_CARDINALITY in known:
            return UNKNOWN_CARDINALITY
        return min(finite) if finite else INFINITE_CARDINALITY

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _ZipCursor([n.open(number, order) for n in self.inputs], self._structure)

    def spec(self) -> Any:
        return _arranged(self._structure, iter([node.spec() for node in self.inputs]))

    names_inputs = True

    def describe(self) -> str:
        return f"zip({'; '.join(chain(node) for node in self.inputs)})"


def _arranged(structure: Structure, parts: Any) -> Any:
    if isinstance(structure, DataNode):
        return next(parts)
    if isinstance(structure, Mapping):
        return {key: _arranged(part, parts) for key, part in structure.items()}
    return tuple(_arranged(part, parts) for part in structure)


class _ZipCursor(Cursor):
    def __init__(self, cursors: list[Cursor], structure: Structure) -> None:
        self._cursors, self._structure = cursors, structure
        self._plain = type(structure) is tuple and all(isinstance(n, DataNode) for n in structure)
        self.columnar = all(cursor.columnar for cursor in cursors)

    def _put(self, parts: list[Any]) -> Any:
        return tuple(parts) if self._plain else _arranged(self._structure, iter(parts))

    def read(self) -> Any:
        parts = []
        for cursor in self._cursors:
            part = cursor.read()
            if part is END:
                return END
            parts.append(part)
        return self._put(parts)

    def read_rows(self, count: int) -> tuple[int, Any]:
        blocks = [cursor.read_rows(count) for cursor in self._cursors]
        number = min(n for n, _ in blocks)
        if not number:
            return 0, None
        parts = [
            b if n == number else tree.map_structure(lambda a: a[:number], b) for n, b in blocks
        ]
        return number, self._put(parts)

    def skip(self, count: int) -> int:
        return min(cursor.skip(count) for cursor in self._cursors)

    def state(self) -> list[Any]:
        return [cursor.state() for cursor in self._cursors]

    def restore(self, state: list[Any]) -> None:
        for cursor, place in zip(self._cursors, state):
            cursor.restore(place)

    def close(self) -> None:
        for cursor in self._cursors:
            cursor.close()


class EnumerateNode(DataNode):
    """Pairs of (number, element), numbers int64 from `start` on."""

    def __init__(self, source: DataNode, start: int) -> None:
        self.inputs, self._start = (source,), start

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _EnumerateCursor(self.inputs[0].open(number), self._start)

    def spec(self) -> Any:
        return (TensorSpec((), "int64"), self.inputs[0].spec())

    def describe(self) -> str:
        return f"enumerate({self._start})"


class _EnumerateCursor(Counting):
    def read(self) -> Any:
        element = self.source.read()
        if element is END:
            return END
        self._number += 1
        return np.int64(self._number - 1), element


class SampleNode(Selection):
    """Elements of several nodes in turn, each from a node drawn with given weights.

    Args:
        sources: the nodes.
        weights: one number >= 0 for each node.
        seed: the seed of the draws.
        ends: whether the first node that ends ends it; else it is left out from then on.
    """

    def __init__(
        self, sources: tuple[DataNode, ...], weights: Array, seed: Seed, ends: bool
    ) -> None:
        self.inputs, self.seed, self._ends = sources, seed, ends
        self._weights = weights

    def cardinality(self) -> int:
        known = [node.cardinality() for node in self.inputs]
        if all(c == INFINITE_CARDINALITY for c in known):
            return INFINITE_CARDINALITY
        if self._ends or min(known) < 0:
            return UNKNOWN_CARDINALITY
        return sum(known)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        cursors = [node.open(number) for node in self.inputs]
        return _SampleCursor(cursors, self._weights, (self.seed.value, number), self._ends)

    names_inputs = True

    def describe(self) -> str:
        weights = [round(float(w), 6) for w in self._weights]
        sources = "; ".join(chain(node) for node in self.inputs)
        return f"sample_from_datasets({sources}; weights={weights}, seed={self.seed})"


class _SampleCursor(Cursor):
    _CHUNK = 4096

    def __init__(
        self, cursors: list[Cursor], weights: Array, key: tuple[int, int], ends: bool
    ) -> None:
        self._cursors, self._weights, self._key, self._ends = cursors, weights, key, ends
        self._step = 0
        self._open = [True] * len(cursors)
        self._drawn: tuple[int, Array] = (-1, np.zeros(0))

    def _draw(self) -> float:
        chunk, place = divmod(self._step, self._CHUNK)
        if self._drawn[0] != chunk:
            counter = np.array([0, self._key[1] % 2**64, chunk, 1], np.uint64)
            bits = np.random.Philox(key=self._key[0] % 2**64, counter=counter)
            self._drawn = (chunk, np.random.Generator(bits).random(self._CHUNK))
        self._step += 1
        return float(self._drawn[1][place])

    def read(self) -> Any:
        while any(self._open):
            weights = np.where(self._open, self._weights, 0.0)
            if not weights.sum():
                return END
            bounds = np.cumsum(weights) / weights.sum()
            chosen = min(int(np.searchsorted(bounds, self._draw(), "right")), len(bounds) - 1)
            element = self._cursors[chosen].read()
            if element is not END:
                return element
            self._open = [False] * len(self._open) if self._ends else self._open
            self._open[chosen] = False
        return END

    def state(self) -> list[Any]:
        return [self._step, list(self._open), [cursor.state() for cursor in self._cursors]]

    def restore(self, state: list[Any]) -> None:
        self._step, self._open = state[0], list(state[1])
        for cursor, place in zip(self._cursors, state[2]):
            cursor.restore(place)

    def close(self) -> None:
        for cursor in self._cursors:
            cursor.close()
