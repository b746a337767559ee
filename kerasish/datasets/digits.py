"""Digits: 1,797 handwritten digits, 8 x 8, from 10 classes (Alpaydin, Kaynak 1998)."""

from __future__ import annotations

from kerasish.datasets.bundled import Pair, split_bundled


def load_data(test_split: float = 0.2, seed: int = 113) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): uint8 images 0..16 and int64 labels 0..9.

    Args:
        test_split: part of the samples for the test, in (0, 1), the same of every class.
        seed: of the split.

    Shape:
        x: (n, 8, 8); y: (n,).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, y_train.dtype
        ((1437, 8, 8), dtype('int64'))
    """
    (x_train, y_train), (x_test, y_test) = split_bundled(
        "digits", test_split, seed, "uint8", "int64"
    )
    return (x_train.reshape(-1, 8, 8), y_train), (x_test.reshape(-1, 8, 8), y_test)
