"""Batches of sequences of similar length: little padding, and few shapes to compile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasish import config
from kerasish.engine.data import PyDataset
from kerasish.engine.data.ladder import best_boundaries
from kerasish.typing import Array


class Buckets(PyDataset):
    """Batches of sequences of similar length, padded to the bound of their bucket.

    `bucket_by_length` returns it: iterate over it, or pass it to `fit`, `evaluate`, `predict`.

    Args:
        sequences: arrays or lists, each of shape (length, ...).
        targets: an array with one row per sequence, or sequences that are padded, too, or None.
        boundaries: increasing bounds of the lengths.
        batch_size: rows per batch, one number for each bucket.
        sample_weight: one number per sequence, or None.
        options: see `bucket_by_length`.

    Example:
        >>> batches = bucket_by_length([[1], [1, 2]], boundaries=[2], batch_size=2)
        >>> len(batches)
        1
    """

    def __init__(
        self,
        sequences: Sequence[Any],
        targets: Array,
        boundaries: list[int],
        batch_size: list[int],
        sample_weight: Array,
        **options: Any,
    ) -> None:
        super().__init__()
        self.boundaries = boundaries
        self._sequences, self._targets, self._weights = sequences, targets, sample_weight
        self._sizes, self._options = batch_size, options
        self._lengths = np.array([len(s) for s in sequences])
        self._kept = np.minimum(self._lengths, boundaries[-1])
        bucket = np.searchsorted(boundaries, self._kept)
        self._members = [np.flatnonzero(bucket == i) for i in range(len(boundaries))]
        self._dtype = _dtype_of(sequences)
        self._epoch = 0
        self._batches = self._arrange()

    def _arrange(self) -> list[Any]:
        """Return the rows of each batch of the current epoch."""
        shuffle, draws = self._options["shuffle"], np.random.default_rng(0)
        if shuffle:
            draws = np.random.default_rng([self._options["seed"], self._epoch])
        batches: list[Any] = []
        carried = np.zeros(0, int)
        for number, (rows, size) in enumerate(zip(self._members, self._sizes)):
            rows = draws.permutation(rows) if shuffle else rows
            # Rows that do not fill a batch go to the next bucket: there is one short batch in all.
            rows = np.concatenate([carried, rows])
            last = number == len(self._members) - 1 and not self._options["drop_remainder"]
            stop = len(rows) if last else len(rows) // size * size
            batches += [rows[i : min(i + size, stop)] for i in range(0, stop, size)]
            carried = rows[stop:]
        if shuffle:
            batches = [batches[i] for i in draws.permutation(len(batches))]
        return batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Array:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        rows = self._batches[index]
        bound = self.bound(index)
        x = self._padded(self._sequences, rows, bound, self._options["value"], self._dtype)
        if self._targets is None:
            return x
        if self._options["pad_targets"]:
            value = self._options["target_value"]
            y = self._padded(self._targets, rows, bound, value, _dtype_of(self._targets))
        else:
            y = np.asarray(self._targets)[rows]
        return (x, y) if self._weights is None else (x, y, np.asarray(self._weights)[rows])

    def _padded(
        self, source: Sequence[Any], rows: Array, bound: int, value: int, dtype: str
    ) -> Array:
        rest = np.shape(source[rows[0]])[1:]
        x = np.full((len(rows), bound, *rest), value, dtype)
        before = self._options["padding"] == "pre"
        for place, row in enumerate(rows):
            one = np.asarray(source[row], dtype).reshape((-1, *rest))
            if len(one) > bound:
                one = one[-bound:] if self._options["truncating"] == "pre" else one[:bound]
            start = bound - len(one) if before else 0
            x[place, start : start + len(one)] = one
        return x

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]
        self.on_epoch_end()

    def on_epoch_end(self) -> None:
        """Draw the order of the next epoch: a function of the seed and the epoch's index."""
        self._epoch += 1
        if self._options["shuffle"]:
            self._batches = self._arrange()

    def bound(self, index: int) -> int:
        """Return the length to which batch `index` is padded."""
        longest = int(self._kept[self._batches[index]].max())
        return self.boundaries[int(np.searchsorted(self.boundaries, longest))]

    def positions(self, index: int | None = None) -> Array:
        """Return the indices of the sequences in a batch; None: in all batches, in order.

        The rows of `predict(dataset)` belong to the sequences `dataset.positions()`.
        """
        return np.concatenate(self._batches) if index is None else self._batches[index].copy()

    def in_order(self, results: Array) -> Array:
        """Return rows in the order of the batches, such as `predict`'s, in that of the
        sequences; to be called before the next epoch is drawn, or with shuffle=False.
        """
        places, results = self.positions(), np.asarray(results)
        if len(places) != len(self._sequences) or len(results) != len(places):
            raise ValueError(
                f"in_order: expected one row for each of {len(self._sequences)} sequences, got "
                f"{len(results)}; without drop_remainder none is missing."
            )
        result = np.empty_like(results)
        result[places] = results
        return result

    @property
    def padding_share(self) -> float:
        """The share of the steps that are padding, 0 to 1."""
        steps = sum(self.bound(i) * len(rows) for i, rows in enumerate(self._batches))
        full = sum(int(self._kept[rows].sum()) for rows in self._batches)
        return 1 - full / steps if steps else 0.0


def _dtype_of(sequences: Sequence[Any]) -> str:
    """Return floatx for floating sequences, int32 for lists of integers, else their own dtype."""
    first = next((s for s in sequences if len(s)), sequences[0])
    kind = np.asarray(first).dtype
    if kind.kind == "f" and not hasattr(first, "dtype") or kind == "float64":
        return config.floatx()
    return "int32" if kind.kind == "i" else kind.name


def bucket_by_length(
    sequences: Sequence[Any],
    targets: Array = None,
    boundaries: int | Sequence[int] = 8,
    batch_size: int | Sequence[int] = 32,
    sample_weight: Array = None,
    *,
    padding: str = "post",
    value: int = 0,
    pad_targets: bool = False,
    target_value: int = 0,
    truncating: str | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    drop_remainder: bool = False,
) -> Buckets:
    """Return batches of sequences of similar length, padded to the bound of their bucket.

    The static engine compiles a step for each shape. There is one shape per bucket, and one more,
    because rows that do not fill a batch move to the next bucket.

    Args:
        sequences: arrays or lists, each of shape (length, ...).
        targets: one row per sequence; or, with `pad_targets`, sequences of the same lengths;
            None: none.
        boundaries: increasing bounds of the lengths; or the number of buckets, whose bounds are
            then chosen for the least padding.
        batch_size: rows per batch; or one number for each bucket.
        sample_weight: one number per sequence; None: none.
        padding: "post" or "pre": the side that is padded.
        value: the padding value.
        pad_targets: whether the targets are sequences, one target per step.
        target_value: the padding value of targets.
        truncating: "post" or "pre": the side from which sequences longer than the last bound are
            cut; None: such sequences are an error.
        shuffle: whether each epoch has new batches in a new order.
        seed: the seed of the orders; None: one drawn from the process's generator.
        drop_remainder: whether to drop the rows that do not fill a batch.

    Example:
        >>> data = bucket_by_length([[1], [2, 3], [4, 5, 6], [7]], boundaries=[1, 3],
        ...                         batch_size=2, shuffle=False)
        >>> [x.tolist() for x in data]
        [[[1], [7]], [[2, 3, 0], [4, 5, 6]]]
    """
    if len(sequences) == 0:
        raise ValueError("sequences: expected at least one, got none.")
    for name, word, known in (
        ("padding", padding, ("post", "pre")),
        ("truncating", truncating, ("post", "pre", None)),
    ):
        if word not in known:
            raise ValueError(f"{name}: expected one of {known}, got {word!r}.")
    lengths = np.array([len(s) for s in sequences])
    bounds = _bounds(lengths, boundaries, truncating)
    _check_targets(lengths, targets, sample_weight, pad_targets)
    sizes = [batch_size] * len(bounds) if isinstance(batch_size, int) else list(batch_size)
    if len(sizes) != len(bounds) or min(sizes) < 1:
        raise ValueError(
            f"batch_size: expected a positive number, or one for each of {len(bounds)} buckets, "
            f"got {batch_size!r}."
        )
    return Buckets(
        sequences, targets, bounds, sizes, sample_weight,
        padding=padding, value=value, pad_targets=pad_targets, target_value=target_value,
        truncating=truncating, shuffle=shuffle, drop_remainder=drop_remainder,
        seed=config.next_seed() if seed is None else seed,
    )  # fmt: skip


def _bounds(lengths: Array, boundaries: Any, truncating: str | None) -> list[int]:
    if isinstance(boundaries, (int, np.integer)):
        return best_boundaries(lengths, int(boundaries))
    bounds = [int(b) for b in boundaries]
    if not bounds or bounds[0] < 1 or any(a >= b for a, b in zip(bounds, bounds[1:])):
        raise ValueError(f"boundaries: expected rising numbers from 1 on, got {boundaries!r}.")
    longest = int(lengths.argmax())
    if lengths[longest] > bounds[-1] and truncating is None:
        raise ValueError(
            f"boundaries: sequence {longest} has length {lengths[longest]}, above the last bound "
            f"{bounds[-1]}: add a bound, or give truncating='post' or 'pre'."
        )
    return bounds


def _check_targets(lengths: Array, targets: Any, weights: Any, pad_targets: bool) -> None:
    for name, given in (("targets", targets), ("sample_weight", weights)):
        if given is not None and len(given) != len(lengths):
            raise ValueError(
                f"{name}: expected one for each of {len(lengths)} sequences, got {len(given)}."
            )
    if weights is not None and targets is None:
        raise ValueError("sample_weight: weights without targets have no use.")
    if not pad_targets or targets is None:
        return
    for row, (length, target) in enumerate(zip(lengths, targets)):
        if len(target) != length:
            raise ValueError(
                f"targets: with pad_targets each is as long as its sequence, but sequence {row} "
                f"has length {length} and its targets {len(target)}."
            )
