"""Compiled functions: derivatives of any order, nesting, models, scopes of variables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.random import SeedGenerator, normal
from kerasish.tensor import VariableScope, using_scope

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def v():
    return kerasish.Variable(3.0, name="v")


def derivative(f, order):
    for _ in range(order):
        f = kerasish.grad(f)
    return f


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_any_order(order):
    cube = kerasish.function(lambda x: x**3)
    assert float(derivative(cube, order)(2.0)) == [12.0, 12.0, 6.0][order - 1]


def test_derivatives_of_compiled_derivatives():
    cube = kerasish.function(lambda x: x**3)
    slope = kerasish.function(kerasish.grad(cube))
    assert float(slope(np.float32(2.0))) == 12.0
    assert float(kerasish.grad(slope)(2.0)) == 12.0


def test_derivatives_by_variables_in_every_way(v):
    f = kerasish.function(lambda x, times=2: {"y": x * v * times, "n": ops.cast(x, "int32")})
    result = kerasish.grad(lambda x: f(x)["y"], argnums=None)(2.0)
    assert {k.name: float(g) for k, g in result.items()} == {"v": 4.0}
    with kerasish.GradientTape() as tape:
        y = f(ops.convert_to_tensor(2.0))["y"]
    assert float(tape.gradient(y, v)) == 4.0
    f(ops.convert_to_tensor(2.0), times=3)["y"].backward()
    assert float(v.grad) == 6.0


def test_the_derivative_is_of_the_values_at_the_call(v):
    @kerasish.function
    def f(x):
        y = x * v * v
        v.assign(100.0)
        return y

    x = kerasish.Tensor(2.0, requires_grad=True)
    y = f(x)
    assert float(v.value) == 100.0
    v.assign(7.0)
    y.backward()
    assert float(x.grad) == 9.0  # v was 3
    assert float(v.grad) == 12.0
    assert float(v.value) == 7.0  # the reverse pass assigns nothing


def test_random_numbers_are_those_of_the_call():
    seed = SeedGenerator(1)
    f = kerasish.function(lambda x: ops.sum(x * normal((5,), seed=seed)))
    x = kerasish.Tensor(np.ones(5, "float32"), requires_grad=True)
    y = f(x)
    y.backward()
    np.testing.assert_allclose(float(y), float(ops.sum(x.grad)), rtol=1e-6)


def test_structures_and_several_results():
    f = kerasish.function(lambda p, s: (p["a"] * s[0], [p["b"] + s[1]], None, "text"))
    a, b = (kerasish.Tensor(np.float32(n), requires_grad=True) for n in (2.0, 3.0))
    y, (z,), none, text = f({"a": a, "b": b}, (b, a))
    assert (none, text) == (None, "text")
    (y * 2 + z).backward()
    assert (float(a.grad), float(b.grad)) == (2 * 3.0 + 1, 2 * 2.0 + 1)


def test_no_record_is_kept_where_none_is_wanted(v):
    f = kerasish.function(lambda x: x * v)
    with kerasish.no_gradient():
        assert f(np.float32(2.0)).maker is None
    v.trainable = False
    assert f(np.float32(2.0)).maker is None


def test_compiled_functions_inside_models(v):
    inner = kerasish.function(lambda x: ops.tanh(x) * v)

    class Net(kerasish.Model):
        def __init__(self, f):
            super().__init__()
            self.dense, self.f = layers.Dense(3, kernel_initializer="ones"), f

        def call(self, x):
            return self.f(self.dense(x))

    losses = []
    for f in (inner, lambda x: ops.tanh(x) * v):
        model = Net(f)
        model.compile("sgd", "mse")
        x, y = np.linspace(-1, 1, 16, dtype="float32").reshape(8, 2), np.ones((8, 3), "float32")
        losses.append(model.fit(x, y, epochs=3, batch_size=4, shuffle=False, verbose=0).history)
        assert model.predict(x, verbose=0).shape == (8, 3)
    np.testing.assert_allclose(losses[0]["loss"], losses[1]["loss"], rtol=1e-6)
    i = layers.Input((2,))
    functional = kerasish.Model(i, inner(i))
    np.testing.assert_allclose(functional.predict(x, verbose=0), np.tanh(x) * 3, rtol=1e-6)


# --- scopes of variables in scopes of variables --------------------------------------------------


def _stateless(body, v):
    with kerasish.StatelessScope():
        return body()


def _step(body, v):
    return kerasish.function(body)()


def _branch(body, v):
    return ops.cond(ops.equal(v * 0, 0), body, lambda: v * 0)


def _scope(body, v):
    with using_scope(VariableScope()):
        return body()


def _remat(body, v):
    return kerasish.remat(lambda x: body() + 0 * x)(ops.convert_to_tensor(1.0))


SCOPES = {f.__name__.strip("_"): f for f in (_stateless, _step, _branch, _scope, _remat)}
COMMITS = {"step", "branch", "remat"}  # their assignments reach the scope around them


@pytest.mark.parametrize("names", list(itertools.product(SCOPES, repeat=3)), ids="-".join)
def test_scopes_nest(names, v):
    """Reads ask the scope around; assignments end in the innermost scope that keeps them."""

    def innermost():
        v.assign(v * 2)
        return v * 1

    def run(left):
        if not left:
            return innermost()

        def body():
            before = v * 1
            inside = run(left[1:])
            return inside * 1000 + (v - before)

        return SCOPES[left[0]](body, v)

    def expected(left, held):
        """Return (result, what the variable holds around it afterwards)."""
        if not left:
            return held * 2, held * 2
        inside, after = expected(left[1:], held)
        return inside * 1000 + (after - held), after if left[0] in COMMITS else held

    for start in (3.0, 5.0):  # the second time whatever was compiled runs again
        v.assign(start)
        result, after = expected(names, start)
        np.testing.assert_allclose(float(run(names)), result, rtol=1e-6)
        assert float(v.value) == after


def test_a_scope_inside_a_compiled_function_reads_the_variable_at_each_call(v):
    @kerasish.function
    def f(x):
        with kerasish.StatelessScope():
            return x * v

    assert float(f(2.0)) == 6.0
    v.assign(5.0)
    assert float(f(2.0)) == 10.0


def test_a_compiled_function_inside_a_scope_reads_what_is_given_there(v):
    f = kerasish.function(lambda x: x * v)
    assert float(f(2.0)) == 6.0
    with kerasish.StatelessScope([(v, 10.0)]) as scope:
        assert float(f(2.0)) == 20.0
        v.assign(1.0)
        assert float(f(2.0)) == 2.0
    assert float(scope.get_current_value(v)) == 1.0
    assert float(f(2.0)) == 6.0


def test_predict_inside_a_scope_uses_its_weights():
    model = kerasish.Sequential([layers.Input((2,)), layers.Dense(1, kernel_initializer="ones")])
    x = np.ones((3, 2), "float32")
    assert model.predict(x, verbose=0).tolist() == [[2.0]] * 3
    with kerasish.StatelessScope([(model.layers[-1].kernel, np.full((2, 1), 2.0))]):
        assert model.predict(x, verbose=0).tolist() == [[4.0]] * 3
    assert model.predict(x, verbose=0).tolist() == [[2.0]] * 3
