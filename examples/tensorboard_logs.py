"""TensorBoard: compare trainings, watch weights and learning rates
================================================================

The callback TensorBoard writes what happens in a training to files, which TensorBoard shows in a
browser.

Three trainings with different learning rates are written to a folder each. TensorBoard shows them
together, also while they run: `tensorboard --logdir logs`. The files are open to any program: this
example reads them back and draws its own picture.
Shows: callbacks.TensorBoard, histograms of weights, hyperparameters, reading event files.

Needs TensorBoard and the package that writes its files: pip install tensorboard tensorboardX
Run: python examples/tensorboard_logs.py [picture.png]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

try:
    import tensorboardX  # noqa: F401 (the callback writes with it)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit("This example writes and reads event files: pip install tensorboard tensorboardX")
try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

(x, y), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = (a.reshape(-1, 64).astype("float32") / 16 for a in (x, x_test))

# %%
# Training with the callback
# --------------------------
# Each run gets its own folder; its name is the name of its curves. `histogram_freq=1` writes
# the distribution of the weights after each epoch, `update_freq=10` the loss of every tenth batch.
# `hparams` are the settings by which TensorBoard's page HPARAMS compares runs.

folder = tempfile.TemporaryDirectory()  # your own logs go into a folder that stays, such as "logs"
logs = Path(folder.name)
RATES = {"rate 0.0003": 0.0003, "rate 0.003": 0.003, "rate 0.1": 0.1}
for name, rate in RATES.items():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(64, activation="relu", name="hidden"),
            layers.Dense(10, name="scores"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    board = keras.callbacks.TensorBoard(logs / name, histogram_freq=1, update_freq=10)
    board.hparams["learning_rate"] = rate
    model.fit(
        x, y, batch_size=32, epochs=20, validation_data=(x_test, y_test), verbose=0,
        callbacks=[board],
    )  # fmt: skip

# %%
# What is in the files
# --------------------
# A run has a folder for the training and one for the validation. `EventAccumulator` is
# TensorBoard's own reader.


def read(run: str, part: str) -> EventAccumulator:
    """Return the events of a run: `part` is "train" or "validation"."""
    events = EventAccumulator(str(logs / run / part), size_guidance={"histograms": 0})
    return events.Reload()


def curve(run: str, part: str, tag: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of a number that was written again and again."""
    points = read(run, part).Scalars(tag)
    return [point.step for point in points], [point.value for point in points]


tags = read("rate 0.003", "train").Tags()
print("numbers:   ", ", ".join(sorted(tags["scalars"])))
print("histograms:", ", ".join(sorted(tags["histograms"])))
print("highest validation accuracy, as the files say:")
for name in RATES:
    print(f"  {name:<12} {max(curve(name, 'validation', 'epoch_accuracy')[1]):.3f}")

# %%
# The picture
# -----------
# On the left and in the middle are the curves that TensorBoard shows on its page SCALARS. A low
# rate has not finished, a high one jumps. On the right is its page DISTRIBUTIONS: how the weights
# of the hidden layer spread with the epochs, as quantiles of the histograms.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for name in RATES:
    left.plot(*curve(name, "train", "batch_loss"), label=name, linewidth=1)
    epochs, accuracy = curve(name, "validation", "epoch_accuracy")
    middle.plot(np.add(epochs, 1), accuracy, label=name)
left.set(title="batch_loss", xlabel="batch", ylabel="loss", yscale="log")
middle.set(title="epoch_accuracy (validation)", xlabel="epoch", ylabel="accuracy")
middle.legend()

shares = (0.02, 0.16, 0.5, 0.84, 0.98)
events = read("rate 0.003", "train")
tag = next(tag for tag in tags["histograms"] if "hidden" in tag and "kernel" in tag)
epochs, bands = [], []
for event in events.Histograms(tag):
    counts, edges = event.histogram_value.bucket, event.histogram_value.bucket_limit
    epochs.append(event.step + 1)
    bands.append(np.interp(shares, np.cumsum(counts) / np.sum(counts), edges))
lowest, low, half, high, highest = np.transpose(bands)
right.fill_between(epochs, lowest, highest, color="tab:orange", alpha=0.25, label="96 %")
right.fill_between(epochs, low, high, color="tab:orange", alpha=0.5, label="68 %")
right.plot(epochs, half, color="tab:orange", label="median")
right.set(title="weights of the hidden layer (rate 0.003)", xlabel="epoch", ylabel="weight")
right.legend(loc="upper left")
print(f"spread of the hidden weights: {highest[0] - lowest[0]:.2f} after the first epoch, "
      f"{highest[-1] - lowest[-1]:.2f} after the last")  # fmt: skip

picture = sys.argv[1] if len(sys.argv) > 1 else "tensorboard_logs.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
folder.cleanup()
