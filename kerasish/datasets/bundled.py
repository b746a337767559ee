"""The small data sets that scikit-learn carries: split for the job, no download."""

from __future__ import annotations

from kerasish.datasets.sources import Pair as Pair


def split_bundled(
    name: str, test_split: float, seed: int, x_dtype: str, y_dtype: str, stratify: bool = True
) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)) of sklearn.datasets.load_<name>.

    Args:
        name: as scikit-learn calls it.
        test_split: part of the samples for the test, in (0, 1).
        seed: of the split; the same seed gives the same split on every machine.
        x_dtype: dtype of the features.
        y_dtype: dtype of the targets.
        stratify: whether each class has the same share in both parts.
    """
    if not 0 < test_split < 1:
        raise ValueError(f"test_split: expected a number in (0, 1), got {test_split!r}.")
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        x.astype(x_dtype),
        y.astype(y_dtype),
        test_size=test_split,
        random_state=seed,
        stratify=y if stratify else None,
    )
    return (x_train, y_train), (x_test, y_test)
