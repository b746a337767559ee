"""Custom layer, loss, metric and callback: quantile regression
============================================================

A custom layer, loss, metric and callback: how sure may one be of a forecast?

The data scatter more on the right than on the left. Instead of one curve the network gives three: a
tenth of the points should be below the first, half of them below the second, nine tenths below the
third. The pinball loss demands that (Koenker and Bassett, Regression Quantiles, 1978).
Shows: add_weight, a Loss, a Metric with state, a Callback, and that all of them go into a file and
come back.

Run: python examples/custom_parts.py [picture.png]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers, ops

keras.utils.set_random_seed(0)
SHARES = (0.1, 0.5, 0.9)

# %%
# The data
# --------
# A sine, with noise that grows from left to right.


def make_data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (count, 1))
    y = np.sin(2 * x) + rng.normal(size=x.shape) * (0.1 + 0.15 * (x + 3))
    return x.astype("float32"), y.astype("float32")


x, y = make_data(1500, seed=0)
x_test, y_test = make_data(1000, seed=1)

# %%
# A layer
# -------
# `build` makes the weights once the shape of the input is known, `call` computes with `ops`. The
# config is the constructor's arguments; a registered class can be saved in a model's file.


@keras.saving.register_keras_serializable("examples")
class Bumps(layers.Layer):
    """exp(-(width * (x - center))**2) for centers and widths that are learned."""

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        spread = keras.initializers.RandomUniform(-3, 3)
        self.center = self.add_weight(name="center", shape=(self.units,), initializer=spread)
        self.width = self.add_weight(name="width", shape=(self.units,), initializer="ones")

    def call(self, x):
        return ops.exp(-ops.square(self.width * (x - self.center)))


# %%
# A loss
# ------
# It returns one number per row.


@keras.saving.register_keras_serializable("examples")
class Pinball(keras.losses.Loss):
    """share * (y - q) above the curve q, (1 - share) * (q - y) below it; the mean of all shares."""

    def __init__(self, shares=SHARES, name="pinball", **kwargs):
        super().__init__(name=name, **kwargs)
        self.shares = tuple(shares)

    def call(self, y, curves):
        above = y - curves  # (rows, 1) - (rows, shares)
        return ops.mean(ops.maximum(above * self.shares, above * (np.array(self.shares) - 1)), -1)

    def get_config(self):
        return {**super().get_config(), "shares": self.shares}


# %%
# A metric
# --------
# Its variables are set to zero before each epoch, `update_state` sees each batch.


@keras.saving.register_keras_serializable("examples")
class Coverage(keras.metrics.Metric):
    """The share of points between the first and the last curve."""

    def __init__(self, name="coverage", **kwargs):
        super().__init__(name=name, **kwargs)
        self.inside = self.add_variable((), "zeros", name="inside")
        self.seen = self.add_variable((), "zeros", name="seen")

    def update_state(self, y, curves, sample_weight=None):
        y = y[:, 0]
        inside = ops.logical_and(y > curves[:, 0], y < curves[:, -1])
        self.inside.assign_add(ops.sum(ops.cast(inside, "float32")))
        self.seen.assign_add(float(y.shape[0]))

    def result(self):
        return self.inside / ops.maximum(self.seen, 1.0)


# %%
# A callback
# ----------
# It keeps what the model predicts after some epochs, for the picture.


class Album(keras.callbacks.Callback):
    """Keeps the curves of some epochs."""

    def __init__(self, x: np.ndarray, epochs: tuple[int, ...]) -> None:
        super().__init__()
        self.x, self.epochs = x, epochs
        self.curves: dict[int, np.ndarray] = {}

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 in self.epochs:
            self.curves[epoch + 1] = self.model.predict(self.x, verbose=0)
            print(f"epoch {epoch + 1:>3}: loss {logs['loss']:.4f}, "
                  f"between the curves {logs['coverage']:.2f}")  # fmt: skip


# %%
# Training, and a file
# --------------------
# All four parts are used like those of kerasish. The saved model holds the layer and the
# loss by their registered names, and is read back without more being said.

model = keras.Sequential([keras.Input((1,)), Bumps(24), layers.Dense(len(SHARES))])
model.compile(keras.optimizers.Adam(0.01), Pinball(), metrics=[Coverage()])
album = Album(np.linspace(-3, 3, 200, dtype="float32")[:, None], epochs=(1, 10, 100))
model.fit(x, y, epochs=100, verbose=0, callbacks=[album])

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "quantiles.keras")
    model.save(path)
    again = keras.models.load_model(path)
below = np.mean(y_test < again.predict(x_test, verbose=0), axis=0)
print("new points below each curve, by the model read back from its file:")
for share, result in zip(SHARES, below):
    print(f"  expected {share:.2f}   measured {result:.2f}")

# %%
# The curves after 1, 10 and 100 epochs. Their distance follows the noise.

figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
for ax, (epoch, curves) in zip(axes, album.curves.items()):
    ax.scatter(x, y, s=4, color="gray", alpha=0.5)
    for curve, share in zip(curves.T, SHARES):
        ax.plot(album.x, curve, label=f"{share:.0%} are below")
    ax.set(title=f"epoch {epoch}", xlabel="x")
axes[0].set_ylabel("y")
axes[0].legend(loc="lower left", fontsize=8)
figure.suptitle("Curves below which a tenth, half and nine tenths of the points should be")

picture = sys.argv[1] if len(sys.argv) > 1 else "custom_parts.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
