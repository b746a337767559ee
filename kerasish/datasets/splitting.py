"""Files of rows and targets, cut into rows for training and for a test."""

from __future__ import annotations

import numpy as np

from kerasish.datasets.sources import Pair as Pair
from kerasish.datasets.sources import fetch


def split_file(
    name: str, path: str, test_split: float, seed: int, count: int | None = None
) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)) of a file with the arrays x and y.

    Args:
        name: the source's name.
        path: name of the file in the cache's folder `datasets`.
        test_split: part of the rows for the test, in [0, 1).
        seed: of the order of the rows.
        count: how many of the first rows are taken; None: all.

    Raises:
        ValueError: `test_split` is out of its range.
    """
    if not 0 <= test_split < 1:
        raise ValueError(f"test_split: expected a number in [0, 1), got {test_split!r}.")
    with np.load(fetch(name, path), allow_pickle=False) as arrays:
        x, y = arrays["x"], arrays["y"]
    order = np.arange(len(x[:count]))
    np.random.RandomState(seed).shuffle(order)
    cut = int(len(order) * (1 - test_split))
    train, test = order[:cut], order[cut:]
    return (x[train], y[train]), (x[test], y[test])
