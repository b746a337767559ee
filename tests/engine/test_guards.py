"""Python values behind compiled steps: what changes after compiling takes effect, or warns."""

from __future__ import annotations

import copy
import fractions
import functools
import random
import types

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, losses, ops, watched

pytestmark = pytest.mark.usefixtures("engine")

SCALE = 2.0
SETTINGS = types.SimpleNamespace(shift=0.0)
TABLE = {"a": 1.0}


class Scaled(layers.Layer):
    def __init__(self, beta=1.0, activation=None):
        super().__init__()
        self.beta, self.activation, self.parts = beta, activation or (lambda x: x), [1.0]
        self.table = np.ones(2, "float32")

    def call(self, x):
        self.latest = ops.shape(x)  # a result of the call, not a setting
        return self.activation(x) * self.beta * self.parts[0] * self.table


X = np.ones((3, 2), "float32")


def functional(layer):
    i = layers.Input((2,))
    return kerasish.Model(i, layer(i))


CHANGES = {
    "a number": lambda layer: setattr(layer, "beta", 5.0),
    "an activation": lambda layer: setattr(layer, "activation", ops.exp),
    "inside a list": lambda layer: layer.parts.__setitem__(0, 7.0),
    "inside an array": lambda layer: layer.table.__setitem__(0, 9.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_predict_and_evaluate_use_what_a_layer_holds_now(change):
    layer = Scaled()
    model = functional(layer)
    model.compile(loss="mse")
    for _ in range(2):
        expected = np.asarray(model(X))
        np.testing.assert_allclose(model.predict(X, verbose=0), expected)
        loss = model.evaluate(X, X, verbose=0)
        np.testing.assert_allclose(loss, np.mean((expected - X) ** 2), rtol=1e-6)
        CHANGES[change](layer)
    assert not np.allclose(expected, X)


def test_training_uses_what_layers_losses_and_optimizers_hold_now():
    def trained(changed_before):
        kerasish.utils.set_random_seed(1)
        loss, dropout = losses.Huber(delta=1.0), layers.Dropout(0.5, seed=1)
        optimizer = kerasish.optimizers.SGD(0.1)
        dense = layers.Dense(2, kernel_regularizer=kerasish.regularizers.L2(0.0))
        model = kerasish.Sequential([layers.Input((2,)), dense, dropout])
        model.compile(optimizer, loss)
        start = model.get_weights()

        def change():
            loss.delta = 0.1
            dropout.rate = 0.0
            optimizer.clipvalue = 1e-3
            dense.kernel_regularizer.l2 = 0.1

        if changed_before:
            change()
        model.fit(X, X, epochs=1, verbose=0)
        if not changed_before:
            change()
            model.set_weights(start)
            model.fit(X, X, epochs=1, verbose=0)
        return model.get_weights()

    for a, b in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_globals_and_closures_are_read_again(monkeypatch):
    offset = 1.0

    def helper(x):
        return x * SCALE + SETTINGS.shift + TABLE["a"]

    f = kerasish.function(lambda x: helper(x) + offset)

    def expected():
        return 3.0 * SCALE + SETTINGS.shift + TABLE["a"] + offset

    assert float(f(3.0)) == expected()
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert float(f(3.0)) == expected()
    monkeypatch.setattr(SETTINGS, "shift", 10.0)
    assert float(f(3.0)) == expected()
    monkeypatch.setitem(TABLE, "a", 100.0)
    assert float(f(3.0)) == expected()
    offset = -1.0
    assert float(f(3.0)) == expected()


def test_whatever_a_closure_holds_is_read_again():
    """Also what is compared by identity (ops, tensors, fractions), and what is long or large."""
    act, number, tensor, fraction = ops.relu, np.float32(2), ops.ones(()), fractions.Fraction(1, 2)
    many, nested, named = [1.0] * 100, [[1.0] * 70], {str(i): 1.0 for i in range(100)}
    array, strided = np.arange(1e4), np.arange(1e4, dtype="float32")[::3]

    def given(x, table=np.ones(1000), *, other=[1.0]):  # noqa: B006, B008 - what is tested
        return x * table[900] * other[0]

    def f(x):
        y = act(x) * number * tensor * float(fraction) * many[70] * nested[0][60] * named["80"]
        return given(y) * array[1111] / array[7] * strided[1001] * part(1.0)

    part = functools.partial(lambda table, x: x * table[333], np.ones(500))
    changes = {
        "an op": lambda: ops.exp, "a number": lambda: np.float32(5),
        "a tensor": lambda: ops.ones(()) * 7,
        "a fraction": lambda: fraction * 3,
        "a long list": lambda: many.__setitem__(70, 2.0),
        "a nested list": lambda: nested[0].__setitem__(60, 3.0),
        "a long dict": lambda: named.__setitem__("80", 4.0),
        "an array": lambda: array.__setitem__(1111, 55.0),
        "a permutation": lambda: array.__setitem__([7, 1111], array[[1111, 7]]),
        "a view": lambda: strided.__setitem__(1001, 9.0),
        "a default": lambda: given.__defaults__[0].__setitem__(900, 8.0),
        "a default by keyword": lambda: given.__kwdefaults__["other"].__setitem__(0, 8.0),
        "a partial's array": lambda: part.args[0].__setitem__(333, 6.0),
    }  # fmt: skip
    compiled, before = kerasish.function(f), None
    assert float(compiled(1.5)) == pytest.approx(float(f(1.5)))
    for what, change in changes.items():
        result = change()
        act = result if what == "an op" else act
        number = result if what == "a number" else number
        tensor = result if what == "a tensor" else tensor
        fraction = result if what == "a fraction" else fraction
        expected = float(f(1.5))
        assert expected != before
        assert float(compiled(1.5)) == pytest.approx(expected), what
        before = expected


def test_the_contents_of_a_layers_options_are_read_again():
    layer = layers.Lambda(lambda x, scale, table: x * scale * table[500], arguments={
        "scale": 2.0, "table": np.ones(1000, "float32"),
    })  # fmt: skip
    model = functional(layer)
    assert model.predict(X, verbose=0)[0, 0] == 2.0
    layer.arguments["scale"] = 3.0
    assert model.predict(X, verbose=0)[0, 0] == 3.0
    layer.arguments["table"][500] = 5.0
    assert model.predict(X, verbose=0)[0, 0] == 15.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([1, 2], [1, 3]),
        ([1, 2], [1, True]),
        ([1, 2], [1, 2, 3]),
        ([1, 2], (1, 2)),
        ([1, [2]], [1, [3]]),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({"a": 1, "b": 2}, [1, 2]),
        (0.0, -0.0),
        (None, 1),
        (list(range(100)), [*range(99), 7]),
        (np.float32(1.0), np.float64(1.0)),
    ],
    ids=repr,
)
def test_a_guard_tells_values_apart(before, after):
    options = copy.deepcopy(before)
    guards = watched.Guards([lambda: options])
    for equal in (options, copy.deepcopy(before)):
        options = equal
        assert guards.stale() is None
    options = after
    assert guards.stale() == "the variable 'options' has changed"


def test_a_guard_sees_changes_inside_of_a_container():
    options, numbers = {"a": 1, "b": "x"}, [1, 2]
    guards = watched.Guards([lambda: (options, numbers)])
    assert guards.stale() is None
    options["a"] = 2
    assert guards.stale() is not None
    options["a"] = 1
    assert guards.stale() is None
    numbers.append(3)
    assert guards.stale() is not None


def test_large_arrays_are_compared_quickly_and_read_only_ones_not_at_all(engine, monkeypatch):
    if engine == "eager":
        pytest.skip("the eager engine compiles nothing")
    big = np.arange(1e5)
    big.flags.writeable = False
    f = kerasish.function(lambda x: x * big[5])
    assert float(f(2.0)) == 10.0
    compared = []
    monkeypatch.setattr(watched, "_words", lambda a: compared.append(a))
    assert float(f(2.0)) == 10.0
    assert compared == []
    monkeypatch.undo()
    big.flags.writeable = True
    big[5] = 7.0
    assert float(f(2.0)) == 14.0


def test_results_that_a_function_keeps_outside_trace_it_once(engine):
    if engine == "eager":
        pytest.skip("the eager engine compiles nothing")
    latest, traces = None, []

    def f(x):
        nonlocal latest
        traces.append(object())
        latest = x * 2.0
        return latest

    compiled = kerasish.function(f)
    for shape in [(2,), (3,), (2,), (3,)]:
        compiled(np.ones(shape, "float32"))
    assert len(traces) == 2


def test_a_custom_loss_reads_its_globals_again(monkeypatch):
    model = functional(Scaled(2.0))
    model.compile(loss=lambda y, p: ops.mean(ops.square(y - p)) * SCALE)
    first = model.evaluate(X, X, verbose=0)
    monkeypatch.setitem(globals(), "SCALE", 3 * SCALE)
    assert model.evaluate(X, X, verbose=0) == pytest.approx(3 * first)


def test_a_schedule_of_a_callback_takes_effect():
    seen, layer = [], Scaled(1.0)
    dense = layers.Dense(2, kernel_initializer="identity")
    model = kerasish.Sequential([layers.Input((2,)), dense, layer])
    model.compile(kerasish.optimizers.SGD(0.0), "mse")
    change = kerasish.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: (
            seen.append(logs["loss"]),
            setattr(layer, "beta", layer.beta + 1.0),
        )
    )
    model.fit(X, X * 0, epochs=3, verbose=0, callbacks=[change])
    assert seen == [1.0, 4.0, 9.0]


def test_what_does_not_change_is_not_compiled_again(engine, capsys):
    if engine == "eager":
        pytest.skip("the eager engine compiles nothing")
    layer = Scaled(2.0)
    model = functional(layer)
    model.predict(X, verbose=0)
    config.explain_compiles(True)
    try:
        layer.beta = 2.0
        model(X)  # sets `latest`
        model.predict(X, verbose=0)
        functional(Scaled(3.0))(X)
        model.predict(X, verbose=0)
        assert "compiling" not in capsys.readouterr().err
        layer.beta = 2.5
        model.predict(X, verbose=0)
        assert "an attribute of Scaled 'scaled" in capsys.readouterr().err
    finally:
        config.explain_compiles(False)


@pytest.mark.parametrize("draw", [lambda: float(np.random.rand()), random.random])
def test_random_numbers_of_python_in_a_trace_warn(draw, engine):
    f = kerasish.function(lambda x: x * draw())
    if engine == "eager":
        assert float(f(1.0)) != float(f(1.0))
        return
    with pytest.warns(RuntimeWarning, match=r"np\.random or random drew numbers"):
        f(1.0)


@pytest.mark.parametrize("rows", [4, 70])
def test_predictions_may_be_written_to(rows):
    model = kerasish.Sequential([kerasish.Input((3,)), layers.Dense(2)])
    x = np.ones((rows, 3), "float32")
    for predictions in (model.predict(x, verbose=0), model.predict_on_batch(x)):
        first = predictions.copy()
        predictions += 1.0
        np.testing.assert_array_equal(predictions, first + 1.0)
    np.testing.assert_array_equal(model.predict(x, verbose=0), first)
