"""Errors inside a layer's `call` name the layer; TraceErrors name the user's line."""

from __future__ import annotations

import re
import traceback

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers, ops
from kerasish.errors import NumberAskedError, ShapeError, TraceError
from kerasish.graph.trace import trace
from kerasish.ops.shapes import Spec

pytestmark = pytest.mark.usefixtures("engine")

X, Y = np.ones((4, 3), "float32"), np.ones((4, 3), "float32")


class OwnError(Exception):
    """An error of the user's, with arguments that are no text."""

    __slots__ = ()

    def __init__(self, code):
        super().__init__(code)


class Faulty(layers.Layer):
    """Fails when it is called for training, or always."""

    def __init__(self, error, always=False, **kwargs):
        super().__init__(**kwargs)
        self.error, self.always = error, always

    def call(self, inputs, scale=1.0, training=False):
        if training or self.always:
            raise self.error
        return inputs * scale


class Outer(layers.Layer):
    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def call(self, inputs):
        return self.inner(inputs, scale=2.0)


def shown(error):
    return "".join(traceback.format_exception(error))


def check(caught, error, name):
    """The error is the user's object, its frames are there, and one layer is named, once."""
    assert caught is error
    text = shown(caught)
    assert text.count("Exception encountered when calling") == 1
    assert f"Exception encountered when calling Faulty.call() of layer '{name}'." in text
    assert "Arguments received by Faulty.call():" in text
    assert re.search(r"inputs=Tensor\(shape=\((4|None), 3\), dtype=float32\)", text)
    assert "in call" in text and "raise self.error" in text


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("k"), OwnError(3), StopIteration(), TypeError()]
)
def test_a_call_names_the_layer(error):
    layer = Faulty(error, always=True, name="bad")
    with pytest.raises(type(error)) as caught:
        layer(X, scale=0.5)
    check(caught.value, error, "bad")
    assert "scale=0.5" in shown(caught.value) and "training=False" in shown(caught.value)
    assert caught.value.args == error.args


def test_nested_layers_are_named_once_the_innermost():
    error = RuntimeError("inside")
    layer = Outer(Faulty(error, always=True, name="bad"), name="outer")
    model = keras.Sequential([layer, layers.Dense(2)])
    with pytest.raises(RuntimeError) as caught:
        model(X)
    assert "scale=2.0" in shown(caught.value)
    check(caught.value, error, caught.value.failing_layer)
    assert caught.value.failing_layer.endswith("bad")


def test_fit_names_the_layer():
    error = ValueError("in training")
    model = keras.Sequential([keras.Input((3,)), layers.Dense(3), Faulty(error, name="bad")])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="in training") as caught:
        model.fit(X, Y, verbose=0)
    text = shown(caught.value)
    assert text.count("Exception encountered when calling Faulty.call()") == 1
    assert "training=True" in text


def test_building_a_graph_names_the_layer():
    error = ValueError("symbolic")
    with pytest.raises(ValueError, match="symbolic") as caught:
        Faulty(error, always=True, name="bad")(keras.Input((3,)))
    assert "Faulty.call() of layer 'bad'" in shown(caught.value)


def test_errors_of_ops_keep_their_text():
    class Sums(layers.Layer):
        def call(self, inputs):
            return inputs + ops.ones((7, 5))

    with pytest.raises(ShapeError) as caught:
        Sums()(X)
    assert not str(caught.value).startswith("Exception")
    assert "Sums.call()" in shown(caught.value)


def test_arguments_are_shown_in_a_few_words():
    class Many(layers.Layer):
        def call(self, inputs, extra=None):
            raise ValueError("no")

    class Hidden:
        def __repr__(self):
            raise AssertionError("no code of the user's runs")

    with pytest.raises(ValueError, match="no") as caught:
        Many()([X, X], extra={"a": Hidden(), "b": "t" * 200, "c": list(range(9))})
    text = caught.value.__notes__[0] if hasattr(caught.value, "__notes__") else str(caught.value)
    assert "inputs=[Tensor(shape=(4, 3), dtype=float32), Tensor(" in text
    assert "'a': Hidden" in text and "ttt..." in text and "... 9 in all" in text


# --- the user's line ------------------------------------------------------------------------------


def line_of(function, text):
    """Return " at file:line" of the line of a function that holds a text."""
    code = function.__code__
    with open(code.co_filename) as file:
        rows = file.read().split("\n")[code.co_firstlineno - 1 :]
    number = next(i for i, row in enumerate(rows) if text in row)
    return f" at {code.co_filename}:{code.co_firstlineno + number}"


def branches(x):
    return x if ops.sum(x) > 0 else -x  # asks


def counts(x):
    return x * float(ops.sum(x))  # asks


def converts(x):
    return np.sum(np.asarray(x))  # asks


def indexes(x):
    return x[int(ops.argmax(x[0, :3]))]  # asks


def numpy_function(x):
    return ops.sum(x) + np.maximum.reduce(x.numpy())  # asks


def makes_a_variable(x):
    return x * keras.Variable(x)  # asks


@pytest.mark.parametrize(
    "function",
    [branches, counts, converts, indexes, numpy_function],
    ids=lambda f: f.__name__,
)
def test_a_trace_error_names_the_users_line(function):
    with pytest.raises(NumberAskedError) as caught:
        trace(function, Spec((3, 3), "float32"))
    assert line_of(function, "# asks") in str(caught.value)


def test_a_variable_of_traced_numbers_names_the_users_line(engine):
    if engine == "eager":
        assert makes_a_variable(ops.ones((3, 3))) is not None
        return
    with pytest.raises(TraceError) as caught:
        keras.function(makes_a_variable)(X[:3])
    assert line_of(makes_a_variable, "# asks") in str(caught.value)


@pytest.mark.parametrize("function", [branches, counts, converts, indexes, numpy_function])
@pytest.mark.filterwarnings("ignore:.*op by op")
def test_a_function_may_read_numbers(function):
    compiled = keras.function(function)
    for x in (X[:3], -X[:3], X[1:4], X[:3]):
        np.testing.assert_allclose(compiled(x), function(ops.convert_to_tensor(x)), rtol=1e-6)


def test_a_layer_that_reads_numbers_predicts():
    class Asks(layers.Layer):
        def call(self, inputs):
            return inputs if ops.sum(inputs) > 0 else -inputs

    for model in (keras.Sequential([Asks()]), keras.Sequential([keras.Input((3,)), Asks()])):
        x = X[:, :3]
        for given in (x, -x):
            expected = given if given.sum() > 0 else -given
            np.testing.assert_array_equal(model.predict(given, verbose=0), expected)


def test_a_symbolic_tensor_names_the_users_line():
    def asks():
        return np.asarray(keras.Input((3,)))  # asks

    with pytest.raises(TraceError) as caught:
        asks()
    assert line_of(asks, "# asks") in str(caught.value)
