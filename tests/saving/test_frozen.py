"""A layer frozen after the optimizer was built: what is saved continues as in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers

# Keras 3.15.1 with torch, after 3 steps, the first layer frozen, compiled with the same optimizer.
KERAS = {"adam": [1.0461, 1.0596, 1.0892, 1.1023], "sgd": [1.0616, 1.2310, 1.4242, 1.4582]}
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.1),
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
}


def make() -> Any:
    tanh = [layers.Dense(3, activation="tanh") for _ in range(2)]
    model = keras.Sequential([keras.Input((4,)), *tanh, layers.Dense(2)])
    random = np.random.default_rng(1)
    model.set_weights([random.normal(size=v.shape).astype("float32") / 2 for v in model.weights])
    return model


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(16, 4)), random.normal(size=(16, 2))
    return x.astype("float32"), y.astype("float32")


def step(model: Any) -> float:
    model.reset_metrics()
    return float(np.ravel(model.train_on_batch(*data()))[0])


@pytest.mark.parametrize("name", ["adam", "sgd"])
@pytest.mark.parametrize("ending", ["keras", "h5", "weights.h5"])
def test_it_goes_on_with_all_of_the_optimizer(name: str, ending: str, tmp_path: Path) -> None:
    model, path = make(), tmp_path / f"a.{ending}"
    optimizer = OPTIMIZERS[name]()
    model.compile(optimizer, keras.losses.MeanSquaredError())
    for _ in range(3):
        step(model)
    model.layers[0].trainable = False
    model.compile(optimizer, keras.losses.MeanSquaredError())
    if ending == "weights.h5":
        model.save_weights(path)
        result = make()
        result.layers[0].trainable = False
        result.compile(OPTIMIZERS[name](), keras.losses.MeanSquaredError())
        result.load_weights(path)
    else:
        model.save(path)
        result = keras.saving.load_model(path)
    assert len(result.optimizer.variables) == len(optimizer.variables)
    for a, b in zip(result.optimizer.variables, optimizer.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert len(result.trainable_variables) == 4
    frozen = result.layers[0].get_weights()
    losses = [step(result) for _ in range(4)]
    np.testing.assert_allclose(losses, KERAS[name], atol=1e-4)
    assert losses == [step(model) for _ in range(4)]
    for a, b in zip(frozen, result.layers[0].get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
