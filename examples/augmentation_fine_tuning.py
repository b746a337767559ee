"""Image augmentation and fine-tuning: learn from few images
=========================================================

A network that knows some shapes learns new ones from ten images each; augmented images help.

Labels are often few. Two methods make the most of them. Fine-tuning starts with a network that has
learned from many other images. Data augmentation shows each image in ever new versions: turned,
moved, zoomed, with other colors. Here both are tried, separately and together.
Shows: augmentation layers in a Dataset, weights of a file, freezing and unfreezing, a learning rate
for each phase.

Run: python examples/augmentation_fine_tuning.py [picture.png]
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
from kerasish import layers

keras.utils.set_random_seed(0)
SIZE = 32

# %%
# Images
# ------
# Generated shapes in color, on a background of another color with noise. A shape is a set of points
# of the plane; its outline is given by a distance from the center for each direction.

rng = np.random.default_rng(0)
OUTLINES = {  # distance from the center in a direction (an angle); 1 is the largest
    "circle": lambda a: np.full_like(a, 0.8),
    "square": lambda a: 0.75 / np.maximum(abs(np.cos(a)), abs(np.sin(a))),
    "star": lambda a: 0.65 + 0.35 * np.cos(5 * a),
    "flower": lambda a: 0.75 + 0.25 * np.cos(8 * a),
    "triangle": lambda a: 0.5 / np.cos((a + np.pi / 2) % (2 * np.pi / 3) - np.pi / 3),
    "cross": lambda a: np.minimum(1, 0.3 / np.minimum(abs(np.cos(a)), abs(np.sin(a)))),
    # The new ones:
    "ellipse": lambda a: 0.5 / np.sqrt(np.cos(a) ** 2 + 0.25 * np.sin(a) ** 2) * 0.95,
    "hexagon": lambda a: 0.8 * np.cos(np.pi / 6) / np.cos(a % (np.pi / 3) - np.pi / 6),
    "clover": lambda a: 0.65 + 0.35 * np.cos(3 * a),
    "pacman": lambda a: np.where(abs(np.angle(np.exp(1j * a))) < 0.6, 0.0, 0.85),
}
KNOWN, NEW = list(OUTLINES)[:6], list(OUTLINES)[6:]
rows, columns = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2


def make_image(shape: str, turn: float, shift: float) -> np.ndarray:
    """Return an image (32, 32, 3) with values 0 to 255."""
    r, c = rows - rng.uniform(-shift, shift), columns - rng.uniform(-shift, shift)
    angle, distance = np.arctan2(r, c) - rng.uniform(-turn, turn), np.hypot(r, c)
    inside = distance < rng.uniform(8, 13) * OUTLINES[shape](angle)
    front, back = rng.uniform(0, 255, (2, 3))
    while np.abs(front - back).mean() < 60:  # colors that differ clearly
        front, back = rng.uniform(0, 255, (2, 3))
    image = np.where(inside[..., None], front, back)
    return np.clip(image + rng.normal(scale=10, size=image.shape), 0, 255).astype("float32")


def make_data(shapes: list[str], count: int, turn: float, shift: float) -> tuple:
    """Return images and labels, `count` of each shape."""
    images = [make_image(shape, turn, shift) for _ in range(count) for shape in shapes]
    return np.stack(images), np.tile(np.arange(len(shapes)), count)


# %%
# Pretraining
# -----------
# A network learns six shapes from 2,400 images, and saves the weights of its convolutions. (The
# networks of `kerasish.applications` are used in the same way: `weights="imagenet"` downloads
# theirs.)


def make_base() -> keras.Model:
    """Return the part that turns images into 64 features."""
    base = keras.Sequential([keras.Input((SIZE, SIZE, 3)), layers.Rescaling(1 / 127.5, offset=-1)])
    for filters in (16, 32, 64, 64):
        base.add(layers.Conv2D(filters, 3, padding="same", use_bias=False))
        base.add(layers.BatchNormalization(momentum=0.9))
        base.add(layers.ReLU())
        base.add(layers.MaxPooling2D())
    base.add(layers.GlobalMaxPooling2D())
    return base


def add_head(base: keras.Model, classes: int) -> keras.Model:
    return keras.Sequential([base, layers.Dense(classes, activation="softmax")])


def train(
    model: keras.Model, data: keras.data.Dataset, rate: float, epochs: int, **options
) -> dict:
    """Train, and return the values of each epoch."""
    model.compile(
        keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model.fit(data, epochs=epochs, verbose=0, **options).history


base = make_base()
known = keras.data.Dataset.from_tensor_slices(make_data(KNOWN, 400, np.pi, 5))
history = train(add_head(base, len(KNOWN)), known.shuffle(4000, seed=0).batch(32), 0.003, 8)
print(f"pretraining on {', '.join(KNOWN)}: accuracy {history['accuracy'][-1]:.3f}")
folder = tempfile.TemporaryDirectory()
path = str(Path(folder.name) / "pretrained.weights.h5")
base.save_weights(path)

# %%
# Few images of new shapes
# ------------------------
# Ten images of each new shape, all upright and in the middle. In the test they come turned and
# moved.

few, few_labels = make_data(NEW, 10, turn=0.1, shift=1)
test, test_labels = make_data(NEW, 100, turn=np.pi, shift=5)

# %%
# Augmentation
# ------------
# The layers draw new numbers for each image of each batch, while the data is read. What they do
# must keep the label: a turned hexagon is a hexagon, but a turned 6 is a 9. `training=True` says
# that they should change images at all; without it they return their input.

augment = keras.layers.Pipeline(
    [
        layers.RandomRotation(0.5, fill_mode="nearest", seed=1),
        layers.RandomTranslation(0.15, 0.15, fill_mode="nearest", seed=2),
        layers.RandomZoom(0.15, fill_mode="nearest", seed=3),
        layers.RandomHue(0.5, value_range=(0, 255), seed=4),
    ]
)
plain = keras.data.Dataset.from_tensor_slices((few, few_labels)).shuffle(40, seed=0).batch(8)
augmented = plain.map(lambda images, labels: (augment(images, training=True), labels))

# %%
# Four ways to learn
# ------------------
# With pretrained weights, the base is frozen first and the new last layer is trained: its weights
# are random, and their gradients would destroy what the base knows. Then everything is trained, at
# a tenth of the rate. Without them, everything is trained from the start.

curves = {}
for data, word in ((plain, ""), (augmented, ", augmented")):
    for name, phases in (
        ("from scratch", [(True, 0.003, 120)]),
        ("fine-tuned", [(False, 0.01, 40), (True, 0.001, 80)]),
    ):  # fmt: skip
        keras.utils.set_random_seed(1)
        base = make_base()
        if name == "fine-tuned":
            base.load_weights(path)
        model = add_head(base, len(NEW))
        curves[name + word] = curve = []
        for trainable, rate, epochs in phases:
            base.trainable = trainable
            checks = {"validation_data": (test, test_labels), "validation_freq": 10}
            curve += train(model, data, rate, epochs, **checks)["val_accuracy"]
print("accuracy on turned and moved images of new shapes:")
for name, curve in curves.items():
    print(f"  {name:<24} {curve[-1]:.3f}")

# %%
# The picture
# -----------
# Above, what the network gets to see of one image per shape, and what the test shows. Below, the
# accuracy on the test images during the training. Without augmentation the network never sees a
# shape turned; without pretraining it does not know what an outline is. Each method helps, and both
# together help most.

figure = plt.figure(figsize=(11, 6.4), layout="constrained")
top, bottom = figure.subfigures(2, 1, height_ratios=(1.3, 1))
axes = top.subplots(4, 12)
for label, line in enumerate(axes):
    image = few[few_labels == label][0]
    versions = [np.array(augment(image[None], training=True))[0] for _ in range(7)]
    shown = [image, *versions, *test[test_labels == label][:4]]
    for ax, one in zip(line, shown):
        ax.imshow(np.clip(one, 0, 255).astype("uint8"))
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(NEW[label])
axes[0, 0].set_title("image", fontsize=10)
axes[0, 4].set_title("augmented", fontsize=10)
axes[0, 9].set_title("      test images", fontsize=10)
ax = bottom.subplots()
for name, curve in curves.items():
    color = "tab:blue" if name.startswith("fine") else "tab:orange"
    ax.plot(
        range(10, 121, 10), curve, "-" if "augmented" in name else "--", color=color, label=name
    )
ax.set(xlabel="epoch", ylabel="accuracy on test images", ylim=(0, 1))
ax.legend(ncols=2, fontsize=9)

picture = sys.argv[1] if len(sys.argv) > 1 else "augmentation_fine_tuning.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
folder.cleanup()
