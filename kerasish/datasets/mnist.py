"""MNIST: 70,000 handwritten digits, 28 x 28, from 10 classes (LeCun, Cortes, Burges 1998)."""

from __future__ import annotations

import numpy as np

from kerasish.datasets.sources import Pair, fetch


def load_data(path: str = "mnist.npz") -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): uint8 images 0..255 and uint8 labels 0..9.

    Args:
        path: name of the file in the cache's folder `datasets`.

    Shape:
        x: (60000, 28, 28) and (10000, 28, 28); y: (60000,) and (10000,).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    with np.load(fetch("mnist", path), allow_pickle=False) as arrays:
        return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
