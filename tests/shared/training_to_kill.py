"""A training that may be killed at any moment: run as a script, again and again, until it ends.

Its folder then holds `result.json`: digests of all that an uninterrupted run would have left.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np

import kerasish as keras

EPOCHS = {"static": 240, "eager": 30}
EPOCHS_OF_PIPELINES = 30  # whose rows pass through Python one by one


class Begun(keras.callbacks.Callback):
    """Reports that the training runs, at once or when compiled, to the process that kills it."""

    told = False

    def tell(self):
        if not self.told:
            self.told = True
            print("begun", flush=True)

    def on_epoch_begin(self, epoch, logs=None):
        if os.environ.get("TELL") == "at once":
            self.tell()

    def on_epoch_end(self, epoch, logs=None):
        self.tell()

    def on_train_end(self, logs=None):
        self.tell()


class Batches(keras.utils.PyDataset):
    """Batches drawn again each time by NumPy's shared generator, in an order that changes."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x) // 16

    def __getitem__(self, index):
        rows = slice(16 * index, 16 * index + 16)
        noise = np.random.normal(size=self.x[rows].shape)  # noqa: NPY002
        return self.x[rows] + 0.01 * noise, self.y[rows]


def pipeline(x, y):
    """Return batches through threads, a buffer that is refilled, and random draws."""
    rows = keras.data.Dataset.from_tensor_slices((x, y)).filter(lambda x, y: True)
    noisy = rows.shuffle(100).random_map(noise, num_parallel_calls=2)
    return noisy.batch(16, drop_remainder=True).prefetch(2)


def noise(draw, x, y):
    return x + 0.01 * draw.normal(size=x.shape).astype("float32"), y


def digest(arrays):
    result = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        result.update(f"{array.dtype}{array.shape}".encode())
        result.update(array.tobytes())
    return result.hexdigest()


def main(folder, mode, source):
    epochs = EPOCHS_OF_PIPELINES if source == "pipeline" else EPOCHS[keras.config.backend()]
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(410, 12)).astype("float32")
    y = (x[:, :3] + rng.normal(size=(410, 3))).argmax(axis=1)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(24, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, 200, 0.9)
    scheduled = source != "arrays"
    model.compile(keras.optimizers.Adam(rate if scheduled else 0.01), loss, metrics=["accuracy"])
    states = os.path.join(folder, "states")
    background = mode == "background"
    resume = keras.callbacks.Resume(states, every=1 if background else 7, background=background)
    resume.share = 1.0  # as many states as there can be
    best = os.path.join(folder, "checkpoints", "{epoch:03d}.weights.h5")
    csv = os.path.join(folder, "log.csv")
    callbacks = [
        Begun(),
        keras.callbacks.EarlyStopping("val_loss", patience=epochs - 15, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(
            best, save_best_only=True, save_weights_only=True, keep=2,
            background=background,
        ),
        keras.callbacks.CSVLogger(csv),
    ]  # fmt: skip
    if not scheduled:
        callbacks.append(
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.9, patience=3, cooldown=2)
        )
    kinds = {"dataset": Batches, "pipeline": pipeline}
    data = {"x": x[:352], "y": y[:352]}
    if scheduled:
        data = {"x": kinds[source](x[:352], y[:352])}
    history = model.fit(
        **data,
        batch_size=None if scheduled else 15,
        epochs=epochs,
        verbose=0,
        validation_data=(x[352:], y[352:]),
        callbacks=callbacks,
        resume=resume,
    )
    result = {
        "weights": digest(model.get_weights()),
        "optimizer": digest(np.asarray(v) for v in model.optimizer.variables),
        "seeds": digest(np.asarray(v) for v in model.variables),
        "next": keras.config.next_seed(),
        "history": history.history,
        "epochs": history.epoch,
        "csv": Path(csv).read_text(),
        "best": {name: digest_of(folder, name) for name in saved(folder)},
    }
    with open(os.path.join(folder, "result.json"), "w") as file:
        json.dump(result, file)


def saved(folder):
    names = os.listdir(os.path.join(folder, "checkpoints"))
    return sorted(name for name in names if not name.startswith("."))


def digest_of(folder, name):
    import h5py

    result = []
    with h5py.File(os.path.join(folder, "checkpoints", name)) as file:
        file.visititems(lambda _, item: result.append(item[()]) if hasattr(item, "dtype") else None)
    return digest(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
