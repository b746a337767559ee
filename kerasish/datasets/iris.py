"""Iris: 150 flowers, 4 measures in cm, 3 species (Fisher 1936)."""

from __future__ import annotations

from kerasish.datasets.bundled import Pair, split_bundled


def load_data(test_split: float = 0.2, seed: int = 113) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): float32 measures and int64 species 0..2.

    Args:
        test_split: part of the samples for the test, in (0, 1), the same of every class.
        seed: of the split.

    Shape:
        x: (n, 4); y: (n,).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, y_train.dtype
        ((120, 4), dtype('int64'))
    """
    return split_bundled("iris", test_split, seed, "float32", "int64")
