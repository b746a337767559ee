"""Sequences of different lengths as data: batches of similar length, padded to a few sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.engine.data.arrays import contents_of, rows_per_batch
from kerasish.engine.data.batch import Batch, row_counts
from kerasish.engine.data.convert import map_leaves
from kerasish.engine.data.data import Data, random_order
from kerasish.engine.data.ladder import ladder
from kerasish.engine.data.parts import PaddedRows
from kerasish.engine.data.ragged import Ragged
from kerasish.engine.data.rows import ArrayRows, Rows, as_rows
from kerasish.engine.data.weights import class_weights_of, combine
from kerasish.typing import Array, Structure

_ORDER_OF_BATCHES = 0x9E3779B97F4A7C15  # added to the seed: draws that the rows' order has not


class SequenceData(Data):
    """Batches of rows of similar length; some of the arrays are `Ragged`.

    Rows go into buckets by length, and batches are cut from the buckets in turn, so that all but
    one batch are full. A batch is padded to the bound of its bucket. Several ragged inputs (pairs
    of sequences) share the buckets: a row is in that of its longest part, by the part's own bounds.

    Args:
        x: structure of arrays and `Ragged`, at least one of these.
        y: targets likewise, or None. Ragged targets are padded as the input of the same lengths.
        sample_weight: weights likewise, or None.
        class_weight: weight of each class in `y`; needs one class per row.
        batch_size: rows per batch; default 32, or what `steps_per_epoch` batches need to hold all.
        steps_per_epoch: batches per epoch; default all.
        shuffle: True: new batches in a new order each epoch; "batch": the same batches in a new
            order; False: the batches of the shortest rows first.
        seed: the orders are a function of it and of the epoch's number.
        training: whether errors name `steps_per_epoch` (else `steps`).

    Example:
        >>> data = SequenceData(Ragged([[1, 2], [3]]), np.array([0, 1]), batch_size=2)
        >>> (values, lengths), y, _ = data.peek()
        >>> values.shape, lengths.tolist()
        ((2, 8), [2, 1])
    """

    def __init__(
        self,
        x: Structure,
        y: Structure = None,
        sample_weight: Structure = None,
        *,
        class_weight: Structure = None,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        shuffle: bool | str = False,
        seed: int = 0,
        training: bool = True,
    ) -> None:
        super().__init__(steps_per_epoch, training)
        self._shuffle, self._seed, self._class_weight = shuffle, seed, class_weight
        self._structure = tuple(
            map_leaves(part, _rows_of, name)
            for name, part in (("x", x), ("y", y), ("sample_weight", sample_weight))
        )
        leaves = [leaf for leaf in tree.flatten(self._structure) if leaf is not None]
        counts = {leaf.shape[0] for leaf in leaves}
        if len(counts) > 1:
            raise ValueError(
                "All arrays must have the same number of samples (rows), got "
                f"{row_counts(self._structure)}."
            )
        if class_weight is not None and isinstance(self._structure[1], Ragged):
            raise ValueError(
                "class_weight: expected one class per row of y, got a sequence of them per row. "
                "Give sample_weight, a list of sequences with one weight per step."
            )
        self.num_samples = int(counts.pop())
        self.batch_size: int = rows_per_batch(batch_size, self.num_samples, steps_per_epoch)
        self._length = self._all_batches = -(-self.num_samples // self.batch_size)
        self._plan_buckets()

    def _plan_buckets(self) -> None:
        """Choose the bounds of each ragged array, and each row's bucket."""
        parts: list[Ragged] = []  # one of each kind of lengths
        self._kind_of: dict[int, int] = {}
        for leaf in tree.flatten(self._structure):
            if isinstance(leaf, Ragged):
                same = [i for i, p in enumerate(parts) if np.array_equal(p.starts, leaf.starts)]
                self._kind_of[id(leaf)] = same[0] if same else len(parts)
                if not same:
                    parts.append(leaf)
        self.bounds = [ladder(part.lengths) for part in parts]
        places = [np.searchsorted(b, p.lengths) for b, p in zip(self.bounds, parts)]
        self._bucket = np.max(places, axis=0)
        self._parts = parts

    def facts(self) -> dict[str, str]:
        """Return rows, batches, order, and the arrays' kinds and a checksum of rows."""
        leaves = [leaf for leaf in tree.flatten(self._structure) if leaf is not None]
        kinds = [f"{getattr(x, 'dtype', '')} {[*x.shape[1:]]}" for x in leaves]
        arrays = [a for x in leaves for a in _arrays_of(x)]
        return {
            "data": f"{self.num_samples} rows of {', '.join(kinds)}",
            "batches": f"{self.num_batches} of {self.batch_size} rows per epoch",
            "shuffle": str(self._shuffle),
            "contents": contents_of(arrays),
        }

    def rows_of(self, epoch: int = 0) -> list[Array]:
        """Return the indices of the rows of each batch of an epoch, in turn."""
        whole, first, stop = self._window(epoch, self._all_batches)
        return self._arranged(whole)[first:stop]

    def bounds_of(self, rows: Array) -> list[int]:
        """Return the length to which each kind of sequence is padded in a batch of some rows."""
        bucket = int(self._bucket[rows].max())
        return [bounds[min(bucket, len(bounds) - 1)] for bounds in self.bounds]

    def lengths_of(self, kind: int) -> Array:
        """Return the lengths of all rows of a kind of sequence; `bounds_of` lists the kinds."""
        return self._parts[kind].lengths

    def _arranged(self, whole: int) -> list[Array]:
        count, size = self.num_samples or 0, self.batch_size
        order = np.arange(count)
        if self._shuffle is True:
            order = random_order(count, self._seed, whole)
        if self._all_batches > 1:
            order = order[np.argsort(self._bucket[order], kind="stable")]
        batches = [order[i : i + size] for i in range(0, count, size)]
        if self._shuffle:
            draws = random_order(len(batches), self._seed + _ORDER_OF_BATCHES, whole)
            batches = [batches[i] for i in draws]
        return batches

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        batches = self.rows_of(epoch)
        for rows in batches[start:]:
            yield self._batch(rows)
        if self._steps is not None and len(batches) < self._steps:
            what = f"x ({self.num_samples} rows in batches of {self.batch_size})"
            self._warn_short(what, epoch, len(batches))

    def _batch(self, rows: Array) -> Batch:
        bounds = self.bounds_of(rows)

        def taken(leaf: Ragged | Rows | None, with_lengths: bool) -> Any:
            if not isinstance(leaf, Ragged):
                return None if leaf is None else leaf.take(rows)
            values = leaf.padded(rows, bounds[self._kind_of[id(leaf)]])
            if not with_lengths:
                return values
            return PaddedRows(values, leaf.lengths[rows].astype(np.int32))

        x, y, weights = self._structure
        x = tree.map_structure(lambda leaf: taken(leaf, True), x)
        y, weights = tree.map_structure(lambda leaf: taken(leaf, False), (y, weights))
        if self._class_weight is not None:
            weights = combine(weights, class_weights_of(y, self._class_weight))
        return x, y, weights


def holds_ragged(x: Structure) -> bool:
    """Return whether a structure holds a `Ragged`.

    Args:
        x: what the user gave, after `find_ragged`.
    """
    if isinstance(x, dict):
        return any(map(holds_ragged, x.values()))
    if isinstance(x, (list, tuple)):
        return any(isinstance(part, Ragged) for part in x)
    return isinstance(x, Ragged)


def _rows_of(leaf: Any, name: str) -> Any:
    return leaf if isinstance(leaf, Ragged) else as_rows(leaf, name)


def _arrays_of(rows: Any) -> list[Array]:
    if isinstance(rows, Ragged):
        return [rows.values, rows.starts]
    return [rows.array] if isinstance(rows, ArrayRows) else []
