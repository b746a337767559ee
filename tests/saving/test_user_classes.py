"""Classes of users: their configs, what holds them, and files that name them."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers, saving

X = np.random.RandomState(3).rand(2, 4).astype("float32")


@saving.register_keras_serializable(package="own")
class Scaled(layers.Layer):
    def __init__(self, size, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.size, self.factor = size, factor
        self.dense = layers.Dense(size, kernel_initializer="ones")

    def call(self, x):
        return self.dense(x) * self.factor

    def get_config(self):
        return dict(size=self.size, factor=self.factor, **super().get_config())


@saving.register_keras_serializable(package="own")
class Named(layers.Dense):
    def __init__(self, *args, label="none", **kwargs):
        super().__init__(*args, **kwargs)
        self.label = label

    def get_config(self):
        return dict(label=self.label, **super().get_config())


@saving.register_keras_serializable(package="own")
class Circle(kerasish.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [layers.Dense(3)]
        self.blocks.append(self.blocks)

    def call(self, x):
        return self.blocks[0](x)


@saving.register_keras_serializable(package="own")
class OwnCompile(kerasish.Sequential):
    def compile(self, rate):
        super().compile(kerasish.optimizers.SGD(rate), "mse")


@saving.register_keras_serializable(package="own")
def thrice(x):
    return 3 * x


def test_a_get_config_of_ones_own_adds_to_what_every_layer_has():
    layer = Scaled(3, name="s")
    assert sorted(layer.get_config()) == ["dtype", "factor", "name", "size", "trainable"]
    again = Scaled.from_config(layer.get_config())
    assert (again.size, again.factor, again.name) == (3, 2.0, "s")


def test_a_get_config_of_ones_own_adds_to_what_a_known_layer_has():
    layer = Named(3, activation="relu", label="top", name="n")
    config = layer.get_config()
    assert (config["units"], config["activation"], config["label"]) == (3, "relu", "top")
    again = Named.from_config(config)
    assert again.get_config() == config


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_models_of_own_layers_come_back(name, tmp_path):
    x = kerasish.Input((4,))
    model = kerasish.Model(x, Named(2, label="b")(Scaled(3)(x)))
    model.save(tmp_path / name)
    again = saving.load_model(tmp_path / name)
    assert again.layers[2].label == "b"
    np.testing.assert_allclose(again(X), model(X), rtol=1e-6)


def test_a_list_may_hold_itself(tmp_path):
    model = Circle()
    before = model(X)
    assert len(model.weights) == 2
    model.save(tmp_path / "circle.keras")
    np.testing.assert_allclose(saving.load_model(tmp_path / "circle.keras")(X), before, rtol=1e-6)


def test_a_compile_of_ones_own_is_left_to_the_user(tmp_path):
    model = OwnCompile([layers.Input((4,)), layers.Dense(1)])
    model.compile(0.5)
    model.save(tmp_path / "own.keras")
    with pytest.warns(kerasish.errors.AdviceWarning, match="its own compile\\(\\)"):
        again = saving.load_model(tmp_path / "own.keras")
    assert not again.compiled
    np.testing.assert_allclose(again(X), model(X), rtol=1e-6)


def test_functions_of_older_files_have_no_package():
    config = {"module": "builtins", "class_name": "function", "registered_name": "function"}
    assert saving.deserialize_keras_object({**config, "config": "thrice"}) is thrice
    assert saving.deserialize_keras_object({**config, "config": "own>thrice"}) is thrice


def test_a_sequential_of_no_layers_says_so():
    layer = {"class_name": "Dense", "module": "keras.layers", "config": {"units": 4}}
    config = {"name": "s", "layers": [layer, {}]}
    with pytest.raises(ValueError, match="takes a layer"):
        kerasish.Sequential.from_config(config)


def test_files_that_are_not_there():
    with pytest.raises(ValueError, match="there is no file"):
        saving.load_model("nowhere.keras")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        kerasish.Sequential([layers.Input((2,)), layers.Dense(1)]).load_weights("no.weights.h5")
