"""Custom training step: adversarial training
==========================================

A train_step of one's own: a network that learns from the pictures that fool it.

Every network can be fooled: change each pixel a little, in the direction in which the loss grows,
and it misreads digits that look the same to us (Goodfellow et al., Explaining and Harnessing
Adversarial Examples, 2015). The model below makes such pictures in every training step, with a
GradientTape around its own input, and learns from both kinds.
Shows: overriding train_step, gradients with respect to inputs, metrics in such a step. fit, its
callbacks and the compiled step stay as they are.

Run: python examples/custom_train_step.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers, ops

LITTLE = 0.15  # the most that a pixel is changed; pixels are 0 to 1


class Wary(keras.Model):
    """Learns from pictures as they are, and as they would fool it most."""

    def __init__(self, network: keras.Model) -> None:
        super().__init__()
        self.network = network

    def call(self, x, training=False):
        return self.network(x, training=training)

    def train_step(self, data):
        x, y = data
        fooling = fool(self.network, x, y)
        with keras.GradientTape() as tape:
            loss = 0.5 * (
                self.compute_loss(x, y, self(x, training=True))
                + self.compute_loss(x, y, self(fooling, training=True))
            )
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, self(x))
        return {metric.name: metric.result() for metric in self.metrics}


def fool(network: keras.Model, x, y):
    """Return x, each pixel moved by LITTLE in the direction in which the loss grows."""
    x = ops.convert_to_tensor(x)
    with keras.GradientTape() as tape:
        tape.watch(x)
        loss = ops.mean(keras.losses.sparse_categorical_crossentropy(y, network(x)))
    return ops.clip(x + LITTLE * ops.sign(tape.gradient(loss, x)), 0.0, 1.0)


def make_network() -> keras.Model:
    return keras.Sequential(
        [keras.Input((8, 8, 1)), layers.Conv2D(32, 3, activation="relu"),
         layers.Conv2D(32, 3, activation="relu"), layers.Flatten(),
         layers.Dense(64, activation="relu"), layers.Dense(10, activation="softmax")]
    )  # fmt: skip


def draw(rows: list[tuple[str, np.ndarray, np.ndarray]], picture: str) -> None:
    figure, axes = plt.subplots(len(rows), 10, figsize=(10, 1.35 * len(rows)), layout="constrained")
    for (title, pictures, read), line in zip(rows, axes):
        for digit, (ax, shown, result) in enumerate(zip(line, pictures, read)):
            ax.imshow(shown[..., 0], cmap="gray_r", vmin=0, vmax=1)
            color = "black" if result == digit else "crimson"
            ax.set_title(f"read {result}", fontsize=8, color=color)
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(title, fontsize=8)
    figure.suptitle("Digits before and after small changes that are to fool a network")
    figure.savefig(picture, dpi=110)


def main(picture: str = "custom_train_step.png") -> None:
    keras.utils.set_random_seed(0)
    (x, y), (x_test, y_test) = keras.datasets.digits.load_data()
    x, x_test = (a[..., None].astype("float32") / 16 for a in (x, x_test))
    first = np.array([np.flatnonzero(y_test == digit)[0] for digit in range(10)])
    print(f"share of held-out digits read rightly, and with pixels moved by {LITTLE}:")
    rows = []
    for name, wrap in (("ordinary", lambda network: network), ("wary", Wary)):
        network = make_network()
        model = wrap(network)
        model.compile(
            keras.optimizers.Adam(0.002), "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
        model.fit(x, y, epochs=15, verbose=0)
        fooling = ops.convert_to_numpy(fool(network, x_test, y_test))
        plain, moved = (network.predict(a, verbose=0).argmax(1) for a in (x_test, fooling))
        print(f"  {name:<9} {np.mean(plain == y_test):.3f}   {np.mean(moved == y_test):.3f}")
        rows.append((f"original,\n{name} network", x_test[first], plain[first]))
        rows.append((f"changed,\n{name} network", fooling[first], moved[first]))
    draw(rows, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
