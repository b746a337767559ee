"""Control flow in a trace: graphs inside nodes, on the interpreter and on the static engine."""

import numpy as np
import pytest

import kerasish
from kerasish import backends, ops
from kerasish.autodiff import grad, value_and_grad
from kerasish.errors import TraceError
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import optimize
from kerasish.graph.trace import trace

rng = np.random.default_rng(3)


def static(function):
    return backends.get("static").compile(function)


def flat(structure):
    return [np.asarray(t) for t in kerasish.tree.flatten(structure) if t is not None]


def agree(function, *args, rtol=2e-5):
    """Check that the traced function, interpreted and compiled, gives what Python's own does."""
    want = flat(function(*[kerasish.Tensor(a) for a in args]))
    traced = trace(function, *args)
    for graph in (verify(traced.graph), verify(optimize(traced.graph))):
        for a, b in zip(interpret(graph, args), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)
    compiled = static(function)
    for _ in range(2):
        for a, b in zip(flat(compiled(*args)), want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)
    return traced.graph


def ops_of(graph):
    return [node.op.name for node in graph.nodes]


X = rng.normal(size=(3, 4)).astype("float32")


@pytest.mark.parametrize("sign", [1, -1])
def test_cond(sign):
    def function(x):
        return ops.cond(
            ops.sum(x) > 0, lambda: {"a": x * 2, "b": None}, lambda: {"a": x - 1, "b": None}
        )

    graph = agree(function, (sign * np.abs(X)).astype("float32"))
    assert "branch" in ops_of(graph)
    assert "graphs: graph(" in str(graph)


@pytest.mark.parametrize("index", [-2, 0, 1, 2, 9])
def test_switch(index):
    branches = [lambda a: a + 1, lambda a: a * 10, lambda a: ops.sum(a) * ops.ones_like(a)]
    agree(lambda i, x: ops.switch(i, branches, x), np.asarray(index, "int32"), X)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_while_loop(count):
    def function(n, x):
        i, y = ops.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 0.5 + x), (0, x))
        return i, y

    graph = agree(function, np.asarray(count, "int32"), X)
    assert "loop" in ops_of(graph)


def test_while_loop_stops_at_its_maximum():
    agree(lambda n: ops.while_loop(lambda i: i < n, lambda i: i + 1, 0, 5), np.asarray(9, "int32"))
    agree(lambda n: ops.while_loop(lambda i: i < n, lambda i: i + 1, 0, 5), np.asarray(3, "int32"))


@pytest.mark.parametrize("length", [1, 8, 9, 20])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(length, reverse):
    xs = rng.normal(size=(length, 4)).astype("float32")

    def function(xs, w):
        return ops.scan(
            lambda c, x: ((ops.tanh(c[0] * w + x), c[1] + 1), (c[0], None, x.sum())),
            (ops.zeros(4), 0),
            xs,
            reverse=reverse,
        )

    graph = agree(function, xs, np.asarray(0.7, "float32"))
    assert ("scan_along" in ops_of(graph)) == (length > 8)


def test_scan_without_xs_and_fori_loop():
    agree(lambda x: ops.scan(lambda c, _: (c * 0.9, c), x, length=12), X)
    graph = agree(lambda x: ops.fori_loop(2, 30, lambda i, s: s + ops.cast(i, "float32"), x), X)
    assert "scan_along" in ops_of(graph)
    assert "loop" in ops_of(
        agree(lambda n, x: ops.fori_loop(0, n, lambda i, s: s * 1.1, x), np.asarray(4, "int32"), X)
    )


def test_map_over_many_rows():
    agree(lambda x: ops.map(lambda row: ops.sin(row) * ops.sum(row), x), np.tile(X, (5, 1)))


def test_nested():
    def function(n, x):
        def body(i, y):
            def step(c, row):
                new = ops.cond(ops.sum(row) > 0, lambda: c + row, lambda: c - x[0])
                return new, new * ops.cast(i, "float32")

            return i + 1, y + ops.scan(step, x[0], ops.tile(x, (4, 1)))[0]

        return ops.while_loop(lambda i, y: i < n, body, (0, x))

    agree(function, np.asarray(3, "int32"), X)


GRADIENTS = {
    "cond": lambda x: ops.sum(ops.cond(ops.sum(x) > 0, lambda: x**2, lambda: x**3)),
    "switch": lambda x: ops.sum(
        ops.switch(ops.cast(ops.abs(x[0, 0]) * 3, "int32"), [ops.sin, ops.exp, ops.cos], x)
    ),
    "scan": lambda x: _scanned(x)[0] + ops.sum(_scanned(x)[1] ** 2),
    "fori": lambda x: ops.sum(ops.fori_loop(0, 11, lambda i, s: ops.sin(s) * x, x)),
    "masked while": lambda x: ops.sum(
        ops.while_loop(lambda v: ops.sum(v) < 5.0, lambda v: v * 1.5 + 1.0, x, 20)
    ),
    "stopped": lambda x: ops.sum(
        ops.cond(ops.sum(x) > 0, lambda: x * ops.stop_gradient(x), lambda: x)
    ),
}


def _scanned(x):
    rows = ops.reshape(ops.concatenate([x, x * 2, x - 1], 0), (18, 2))
    return ops.scan(
        lambda c, r: (ops.tanh(c + ops.sum(r) * x[0, 0]), r * c), ops.sum(x) * 0.1, rows
    )


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("sign", [1, -1])
def test_gradients(name, sign):
    x = (sign * np.abs(X) * 0.3).astype("float32")
    agree(lambda x: value_and_grad(GRADIENTS[name])(x), x)


@pytest.mark.parametrize("name", ["cond", "scan", "fori"])
def test_second_gradients(name):
    def function(x):
        return grad(lambda y: ops.sum(grad(GRADIENTS[name])(y) ** 2))(x)

    agree(function, np.abs(X) * np.float32(0.3), rtol=2e-3)


def test_only_the_branch_that_runs_assigns():
    v, w = (kerasish.Variable(np.float32(n), name=f"v{n}") for n in (1, 5))

    def function(x):
        return ops.cond(
            x > 0, lambda: (v.assign(v + 1), x * w)[1], lambda: (w.assign(w * 2), x * v)[1]
        )

    step = static(function)
    assert float(step(np.asarray(1, "float32"))) == 5
    assert (float(v), float(w)) == (2, 5)
    assert float(step(np.asarray(-1, "float32"))) == -2
    assert (float(v), float(w)) == (2, 10)


def test_loops_assign_in_each_round():
    total = kerasish.Variable(np.asarray(0, "float32"))
    seeds = kerasish.random.SeedGenerator(3)

    def function(xs):
        def step(c, x):
            total.assign_add(x)
            return c + kerasish.random.uniform((), seed=seeds), total * 1.0

        return ops.scan(step, 0.0, xs)

    xs = np.arange(12, dtype="float32")
    drawn, sums = static(function)(xs)
    assert float(total) == xs.sum()
    np.testing.assert_array_equal(sums, np.cumsum(xs))
    state = seeds.state.numpy().copy()
    total.assign(0.0)
    seeds.state.assign(kerasish.random.SeedGenerator(3).state)
    again, _ = function(kerasish.Tensor(xs))
    assert float(again) == float(drawn)
    np.testing.assert_array_equal(seeds.state, state)

    def until(n):
        return ops.while_loop(lambda i: i < n, lambda i: (total.assign_add(1.0), i + 1)[1], 0)

    total.assign(0.0)
    static(until)(np.asarray(4, "int32"))
    assert float(total) == 4


def test_variables_in_branches_have_gradients():
    v = kerasish.Variable(np.float32([1, 2]))

    def function(x):
        with kerasish.GradientTape() as tape:
            total = ops.sum(ops.cond(x > 0, lambda: v * x, lambda: v**2))
        return tape.gradient(total, v)

    step = static(function)
    assert step(np.float32(3)).tolist() == [3, 3]
    assert step(np.float32(-3)).tolist() == [2, 4]


def test_a_while_loop_without_end_has_no_gradient():
    with pytest.raises(TraceError, match="maximum_iterations"):
        static(grad(lambda x: ops.while_loop(lambda v: v < 9.0, lambda v: v * 2.0, x)))(
            np.float32(1)
        )


def test_conditions_must_not_assign():
    v = kerasish.Variable(np.asarray(0, "float32"))
    with pytest.raises(TraceError, match="cond must not assign"):
        static(lambda x: ops.while_loop(lambda i: (v.assign(x), i < 3)[1], lambda i: i + 1, 0))(
            np.float32(1)
        )


def test_models_may_loop():
    class Power(kerasish.layers.Layer):
        """x through a number of rounds that the data decides."""

        def build(self, shape):
            self.w = self.add_weight((shape[-1], shape[-1]), "orthogonal")

        def call(self, x):
            def more(i, y):
                return ops.logical_and(i < 10, ops.max(ops.abs(y)) > 0.5)

            rounds = ops.while_loop(more, lambda i, y: (i + 1, ops.matmul(y, self.w) * 0.8), (0, x))
            return (
                ops.stop_gradient(rounds[1])
                + ops.scan(lambda c, _: (ops.tanh(ops.matmul(c, self.w)), None), x, length=10)[0]
            )

    losses = {}
    for eagerly in (True, False):
        kerasish.utils.set_random_seed(0)
        model = kerasish.Sequential([kerasish.Input((4,)), Power(), kerasish.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=eagerly)
        x = np.tile(X, (10, 1))
        losses[eagerly] = model.fit(x, x[:, :1], epochs=3, verbose=0, batch_size=8).history["loss"]
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-4)
    assert losses[True][-1] < losses[True][0]
