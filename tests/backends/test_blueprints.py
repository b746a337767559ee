"""Programs made from one compiled plan: shared code, memory of their own."""

import threading

import numpy as np
import pytest

import kerasish
from kerasish import backends, layers, ops
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import compiled_plan as compiled_plans
from kerasish.graph.ir import Node
from kerasish.graph.structure import attributes_key, structure_of
from kerasish.graph.trace import trace


def step(function):
    return backends.get("static").compile(function)


def made(run):
    before = COMPILED_PLANS.count
    run()
    return COMPILED_PLANS.count - before


X = np.random.default_rng(0).normal(size=(70, 6)).astype("float32")
Y = np.arange(70) % 3


def model(rate=1e-2, units=5, cell=None):
    kerasish.utils.set_random_seed(1)
    first = cell or layers.Dense(units, activation="relu")
    inputs = kerasish.Input((6,) if cell is None else (3, 2))
    outputs = layers.Dense(3, activation="softmax")(layers.Dropout(0.2)(first(inputs)))
    result = kerasish.Model(inputs, outputs)
    result.compile(kerasish.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    return result


def test_the_second_model_of_a_structure_makes_none():
    COMPILED_PLANS.clear()
    # 70 rows are two whole batches and a shorter one, predicted in the same sizes.
    assert made(lambda: model().fit(X, Y, batch_size=32, verbose=0)) == 2
    assert made(lambda: model(rate=1e-3).fit(X, Y, batch_size=32, epochs=2, verbose=0)) == 0
    assert made(lambda: model(units=7).fit(X, Y, batch_size=32, verbose=0)) == 2


def test_models_of_one_blueprint_do_not_meet():
    COMPILED_PLANS.clear()
    alone = model()
    want = alone.fit(X, Y, batch_size=32, epochs=4, verbose=0).history["loss"]
    one, other = model(), model()
    result = [one.fit(X, Y, batch_size=32, verbose=0).history["loss"][0]]
    other.fit(X, (Y + 1) % 3, batch_size=32, epochs=3, verbose=0)
    kerasish.utils.set_random_seed(1)
    again = model()
    assert again.fit(X, Y, batch_size=32, epochs=4, verbose=0).history["loss"] == want
    assert result[0] == want[0]


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "SimpleRNN"])
def test_threads_train_models_of_one_blueprint(cell):
    x = X.reshape(70, 3, 2)

    def train(result, i):
        with kerasish.config.seeded(3):
            own = model(cell=getattr(layers, cell)(4))
        with kerasish.config.seeded(4):
            result[i] = own.fit(x, Y, batch_size=32, epochs=3, verbose=0).history["loss"]

    lonely = {}
    train(lonely, 0)
    together = {}
    threads = [threading.Thread(target=train, args=(together, i)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(together) == 4
    for losses in together.values():
        np.testing.assert_allclose(losses, lonely[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x * 2.0, lambda x: x * 2.5),
        (lambda x: x * 2.0, lambda x: x * -2.0),
        (lambda x: ops.sum(x, axis=0), lambda x: ops.sum(x, axis=1)),
        (lambda x: ops.sum(x, keepdims=True), lambda x: ops.reshape(ops.sum(x), (1, 1))),
        (lambda x: (x + 1.0, x), lambda x: (x, x + 1.0)),
        (lambda x: x - ops.transpose(x), lambda x: ops.transpose(x) - x),
        (lambda x: x + np.eye(3, dtype="float32"), lambda x: x + np.ones((3, 3), "float32")),
        (lambda x: ops.cast(x, "int32"), lambda x: ops.cast(x, "int64")),
    ],
)
def test_what_differs_is_not_mixed_up(one, other):
    x = np.arange(9, dtype="float32").reshape(3, 3)
    for function in (one, other, one, other):
        want = kerasish.tree.flatten(function(kerasish.Tensor(x)))
        got = kerasish.tree.flatten(step(function)(x))
        for a, b in zip(got, want):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_variables_that_a_step_only_writes():
    def counted():
        v = kerasish.Variable(np.zeros(3, "float32"))
        run = step(lambda x: v.assign(x * 3))
        return v, run

    for _ in range(2):
        v, run = counted()
        run(np.ones(3, "float32"))
        assert v.numpy().tolist() == [3, 3, 3]


def test_swapped_variables_keep_their_parts():
    for first in (True, False):
        a, b = kerasish.Variable(np.float32(1)), kerasish.Variable(np.float32(2))

        def both(a=a, b=b, first=first):
            old, new = (a, b) if first else (b, a)
            old.assign(old * 0 + 10)
            new.assign(new * 0 + 20)

        step(both)()
        assert (float(a), float(b)) == ((10, 20) if first else (20, 10))


def test_which_variable_takes_a_value_tells_steps_apart():
    for crossed in (False, True):
        a, b = (kerasish.Variable(np.full(3, n, "float32")) for n in (1, 2))

        def both(a=a, b=b, crossed=crossed):
            x, y = ops.exp(a.value), ops.tanh(b.value)
            first, second = (b, a) if crossed else (a, b)
            first.assign(x)
            second.assign(y)

        step(both)()
        result = (b, a) if crossed else (a, b)
        np.testing.assert_allclose(result[0].numpy(), np.exp(np.full(3, 1.0)), rtol=1e-5)
        np.testing.assert_allclose(result[1].numpy(), np.tanh(np.full(3, 2.0)), rtol=1e-5)


@pytest.mark.parametrize("count", [2, 3])
def test_variables_may_exchange_their_values(count):
    variables = [kerasish.Variable(np.full(3, n, "float32")) for n in range(count)]

    def rotate():
        values = [v.value for v in variables]
        for v, value in zip(variables, [*values[1:], values[0]]):
            v.assign(value)

    run = step(rotate)
    for turn in (1, 2):
        run()
        assert [int(v.numpy()[0]) for v in variables] == [(n + turn) % count for n in range(count)]


def test_a_value_that_is_read_later_is_not_overwritten():
    rng = np.random.default_rng(0)
    start, w, u = rng.normal(size=(3, 8, 8)).astype("float32")
    v = kerasish.Variable(start)

    def move(w, u):
        old = v.value
        new = ops.matmul(old, w)
        v.assign(new)
        return ops.matmul(ops.transpose(new), ops.matmul(old, u))

    result = step(move)(w, u)
    np.testing.assert_allclose(result, (start @ w).T @ (start @ u), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(v.numpy(), start @ w, rtol=1e-4, atol=1e-4)


def test_few_are_kept():
    kept = compiled_plans.CompiledPlans(most=2)
    for key in (1, 2, 3, 3):
        assert kept.find(key, lambda key=key: key * 10) == key * 10
    assert kept.count == 3
    kept.find(2, lambda: 0)
    kept.find(1, lambda: 0)
    assert kept.count == 4
    kept.find(None, lambda: 0)
    kept.find(None, lambda: 0)
    assert kept.count == 6


def test_large_constants_are_not_compared():
    table = np.zeros((300, 300), "float32")

    assert structure_of(trace(lambda x: x + table, X[:1, :1]).graph) is None
    assert structure_of(trace(lambda x: x + 1.0, X).graph) is not None


def test_equal_numbers_that_are_other_attributes_are_told_apart():
    def signs(zero):
        return step(lambda x: 1.0 / (x + ops.full((3,), zero)))(-np.zeros(3, "float32"))

    assert np.asarray(signs(0.0)).tolist() == [np.inf] * 3
    assert np.asarray(signs(-0.0)).tolist() == [-np.inf] * 3
    keys = [structure_of(trace(lambda x, v=v: ops.pad(x, 1, constant_values=v), X).graph)
            for v in (0.0, -0.0)]  # fmt: skip
    assert None not in keys and keys[0] != keys[1]


def test_equal_attributes_of_other_types_are_told_apart():
    """1 and True are equal, and so are their hashes; an op may treat them as different."""
    values = [1, True, 1.0, "1", (1,), (True,), (1.0,)]
    add = trace(lambda x: x + x, X).graph.nodes[0]
    keys = [
        [attributes_key(Node(add.op, add.inputs, {"n": value}, add.outputs)) for value in values]
        for _ in range(2)
    ]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(values)
