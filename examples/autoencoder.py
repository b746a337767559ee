"""Autoencoder: compress handwritten digits to two numbers
=======================================================

An autoencoder squeezes handwritten digits into two numbers, and draws the map that this makes.

An encoder turns 64 pixels into 2 numbers, a decoder turns these back into pixels; both are trained
together to give back what came in. No labels are used: they only color the picture. The rival is
PCA, the best that straight lines can do.
Shows: models inside models, training without labels, using the parts by themselves.

Run: python examples/autoencoder.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib import pyplot as plt
from sklearn.decomposition import PCA

import kerasish as keras
from kerasish import layers


def make_parts() -> tuple[keras.Model, keras.Model]:
    encoder = keras.Sequential(
        [keras.Input((64,)), layers.Dense(128, "gelu"), layers.Dense(64, "gelu"),
         layers.Dense(2, activity_regularizer=keras.regularizers.L2(1e-3))],  # a compact map
        name="encoder",
    )  # fmt: skip
    decoder = keras.Sequential(
        [keras.Input((2,)), layers.Dense(64, "gelu"), layers.Dense(128, "gelu"),
         layers.Dense(64, "sigmoid")],
        name="decoder",
    )  # fmt: skip
    return encoder, decoder


def draw(
    encoder: keras.Model, decoder: keras.Model, x: np.ndarray, y: np.ndarray, picture: str
) -> None:
    """Draw where digits land, and what the decoder makes of a walk over the map."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    places = encoder.predict(x, verbose=0)
    points = left.scatter(*places.T, c=y, cmap="tab10", s=12)
    left.legend(*points.legend_elements(), title="digit", fontsize=8)
    left.set(title="Held-out digits on the map", xlabel="first number", ylabel="second number")
    low, high = np.quantile(places, [0.02, 0.98], axis=0)
    across, down = (np.linspace(a, b, 14) for a, b in zip(low, high))
    grid = np.array([(i, j) for j in down[::-1] for i in across], "float32")
    tiles = decoder.predict(grid, verbose=0).reshape(14, 14, 8, 8)
    right.imshow(tiles.transpose(0, 2, 1, 3).reshape(14 * 8, 14 * 8), cmap="gray_r")
    right.set_title("What the decoder draws there")
    right.axis("off")
    figure.savefig(picture, dpi=110)


def main(picture: str = "autoencoder.png") -> None:
    keras.utils.set_random_seed(0)
    (x, _), (x_test, y_test) = keras.datasets.digits.load_data()
    x, x_test = (a.reshape(-1, 64).astype("float32") / 16 for a in (x, x_test))
    encoder, decoder = make_parts()
    pixels = keras.Input((64,))
    model = keras.Model(pixels, decoder(encoder(pixels)))
    model.compile(keras.optimizers.Adam(0.002), "mse")
    model.fit(x, x, batch_size=32, epochs=120, verbose=0)

    error = model.evaluate(x_test, x_test, verbose=0)
    pca = PCA(2).fit(x)
    flat = pca.inverse_transform(pca.transform(x_test))
    print("mean squared error of held-out pixels, from two numbers a digit:")
    print(f"  PCA          {np.mean((flat - x_test) ** 2):.4f}")
    print(f"  autoencoder  {error:.4f}")
    draw(encoder, decoder, x_test, y_test, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
