"""Autoencoder: compress handwritten digits to two numbers
=======================================================

An autoencoder compresses digits to two numbers each; these numbers are a map of the digits.

An encoder turns 64 pixels into 2 numbers, a decoder turns these back into pixels. Both are trained
together to return their input. No labels are used: they only color the picture. The method is
compared with PCA, the best linear compression.
Shows: models inside models, training without labels, using the parts separately.

Run: python examples/autoencoder.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.decomposition import PCA

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

keras.utils.set_random_seed(0)
(x, _), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = (a.reshape(-1, 64).astype("float32") / 16 for a in (x, x_test))

# %%
# Encoder and decoder
# -------------------
# Each is a separate model. The regularizer of the two numbers keeps the map compact.

encoder = keras.Sequential(
    [
        keras.Input((64,)),
        layers.Dense(128, "gelu"),
        layers.Dense(64, "gelu"),
        layers.Dense(2, activity_regularizer=keras.regularizers.L2(1e-3)),
    ],
    name="encoder",
)
decoder = keras.Sequential(
    [
        keras.Input((2,)),
        layers.Dense(64, "gelu"),
        layers.Dense(128, "gelu"),
        layers.Dense(64, "sigmoid"),
    ],
    name="decoder",
)

# %%
# Training
# --------
# The autoencoder is the decoder applied to the encoder's result; its target is its input.

pixels = keras.Input((64,))
model = keras.Model(pixels, decoder(encoder(pixels)))
model.compile(keras.optimizers.Adam(0.002), "mse")
model.fit(x, x, batch_size=32, epochs=120, verbose=0)

error = model.evaluate(x_test, x_test, verbose=0)
pca = PCA(2).fit(x)
linear = pca.inverse_transform(pca.transform(x_test))
print("mean squared error of held-out pixels, from two numbers per digit:")
print(f"  PCA          {np.mean((linear - x_test) ** 2):.4f}")
print(f"  autoencoder  {error:.4f}")

# %%
# The map
# -------
# On the left, where the encoder puts held-out digits. On the right, what the decoder draws at the
# points of a grid over the same region. Each tile is centered at its point.

places = encoder.predict(x_test, verbose=0)
low, high = np.quantile(places, [0.02, 0.98], axis=0)
count = 12
across, up = (np.linspace(a, b, count) for a, b in zip(low, high))
grid = np.array([(i, j) for j in up for i in across], "float32")
tiles = decoder.predict(grid, verbose=0).reshape(count, count, 8, 8)
tiles = np.pad(tiles, [(0, 0), (0, 0), (1, 1), (1, 1)])  # a margin between neighbors
image = tiles[::-1].transpose(0, 2, 1, 3).reshape(count * 10, count * 10)
half = (high - low) / (count - 1) / 2  # a tile reaches half a step beyond its point
(left_end, bottom), (right_end, top) = low - half, high + half

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 6), layout="constrained")
points = left.scatter(*places.T, c=y_test, cmap="tab10", s=12)
left.legend(*points.legend_elements(), title="digit", fontsize=8)
left.set(
    title="Held-out digits on the map", xlabel="first number", ylabel="second number",
    xlim=(left_end, right_end), ylim=(bottom, top),
)  # fmt: skip
right.imshow(image, cmap="gray_r", extent=(left_end, right_end, bottom, top))
for ax in (left, right):
    ax.set_aspect((right_end - left_end) / (top - bottom))  # square, and so are the tiles
right.set(title="What the decoder draws there", xlabel="first number", ylabel="second number")

picture = sys.argv[1] if len(sys.argv) > 1 else "autoencoder.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
