"""Batches of samples that are read by index; the functions that make data sets return them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.data import AUTOTUNE, Dataset
from kerasish.data.batching import BatchNode
from kerasish.data.sources import RowsNode


def dataset_of_rows(
    read: Callable[[Any], Any],
    count: int,
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
    text: str,
    facts: str = "",
) -> Dataset:
    """Return a data set of samples of which many are read at once.

    Args:
        read: a function from the indices of samples, an integer array, to their batch.
        count: the number of samples.
        batch_size: samples per batch; None: single samples, without a batch axis.
        shuffle: whether each epoch has the samples in a new order.
        seed: the seed of the orders; None: one drawn from the process's generator.
        text: what it is, for descriptions.
        facts: a checksum of the contents, or "".

    Example:
        >>> squares = dataset_of_rows(lambda i: (i, i**2), 3, 2, False, None, "squares")
        >>> [y.tolist() for x, y in squares]
        [[0, 1], [4]]
    """
    node = RowsNode(
        count, lambda start, stop: read(np.arange(start, stop)), read, text, facts=facts
    )
    return _arranged(Dataset(node), count, batch_size, shuffle, seed)


def dataset_of_files(
    read: Callable[[Any], Any],
    collate: Callable[[list[Any]], Any] | None,
    names: Sequence[str],
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
) -> Dataset:
    """Return a data set of samples that are read one by one, in several threads.

    Args:
        read: a function from the index of a sample to it.
        collate: makes a batch of a list of samples; None stacks them.
        names: the names of the files.
        batch_size, shuffle, seed: as for `dataset_of_rows`.
    """
    count = len(names)
    facts = f"{zlib.crc32(chr(0).join(names).encode('utf-8', 'surrogatepass')):08x}"
    numbers = RowsNode(
        count, lambda start, stop: np.arange(start, stop), lambda rows: rows, f"{count} files",
        facts=facts,
    )  # fmt: skip
    files = Dataset(numbers)
    if shuffle:
        files = files.shuffle(max(count, 1), seed)
    samples = files.map(read, num_parallel_calls=AUTOTUNE)
    if batch_size is None:
        return samples
    _check(batch_size)
    return Dataset(BatchNode(samples.node, batch_size, False, collate))


def _arranged(
    dataset: Dataset, count: int, batch_size: int | None, shuffle: bool, seed: int | None
) -> Dataset:
    if batch_size is not None:
        _check(batch_size)
    if shuffle:
        dataset = dataset.shuffle(max(count, 1), seed)
    return dataset if batch_size is None else dataset.batch(batch_size)


def _check(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size: expected None or 1 or more, got {batch_size}.")
