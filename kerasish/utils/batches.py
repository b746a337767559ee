"""Batches of samples read by index; the functions that make data sets return them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerasish import config, tree
from kerasish.engine.data import PyDataset
from kerasish.typing import Structure


class Batches(PyDataset):
    """A data set of `count` samples, read in batches; iterate over it, or pass it to `fit`.

    Args:
        read: a function from the indices of samples, an integer array, to their batch.
        count: the number of samples.
        batch_size: samples per batch; None: single samples, without a batch axis.
        shuffle: whether each epoch has the samples in a new order.
        seed: the seed of the orders; None: one drawn from the process's generator.

    Example:
        >>> squares = Batches(lambda rows: (rows, rows**2), count=3, batch_size=2)
        >>> [y.tolist() for x, y in squares]
        [[0, 1], [4]]
    """

    def __init__(
        self,
        read: Callable[[Any], Any],
        count: int,
        batch_size: int | None,
        shuffle: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size: expected None or 1 or more, got {batch_size}.")
        self._read, self._count, self.batch_size = read, count, batch_size
        self._draws = (
            np.random.default_rng(config.next_seed() if seed is None else seed) if shuffle else None
        )
        self._order = np.arange(count)
        self.on_epoch_end()

    def __len__(self) -> int:
        return self._count if self.batch_size is None else -(-self._count // self.batch_size)

    def __getitem__(self, index: int) -> Structure:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        size = self.batch_size or 1
        batch = self._read(self._order[index * size : (index + 1) * size])
        return batch if self.batch_size else tree.map_structure(lambda rows: rows[0], batch)

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]
        self.on_epoch_end()

    def on_epoch_end(self) -> None:
        """Draw the order of the next epoch."""
        if self._draws is not None:
            self._order = self._draws.permutation(self._count)
