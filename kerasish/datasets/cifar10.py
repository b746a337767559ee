"""CIFAR-10: 60,000 color pictures, 32 x 32, of 10 classes (Krizhevsky 2009)."""

from __future__ import annotations

import os

import numpy as np

from kerasish.datasets.cifar_batches import image_layout, label_column, load_batch
from kerasish.datasets.sources import Pair, fetch


def load_data() -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): uint8 images 0..255 and uint8 labels 0..9.

    Classes: airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck.

    Shape:
        x: (50000, 32, 32, 3) and (10000, 32, 32, 3), or channels first by
        `config.image_data_format()`; y: (50000, 1) and (10000, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    root = fetch("cifar10", "cifar-10-batches-py-target", extract=True)
    folder = os.path.join(root, "cifar-10-batches-py")
    parts = [load_batch(os.path.join(folder, f"data_batch_{n}"), "labels") for n in range(1, 6)]
    x_train = np.concatenate([images for images, _ in parts])
    y_train = [label for _, labels in parts for label in labels]
    x_test, y_test = load_batch(os.path.join(folder, "test_batch"), "labels")
    return (
        (image_layout(x_train), label_column(y_train, "uint8")),
        (image_layout(x_test), label_column(y_test, "uint8")),
    )
