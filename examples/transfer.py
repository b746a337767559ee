"""Transfer learning and fine-tuning with few images
=================================================

What a network has learned from many images helps it with images of another kind, of which there are
few.

A network learns the ten digits from 1,437 clean images. Then there is a second scanner. Its images
are pale, striped and noisy, and only three of each digit are labeled. Four ways are compared:
a network that learns from these 30 alone; the old one as it is; its convolutions, frozen, below a
new last layer; and all of it, trained further at a small rate.
Shows: using a part of a model in another one, get_weights and set_weights, trainable = False,
fine-tuning at a small rate.

Run: python examples/transfer.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

FEW, TURNS = 3, 5


def make_features() -> keras.Model:
    """Return the part that turns images into features."""
    return keras.Sequential(
        [keras.Input((8, 8, 1)), layers.Rescaling(1 / 16),
         layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(32, 3, activation="relu"),
         layers.MaxPooling2D(), layers.Flatten()],
        name="features",
    )  # fmt: skip


def add_head(features: keras.Model, rate: float) -> keras.Model:
    model = keras.Sequential(
        [features, layers.Dropout(0.3), layers.Dense(10, activation="softmax")]
    )
    model.compile(
        keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def scan_badly(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the images as the second scanner sees them."""
    stripes = 5 * (np.arange(8) % 3 == 0)[None, :, None, None]
    return (0.5 * x + stripes + rng.normal(scale=2.0, size=x.shape)).astype("float32")


def learn(model: keras.Model, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
    model.fit(x, y, batch_size=16, epochs=epochs, verbose=0)


def with_weights(weights: list[np.ndarray]) -> keras.Model:
    """Return new features with these weights."""
    features = make_features()
    features.set_weights(weights)
    return features


def draw(
    clean: np.ndarray, strange: np.ndarray, table: dict[str, list[float]], picture: str
) -> None:
    """Draw digits of both scanners, and the accuracies."""
    figure = plt.figure(figsize=(11, 3.6), layout="constrained")
    left, part = figure.subfigures(1, 2, width_ratios=(1, 1.2))
    right = part.subplots()
    axes = left.subplots(2, 5)
    for title, images, line in zip(("clean", "second scanner"), (clean, strange), axes):
        for image, ax in zip(images, line):
            ax.imshow(image[..., 0], cmap="gray_r")
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(title)
    left.suptitle("The same digits from both scanners", fontsize=12)
    names = list(table)[::-1]
    means, spreads = ([f(table[name]) for name in names] for f in (np.mean, np.std))
    right.barh(names, means, xerr=spreads, capsize=3)
    right.set(
        title=f"{FEW} labeled images of each digit to learn from", xlim=(0, 1),
        xlabel=f"accuracy on held-out images, mean and spread of {TURNS} draws",
    )  # fmt: skip
    figure.savefig(picture, dpi=110)


def main(picture: str = "transfer.png") -> None:
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    (x, y), (x_test, y_test) = keras.datasets.digits.load_data()
    x, x_test = x[..., None].astype("float32"), x_test[..., None].astype("float32")
    strange, strange_test = scan_badly(x, rng), scan_badly(x_test, rng)

    features = make_features()
    old = add_head(features, 0.003)
    learn(old, x, y, epochs=12)
    print(f"clean images, many of them: {old.evaluate(x_test, y_test, verbose=0)[1]:.3f}")

    table: dict[str, list[float]] = {}

    def judge(name: str, model: keras.Model) -> None:
        _, accuracy = model.evaluate(strange_test, y_test, verbose=0)
        table.setdefault(name, []).append(accuracy)

    for _ in range(TURNS):
        few = np.concatenate(
            [rng.choice(np.flatnonzero(y == digit), FEW, replace=False) for digit in range(10)]
        )
        judge("the old network as it is", old)

        fresh = add_head(make_features(), 0.003)
        learn(fresh, strange[few], y[few], epochs=60)
        judge("from the few alone", fresh)

        copy = with_weights(features.get_weights())
        copy.trainable = False
        model = add_head(copy, 0.003)
        learn(model, strange[few], y[few], epochs=60)
        judge("frozen, new last layer", model)

        copy = with_weights(features.get_weights())
        model = add_head(copy, 0.001)
        model.layers[-1].set_weights(old.layers[-1].get_weights())
        learn(model, strange[few], y[few], epochs=60)
        judge("all of it, small rate", model)

    print(f"second scanner, {FEW} of each digit to learn from, {TURNS} draws of these:")
    for name, result in table.items():
        print(f"  {name:<25} {np.mean(result):.3f} ± {np.std(result):.3f}")
    draw(x_test, strange_test, table, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
