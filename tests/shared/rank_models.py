"""Small models and data for tests of data-parallel training, and the digest of a training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import kerasish as keras
from kerasish.optimizers.division import gathered
from kerasish.ranks import Sharding, current_group, set_sharding

L = keras.layers


def mlp() -> Any:
    return keras.Sequential(
        [keras.Input((20,)), L.Dense(32, activation="relu"), L.Dropout(0.3), L.Dense(10)]
    )


def smooth() -> Any:
    return keras.Sequential([keras.Input((20,)), L.Dense(16, activation="tanh"), L.Dense(10)])


def normalized() -> Any:
    return keras.Sequential(
        [keras.Input((20,)), L.Dense(16), L.BatchNormalization(), L.Activation("relu"), L.Dense(10)]
    )


def synchronized() -> Any:
    return keras.Sequential(
        [keras.Input((20,)), L.Dense(16), L.BatchNormalization(synchronized=True),
         L.Activation("tanh"), L.Dense(10)]
    )  # fmt: skip


def cnn() -> Any:
    return keras.Sequential(
        [keras.Input((20,)), L.Reshape((5, 4, 1)), L.Conv2D(8, 3, activation="relu"),
         L.Flatten(), L.Dropout(0.5), L.Dense(10)]
    )  # fmt: skip


def lstm() -> Any:
    return keras.Sequential([keras.Input((20,)), L.Reshape((5, 4)), L.LSTM(8), L.Dense(10)])


def transformer() -> Any:
    x = keras.Input((20,))
    y = L.Dense(8)(L.Reshape((5, 4))(x))
    y = L.LayerNormalization()(y + L.MultiHeadAttention(2, 4, dropout=0.1)(y, y))
    return keras.Model(x, L.Dense(10)(L.GlobalAveragePooling1D()(y)))


def wide() -> Any:
    """Its second kernel has more than 1 MB: its gradient is computed and summed in pieces."""
    return keras.Sequential(
        [keras.Input((20,)), L.Dense(515, activation="tanh"), L.Dense(515), L.Dense(10)]
    )


def joined() -> Any:
    x = keras.Input((20,))
    return keras.Model(x, L.Concatenate()([L.Dense(4)(x), L.Dense(6)(x)]))


MODELS: dict[str, Callable[[], Any]] = {
    f.__name__: f
    for f in (mlp, smooth, normalized, synchronized, cnn, lstm, transformer, wide, joined)
}


def data(rows: int = 200) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 20), dtype=np.float32)
    return x, rng.integers(0, 10, rows).astype("int32")


def compiled(name: str, **options: Any) -> Any:
    keras.utils.set_random_seed(5)
    model = MODELS[name]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": "adam", "loss": loss, "metrics": ["accuracy"], **options})
    return model


def digest(model: Any, history: Any) -> str:
    """Return a text that is equal for trainings of equal bits; all ranks call it together."""
    with gathered(model, "digest()", everywhere=True):
        variables = [*model.variables, *model.optimizer.undivided_variables]
        arrays = b"".join(np.asarray(v.numpy()).tobytes() for v in variables)
    return hashlib.sha256(arrays + repr(history.history).encode()).hexdigest()[:16]


def train(name: str, rows: int = 200, **fit: Any) -> str:
    model = compiled(name)
    x, y = data(rows)
    given = {"batch_size": 32, "epochs": 2, "verbose": 0, "validation_split": 0.25, **fit}
    return digest(model, model.fit(x, y, **given))


def use_shards(shards: int | None) -> None:
    """Cut batches into shards, spread over the ranks of the current group; None: do not cut."""
    set_sharding(None if shards is None else Sharding(current_group(), shards))


def greatest_difference(a: Sequence[Any], b: Sequence[Any]) -> float:
    """Return the greatest difference of two lists of arrays, relative to the largest number."""
    return max(
        float(np.max(np.abs(np.asarray(x) - np.asarray(y))) / max(np.max(np.abs(y)), 1e-30))
        for x, y in zip(a, b, strict=True)
    )
