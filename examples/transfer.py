"""Transfer learning and fine-tuning with few images
=================================================

What a network has learned from many images helps it with images of another kind, of which there are
few.

A network learns the ten digits from 1,437 clean images. Then there is a second scanner. Its images
are pale, striped and noisy, and only three of each digit are labeled. Four ways are compared:
a network that learns only from these 30; the old one as it is; its convolutions, frozen, below a
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

keras.utils.set_random_seed(0)

# %%
# Two scanners
# ------------

rng = np.random.default_rng(0)
(x, y), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = x[..., None].astype("float32"), x_test[..., None].astype("float32")


def scan_badly(x: np.ndarray) -> np.ndarray:
    """Return the images as the second scanner sees them."""
    stripes = 5 * (np.arange(8) % 3 == 0)[None, :, None, None]
    return (0.5 * x + stripes + rng.normal(scale=2.0, size=x.shape)).astype("float32")


new, new_test = scan_badly(x), scan_badly(x_test)

# %%
# Features and a last layer
# -------------------------
# The convolutions are a separate model, which turns images into features. A classifier is this
# model with a last layer. So the features can be used in several classifiers.


def make_features(weights: list[np.ndarray] | None = None) -> keras.Model:
    """Return the convolutions, with weights that `get_weights` gave, or new ones."""
    features = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 16),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
        ]
    )
    if weights is not None:
        features.set_weights(weights)
    return features


def add_last_layer(features: keras.Model, rate: float) -> keras.Model:
    """Return a compiled classifier."""
    model = keras.Sequential([features, layers.Dropout(0.3), layers.Dense(10, "softmax")])
    model.compile(
        keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


# %%
# The old network
# ---------------

features = make_features()
old = add_last_layer(features, 0.003)
old.fit(x, y, batch_size=16, epochs=12, verbose=0)
known = features.get_weights()
print(f"clean images, many of them: {old.evaluate(x_test, y_test, verbose=0)[1]:.3f}")

# %%
# Four ways
# ---------
# With 30 images it matters which ones they are, so all is done for five draws. With
# `trainable = False` the features stay as they are, and only the last layer learns. The last way
# starts from the whole old network and trains all of it, at a third of the rate.

FEW, DRAWS = 3, 5
table: dict[str, list[float]] = {}
for _ in range(DRAWS):
    few = np.concatenate(
        [rng.choice(np.flatnonzero(y == digit), FEW, replace=False) for digit in range(10)]
    )
    few_only = add_last_layer(make_features(), 0.003)

    frozen = make_features(known)
    frozen.trainable = False
    new_last = add_last_layer(frozen, 0.003)

    tuned = add_last_layer(make_features(known), 0.001)
    tuned.layers[-1].set_weights(old.layers[-1].get_weights())

    ways = {
        "the old network as it is": old,
        "from the few images only": few_only,
        "frozen, new last layer": new_last,
        "all of it, small rate": tuned,
    }
    for name, model in ways.items():
        if model is not old:
            model.fit(new[few], y[few], batch_size=16, epochs=60, verbose=0)
        accuracy = model.evaluate(new_test, y_test, verbose=0)[1]
        table.setdefault(name, []).append(accuracy)

print(f"second scanner, {FEW} of each digit to learn from, {DRAWS} draws of these:")
for name, result in table.items():
    print(f"  {name:<25} {np.mean(result):.3f} ± {np.std(result):.3f}")

# %%
# The frozen features help a little: they were not made for stripes and noise. Trained further, they
# help most.

figure = plt.figure(figsize=(11, 3.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(1, 1.2))
axes = left.subplots(2, 5)
for title, images, line in zip(("clean", "second scanner"), (x_test, new_test), axes):
    for image, ax in zip(images, line):
        ax.imshow(image[..., 0], cmap="gray_r")
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(title)
left.suptitle("The same digits from both scanners", fontsize=12)
ax = right.subplots()
names = list(table)[::-1]
means, spreads = ([f(table[name]) for name in names] for f in (np.mean, np.std))
ax.barh(names, means, xerr=spreads, capsize=3)
ax.set(
    title=f"{FEW} labeled images of each digit to learn from", xlim=(0, 1),
    xlabel=f"accuracy on held-out images, mean and spread of {DRAWS} draws",
)  # fmt: skip

picture = sys.argv[1] if len(sys.argv) > 1 else "transfer.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
