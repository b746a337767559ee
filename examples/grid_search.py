"""Hyperparameter search with scikit-learn's GridSearchCV
======================================================

A grid search over a pipeline: routed parameters, refit, results as a table and a plot.

Run: python examples/grid_search.py [--plot grid_search.png] [--memory FOLDER] [--jobs 2]

With --memory each fit is kept on disk: kill the search, run it again, and it goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import kerasish as keras
from kerasish.wrappers import KerasClassifier, search_progress

GRID = {
    "classifier__model__units": [32, 64],
    "classifier__optimizer__learning_rate": [1e-3, 3e-3, 1e-2],
    "classifier__batch_size": [32, 128],
}


def make_model(meta: dict, units: int = 32) -> keras.Model:
    """Return an uncompiled classifier for the data that `meta` describes."""
    return keras.Sequential(
        [
            keras.Input((meta["n_features_in_"],)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(meta["n_classes_"], activation="softmax"),
        ]
    )


def make_search(memory: str | None = None, jobs: int = 1) -> GridSearchCV:
    """Return the search: a scaler, then the network."""
    classifier = KerasClassifier(
        make_model, optimizer="adam", epochs=5, random_state=0, memory=memory
    )
    pipeline = Pipeline([("scale", StandardScaler()), ("classifier", classifier)])
    return GridSearchCV(pipeline, GRID, cv=3, n_jobs=jobs)


def print_results(search: GridSearchCV) -> None:
    """Print a line for each candidate, the best first (`results_frame` needs pandas)."""
    result = search.cv_results_
    for i in sorted(range(len(result["params"])), key=lambda i: result["rank_test_score"][i]):
        settings = {k.split("__")[-1]: v for k, v in result["params"][i].items()}
        print(f"{result['mean_test_score'][i]:.3f} ± {result['std_test_score'][i]:.3f}  {settings}")


def plot_results(search: GridSearchCV, path: str) -> None:
    """Draw accuracy against the learning rate, a line for each width and batch size."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        sys.exit("This example draws a picture: pip install matplotlib")

    lines: dict[str, list[Any]] = {}
    rows = zip(
        search.cv_results_["params"],
        search.cv_results_["mean_test_score"],
        search.cv_results_["std_test_score"],
    )
    for params, mean, std in rows:
        units, rate, batch = (params[name] for name in GRID)
        lines.setdefault(f"{units} units, batches of {batch}", []).append((rate, mean, std))
    figure, axes = plt.subplots(layout="constrained")
    for label, points in lines.items():
        rates, means, spreads = zip(*sorted(points))
        axes.errorbar(rates, means, spreads, marker="o", capsize=3, label=label)
    axes.set(xscale="log", xlabel="learning rate", ylabel="accuracy, 3 folds", title="digits")
    axes.legend()
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> GridSearchCV:
    parser = argparse.ArgumentParser(description="A grid search over a pipeline.")
    parser.add_argument("--plot", metavar="FILE", help="draw the results (needs matplotlib)")
    parser.add_argument("--memory", metavar="FOLDER", help="keep fits; a rerun goes on from there")
    parser.add_argument("--jobs", type=int, default=1, help="processes that search")
    given = parser.parse_args(arguments)
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    search = make_search(given.memory, given.jobs)
    with search_progress(search, desc="search", disable=None):  # None: no bar in a log file
        search.fit(X, y)
    print_results(search)
    print(f"best: {search.best_params_}")
    print(f"accuracy on rows kept apart: {search.score(X_test, y_test):.3f}")
    if given.plot:
        plot_results(search, given.plot)
    return search


if __name__ == "__main__":
    main()
