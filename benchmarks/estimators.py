"""The built-in MLP against scikit-learn's: scores on its data sets, and memory over many fits.

Run: python -m benchmarks.estimators [splits]. Both sides see the same splits of each data set,
scaled, with the same sizes and their own defaults else; then 200 fits of different kinds run in
this process, and what it holds more after the last than after the tenth is printed.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import sklearn
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kerasish as keras
from kerasish.wrappers import KerasClassifier, KerasRegressor

SIZES = (100,)
DATA: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "digits": (load_digits, KerasClassifier, MLPClassifier),
    "wine": (load_wine, KerasClassifier, MLPClassifier),
    "breast_cancer": (load_breast_cancer, KerasClassifier, MLPClassifier),
    "diabetes": (load_diabetes, KerasRegressor, MLPRegressor),
}


def scores(name: str, seed: int) -> tuple[float, float]:
    """Return (ours, theirs) on one split: accuracy, or R2 where numbers are predicted."""
    load, ours, theirs = DATA[name]
    X, y = load(return_X_y=True)
    classes = y if ours is KerasClassifier else None
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=0.3, random_state=seed, stratify=classes
    )
    result = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for kind in (ours, theirs):
            estimator = kind(hidden_layer_sizes=SIZES, random_state=seed)
            fitted = make_pipeline(StandardScaler(), estimator).fit(X, y)
            result.append(float(fitted.score(X_test, y_test)))
    return result[0], result[1]


def mean_scores(name: str, splits: int) -> tuple[float, float]:
    """Return the means of (ours, theirs) over the first `splits` splits."""
    ours, theirs = zip(*(scores(name, seed) for seed in range(splits)))
    return statistics.fmean(ours), statistics.fmean(theirs)


def fits(count: int) -> Iterator[int]:
    """Fit `count` estimators of four structures, and yield the bytes held after each."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    for number in range(count):
        settings: dict[str, Any] = {
            "hidden_layer_sizes": ((16,), (16, 8))[number % 2],
            "optimizer__learning_rate": (0.001, 0.003, 0.01)[number % 3],
            "batch_size": 64, "epochs": 2, "random_state": number,
        }  # fmt: skip
        kind = KerasRegressor if number % 5 == 0 else KerasClassifier
        kind(**settings).fit(X, y).score(X, y)
        yield resident_bytes()


def growth(count: int, settled: int = 10) -> float:
    """Return the MiB that the process holds more after `count` fits than after `settled`."""
    held = []
    for number, now in enumerate(fits(count), 1):
        if number in (settled, count):
            gc.collect()
            now = resident_bytes()
        held.append(now)
    return (held[-1] - held[settled - 1]) / 2**20


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(splits: int = 5) -> None:
    """Print the table of scores, then the growth of memory."""
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, kerasish {keras.__version__} ({keras.config.backend()}), "
        f"scikit-learn {sklearn.__version__}"
    )
    print(f"hidden_layer_sizes={SIZES}, means over {splits} splits")
    print(f"{'':14}{'kerasish':>10}{'sklearn MLP':>13}")
    for name in DATA:
        ours, theirs = mean_scores(name, splits)
        print(f"{name:14}{ours:10.4f}{theirs:13.4f}")
    if sys.platform == "linux":
        print(f"memory gained from fit 10 to fit 200: {growth(200):.1f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
