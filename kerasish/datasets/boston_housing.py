"""Boston housing: 506 suburbs of 1978, 13 features, median price (Harrison, Rubinfeld 1978).

One feature is made from the share of Black residents, on the assumption that it moves prices. Use
these data to repeat old results, and `california_housing` for new ones.
"""

from __future__ import annotations

from kerasish.datasets.splitting import Pair, split_file


def load_data(
    path: str = "boston_housing.npz", test_split: float = 0.2, seed: int = 113
) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): features and prices in thousands of dollars.

    Args:
        path: name of the file in the cache's folder `datasets`.
        test_split: part of the suburbs for the test, in [0, 1).
        seed: of the order of the suburbs.

    Shape:
        x: (n, 13); y: (n,).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    return split_file("boston_housing", path, test_split, seed)
