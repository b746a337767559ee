"""Diabetes: 442 patients, 10 standardized measures, progress after a year (Efron et al. 2004)."""

from __future__ import annotations

from kerasish.datasets.bundled import Pair, split_bundled


def load_data(test_split: float = 0.2, seed: int = 113) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): float32 measures and float32 progress 25..346.

    Args:
        test_split: part of the samples for the test, in (0, 1).
        seed: of the split.

    Shape:
        x: (n, 10); y: (n,).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, y_train.dtype
        ((353, 10), dtype('float32'))
    """
    return split_bundled("diabetes", test_split, seed, "float32", "float32", stratify=False)
