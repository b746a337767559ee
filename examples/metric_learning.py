"""Metric learning: image similarity search with a contrastive loss
================================================================

A network learns to place similar images close to each other, and finds images of classes it has
never seen.

A classifier knows only the classes of its training. Here a network turns each image into a vector
(an embedding) instead, and training moves the vectors of equal digits together and those of
different digits apart. It learns from the digits 0 to 6. Then it searches among the digits 7 to 9:
the nearest neighbors of an image should show the same digit.
Shows: a custom loss over all pairs of a batch, embeddings of length 1, nearest neighbors,
classes that are not in the training.

Run: python examples/metric_learning.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers, ops

keras.utils.set_random_seed(0)

# %%
# The data
# --------
# All images of 0 to 6 are for training, all of 7 to 9 for the test. Each is moved at random within
# a larger frame, and gets some noise: the distance of pixels does not see that a moved digit is the
# same. Training images turned by 90, 180 and 270 degrees count as separate digits. The more
# classes a network has to distinguish, the better its embeddings suit new ones.

rng = np.random.default_rng(0)
(x, y), (x_rest, y_rest) = keras.datasets.digits.load_data()
x, y = np.concatenate([x, x_rest]).astype("float32") / 16, np.concatenate([y, y_rest])


def scan(images: np.ndarray) -> np.ndarray:
    """Return images (count, 12, 12, 1), each moved at random, with noise."""
    result = np.zeros((len(images), 12, 12), "float32")
    for image, scanned in zip(images, result):
        row, column = rng.integers(0, 5, 2)
        scanned[row : row + 8, column : column + 8] = image
    return (result + rng.normal(scale=0.1, size=result.shape))[..., None].astype("float32")


known, new = y < 7, y >= 7
turned = np.concatenate([np.rot90(x[known], turns, axes=(1, 2)) for turns in range(4)])
classes = np.concatenate([y[known] + 10 * turns for turns in range(4)])
nine = classes == 26  # a 6 turned by 180 degrees is a 9, which is kept for the test
turned, classes = turned[~nine], classes[~nine]
train, train_labels = np.concatenate([scan(turned), scan(turned)]), np.tile(classes, 2)
test, test_labels = scan(x[new]), y[new]
print(f"{len(train):,} images of {len(np.unique(train_labels))} classes to learn from")

# %%
# The network and its loss
# ------------------------
# The embeddings have length 1, so the product of two is the cosine of their angle: 1 for equal
# directions. For each image (the anchor), a softmax over the cosines with all other images of the
# batch gives each a share. The loss is low if those with the same digit get all of it (supervised
# contrastive loss, Khosla et al., 2020). The temperature says how much the closest ones count.

network = keras.Sequential(
    [
        keras.Input((12, 12, 1)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Conv2D(128, 3, activation="relu"),
        layers.GlobalMaxPooling2D(),
        layers.Dense(32),
        layers.UnitNormalization(),
    ]
)


TEMPERATURE = 0.1


def contrastive_loss(labels, embeddings):
    """Return a loss for each image of a batch."""
    labels = ops.reshape(labels, (-1,))
    others = 1 - ops.eye(ops.shape(labels)[0])
    same = others * ops.cast(ops.equal(labels[:, None], labels[None, :]), "float32")
    cosines = ops.matmul(embeddings, ops.transpose(embeddings)) / TEMPERATURE
    shares = ops.log_softmax(ops.where(others > 0, cosines, -1e9), axis=1)
    return -ops.sum(same * shares, axis=1) / ops.maximum(ops.sum(same, axis=1), 1.0)


epochs = 12
rate = keras.optimizers.schedules.CosineDecay(0.002, epochs * len(train) // 128)
network.compile(keras.optimizers.Adam(rate), contrastive_loss)
fitted = network.fit(train, train_labels, batch_size=128, epochs=epochs, verbose=0)
losses = fitted.history["loss"]
print("contrastive loss: "
      f"{losses[0]:.3f} after the first epoch, {losses[-1]:.3f} after the last")  # fmt: skip

# %%
# Search
# ------
# Each test image asks for its five nearest neighbors among the others: by the embeddings, and by
# the pixels as they are.

NEIGHBORS = 5


def find(vectors: np.ndarray) -> np.ndarray:
    """Return the numbers of the nearest vectors of each vector, without itself."""
    search = NearestNeighbors(n_neighbors=NEIGHBORS + 1).fit(vectors)
    return search.kneighbors(vectors, return_distance=False)[:, 1:]


embeddings = network.predict(test, verbose=0)
found = {"pixels": find(test.reshape(len(test), -1)), "embeddings": find(embeddings)}
print("neighbors that show the same digit, of the digits 7 to 9 that were not in the training:")
for name, neighbors in found.items():
    print(f"  {name:<11} {np.mean(test_labels[neighbors] == test_labels[:, None]):.3f}")

# %%
# The map shows the embeddings of the new digits in the plane in which they differ most (PCA). On
# the right are images and their neighbors by pixels and by embeddings, other digits with red
# frames.

plane = PCA(2).fit_transform(embeddings)
figure = plt.figure(figsize=(12, 4.2), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(1, 1.5))
ax = left.subplots()
for digit in range(7, 10):
    ax.scatter(*plane[test_labels == digit].T, s=10, label=str(digit))
ax.legend(title="new digit", fontsize=9)
ax.set(title="Embeddings of digits not in the training", xticks=[], yticks=[], aspect="equal")

wrong = (test_labels[found["pixels"]] != test_labels[:, None]).sum(1)
asked = np.repeat(range(7, 10), 2)
queries = [rng.choice(np.flatnonzero((test_labels == d) & (wrong >= 2))) for d in asked]
axes = right.subplots(6, 2 * NEIGHBORS + 2)
for query, line in zip(queries, axes):
    columns = [query, *found["pixels"][query], None, *found["embeddings"][query]]
    for ax, i in zip(line, columns):
        ax.set(xticks=[], yticks=[])
        if i is None:
            ax.axis("off")
            continue
        ax.imshow(test[i, ..., 0], cmap="gray_r", vmin=0, vmax=1)
        color = "black" if test_labels[i] == test_labels[query] else "crimson"
        ax.spines[:].set(color=color, linewidth=1 if color == "black" else 3)
axes[0, 0].set_title("image", fontsize=10)
axes[0, 3].set_title("nearest by pixels", fontsize=10)
axes[0, 9].set_title("nearest by embeddings", fontsize=10)

picture = sys.argv[1] if len(sys.argv) > 1 else "metric_learning.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
