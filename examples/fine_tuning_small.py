"""Fine-tuning with LoRA, and quantization to int8 and int4
========================================================

A large pretrained network is adapted to a task with few trained weights, and made small.

ConvNeXt has 28 million weights. Here LoRA adapts it to images of another kind (Hu et al., 2021): it
trains one weight in fifty and leaves the others as they are. Then the weights are rounded to 8 and
to 4 bits. A table says what that does to accuracy, size and speed.
Shows: kerasish.applications, weights of a file, freezing, enable_lora, quantize, files of quantized
models.

Run: python examples/fine_tuning_small.py [picture.png]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
folder = tempfile.TemporaryDirectory()
files = Path(folder.name)

# %%
# The images
# ----------
# The network learns from scanned digits, enlarged to 32 x 32 pixels. The new images come from
# another scanner: dark on light, with stripes and noise.

(x, y), (x_test, y_test) = keras.datasets.digits.load_data()


def enlarge(images: np.ndarray) -> np.ndarray:
    """Return images (count, 32, 32, 3) with values 0 to 255."""
    images = np.kron(images, np.ones((1, 4, 4)))[..., None] / 16 * 255
    return np.repeat(images, 3, axis=-1).astype("float32")


def scan(images: np.ndarray) -> np.ndarray:
    """Return the images as the other scanner sees them."""
    stripes = 60 * (np.arange(32) % 6 < 2)[:, None, None]
    noisy = 255 - 0.6 * images - stripes + rng.normal(scale=40, size=images.shape)
    return np.clip(noisy, 0, 255).astype("float32")


x, x_test = enlarge(x), enlarge(x_test)
new, new_test = scan(x), scan(x_test)

# %%
# A pretrained network
# --------------------
# Usually one takes `weights="imagenet"`. To need no download, the example trains a network for
# two epochs, and saves its weights to a file. From here on it starts as with any such file.


def make_base(weights: str | None = None) -> keras.Model:
    return keras.applications.ConvNeXtTiny(
        include_top=False, weights=weights, input_shape=(32, 32, 3), pooling="avg"
    )


def train(model: keras.Model, images, labels, rate: float, epochs: int) -> None:
    schedule = keras.optimizers.schedules.CosineDecay(rate, epochs * len(images) // 64)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(schedule), loss, metrics=["accuracy"])
    model.fit(images, labels, batch_size=64, epochs=epochs, verbose=0)


def accuracy(model: keras.Model, images) -> float:
    return float(np.mean(model.predict(images, verbose=0).argmax(-1) == y_test))


base = make_base()
model = keras.Sequential([base, layers.Dense(10)])
train(model, x, y, 0.001, 2)
print(f"pretrained, digits of its own scanner: {accuracy(model, x_test):.3f}")
print(f"pretrained, the other scanner:         {accuracy(model, new_test):.3f}")
base.save_weights(files / "pretrained.weights.h5")

# %%
# A new last layer
# ----------------
# The base is frozen, and a new last layer is trained: the features of the base do not suit the new
# images well.

base = make_base(str(files / "pretrained.weights.h5"))
base.trainable = False
model = keras.Sequential([base, layers.Dense(10)])
train(model, new, y, 0.005, 1)
print(f"new last layer only: {accuracy(model, new_test):.3f}")

# %%
# LoRA
# ----
# `enable_lora(8)` leaves a layer's kernel as it is, and adds the product of two matrices of rank 8,
# which are trained. Nearly all weights of ConvNeXt are in its dense layers. A frozen base is made
# trainable again first; then everything but LoRA's matrices is frozen.

base.trainable = True
for layer in base.layers:
    if isinstance(layer, layers.Dense):
        layer.enable_lora(8)
    else:
        layer.trainable = False
trained = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
print(f"LoRA trains {trained:,} of {model.count_params():,} weights")
train(model, new, y, 0.005, 2)
print(f"with LoRA: {accuracy(model, new_test):.3f}")
model.save_weights(files / "tuned.weights.h5")

# %%
# Quantization
# ------------
# The file holds each kernel with the product of its LoRA matrices added, so it is loaded into an
# ordinary model. `quantize` rounds the kernels of the dense layers. Saved models hold them so, and
# compute with them after loading.

rows = []
for kind in ("float32", "int8", "int4"):
    model = keras.Sequential([make_base(), layers.Dense(10)])
    model.load_weights(files / "tuned.weights.h5")
    if kind != "float32":
        model.quantize(kind)
    model.save(files / f"{kind}.keras")
    model = keras.models.load_model(files / f"{kind}.keras")
    score = accuracy(model, new_test)
    seconds = []
    for _ in range(12):
        start = time.perf_counter()
        model.predict_on_batch(new_test[:1])
        seconds.append(time.perf_counter() - start)
    kib = (files / f"{kind}.keras").stat().st_size / 1024
    rows.append((kind, score, kib, 1000 * np.median(seconds)))
print("          accuracy  file in KiB  milliseconds per image")
for kind, score, kib, milliseconds in rows:
    print(f"{kind:<9} {score:8.3f} {kib:12.0f} {milliseconds:23.1f}")

# %%
# The picture
# -----------
# Images of both scanners, and the table as bars. The milliseconds depend on the processor: int8 is
# fast where there are instructions for it, such as VNNI.

figure = plt.figure(figsize=(11, 4.6), layout="constrained")
top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.5))
axes = top.subplots(2, 10)
for title, images, line in (("pretraining", x_test, axes[0]), ("new scanner", new_test, axes[1])):
    for image, ax in zip(images, line):
        ax.imshow(image.astype("uint8"))
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(title, fontsize=9)
kinds, *columns = zip(*rows)
columns[1] = [kib / 1024 for kib in columns[1]]
colors = ["tab:blue", "tab:orange", "tab:green"]
titles = ("accuracy", "size of the file in MiB", "milliseconds per image")
for ax, title, values in zip(bottom.subplots(1, 3), titles, columns):
    bars = ax.bar(kinds, values, color=colors)
    ax.bar_label(bars, fmt="{:.3f}" if title == "accuracy" else "{:.1f}")
    ax.set_title(title, fontsize=10)
    ax.margins(y=0.2)

picture = sys.argv[1] if len(sys.argv) > 1 else "fine_tuning_small.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
folder.cleanup()
