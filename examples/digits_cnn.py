"""Image classification with a convolutional network (CNN)
=======================================================

A convolutional network reads handwritten digits, and shows those it was least sure of.

1,797 digits of 8 x 8 pixels (scikit-learn's; no download). Shows: convolution and pooling,
one output a class with softmax, integer labels, learning rate that falls, looking at mistakes.

Run: python examples/digits_cnn.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib import pyplot as plt

import kerasish as keras
from kerasish import layers


def make_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 16),  # the pixels are 0 to 16
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.4),
            layers.Dense(10, activation="softmax"),
        ]
    )


def draw(x: np.ndarray, y: np.ndarray, chances: np.ndarray, picture: str) -> None:
    """Draw the digits whose true class got the lowest probability."""
    right = chances[np.arange(len(y)), y]
    figure, axes = plt.subplots(3, 8, figsize=(10, 4.6), layout="constrained")
    for ax, i in zip(axes.flat, np.argsort(right)):
        ax.imshow(x[i, ..., 0], cmap="gray_r")
        guess = chances[i].argmax()
        ax.set_title(f"is {y[i]}, read {guess}\n({chances[i].max():.0%})", fontsize=9,
                     color="black" if guess == y[i] else "crimson")  # fmt: skip
        ax.axis("off")
    figure.savefig(picture, dpi=110)


def main(picture: str = "digits_cnn.png") -> None:
    keras.utils.set_random_seed(0)
    (x, y), (x_test, y_test) = keras.datasets.digits.load_data()
    x, x_test = x[..., None].astype("float32"), x_test[..., None].astype("float32")
    model = make_model()
    steps = 20 * (len(x) // 32)
    rate = keras.optimizers.schedules.CosineDecay(0.005, steps)
    model.compile(
        keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    model.fit(x, y, epochs=20, verbose=2)
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    print(f"held-out digits: accuracy {accuracy:.3f}")
    draw(x_test, y_test, model.predict(x_test, verbose=0), picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
