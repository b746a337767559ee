"""Files of ours in Keras itself, where it is installed (extra `bench`)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("keras") is None or importlib.util.find_spec("jax") is None,
    reason="Keras with JAX is not installed (extra `bench`)",
)

_READ = """
import json, sys
import numpy as np
import keras
folder, names = sys.argv[1], sys.argv[2:]
found = {}
for name in names:
    z = np.load(f"{folder}/{name}.npz")
    model = keras.saving.load_model(f"{folder}/{name}.keras")
    worst = [float(np.abs(model.predict(z["x"], verbose=0) - z["p"]).max())]
    model.load_weights(f"{folder}/{name}.weights.h5")
    worst.append(float(np.abs(model.predict(z["x"], verbose=0) - z["p"]).max()))
    loss = float(np.ravel(model.train_on_batch(z["x"], z["y"]))[0])
    legacy = keras.saving.load_model(f"{folder}/{name}.h5", compile=False)
    worst.append(float(np.abs(legacy.predict(z["x"], verbose=0) - z["p"]).max()))
    found[name] = [max(worst), loss, float(z["loss"])]
print(json.dumps(found))
"""


def image() -> Any:
    return keras.Sequential([
        keras.Input((8, 8, 2)), layers.Conv2D(4, 3, activation="relu"),
        layers.BatchNormalization(), layers.MaxPooling2D(), layers.SeparableConv2D(3, 2),
        layers.Flatten(), layers.Dense(3, kernel_regularizer="l2", name="out"),
    ])  # fmt: skip


def text() -> Any:
    return keras.Sequential([
        keras.Input((7,), dtype="int32"), layers.Embedding(20, 6, mask_zero=True),
        layers.Bidirectional(layers.LSTM(4, return_sequences=True)), layers.GRU(5),
        layers.Dense(3),
    ])  # fmt: skip


def attention() -> Any:
    x = keras.Input((5, 8))
    y = layers.GroupQueryAttention(4, 4, 2)(x, x)
    # Keras does not read the ops of its own .h5 files: only layers here.
    y = layers.GlobalAveragePooling1D()(layers.GaussianNoise(1e-6)(y))
    return keras.Model(x, layers.Dense(3)(y))


def shared() -> Any:
    source = keras.Input((8, 8, 2))
    pooled = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(source))
    dense = layers.Dense(4)
    both = layers.Concatenate()([dense(pooled), dense(layers.Activation("tanh")(pooled))])
    inner = keras.Sequential([keras.Input((8,)), layers.Dense(4), layers.LayerNormalization()])
    return keras.Model(source, layers.Dense(3)(inner(both)))


def test_keras_reads_what_kerasish_writes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    makers = {"image": image, "text": text, "shared": shared, "attention": attention}
    optimizers = {
        "image": keras.optimizers.SGD(0.01, momentum=0.9),
        "text": keras.optimizers.Adam(clipnorm=1.0),
        "shared": keras.optimizers.RMSprop(0.001),
        "attention": keras.optimizers.SGD(0.01),
    }
    y = random.random((16, 3), "float32")
    for name, make in makers.items():
        x = random.random((16, 8, 8, 2), "float32")
        if name == "text":
            x = random.integers(1, 20, (16, 7)).astype("int32")
        if name == "attention":
            x = random.random((16, 5, 8), "float32")
        model = make()
        model.compile(optimizers[name], "mse")
        model.fit(x, y, epochs=2, verbose=0)
        for ending in ("keras", "h5"):
            model.save(tmp_path / f"{name}.{ending}")
        model.save_weights(tmp_path / f"{name}.weights.h5")
        p = model.predict(x, verbose=0)
        model.reset_metrics()
        loss = np.ravel(model.train_on_batch(x, y))[0]
        np.savez(tmp_path / f"{name}.npz", x=x, y=y, p=p, loss=loss)
    command = [sys.executable, "-c", _READ, str(tmp_path), *makers]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, (worst, loss, own) in json.loads(done.stdout.splitlines()[-1]).items():
        assert worst < 1e-5, name
        assert loss == pytest.approx(own, rel=1e-4), name
