"""Diffusion model: generate handwritten digits by denoising
=========================================================

A network learns to remove noise from digits. Starting from pure noise, it then makes new digits.

An image is mixed with more and more noise, in 100 steps, until nothing of it is left. The network
gets a noisy image and its step, and estimates the noise (Ho et al., Denoising Diffusion
Probabilistic Models, 2020). To generate, the steps are gone backwards: from pure noise, a little of
the estimated noise is removed at a time. The network is also given the digit, so one can ask for
any.
Shows: noise that is drawn inside train_step, embeddings of a step's number, residual blocks, a
moving average of weights, a sampling loop, judging generated images by a classifier.

Run: python examples/diffusion.py [picture.png]
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
x, x_test = (a.reshape(-1, 64).astype("float32") / 8 - 1 for a in (x, x_test))

# %%
# The noise
# ---------
# `KEPT` is the share of an image's variance that is left after each step. It falls along a cosine
# (Nichol and Dhariwal, 2021). A noisy image is sqrt(kept) * image + sqrt(1 - kept) * noise.

STEPS = 100
angles = (np.arange(STEPS + 1) / STEPS + 0.008) / 1.008 * np.pi / 2
curve = np.cos(angles) ** 2
BETA = np.minimum(1 - curve[1:] / curve[:-1], 0.98).astype("float32")  # variance of a step's noise
KEPT = np.cumprod(1 - BETA).astype("float32")

# %%
# The network
# -----------
# Four residual blocks of dense layers. The number of the step and the digit are turned into vectors
# by embeddings, and are added in each block: how an image is cleaned depends on both.

WIDTH = 256
noisy = keras.Input((64,))
step = keras.Input((), dtype="int32")
digit = keras.Input((), dtype="int32")
about = layers.Embedding(STEPS, WIDTH)(step) + layers.Embedding(10, WIDTH)(digit)
hidden = layers.Dense(WIDTH)(noisy)
for _ in range(4):
    inner = layers.LayerNormalization()(hidden) + layers.Dense(WIDTH)(about)
    inner = layers.Dense(WIDTH, activation="silu")(layers.Activation("silu")(inner))
    hidden = hidden + layers.Dense(WIDTH)(inner)
estimate = layers.Dense(64)(layers.LayerNormalization()(hidden))
network = keras.Model([noisy, step, digit], estimate)

# %%
# The training step
# -----------------
# Each image of a batch gets a random step and random noise; the loss is the squared error of the
# estimated noise. `compute_loss` and the optimizer come from `compile`.


class Diffusion(keras.Model):
    """Trains a network to estimate noise."""

    def __init__(self, network: keras.Model) -> None:
        super().__init__()
        self.network = network
        self.seeds = keras.random.SeedGenerator(1)
        self.error = keras.metrics.Mean("error")

    def train_step(self, data):
        images, digits = data
        count = ops.shape(images)[0]
        steps = keras.random.randint((count,), 0, STEPS, seed=self.seeds)
        noise = keras.random.normal(ops.shape(images), seed=self.seeds)
        kept = ops.expand_dims(ops.take(KEPT, steps), -1)
        noisy = ops.sqrt(kept) * images + ops.sqrt(1 - kept) * noise
        with keras.GradientTape() as tape:
            estimate = self.network([noisy, steps, digits], training=True)
            loss = self.compute_loss(images, noise, estimate)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.error.update_state(loss)
        return {"error": self.error.result()}


# %%
# Training
# --------
# The optimizer keeps a moving average of the weights, and sets the weights to it at the end: the
# images become much cleaner than with the weights of the last step.

epochs = 150
model = Diffusion(network)
rate = keras.optimizers.schedules.CosineDecay(0.002, epochs * (len(x) // 64))
model.compile(keras.optimizers.Adam(rate, use_ema=True, ema_momentum=0.99), "mse")
errors = model.fit(x, y, batch_size=64, epochs=epochs, verbose=0).history["error"]
print(
    f"squared error of the estimated noise: {errors[0]:.2f} at first, {errors[-1]:.2f} at the end"
)

# %%
# Generating
# ----------
# From pure noise, backwards. The estimated noise gives an estimate of the image; a step goes a part
# of the way to it, and adds a little new noise.

rng = np.random.default_rng(0)


def generate(digits: np.ndarray) -> np.ndarray:
    """Return images (steps + 1, count, 64) of the requested digits, from noise to the result."""
    images = [rng.normal(size=(len(digits), 64)).astype("float32")]
    for step in range(STEPS - 1, -1, -1):
        steps = np.full(len(digits), step, "int32")
        noise = network.predict([images[-1], steps, digits], batch_size=500, verbose=0)
        kept, before = KEPT[step], KEPT[step - 1] if step else 1.0
        image = (images[-1] - np.sqrt(1 - kept) * noise) / np.sqrt(kept)
        image = np.clip(image, -1, 1)
        mean = np.sqrt(before) * BETA[step] / (1 - kept) * image
        mean += np.sqrt(1 - BETA[step]) * (1 - before) / (1 - kept) * images[-1]
        spread = np.sqrt(BETA[step] * (1 - before) / (1 - kept))
        images.append((mean + spread * rng.normal(size=mean.shape)).astype("float32"))
    return np.stack(images)


asked = np.repeat(np.arange(10, dtype="int32"), 50)
course = generate(asked)
drawn = course[-1]

# %%
# How good are they?
# ------------------
# A classifier that has learned from the real images reads the generated ones.

classifier = keras.Sequential([layers.Dense(128, activation="relu"), layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
classifier.compile("adam", loss, metrics=["accuracy"])
classifier.fit(x, y, epochs=20, verbose=0)
read = classifier.predict(drawn, verbose=0).argmax(1)
variety = {
    name: np.mean([images[digits == digit].std(0).mean() for digit in range(10)])
    for name, images, digits in (("real", x, y), ("generated", drawn, asked))
}
_, accuracy = classifier.evaluate(x_test, y_test, verbose=0)
print(f"real held-out digits, read correctly: {accuracy:.3f}")
print(f"generated digits, read as requested:  {np.mean(read == asked):.3f}")
print(f"variety of real digits:      {variety['real']:.2f}")
print(f"variety of generated digits: {variety['generated']:.2f}")

# %%
# On the left, one image of each digit on its course from noise. On the right, more results.


def tile(images: np.ndarray) -> np.ndarray:
    """Return images (rows, columns, 64) as one, with margins."""
    rows, columns, _ = images.shape
    images = np.pad(images.reshape(rows, columns, 8, 8), [(0, 0), (0, 0), (1, 1), (1, 1)],
                    constant_values=-1)  # fmt: skip
    return images.transpose(0, 2, 1, 3).reshape(rows * 10, columns * 10)


at = [0, 40, 60, 70, 80, 90, 95, 100]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.9), layout="constrained")
left.imshow(tile(course[at][:, ::50]), cmap="gray_r", vmin=-1, vmax=1)
left.set_yticks([10 * i + 4.5 for i in range(len(at))], at)
left.set(title="From noise to digits", xlabel="requested digit", ylabel="denoising steps")
results = drawn.reshape(10, 50, 64)[:, 1:9].transpose(1, 0, 2)
right.imshow(tile(results), cmap="gray_r", vmin=-1, vmax=1)
right.set(title="Generated digits", xlabel="requested digit", yticks=[])
for ax in (left, right):
    ax.set_xticks([10 * i + 4.5 for i in range(10)], list(range(10)))

picture = sys.argv[1] if len(sys.argv) > 1 else "diffusion.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
