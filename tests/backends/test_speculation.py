"""The static engine runs Python that reads numbers: the right path, or no update at all."""

from __future__ import annotations

import itertools
import os
import warnings

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.backends.static.runtime import paths as paths_module
from kerasish.backends.static.runtime.paths import Paths
from kerasish.graph.answers import Answers
from kerasish.graph.ir import Value

RUNS = int(os.environ.get("KERASISH_FUZZ", "0")) or 10


class Questions(kerasish.Model):
    """Random layers, with questions for numbers, assignments and random draws between them."""

    def __init__(self, seed):
        super().__init__()
        self.plan = np.random.default_rng(seed)
        self.steps = self.plan.integers(0, 8, 5).tolist()
        self.parts = {
            i: [layers.Dense(4, "tanh") for _ in range(3)] for i in range(len(self.steps))
        }
        self.enter = layers.Dense(4)
        self.norm, self.head = layers.BatchNormalization(), layers.Dense(1)
        self.count = self.add_weight(
            shape=(), initializer="zeros", dtype="int32", trainable=False, name="count"
        )
        self.memory = self.add_weight(
            shape=(4,), initializer="zeros", trainable=False, name="memory"
        )
        self.noise = layers.Dropout(0.3, seed=seed)

    def call(self, inputs, training=False):
        first = inputs[0]
        x = self.enter(inputs)
        for i, step in enumerate(self.steps):
            a, b, c = self.parts[i]
            if step == 0:
                x = a(x) if first[0] > 0 else b(x)
            elif step == 1:
                for _ in range(1 + int(ops.sum(inputs[:, 1])) % 3):
                    x = a(x)
            elif step == 2 and training:
                self.count.assign_add(1 if first[1] > 0 else 2)
            elif step == 3:
                x = [a, b, c][int(self.count) % 3](x)
            elif step == 4:
                x = self.norm(x, training=training)
            elif step == 5 and training:
                self.memory.assign(self.memory * 0.5 + ops.mean(x, axis=0))
                if ops.any(first > 1):
                    x = x + self.memory
            elif step == 6:
                x = self.noise(x, training=training)
            elif step == 7:
                while ops.sum(ops.abs(x)) > 40:
                    x = x * 0.5
        return self.head(x)


def _steps(seed, eagerly, epochs=1):
    kerasish.utils.set_random_seed(seed)
    data = np.random.default_rng(seed)
    model = Questions(seed)
    model.compile(
        kerasish.optimizers.SGD(0.01, momentum=0.5, clipnorm=1.0), "mse", run_eagerly=eagerly
    )
    x = data.integers(-2, 3, (11 * 4, 3)).astype("float32")
    y = data.normal(size=(44, 1)).astype("float32")
    history = model.fit(x, y, batch_size=4, epochs=epochs, verbose=0)
    ones = [model.train_on_batch(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)]
    return model, [*history.history["loss"], *ones]


@pytest.mark.parametrize("seed", [341, *range(RUNS)])
def test_changing_branches_never_give_a_wrong_update(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        static, losses = _steps(seed, False)
    eager, expected = _steps(seed, True)
    np.testing.assert_allclose(losses, expected, rtol=2e-4, atol=1e-5)
    assert int(static.count) == int(eager.count)
    assert len(static.variables) == len(eager.variables)
    for v, other in zip(static.variables, eager.variables):
        np.testing.assert_allclose(v.numpy(), other.numpy(), rtol=1e-3, atol=1e-4, err_msg=v.path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 24))
def test_more_changing_branches(seed):
    test_changing_branches_never_give_a_wrong_update(seed)


def test_each_answer_gets_a_path_and_each_path_is_used_again(monkeypatch):
    created = []
    real = Paths._path_for
    monkeypatch.setattr(Paths, "_path_for", lambda *a: created.append(1) or real(*a))
    traced = itertools.count()  # a list would be a value that the trace depends on

    @kerasish.function(backend="static")
    def f(x):
        next(traced)
        return x * 2 if ops.sum(x) > 0 else x * 3

    one = np.ones(3, "float32")
    for sign in (1, 1, -1, -1, 1, -1):
        np.testing.assert_array_equal(f(sign * one), sign * one * (2 if sign > 0 else 3))
    assert next(traced) == 2
    assert len(created) == 3


def test_a_number_that_always_differs_ends_in_one_warning():
    calls = itertools.count()

    @kerasish.function(backend="static")
    def f(x):
        next(calls)
        return x * float(ops.sum(x))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(60):
            x = np.full(3, i, "float32")
            np.testing.assert_allclose(f(x), x * x.sum(), rtol=1e-6)
    texts = [str(w.message) for w in caught]
    assert sum("op by op from now on" in t for t in texts) == 1, texts
    assert any("test_speculation.py" in t for t in texts)
    assert next(calls) < 60 + 2 * paths_module.MOST_PATHS


def test_nothing_changes_where_an_answer_is_wrong():
    """A path is interrupted before it changes a variable, whatever comes before the question."""
    state = kerasish.Variable(np.zeros(4, "float32"))
    count = kerasish.Variable(0, dtype="int32")

    @kerasish.function(backend="static")
    def f(x):
        state.assign(state + x)
        count.assign_add(1)
        if ops.sum(state) > 5:
            state.assign(ops.zeros_like(state))
        return ops.sum(state)

    expected, total = np.zeros(4, "float32"), []
    for i in range(1, 30):
        x = np.full(4, (i % 5) * 0.25, "float32")
        expected = expected + x
        expected = np.zeros_like(expected) if expected.sum() > 5 else expected
        total.append(float(f(x)))
        assert total[-1] == expected.sum()
        assert int(count) == i
        np.testing.assert_array_equal(state.numpy(), expected)


def test_conditions_are_checked_in_the_order_of_the_questions(monkeypatch):
    """The count is known before anything is computed, yet it is the last question."""
    asked = []
    real = Paths._path_for
    monkeypatch.setattr(
        Paths,
        "_path_for",
        lambda self, a, *b: asked.append([x.item() for x in a]) or real(self, a, *b),
    )
    count = kerasish.Variable(0, dtype="int32")

    @kerasish.function(backend="static")
    def f(x):
        if ops.sum(x) > 0:
            x = x * 2
        total = int(ops.sum(x))
        x = x + total
        x = x * (1 + int(count))
        count.assign_add(1)
        return x

    for i, start in enumerate((1.0, -2.0, 3.0, 3.0, -1.0)):
        x = np.full(2, start, "float32")
        y = x * 2 if x.sum() > 0 else x
        np.testing.assert_array_equal(f(x), (y + int(y.sum())) * (1 + i))
    # A wrong count is found after the sums, which are those of this call.
    expected = [[False], [True], [True, 12], [True, 12, 3], [False], [False, -2]]
    assert asked == expected, asked


def test_an_answer_is_not_given_to_a_question_for_another_kind_of_number():
    """A boolean, compared with the first byte of a float, would hold for many floats."""
    for given, dtype, fits in (
        (np.array(False), "float32", False), (np.float32(0).reshape(()), "bool", False),
        (np.array(3, "int32"), "float32", False), (np.array(3, "float32"), "float32", True),
    ):  # fmt: skip
        answers = Answers([given], lambda op: op.kernel)
        answer = answers.ask(None, Value((), dtype))
        assert (answer is not None) == fits


def test_an_error_in_another_path_leaves_everything_as_it_was():
    state = kerasish.Variable(1.0)

    @kerasish.function(backend="static")
    def f(x):
        state.assign(state * 2.0)
        assert ops.all(x > 0), "not positive"
        return state * x

    assert float(f(np.float32([1]))[0]) == 2.0
    with pytest.raises(AssertionError, match="not positive"):
        f(np.float32([-1]))
    assert float(state) == 2.0
    assert float(f(np.float32([1]))[0]) == 4.0


def test_attributes_still_count():
    class Flag(layers.Layer):
        factor = 2.0

        def call(self, x):
            return x * self.factor if ops.sum(x) > 0 else x

    model = kerasish.Sequential([Flag()])
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(model.predict(x, verbose=0), 2 * x)
    np.testing.assert_array_equal(model.predict(-x, verbose=0), -x)
    model.layers[0].factor = 5.0
    np.testing.assert_array_equal(model.predict(-x, verbose=0), -x)
    np.testing.assert_array_equal(model.predict(x, verbose=0), 5 * x)


def test_derivatives_flow_through_both_branches():
    @kerasish.function(backend="static")
    def f(x):
        return ops.sum(x**3) if ops.sum(x) > 0 else ops.sum(x**2)

    gradient = kerasish.grad(f)
    np.testing.assert_allclose(gradient(np.float32([1, 2])), [3, 12])
    np.testing.assert_allclose(gradient(np.float32([-1, -2])), [-2, -4])
    np.testing.assert_allclose(
        kerasish.grad(lambda x: ops.sum(gradient(x)))(np.float32([1, 2])), [6, 12]
    )


def test_explain_compiles_names_the_question(capsys):
    def f(x):
        return x if ops.sum(x) > 0 else -x

    kerasish.config.explain_compiles(True)
    try:
        compiled = kerasish.function(f, backend="static")
        compiled(np.ones(2, "float32"))
        compiled(-np.ones(2, "float32"))
    finally:
        kerasish.config.explain_compiles(False)
    said = capsys.readouterr().err
    assert "path 2, since Python at" in said and "gets False" in said
    assert "test_speculation.py" in said
