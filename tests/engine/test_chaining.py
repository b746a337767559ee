"""Layers and ops as methods of symbolic tensors, and default arguments for a block of layers."""

import copy
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers, ops
from kerasish.engine.layer import chaining


def test_a_model_written_as_a_chain_equals_one_of_layers():
    x = keras.Input((8, 8, 3))
    y = x.conv2d(4, 3, padding="same").relu().max_pooling2d().flatten().dense(5).softmax()
    model = keras.Model(x, y)
    assert [type(layer).__name__ for layer in model.layers[1:]] == [
        "Conv2D", "ReLU", "MaxPooling2D", "Flatten", "Dense", "Softmax",
    ]  # fmt: skip
    data = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    stack = keras.Sequential([keras.Input((8, 8, 3)), *model.layers[1:]])
    np.testing.assert_array_equal(model.predict(data, verbose=0), stack.predict(data, verbose=0))
    loaded = keras.Model.from_config(model.get_config())
    assert loaded.count_params() == model.count_params()


def test_ops_take_the_tensor_first():
    x = keras.Input((4,))
    y = x.tanh().add(x)
    model = keras.Model(x, [y, x.mean(axis=-1), x.layer_normalization(), x.reshape((-1, 2, 2))])
    data = np.ones((3, 4), "float32")
    first, mean, normal, shaped = model(data)
    np.testing.assert_allclose(first.numpy(), np.tanh(data) + data, rtol=1e-6)
    assert mean.shape == (3,) and normal.shape == (3, 4) and shaped.shape == (3, 2, 2)
    assert any(isinstance(layer, layers.LayerNormalization) for layer in model.layers)


def test_every_layer_and_op_is_found_by_the_name_it_is_listed_under():
    names = chaining.names()
    assert {"dense", "dropout", "batch_normalization", "softmax", "max_pooling2d", "mean",
            "einsum_dense", "lstm", "embedding", "gelu"} <= {*names}  # fmt: skip
    assert not {"shape", "size", "dtype", "zeros", "einsum", "cond"} & {*names}
    x = keras.Input((4,))
    for name in names:
        assert callable(getattr(x, name))


def test_no_method_answers_where_the_package_asks_what_a_value_is():
    """`hasattr(x, name)` of an unknown object must not become true of symbolic tensors."""
    package = Path(keras.__file__).parent
    asked = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r'hasattr\([^()]+, "([a-z_]+)"', path.read_text("utf-8"))
    }
    assert len(asked) > 30
    assert not {name for name in asked if chaining.find_method(name)} - {"activation"}


def test_other_names_are_attribute_errors():
    x = keras.Input((4,))
    with pytest.raises(AttributeError, match="'dens'.*similar names: dense"):
        x.dens(3)
    assert not hasattr(x, "__array_interface__") and not hasattr(x, "numpy")
    assert copy.copy(x).shape == copy.deepcopy(x).shape == (None, 4)


@keras.saving.register_keras_serializable("test_chaining")
class Gate(layers.Layer):
    def __init__(self, units, rate=1.0, **kwargs):
        super().__init__(**kwargs)
        self.units, self.rate = units, rate

    def call(self, x):
        return x * self.rate


class Wide(layers.Dense):
    def __init__(self, units, **kwargs):
        super().__init__(2 * units, **kwargs)


def test_defaults_reach_layers_and_what_is_given_wins():
    with keras.defaults(layers.Dense, activation="relu", kernel_initializer="ones"):
        with keras.defaults([layers.Dense, layers.Conv2D], activation="tanh"):
            inner, conv = layers.Dense(3), layers.Conv2D(2, 3)
            given, placed = layers.Dense(3, activation="gelu"), layers.Dense(3, None)
        outer, wide = layers.Dense(3), Wide(2)
    after = layers.Dense(3)
    names = [d.activation.__name__ for d in (inner, conv, given, placed, outer, wide, after)]
    assert names == ["tanh", "tanh", "gelu", "linear", "relu", "relu", "linear"]
    assert wide.units == 4
    np.testing.assert_array_equal(outer(np.ones((1, 2))).numpy(), [[2, 2, 2]])
    copied = layers.Dense.from_config(outer.get_config())
    assert copied.activation.__name__ == "relu"


def test_defaults_are_part_of_the_config_of_a_class_of_ones_own():
    with keras.defaults(Gate, rate=3.0, dtype="float64"):
        gate = Gate(2)
        saved = Gate.from_config(gate.get_config())
    assert gate.rate == saved.rate == 3.0 and gate.dtype == "float64"
    again = Gate.from_config(gate.get_config())
    assert again.rate == 3.0 and Gate(2).rate == 1.0


def test_defaults_hold_in_their_thread_alone_and_end_with_an_error():
    seen = []

    def fail():
        with keras.defaults(layers.Dense, use_bias=False):
            thread = threading.Thread(target=lambda: seen.append(layers.Dense(1).use_bias))
            thread.start()
            thread.join()
            seen.append(layers.Dense(1).use_bias)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [*seen, layers.Dense(1).use_bias] == [True, False, True]


def test_wrong_defaults():
    with pytest.raises(TypeError, match="activaton.*activation"):
        keras.defaults(layers.Dense, activaton="relu").__enter__()
    with pytest.raises(TypeError, match="expected layer classes, got"):
        keras.defaults(ops.mean, axis=1).__enter__()
