"""Hyperparameter search with scikit-learn's GridSearchCV
======================================================

A grid search over a pipeline: routed parameters, refit, results as a table and a plot.

With a folder as a second argument each fit is kept on disk: kill the search, run it again, and it
continues where it was.
Shows: `KerasClassifier` in a pipeline, `search_progress`, a memory of finished fits.

Run: python examples/grid_search.py [picture.png [folder]]
"""

from __future__ import annotations

import sys

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import kerasish as keras
from kerasish.wrappers import KerasClassifier, search_progress

# %%
# The pipeline
# ------------
# A scaler, then a network. `KerasClassifier` takes a function that makes an uncompiled model for
# the data that `meta` describes.


def make_model(meta: dict, units: int = 32) -> keras.Model:
    """Return a classifier with one hidden layer."""
    return keras.Sequential(
        [
            keras.Input((meta["n_features_in_"],)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(meta["n_classes_"], activation="softmax"),
        ]
    )


memory = sys.argv[2] if len(sys.argv) > 2 else None
classifier = KerasClassifier(make_model, optimizer="adam", epochs=5, random_state=0, memory=memory)
pipeline = Pipeline([("scale", StandardScaler()), ("classifier", classifier)])

# %%
# The search
# ----------
# The names of the grid say where a parameter goes: to the function that makes the model, to its
# optimizer, to `fit`. There are 12 candidates on 3 folds each, and the best one is fitted again on
# all training rows. The progress bar appears in a terminal, not in a log file.

GRID = {
    "classifier__model__units": [32, 64],
    "classifier__optimizer__learning_rate": [1e-3, 3e-3, 1e-2],
    "classifier__batch_size": [32, 128],
}
X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
search = GridSearchCV(pipeline, GRID, cv=3)
with search_progress(search, desc="search", disable=None):
    search.fit(X, y)

# %%
# The results
# -----------
# The candidates, the best first. `kerasish.wrappers.results_frame` gives a table of pandas.

result = search.cv_results_
for i in sorted(range(len(result["params"])), key=lambda i: result["rank_test_score"][i]):
    settings = {name.split("__")[-1]: v for name, v in result["params"][i].items()}
    print(f"{result['mean_test_score'][i]:.3f} ± {result['std_test_score'][i]:.3f}  {settings}")
print(f"best: {search.best_params_}")
print(f"accuracy on rows kept apart: {search.score(X_test, y_test):.3f}")

# %%
# The picture
# -----------
# Accuracy against the learning rate, a line for each width and batch size.

lines: dict[str, list[tuple[float, float, float]]] = {}
for params, mean, std in zip(result["params"], result["mean_test_score"], result["std_test_score"]):
    units, rate, batch = (params[name] for name in GRID)
    lines.setdefault(f"{units} units, batches of {batch}", []).append((rate, mean, std))
figure, axes = plt.subplots(layout="constrained")
for label, points in lines.items():
    rates, means, spreads = zip(*sorted(points))
    axes.errorbar(rates, means, spreads, marker="o", capsize=3, label=label)
axes.set(xscale="log", xlabel="learning rate", ylabel="accuracy, 3 folds")
axes.set_title("Digits: accuracy of 12 candidates")
axes.legend()
picture = sys.argv[1] if len(sys.argv) > 1 else "grid_search.png"
figure.savefig(picture)
print(f"picture: {picture}")
