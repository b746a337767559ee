"""A search over processes with a memory, to be killed: run with the directory as argument."""

import sys

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kerasish import layers, models
from kerasish.engine import Input
from kerasish.wrappers import KerasClassifier


def make_model(meta, units=8):
    return models.Sequential(
        [
            Input((meta["n_features_in_"],)),
            layers.Dense(units, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(meta["n_classes_"], activation="softmax"),
        ]
    )


def make_search(memory, n_jobs=1):
    classifier = KerasClassifier(
        make_model, optimizer="adam", epochs=8, batch_size=16, random_state=0, memory=memory
    )
    grid = {
        "kerasclassifier__model__units": [8, 16, 24],
        "kerasclassifier__optimizer__learning_rate": [0.001, 0.01],
    }
    pipeline = make_pipeline(StandardScaler(), classifier)
    return GridSearchCV(pipeline, grid, cv=3, n_jobs=n_jobs, error_score="raise")


def load_data():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600]


if __name__ == "__main__":
    make_search(sys.argv[1], n_jobs=2).fit(*load_data())
    print("finished")
