"""A grid search on digits, 12 candidates x 3 folds and a refit, against scikit-learn's MLP.

Run: python -m benchmarks.grid_search [rounds]. One thread; the sides take turns, and the median
and the range of the rounds are printed, with the memory that this process gained in all of them.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sklearn
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kerasish as keras
from kerasish.wrappers import KerasClassifier

SIZES, RATES, BATCHES = [32, 64], [1e-3, 3e-3, 1e-2], [32, 128]


def make_model(meta: dict[str, Any], units: int = 32) -> keras.Model:
    """Return an uncompiled classifier with one hidden layer."""
    return keras.Sequential(
        [
            keras.Input((meta["n_features_in_"],)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(meta["n_classes_"], activation="softmax"),
        ]
    )


def sides() -> dict[str, tuple[Any, dict[str, list[Any]]]]:
    """Return name -> (estimator, grid)."""
    ours = KerasClassifier(make_model, optimizer="adam", epochs=5, random_state=0)
    theirs = MLPClassifier(max_iter=5, random_state=0)
    grid = {"model__units": SIZES, "optimizer__learning_rate": RATES, "batch_size": BATCHES}
    plain = {"hidden_layer_sizes": SIZES, "learning_rate_init": RATES, "batch_size": BATCHES}
    return {
        f"kerasish ({keras.config.backend()})": (ours, grid),
        "scikit-learn MLPClassifier": (theirs, plain),
    }


def search(estimator: Any, grid: dict[str, list[Any]]) -> tuple[float, float]:
    """Return (seconds, best score) of one search."""
    X, y = load_digits(return_X_y=True)
    name = type(estimator).__name__.lower()
    settings = {f"{name}__{k}": v for k, v in grid.items()}
    start = time.perf_counter()
    result = GridSearchCV(make_pipeline(StandardScaler(), estimator), settings, cv=3).fit(X, y)
    return time.perf_counter() - start, result.best_score_


def main(rounds: int = 3) -> None:
    """Time the sides by turns and print what they took."""
    warnings.filterwarnings("ignore", category=sklearn.exceptions.ConvergenceWarning)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ",
        end="",
    )
    print(f"kerasish {keras.__version__}, scikit-learn {sklearn.__version__}")
    times: dict[str, list[float]] = {name: [] for name in sides()}
    scores: dict[str, float] = {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(rounds):
        for name, side in sides().items():
            seconds, scores[name] = search(*side)
            times[name].append(seconds)
    for name, taken in times.items():
        middle = statistics.median(taken)
        spread = f"{min(taken):.2f} to {max(taken):.2f}"
        print(f"{name:28} {middle:6.2f} s ({spread}), best score {scores[name]:.3f}")
    gained = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"memory gained: {gained / 1024:.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
