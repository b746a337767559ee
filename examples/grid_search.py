"""A grid search over a pipeline: routed parameters, refit, results as a table and a plot.

Run: python examples/grid_search.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import kerasish as keras
from kerasish.wrappers import KerasClassifier

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


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    pipeline = Pipeline(
        [
            ("scale", StandardScaler()),
            ("classifier", KerasClassifier(make_model, optimizer="adam", epochs=5, random_state=0)),
        ]
    )
    search = GridSearchCV(pipeline, GRID, cv=3).fit(X, y)
    found = search.cv_results_
    for i in np.argsort(found["rank_test_score"]):
        settings = {k.split("__")[-1]: v for k, v in found["params"][i].items()}
        print(f"{found['mean_test_score'][i]:.3f} ± {found['std_test_score'][i]:.3f}  {settings}")
    print(f"best: {search.best_params_}")
    print(f"accuracy on rows kept apart: {search.score(X_test, y_test):.3f}")


if __name__ == "__main__":
    main()
