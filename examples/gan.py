"""GAN: generate handwritten digits with a conditional generative adversarial network
==================================================================================

Two networks play against each other: one draws digits, the other tells them from real ones.

The generator turns noise and a requested digit into an image. The discriminator gets images with
their digits and says which ones are real (Goodfellow et al., 2014; Mirza and Osindero, 2014, for
the condition). Each learns from the other. At the end the generator draws any digit on demand.
Shows: a model of two networks, train_step with two optimizers, GradientTape, compile with more
arguments, custom metrics, judging generated images by a classifier.

Run: python examples/gan.py [picture.png]
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
NOISE = 32

# %%
# The data
# --------
# Digits of 8 x 8 pixels, as rows of 64 numbers from -1 to 1, and their classes as one-hot rows.

(x, y), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = (a.reshape(-1, 64).astype("float32") / 8 - 1 for a in (x, x_test))
labels = np.eye(10, dtype="float32")[y]

# %%
# The two networks
# ----------------
# Both get the digit next to their other input. The discriminator ends without an activation; a
# positive number means "real". Its dropout keeps it from learning the few real images by heart.

generator = keras.Sequential(
    [
        keras.Input((NOISE + 10,)),
        layers.Dense(128),
        layers.BatchNormalization(momentum=0.9),
        layers.LeakyReLU(0.2),
        layers.Dense(128),
        layers.BatchNormalization(momentum=0.9),
        layers.LeakyReLU(0.2),
        layers.Dense(64, activation="tanh"),
    ],
    name="generator",
)
discriminator = keras.Sequential(
    [
        keras.Input((64 + 10,)),
        layers.Dense(128),
        layers.LeakyReLU(0.2),
        layers.Dropout(0.4),
        layers.Dense(128),
        layers.LeakyReLU(0.2),
        layers.Dropout(0.4),
        layers.Dense(1),
    ],
    name="discriminator",
)

# %%
# The training step
# -----------------
# `fit` calls `train_step` with each batch. First the discriminator learns from real and generated
# images. Then the generator learns from what the discriminator says of new images: the gradient
# flows through the discriminator, but only the generator's weights are changed. Labels of 0.9
# instead of 1 keep the discriminator from being too sure.


class GAN(keras.Model):
    """A generator and a discriminator, trained together."""

    def __init__(self, generator: keras.Model, discriminator: keras.Model) -> None:
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        self.seeds = keras.random.SeedGenerator(1)
        self.loss_of_generator = keras.metrics.Mean("generator")
        self.loss_of_discriminator = keras.metrics.Mean("discriminator")

    def compile(self, optimizers, loss):
        super().compile()
        self.optimizer_of_generator, self.optimizer_of_discriminator = optimizers
        self.judge = loss

    def call(self, digits):
        """Return images of the requested digits (one-hot rows)."""
        noise = keras.random.normal((ops.shape(digits)[0], NOISE), seed=self.seeds)
        return self.generator(ops.concatenate([noise, digits], axis=1), training=False)

    def draw(self, digits):
        noise = keras.random.normal((ops.shape(digits)[0], NOISE), seed=self.seeds)
        return self.generator(ops.concatenate([noise, digits], axis=1), training=True)

    def train_step(self, data):
        images, digits = data
        ones = ops.ones((ops.shape(images)[0], 1))

        drawn = self.draw(digits)
        both = ops.concatenate([images, drawn], axis=0)
        inputs = ops.concatenate([both, ops.concatenate([digits, digits], axis=0)], axis=1)
        labels = ops.concatenate([0.9 * ones, 0 * ones], axis=0)
        with keras.GradientTape() as tape:
            loss = self.judge(labels, self.discriminator(inputs, training=True))
        weights = self.discriminator.trainable_variables
        self.optimizer_of_discriminator.apply(tape.gradient(loss, weights), weights)
        self.loss_of_discriminator.update_state(loss)

        with keras.GradientTape() as tape:
            inputs = ops.concatenate([self.draw(digits), digits], axis=1)
            loss = self.judge(ones, self.discriminator(inputs, training=True))
        weights = self.generator.trainable_variables
        self.optimizer_of_generator.apply(tape.gradient(loss, weights), weights)
        self.loss_of_generator.update_state(loss)
        losses = self.loss_of_generator, self.loss_of_discriminator
        return {loss.name: loss.result() for loss in losses}


# %%
# Training
# --------
# The same noise is drawn from time to time, to show how the digits take shape. In a GAN the losses
# say little: when both networks get better, they stay as they are.

gan = GAN(generator, discriminator)
gan.compile(
    [keras.optimizers.Adam(0.001, beta_1=0.5), keras.optimizers.Adam(0.001, beta_1=0.5)],
    keras.losses.BinaryCrossentropy(from_logits=True),
)
noise = np.random.default_rng(0).normal(size=(10, NOISE))
fixed = np.concatenate([noise, np.eye(10)], axis=1).astype("float32")
shown = {0: generator.predict(fixed, verbose=0)}
done = 0
for epochs in (5, 10, 20, 40, 80, 140, 200):
    history = gan.fit(
        x, labels, batch_size=64, initial_epoch=done, epochs=epochs, verbose=0
    ).history
    losses = ", ".join(f"{name} {values[-1]:.2f}" for name, values in history.items())
    print(f"after {epochs:>3} epochs, losses: {losses}")
    shown[epochs] = generator.predict(fixed, verbose=0)
    done = epochs

# %%
# How good are they?
# ------------------
# A classifier, trained on the real images, reads 1,000 generated ones. If it sees the requested
# digit, the image can be read. How much the images of a digit differ from each other (their
# standard deviation) is compared with that of real ones: a generator that draws one image per
# digit would also be read well.

classifier = keras.Sequential([layers.Dense(128, activation="relu"), layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
classifier.compile("adam", loss, metrics=["accuracy"])
classifier.fit(x, y, epochs=20, verbose=0)
asked = np.repeat(np.arange(10), 100)
drawn = gan.predict(np.eye(10, dtype="float32")[asked], verbose=0)
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
# On the left, the same noise at different times of the training. On the right, more digits than a
# person wrote: a column for each digit, and different noise in each row.


def tile(images: np.ndarray, rows: int) -> np.ndarray:
    """Return images (rows * columns, 64) as one, with margins."""
    images = np.pad(images.reshape(rows, -1, 8, 8), [(0, 0), (0, 0), (1, 1), (1, 1)],
                    constant_values=-1)  # fmt: skip
    return images.transpose(0, 2, 1, 3).reshape(rows * 10, -1)


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.9), layout="constrained")
left.imshow(tile(np.concatenate(list(shown.values())), len(shown)), cmap="gray_r")
left.set_yticks([10 * i + 4.5 for i in range(len(shown))], list(shown))
left.set(title="The same noise during the training", xlabel="requested digit", ylabel="epochs")
right.imshow(
    tile(drawn.reshape(10, 100, 64)[:, : len(shown)].transpose(1, 0, 2), len(shown)), cmap="gray_r"
)
right.set(title="Generated digits", xlabel="requested digit", yticks=[])
for ax in (left, right):
    ax.set_xticks([10 * i + 4.5 for i in range(10)], list(range(10)))

picture = sys.argv[1] if len(sys.argv) > 1 else "gan.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
