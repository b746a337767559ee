"""Tabular data: binary classification of tumors
=============================================

A first network on a table of numbers: is a tumor malignant?

569 patients, 30 measured numbers each (scikit-learn's copy of the Wisconsin data; no download).
Shows: Sequential, a Normalization layer that learns the columns' scales, compile, fit with rows
kept apart for validation, early stopping, evaluate, predict.

Run: python examples/tabular.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib import pyplot as plt

import kerasish as keras
from kerasish import layers


def make_model(x: np.ndarray) -> keras.Model:
    scale = layers.Normalization()  # the columns' units differ by factors of 10,000
    scale.adapt(x)
    return keras.Sequential(
        [
            keras.Input((x.shape[1],)),
            scale,
            layers.Dense(16, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(1, activation="sigmoid"),  # the probability of label 1: benign
        ]
    )


def draw(history: dict[str, list[float]], benign: np.ndarray, y: np.ndarray, picture: str) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    left.plot(history["loss"], label="training (with dropout)")
    left.plot(history["val_loss"], label="validation")
    left.set(title="Loss", xlabel="epoch", yscale="log")
    left.legend()
    bins = np.linspace(0, 1, 21)
    right.hist([benign[y == 0], benign[y == 1]], bins, label=["malignant", "benign"], stacked=True)
    right.set(title="Held-out patients", xlabel="probability of 'benign'", ylabel="patients")
    right.legend()
    figure.savefig(picture, dpi=110)


def main(picture: str = "tabular.png") -> None:
    keras.utils.set_random_seed(0)
    (x, y), (x_test, y_test) = keras.datasets.breast_cancer.load_data()
    model = make_model(x)
    model.summary()
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    stop = keras.callbacks.EarlyStopping(patience=10, restore_best_weights=True)
    training = model.fit(
        x, y, batch_size=16, epochs=100, validation_split=0.2, callbacks=[stop], verbose=0
    )
    print(f"stopped after {len(training.epoch)} epochs")
    loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
    print(f"held-out patients: loss {loss:.3f}, accuracy {accuracy:.3f}")
    draw(training.history, model.predict(x_test, verbose=0)[:, 0], y_test, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
