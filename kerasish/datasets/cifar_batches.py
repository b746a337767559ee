"""The pickled batches that CIFAR-10 and CIFAR-100 share."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from kerasish import config
from kerasish.datasets.unpickle import load_pickle


def load_batch(path: str | os.PathLike[str], label_key: str) -> tuple[np.ndarray, list[int]]:
    """Return uint8 images (n, 3, 32, 32) and the labels of one batch file.

    Raises:
        ValueError: the file holds something else.
    """
    contents: Any = load_pickle(os.fspath(path))
    try:
        pixels, labels = contents[b"data"], list(contents[label_key.encode()])
        return pixels.reshape(-1, 3, 32, 32), labels
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: expected a CIFAR batch with data and {label_key}.") from error


def image_layout(images: np.ndarray) -> np.ndarray:
    """Return (n, 3, 32, 32) images in the layout of `config.image_data_format()`, contiguous."""
    if config.image_data_format() == "channels_last":
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)


def label_column(labels: Any, dtype: str) -> np.ndarray:
    """Return the labels as an (n, 1) array."""
    return np.asarray(labels, dtype).reshape(-1, 1)
