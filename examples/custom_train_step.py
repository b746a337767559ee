"""Custom training step: adversarial training
==========================================

A custom train_step: a network that learns from the images that fool it.

Every network can be fooled: change each pixel a little, in the direction in which the loss grows,
and it misreads digits that look the same to us (Goodfellow et al., Explaining and Harnessing
Adversarial Examples, 2015). The model below makes such images in every training step, with a
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

keras.utils.set_random_seed(0)
(x, y), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = (a[..., None].astype("float32") / 16 for a in (x, x_test))

# %%
# Images that fool a network
# --------------------------
# The gradient of the loss with respect to the image says for each pixel in which direction it has
# to change to make the loss larger. All pixels, which are 0 to 1, are moved that way by the same
# small amount.

LITTLE = 0.15


def fool(network: keras.Model, x, y):
    """Return x, each pixel moved by LITTLE in the direction in which the loss grows."""
    x = ops.convert_to_tensor(x)
    with keras.GradientTape() as tape:
        tape.watch(x)
        loss = ops.mean(keras.losses.sparse_categorical_crossentropy(y, network(x)))
    return ops.clip(x + LITTLE * ops.sign(tape.gradient(loss, x)), 0.0, 1.0)


# %%
# The training step
# -----------------
# `fit` calls `train_step` with each batch. The loss is the mean of those of the images as they are
# and as they would fool the network most. The step is compiled as a whole, with both gradients.


class Robust(keras.Model):
    """Learns from images as they are, and as they would fool it most."""

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


# %%
# Training
# --------
# The same network is trained in the ordinary way and with the step above. Each is then shown the
# held-out digits, and these digits changed to fool it.


def make_network() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


first = np.array([np.flatnonzero(y_test == digit)[0] for digit in range(10)])
rows = []
print(f"share of held-out digits that are read correctly, and with pixels moved by {LITTLE}:")
for name in ("ordinary", "robust"):
    network = make_network()
    model = Robust(network) if name == "robust" else network
    model.compile(
        keras.optimizers.Adam(0.002), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    model.fit(x, y, epochs=15, verbose=0)
    fooling = ops.convert_to_numpy(fool(network, x_test, y_test))
    plain, moved = (network.predict(a, verbose=0).argmax(1) for a in (x_test, fooling))
    print(f"  {name:<9} {np.mean(plain == y_test):.3f}   {np.mean(moved == y_test):.3f}")
    rows.append((f"original,\n{name} network", x_test[first], plain[first]))
    rows.append((f"changed,\n{name} network", fooling[first], moved[first]))

# %%
# The first held-out image of each digit, before and after the changes, and what each network reads.
# Mistakes are red. The changes are easy to see on 8 x 8 pixels, but a person reads the digits
# still.

figure, axes = plt.subplots(4, 10, figsize=(10, 5.4), layout="constrained")
for (title, images, read), line in zip(rows, axes):
    for digit, (ax, image, result) in enumerate(zip(line, images, read)):
        ax.imshow(image[..., 0], cmap="gray_r", vmin=0, vmax=1)
        color = "black" if result == digit else "crimson"
        ax.set_title(f"read {result}", fontsize=8, color=color)
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(title, fontsize=8)
figure.suptitle("Digits before and after small changes that should fool a network")

picture = sys.argv[1] if len(sys.argv) > 1 else "custom_train_step.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
