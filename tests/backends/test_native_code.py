"""What the static engine has native code for, and what it says of the rest."""

from __future__ import annotations

import gc
import warnings
import weakref

import numpy as np
import pytest
from native_code import WITHOUT_NATIVE_CODE

import kerasish
from kerasish import backends, layers, ops
from kerasish.backends.static import engine
from kerasish.backends.static.lowering.slow_units import slow_units
from kerasish.backends.static.runtime import messages
from kerasish.ops.op import REGISTRY


def arrays_of(inputs):
    rng = np.random.default_rng(0)
    for x in inputs:
        x = x(rng) if callable(x) else x
        x = np.asarray(rng.normal(size=x) if isinstance(x, tuple) else x)
        yield x.astype("float32") if x.dtype == np.float64 else x


def slow_examples(op):
    """Return the names of slow units over all examples of an op."""
    result = []
    for inputs, attrs in op.examples:
        arrays = list(arrays_of(inputs))
        step = backends.get("static").compile(
            lambda *xs, a=attrs: op(list(xs), **a) if op.variadic else op(*xs, **a)
        )
        with np.errstate(all="ignore"):
            step(*arrays)
        units = [unit for created in step.executables() for unit in created.units]
        result += [unit.name for unit in slow_units(units)]
    return result


@pytest.mark.parametrize("name", WITHOUT_NATIVE_CODE)
def test_the_list_of_ops_without_native_code_is_up_to_date(name):
    """Other ops must be native: `test_static_every_op.py` checks each of their examples."""
    assert slow_examples(REGISTRY[name])


def test_no_op_of_one_element_each_is_without_native_code():
    kinds = {REGISTRY[name].kind for name in WITHOUT_NATIVE_CODE}
    assert not kinds & {"elementwise", "comparison", "logic", "bits", "random", "creation"}


# --- training steps -------------------------------------------------------------------------------


class Sorts(layers.Layer):
    """A layer whose op has no native code."""

    def call(self, x):
        return ops.sort(x, axis=-1)


def model_of(*parts):
    model = kerasish.Sequential([layers.Input((5,)), *parts, layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


def told(model, size=5):
    """Return the warnings of a short training."""
    x, y = np.ones((8, size), "float32"), np.ones((8, 2), "float32")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, batch_size=4, verbose=0)
    return [str(w.message) for w in caught if "no native code" in str(w.message)]


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch):
    monkeypatch.setattr(messages, "_warned", set())
    engine.COMPILED_PLANS.clear()


@pytest.mark.parametrize("kind", ["erfc", "cbrt", "i0", "i1"])
def test_rare_functions_keep_a_training_in_one_call(kind):
    function = REGISTRY[kind]
    model = model_of(layers.Dense(4), layers.Lambda(lambda x: function(x)))
    assert told(model) == []
    executable = model.training_program.step("train").executables()[0]
    assert executable.is_native and len(executable.parts) == 1


def test_a_slow_unit_is_named_once_for_each_structure():
    (text,) = told(model_of(layers.Dense(4), Sorts(name="sorter")))
    assert text.startswith("train sequential")
    assert "'argsort' (in sequential" in text and "sorter)" in text
    assert "before fit()" in text
    assert told(model_of(layers.Dense(4), Sorts(name="sorter"))) == []
    assert len(told(model_of(layers.Dense(3), Sorts(name="sorter")))) == 1


def test_native_steps_evaluations_and_other_levels_say_nothing(monkeypatch):
    assert told(model_of(layers.Dense(4, "relu"))) == []
    model = model_of(Sorts())
    x = np.ones((8, 5), "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(x, verbose=0)
        model.evaluate(x, np.ones((8, 2)), verbose=0)
    monkeypatch.setattr(kerasish.config._Settings, "optimize", "none")
    assert told(model) == []


class Loops(layers.Layer):
    """A layer with a loop in it."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, x):
        return ops.fori_loop(0, 20, lambda i, y: self.function(y), x)


def test_control_flow_is_exempt_and_its_bodies_are_not():
    assert told(model_of(Loops(ops.tanh))) == []
    (text,) = told(model_of(Loops(lambda y: ops.sort(y) * 0.5)))
    assert "'argsort'" in text and "loop" not in text.split("Each step")[0]


def test_what_is_kept_of_a_program_keeps_no_model():
    model = model_of(Loops(ops.tanh))
    told(model)
    gone = weakref.ref(model.layers[-1].kernel)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("shape", [(1, 10), (1, 1, 7), (1, 2), (3, 5)])
def test_the_largest_of_one_row(shape):
    """A last batch of one row with the metric accuracy stays native."""
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    step = backends.get("static").compile(
        lambda x: [ops.argmax(x, -1), ops.argmin(ops.exp(x), -1, keepdims=True) + 1]
    )
    for a in (x, np.zeros_like(x), np.where(x == x.max(), np.float32("nan"), x)):
        largest, least = (y.numpy() for y in step(a))
        np.testing.assert_array_equal(largest, a.argmax(-1))
        np.testing.assert_array_equal(least, np.exp(a).argmin(-1, keepdims=True) + 1)
    assert not slow_units(step.executables()[0].units)


@pytest.mark.parametrize("axis", [(0, 2), (0, 3), (1, 3), (0, 1, 3), (0, 2, 3), (-1, 0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_over_axes_apart(axis, keepdims):
    """As of a batch normalization over another axis than the last."""
    x = np.random.default_rng(0).normal(size=(3, 4, 5, 6)).astype("float32")
    whole = np.arange(360).reshape(3, 4, 5, 6).astype("int16") % 7
    step = backends.get("static").compile(
        lambda x, whole: [
            ops.sum(x, axis, keepdims=keepdims), ops.max(x, axis, keepdims=keepdims),
            ops.prod(x, axis, keepdims=keepdims), ops.sum(whole, axis, keepdims=keepdims),
            ops.any(whole > 5, axis, keepdims=keepdims), ops.sum(ops.exp(x), axis) * 2.0,
        ]
    )  # fmt: skip
    got = [y.numpy() for y in step(x, whole)]
    assert not slow_units(step.executables()[0].units)
    expected = [
        x.sum(axis, keepdims=keepdims, dtype="float64"), x.max(axis, keepdims=keepdims),
        x.prod(axis, keepdims=keepdims, dtype="float64"), whole.sum(axis, keepdims=keepdims),
        (whole > 5).any(axis, keepdims=keepdims), np.exp(x.astype("float64")).sum(axis) * 2,
    ]  # fmt: skip
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def test_a_batch_normalization_of_the_first_axis_is_native():
    model = kerasish.Sequential([
        layers.Input((3, 4, 4)), layers.BatchNormalization(axis=1), layers.Flatten(),
        layers.Dense(2),
    ])  # fmt: skip
    model.compile("sgd", "mse")
    model.train_on_batch(np.ones((8, 3, 4, 4), "float32"), np.ones((8, 2), "float32"))
    assert model.training_program.step("train").executables()[0].is_native
