"""Fashion-MNIST: 70,000 pictures of clothes, 28 x 28, 10 classes (Xiao, Rasul, Vollgraf 2017)."""

from __future__ import annotations

import gzip
import math
import os

import numpy as np

from kerasish.datasets.sources import Pair, fetch


def load_data() -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): uint8 images 0..255 and uint8 labels 0..9.

    Classes: T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot.

    Shape:
        x: (60000, 28, 28) and (10000, 28, 28); y: (60000,) and (10000,).

    Source:
        arXiv 1708.07747.

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    train, test = (
        (_load(f"fashion_{part}_images"), _load(f"fashion_{part}_labels"))
        for part in ("train", "test")
    )
    return train, test


def _load(name: str) -> np.ndarray:
    return read_idx(fetch(name, subdir=os.path.join("datasets", "fashion-mnist")))


def read_idx(path: str) -> np.ndarray:
    """Return the array of a gzipped IDX file of unsigned bytes.

    The format: two zero bytes, 8 (unsigned bytes), the rank, the sizes as big-endian 32-bit
    integers, the entries.

    Raises:
        ValueError: the file is not of that format, or shorter than its header says.
    """
    with gzip.open(path, "rb") as file:
        contents = file.read()
    if len(contents) < 4 or contents[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path}: expected an IDX file of unsigned bytes, got {contents[:4]!r}.")
    rank = contents[3]
    shape = tuple(np.frombuffer(contents, ">u4", rank, offset=4).tolist())
    start = 4 + 4 * rank
    if len(contents) - start != math.prod(shape):
        raise ValueError(
            f"{path}: shape {shape} wants {math.prod(shape)} bytes, the file has "
            f"{len(contents) - start}."
        )
    return np.frombuffer(contents, np.uint8, offset=start).reshape(shape).copy()
