"""CIFAR-100: 60,000 color pictures, 32 x 32, of 100 classes in 20 groups (Krizhevsky 2009)."""

from __future__ import annotations

import os

from kerasish.datasets.cifar_batches import image_layout, label_column, load_batch
from kerasish.datasets.sources import Pair, fetch


def load_data(label_mode: str = "fine") -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): uint8 images 0..255 and int64 labels.

    Args:
        label_mode: "fine" for the 100 classes, "coarse" for the 20 groups.

    Shape:
        x: (50000, 32, 32, 3) and (10000, 32, 32, 3), or channels first by
        `config.image_data_format()`; y: (50000, 1) and (10000, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    if label_mode not in ("fine", "coarse"):
        raise ValueError(f"label_mode: expected 'fine' or 'coarse', got {label_mode!r}.")
    root = fetch("cifar100", "cifar-100-python-target", extract=True)
    folder = os.path.join(root, "cifar-100-python")
    train, test = (
        load_batch(os.path.join(folder, part), f"{label_mode}_labels") for part in ("train", "test")
    )
    return (
        (image_layout(train[0]), label_column(train[1], "int64")),
        (image_layout(test[0]), label_column(test[1], "int64")),
    )
