"""Random states are in files: a training that was saved continues with the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import kerasish as keras
from kerasish import layers

NAMES = ["a.keras", "folder", "a.h5", "a.weights.h5", "a.safetensors", "a.weights.json"]
X = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")


class Noisy(layers.Layer):
    """A layer with seed generators in a list, a dict and a layer inside."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.some = [keras.random.SeedGenerator(1), keras.random.SeedGenerator()]
        self.inner = {"a": layers.Dropout(0.5)}
        self.shared = self.some[0]

    def call(self, x: Any, training: Any = None) -> Any:
        for seed in self.some:
            x = x + keras.random.normal((4,), seed=seed)
        return self.inner["a"](x, training=training)


def make() -> Any:
    model = keras.Sequential([
        keras.Input((4,)), layers.Dense(4), layers.Dropout(0.5), layers.GaussianNoise(0.3),
        keras.Sequential([layers.AlphaDropout(0.2), layers.Dense(4)]), Noisy(), layers.Dense(1),
    ])  # fmt: skip
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def save(model: Any, path: Path) -> None:
    if path.name == "folder":
        model.save(path, zipped=False)
    elif path.name == "a.weights.json":
        model.save_weights(path, max_shard_size=1)
    elif path.name in ("a.keras", "a.h5"):
        model.save(path)
    else:
        model.save_weights(path)


def load(path: Path) -> Any:
    if path.name in ("a.keras", "a.h5", "folder"):
        return keras.saving.load_model(path, custom_objects={"Noisy": Noisy})
    model = make()
    model.load_weights(path)
    return model


def train(model: Any) -> list[Any]:
    model.fit(X, X[:, :1], epochs=2, batch_size=8, shuffle=False, verbose=0)
    return [v.numpy() for v in model.variables]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_and_loaded_trains_on_with_the_same_numbers(
    name: str, tmp_path: Path
) -> None:
    model, path = make(), tmp_path / name
    train(model)
    save(model, path)
    result = load(path)
    for a, b in zip(train(model), train(result), strict=True):
        np.testing.assert_array_equal(a, b)


def test_files_without_random_states_leave_them_as_they_are(tmp_path: Path) -> None:
    model, path = make(), tmp_path / "a.weights.h5"
    train(model)
    model.save_weights(path)
    with h5py.File(path, "a") as file:
        groups: list[str] = []
        file.visit(lambda name: groups.append(name) if name.endswith("seed_generators") else None)
        assert len(groups) == 5
        for name in groups:
            del file[name]
    result = make()
    before = result.layers[1].seed_generator.state.numpy()
    result.load_weights(path)
    np.testing.assert_array_equal(result.layers[1].seed_generator.state.numpy(), before)
    np.testing.assert_array_equal(result.weights[0].numpy(), model.weights[0].numpy())


@pytest.mark.parametrize("wrong", [np.zeros(3, "uint32"), np.zeros((), "uint32")])
def test_random_states_of_another_shape_are_left_out_with_a_warning(
    wrong: Any, tmp_path: Path
) -> None:
    model, path = make(), tmp_path / "a.weights.h5"
    model.save_weights(path)
    with h5py.File(path, "a") as file:
        del file["layers/dropout/seed_generators/0"]
        file["layers/dropout/seed_generators/0"] = wrong
    result = make()
    with pytest.warns(UserWarning, match="random states at 'layers/dropout/seed_generators'"):
        result.load_weights(path)
    np.testing.assert_array_equal(result.weights[0].numpy(), model.weights[0].numpy())
