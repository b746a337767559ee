"""Functional models replay their graphs."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish as keras


def test_the_training_flag_of_a_call_overrides_that_of_a_node() -> None:
    # As in Keras, which writes "training": true for its random layers.
    source = keras.Input((50,))
    model = keras.Model(source, keras.layers.Dropout(0.5)(source, training=True))
    x = np.ones((2, 50), "float32")
    np.testing.assert_array_equal(model.predict(x, verbose=0), x)
    np.testing.assert_array_equal(model(x, training=False).numpy(), x)
    assert (model(x).numpy() != x).any()
    assert (model(x, training=True).numpy() != x).any()


class Blend(keras.Operation):
    def __init__(self, share, *, floor=0.0, name=None):
        super().__init__(name)
        self.share, self.floor = share, floor

    def call(self, x, y):
        return keras.ops.maximum(self.share * x + (1 - self.share) * y, self.floor)


def test_operations_of_one_s_own_know_their_arguments():
    created = Blend(0.25, name="mix")
    assert created.get_config() == {"share": 0.25, "floor": 0.0, "name": "mix"}
    again = Blend.from_config(created.get_config())
    assert float(again(4.0, 8.0)) == 7.0
    with pytest.raises(NotImplementedError, match="get_config"):
        Blend(object()).get_config()


class Total(keras.Operation):
    def __init__(self, *shares):
        super().__init__()
        self.shares = shares


def test_operations_of_any_number_of_arguments_write_their_config():
    with pytest.raises(NotImplementedError, match="shares"):
        Total(1.0, 2.0).get_config()


def test_functions_want_outputs_and_inputs_that_fit():
    x, y = keras.KerasTensor((2, None)), keras.KerasTensor((2, None))
    with pytest.raises(ValueError, match="one output"):
        keras.Function(x, [])
    both = keras.Function([x, y], x + y)
    one = np.ones((2, 3), "float32")
    assert both([one, one]).numpy().sum() == 12.0
    for wrong in (one, [one], [one, one[:1]], [one[None], one]):
        with pytest.raises(ValueError, match="expected"):
            both(wrong)


def test_a_function_takes_nested_lists_of_numbers():
    x = keras.Input((3,))
    double = keras.Function(x, x * 2)
    np.testing.assert_array_equal(double([[1.0, 2.0, 3.0]]), [[2, 4, 6]])
    np.testing.assert_array_equal(double(((1, 2, 3), (4, 5, 6))), [[2, 4, 6], [8, 10, 12]])
    with pytest.raises(ValueError, match=r"got \[\(1, 2\)\]"):
        double([[1.0, 2.0]])


class _Named(keras.Model):
    """A functional model with a constructor of its own."""

    def __init__(self, **options):
        x = keras.Input((3,))
        super().__init__(x, x * 2.0 + 1.0, **options)


def _functional():
    x = keras.Input((3,))
    return keras.Model(x, x * 2.0 + 1.0, name="inner")


def _sequential():
    return keras.Sequential([keras.Input((3,)), keras.layers.Rescaling(2.0, 1.0)], name="inner")


@pytest.mark.parametrize(
    ("make", "first"),
    [
        (_functional, 1),
        (_Named, 1),
        (_sequential, 0),
        (lambda: keras.layers.Rescaling(2.0, 1.0), 0),
    ],
)
def test_the_outputs_of_a_config_number_calls_as_keras_does(make, first):
    """Keras counts the construction of a functional model as its first call, but of no other."""
    inner = make()
    a, b = keras.Input((3,)), keras.Input((3,))
    model = keras.Model([a, b], [inner(a), inner(b)])
    config = model.get_config()
    assert config["output_layers"] == [[inner.name, first + i, 0] for i in (0, 1)]
    again = keras.Model.from_config(config, custom_objects={"_Named": _Named})
    assert again.get_config()["output_layers"] == config["output_layers"]
    x, y = np.ones((1, 3), "float32"), np.full((1, 3), 5.0, "float32")
    for expected, got in zip(model([x, y]), again([x, y]), strict=True):
        np.testing.assert_array_equal(expected, got)
