"""Image segmentation with a U-Net: cell nuclei in microscope images
=================================================================

A U-Net decides for each pixel of an image whether it belongs to a nucleus.

The images are generated: blurred nuclei of different brightness on a background that is uneven and
noisy. So no single brightness separates nuclei from background. A U-Net (Ronneberger et al., 2015)
first halves the resolution twice, which lets it see a larger surrounding, and then goes back to
full resolution. Skip connections pass the details of the first half to the second.
Shows: Conv2D, Conv2DTranspose, skip connections, a loss for each pixel with an overlap term, IoU.

Run: python examples/segmentation_unet.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.ndimage import gaussian_filter

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

keras.utils.set_random_seed(0)
SIZE = 64

# %%
# Images and masks
# ----------------
# Up to 12 ellipses per image. The masks are the targets: 1 where a nucleus is.

rng = np.random.default_rng(0)
rows, columns = np.mgrid[:SIZE, :SIZE]


def make_image() -> tuple[np.ndarray, np.ndarray]:
    """Return an image (64, 64, 1) with values around 0 to 1, and its mask."""
    image, mask = np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE), bool)
    for _ in range(rng.integers(5, 13)):
        r, c = rng.uniform(2, SIZE - 2, 2)
        long, short, angle = rng.uniform(5, 8), rng.uniform(3, 5), rng.uniform(0, np.pi)
        along = (rows - r) * np.cos(angle) + (columns - c) * np.sin(angle)
        across = (columns - c) * np.cos(angle) - (rows - r) * np.sin(angle)
        inside = (along / long) ** 2 + (across / short) ** 2 < 1
        image[inside] = rng.uniform(0.35, 0.9)
        mask |= inside
    slope = rng.normal(size=2)
    background = (slope[0] * rows + slope[1] * columns) / SIZE
    background += 3 * gaussian_filter(rng.normal(size=mask.shape), 8)
    image = gaussian_filter(image, 1.0) + 0.4 * background
    image += rng.normal(scale=0.12, size=image.shape)
    return image[..., None].astype("float32"), mask[..., None].astype("float32")


x, y = map(np.stack, zip(*(make_image() for _ in range(360))))
x, y, x_test, y_test = x[:300], y[:300], x[300:], y[300:]

# %%
# The U-Net
# ---------
# Each step down doubles the channels, each step up halves them. The last layer gives a probability
# for each pixel.


def convolve(x, filters: int):
    """Two convolutions, each with batch normalization.

    The momentum is that of a short training: after 300 steps the usual 0.99 would still remember
    the first ones.
    """
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    return x


inputs = keras.Input((SIZE, SIZE, 1))
fine = convolve(inputs, 12)
middle = convolve(layers.MaxPooling2D()(fine), 24)
coarse = convolve(layers.MaxPooling2D()(middle), 48)
up = layers.Conv2DTranspose(24, 2, strides=2)(coarse)
up = convolve(layers.Concatenate()([up, middle]), 24)
up = layers.Conv2DTranspose(12, 2, strides=2)(up)
up = convolve(layers.Concatenate()([up, fine]), 12)
model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(up))
print(f"{model.count_params():,} weights")

# %%
# Training
# --------
# The cross-entropy counts each pixel by itself; the Dice loss counts the overlap of two areas,
# which does not get small only because most pixels are background. The IoU (intersection over
# union) is the area where prediction and truth agree, divided by the area of both together.

cross_entropy, dice = keras.losses.BinaryCrossentropy(), keras.losses.Dice()


def loss(mask, predicted):
    return cross_entropy(mask, predicted) + dice(mask, predicted)


iou = keras.metrics.BinaryIoU(target_class_ids=[1], threshold=0.5, name="iou")
epochs = 10
rate = keras.optimizers.schedules.CosineDecay(0.01, epochs * len(x) // 10)
model.compile(keras.optimizers.Adam(rate), loss, metrics=[iou])
model.fit(x, y, batch_size=10, epochs=epochs, verbose=2)

# %%
# Comparison with a threshold
# ---------------------------
# The rival calls everything a nucleus that is brighter than a threshold; it is given the best one.


def overlap(mask: np.ndarray, predicted: np.ndarray) -> float:
    """Return the IoU of two sets of pixels."""
    return float(np.sum((mask > 0) & predicted) / np.sum((mask > 0) | predicted))


smooth = gaussian_filter(x_test, (0, 1.5, 1.5, 0))
best = max(np.linspace(-0.5, 1.5, 101), key=lambda level: overlap(y_test, smooth > level))
predicted = model.predict(x_test, verbose=0) > 0.5
print("intersection over union on 60 held-out images:")
print(f"  best threshold {overlap(y_test, smooth > best):.3f}")
print(f"  U-Net          {overlap(y_test, predicted):.3f}")

# %%
# Five held-out images. Green pixels are found nuclei, red ones are false alarms, blue ones were
# missed.


def compare(mask: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return a picture (64, 64, 3) of where two masks agree."""
    picture = np.ones((*mask.shape, 3))
    picture[mask & predicted] = (0.45, 0.75, 0.45)
    picture[~mask & predicted] = (0.85, 0.2, 0.2)
    picture[mask & ~predicted] = (0.2, 0.4, 0.85)
    return picture


figure, axes = plt.subplots(4, 5, figsize=(10, 8.2), layout="constrained")
for column, line in enumerate(axes.T):
    mask = y_test[column, ..., 0] > 0
    line[0].imshow(x_test[column, ..., 0], cmap="gray")
    line[1].imshow(mask, cmap="gray_r")
    line[2].imshow(compare(mask, smooth[column, ..., 0] > best))
    line[3].imshow(compare(mask, predicted[column, ..., 0]))
    for ax in line:
        ax.set(xticks=[], yticks=[])
for ax, title in zip(axes[:, 0], ("image", "nuclei (truth)", "best threshold", "U-Net")):
    ax.set_ylabel(title)
figure.suptitle("Held-out images: found (green), false alarms (red), missed (blue)")

picture = sys.argv[1] if len(sys.argv) > 1 else "segmentation_unet.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
