"""Variational autoencoder (VAE): generate handwritten digits
==========================================================

A variational autoencoder learns a map of the digits from which new digits can be drawn.

An ordinary autoencoder places each image at a point and leaves gaps between them, where its decoder
was never trained. A variational one (Kingma and Welling, 2014) places each image as a small cloud,
and pulls all clouds towards a standard normal distribution. So every point drawn from that
distribution decodes to a digit. No labels are used: they only color the picture.
Shows: a layer that draws random numbers, add_loss, metrics of a model's parts, sampling.

Run: python examples/variational_autoencoder.py [picture.png]
"""

from __future__ import annotations

import sys
from statistics import NormalDist

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers, ops

keras.utils.set_random_seed(0)
(x, _), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = (a.reshape(-1, 64).astype("float32") / 16 for a in (x, x_test))

# %%
# The cloud of an image
# ---------------------
# The encoder gives a mean and the logarithm of a variance for each of two numbers. `Cloud` draws a
# point of that normal distribution. It adds the distance to the standard normal distribution (the
# Kullback-Leibler divergence) to the loss. Without training it returns the mean.


class Cloud(layers.Layer):
    """A point drawn from a normal distribution, whose mean and log-variance come in."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, inputs, training=False):
        mean, log_variance = inputs
        divergence = 0.5 * (ops.square(mean) + ops.exp(log_variance) - log_variance - 1)
        self.add_loss(ops.mean(ops.sum(divergence, axis=-1)))
        if not training:
            return mean
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + ops.exp(0.5 * log_variance) * noise


# %%
# Encoder and decoder
# -------------------

pixels = keras.Input((64,))
hidden = layers.Dense(256, "gelu")(pixels)
hidden = layers.Dense(128, "gelu")(hidden)
mean, log_variance = layers.Dense(2)(hidden), layers.Dense(2)(hidden)
encoder = keras.Model(pixels, mean)
decoder = keras.Sequential(
    [
        keras.Input((2,)),
        layers.Dense(128, "gelu"),
        layers.Dense(256, "gelu"),
        layers.Dense(64, "sigmoid"),
    ]
)
model = keras.Model(pixels, decoder(Cloud()([mean, log_variance])))

# %%
# Training
# --------
# The reconstruction's loss is the squared error of an image's 64 pixels, divided by twice the
# variance that a pixel is expected to have. A larger variance makes the divergence count more.

VARIANCE = 0.03


def reconstruction(image, drawn):
    return ops.sum(ops.square(image - drawn), axis=-1) / (2 * VARIANCE)


epochs = 150
rate = keras.optimizers.schedules.CosineDecay(0.003, epochs * len(x) // 64)
model.compile(keras.optimizers.Adam(rate), reconstruction, metrics=["mse"])
model.fit(x, x, batch_size=64, epochs=epochs, verbose=0)

loss, error = model.evaluate(x_test, x_test, verbose=0)
places = encoder.predict(x_test, verbose=0)
print(f"mean squared error of held-out pixels, from two numbers per digit: {error:.4f}")
print("held-out digits on the map, standard normal would be 0 and 1:")
print(f"  mean   {abs(places.mean()):.2f}")
print(f"  spread {places.std():.2f}")

# %%
# New digits
# ----------
# On the left, where the encoder places held-out digits. On the right, what the decoder draws at
# points that divide the standard normal distribution into equal parts. Neighboring digits blend
# into each other without gaps.

count = 15
quantiles = [NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)]
grid = np.array([(i, j) for j in quantiles[::-1] for i in quantiles], "float32")
tiles = decoder.predict(grid, verbose=0).reshape(count, count, 8, 8)
image = np.pad(tiles, [(0, 0), (0, 0), (1, 1), (1, 1)])  # a margin between neighbors
image = image.transpose(0, 2, 1, 3).reshape(count * 10, count * 10)

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 6), layout="constrained")
points = left.scatter(*places.T, c=y_test, cmap="tab10", s=14)
left.legend(*points.legend_elements(), title="digit", fontsize=8)
left.set(
    title="Held-out digits on the map", xlabel="first number", ylabel="second number",
    xlim=(-3, 3), ylim=(-3, 3), aspect="equal",
)  # fmt: skip
right.imshow(image, cmap="gray_r")
at = range(1, count, 3)
right.set_xticks([10 * i + 4.5 for i in at], [f"{quantiles[i]:.1f}" for i in at])
right.set_yticks([10 * i + 4.5 for i in at], [f"{quantiles[::-1][i]:.1f}" for i in at])
right.set(title="What the decoder draws there", xlabel="first number", ylabel="second number")

picture = sys.argv[1] if len(sys.argv) > 1 else "variational_autoencoder.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
