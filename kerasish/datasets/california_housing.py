"""California housing: 20,640 districts of 1990, 8 features, median price (Pace, Barry 1997)."""

from __future__ import annotations

from kerasish.datasets.splitting import Pair, split_file


def load_data(
    version: str = "large",
    path: str = "california_housing.npz",
    test_split: float = 0.2,
    seed: int = 113,
) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): features and prices in dollars.

    Features: longitude, latitude, median age of houses, rooms, bedrooms, people, households,
    median income.

    Args:
        version: "large" for all districts, "small" for 600 of the San Francisco Bay area.
        path: name of the file in the cache's folder `datasets`.
        test_split: part of the districts for the test, in [0, 1).
        seed: of the order of the districts.

    Shape:
        x: (n, 8); y: (n,).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    if version not in ("large", "small"):
        raise ValueError(f"version: expected 'large' or 'small', got {version!r}.")
    count = 600 if version == "small" else None
    return split_file("california_housing", path, test_split, seed, count)
