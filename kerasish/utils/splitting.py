"""Splits a data set in two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasish import config, tree
from kerasish.data import Dataset
from kerasish.typing import Array, Structure, TensorLike
from kerasish.utils.batches import dataset_of_rows


class Samples:
    """A subset of a data set's samples: iterate over them, index them, or `batch` them for `fit`.

    Args:
        data: a structure of arrays with samples along their first axis.
        rows: the indices of the samples of the subset.
    """

    def __init__(self, data: Array | Sequence[Array], rows: Array) -> None:
        self._data, self._rows = data, np.asarray(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Structure:
        return tree.map_structure(lambda a: a[self._rows[index]], self._data)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def batch(self, batch_size: int, shuffle: bool = False, seed: int | None = None) -> Dataset:
        """Return the samples in batches."""

        def read(rows: Array) -> tuple[Any, ...]:
            return tree.map_structure(lambda a: a[self._rows[rows]], self._data)

        text = f"{len(self)} samples"
        return dataset_of_rows(read, len(self), batch_size, shuffle, seed, text)


def split_dataset(
    dataset: Structure,
    left_size: float | int | None = None,
    right_size: float | int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
    *,
    stratify: TensorLike | None = None,
) -> tuple[Samples, Samples]:
    """Return the first and the last samples of a data set as two data sets.

    Args:
        dataset: an array; a tuple, list or dict of arrays of equal length; or an iterable of
            samples.
        left_size, right_size: the number of samples (an integer), or the share of all,
            0 < share < 1; None: the rest.
        shuffle: whether to draw the samples of each part at random.
        seed: the seed of the draw; None: drawn.
        preferred_backend: accepted; kerasish has one kind of data set.
        stratify: the class of each sample; both parts then get the same share of each class;
            None: shares are left to chance.

    Raises:
        ValueError: the sizes do not fit the data set.

    Example:
        >>> left, right = split_dataset(np.arange(10), left_size=0.8)
        >>> len(left), list(right)
        (8, [np.int64(8), np.int64(9)])
    """
    data = _arrays(dataset)
    lengths = {len(a) for a in tree.flatten(data)}
    if len(lengths) != 1:
        raise ValueError(
            f"split_dataset: expected arrays of one length, got {sorted(lengths) or 'none'}."
        )
    count = lengths.pop()
    left, right = _sizes(left_size, right_size, count)
    rows = np.arange(count)
    if stratify is not None:
        draw = np.random.default_rng(config.next_seed() if seed is None else seed)
        first, last = stratified(np.asarray(stratify), left, right, draw if shuffle else None)
        return Samples(data, first), Samples(data, last)
    if shuffle:
        rows = np.random.default_rng(config.next_seed() if seed is None else seed).permutation(rows)
    return Samples(data, rows[:left]), Samples(data, rows[count - right :])


def stratified(classes: Array, left: int, right: int, draw: Any = None) -> tuple[Any, Any]:
    """Return the rows of two parts, each with about the same share of each class.

    Args:
        classes: the class of each row (one-hot rows count as classes, too).
        left, right: the numbers of rows of the parts.
        draw: a generator that chooses and shuffles the rows; None takes them in order.

    Raises:
        ValueError: a class has too few rows for both parts.
    """
    count = len(classes)
    _, numbers = np.unique(classes.reshape(count, -1), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    sizes = np.bincount(numbers)
    if sizes.min() < 2:
        raise ValueError("split_dataset: stratify needs two samples of each class, one has 1.")
    first = np.minimum(_shares(sizes, left, count), sizes - 1)
    last = sizes - first if left + right == count else _shares(sizes, right, count)
    last = np.minimum(last, sizes - first)
    parts: tuple[list[Any], list[Any]] = ([], [])
    for number, (a, b) in enumerate(zip(first, last)):
        rows = np.flatnonzero(numbers == number)
        rows = rows if draw is None else draw.permutation(rows)
        parts[0].append(rows[:a])
        parts[1].append(rows[len(rows) - b :])
    results = [np.concatenate(part) for part in parts]
    order = np.sort if draw is None else draw.permutation
    return order(results[0]), order(results[1])


def _shares(sizes: Array, part: int, count: int) -> Array:
    """Return the number of rows of each class in a part of `part` rows, by largest remainders."""
    exact = sizes * (part / count)
    whole = np.maximum(np.floor(exact).astype(int), 1)
    rest = part - int(whole.sum())
    for number in np.argsort(np.floor(exact) - exact, kind="stable")[: max(rest, 0)]:
        whole[number] += 1
    for _ in range(-rest):  # classes with a share below one row were given one
        whole[whole.argmax()] -= 1
    return whole


def _arrays(dataset: Any) -> Structure:
    if hasattr(dataset, "shape"):
        return np.asarray(dataset)
    if isinstance(dataset, (tuple, list, dict)):
        return tree.map_structure(np.asarray, dataset)
    samples = list(dataset)
    if not samples:
        raise ValueError("split_dataset: the data set has no samples.")
    return tree.map_structure(lambda *parts: np.stack(parts), *samples)


def _sizes(left: float | None, right: float | None, count: int) -> tuple[int, int]:
    if left is None and right is None:
        raise ValueError("split_dataset: expected left_size or right_size, got neither.")
    first, last = _size("left", left, count), _size("right", right, count)
    if first is None:
        first = count - (last or 0)
    if last is None:
        last = count - first
    if min(first, last) < 1 or first + last > count:
        raise ValueError(
            f"split_dataset: left_size={left!r} and right_size={right!r} do not cut {count} "
            f"samples in two: {first} and {last}."
        )
    return first, last


def _size(name: str, size: float | None, count: int) -> int | None:
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, (int, float, np.number)):
        raise TypeError(f"split_dataset: {name}_size is a number, got {size!r}.")
    if isinstance(size, (float, np.floating)):
        if not 0 < size < 1:
            raise ValueError(f"split_dataset: a share is between 0 and 1, got {name}_size={size}.")
        return round(float(size) * count)
    return int(size)
