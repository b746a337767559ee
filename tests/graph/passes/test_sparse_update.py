"""Updates that touch only the rows whose gradient is not zero."""

import importlib

import numpy as np
import pytest

import kerasish
from kerasish import backends, config, ops
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import optimize, sparse_update
from kerasish.graph.trace import trace
from kerasish.ops.basic.indexing import add_rows

rng = np.random.default_rng(0)
TABLE = rng.normal(size=(600, 8)).astype("float32")
AVERAGE = rng.uniform(0.1, 1, size=(600, 8)).astype("float32")
ROWS = rng.normal(size=(2, 5, 8)).astype("float32")
INDICES = np.array([[3, 7, 3, -1, 599], [0, 3, 42, 7, -600]], "int32")


def slopes(rows, indices):
    return add_rows(rows, indices, 600)


def sgd(table, average, rows, indices):
    return table - 0.5 * slopes(rows, indices)


def adagrad(table, average, rows, indices):
    g = slopes(rows, indices)
    new = average + ops.square(g)
    return table - 0.1 * g / (ops.sqrt(new) + 1e-7), new


def momentum(table, average, rows, indices):
    new = average * 0.9 - 0.1 * slopes(rows, indices)
    return table + new, new


def decayed(table, average, rows, indices):
    return table - 0.5 * (slopes(rows, indices) + 0.01 * table)


def measured(table, average, rows, indices):
    g = slopes(rows, indices)
    return table - 0.5 * g, ops.sum(ops.square(g))


def shown(table, average, rows, indices):
    g = slopes(rows, indices)
    return table - 0.5 * g, g


def rescaled(table, average, rows, indices):
    return table * 2 - slopes(rows, indices)


def ratio(table, average, rows, indices):
    return table - average / slopes(rows, indices)


def negated(table, average, rows, indices):
    return slopes(rows, indices) - table


def adam(table, average, rows, indices):
    g = slopes(rows, indices)
    first = table * 0.5 + (g - table * 0.5) * 0.1
    second = average + (ops.square(g) - average) * 0.01
    return second, table - first * 0.3 / (ops.sqrt(second) + 1e-7)


def both_from_one(table, average, rows, indices):
    g = slopes(rows, indices)
    return table - g, table + g


ARGUMENTS = (TABLE, AVERAGE, ROWS, INDICES)


def names(graph):
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("update", [sgd, adagrad, rescaled])
def test_sparse_updates(update):
    graph = optimize(trace(update, *ARGUMENTS).graph)
    assert "sparse_update" in names(verify(graph))
    assert "add_rows" not in names(graph)
    want = interpret(trace(update, *ARGUMENTS).graph, ARGUMENTS)
    for a, b in zip(interpret(graph, ARGUMENTS), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
        untouched = np.setdiff1d(np.arange(600), INDICES % 600)
        np.testing.assert_array_equal(a[untouched], b[untouched])
    assert str(sparse_update(graph)) == str(graph)


@pytest.mark.parametrize("update", [measured, shown, both_from_one])
def test_what_shows_every_row_stays_dense(update):
    assert "sparse_update" not in names(optimize(trace(update, *ARGUMENTS).graph))


@pytest.mark.parametrize("update", [momentum, decayed, ratio, negated, adam])
def test_all_rows_change_without_a_table_of_gradients(update):
    graph = optimize(trace(update, *ARGUMENTS).graph)
    assert names(verify(graph)).count("sparse_update") == 1
    assert "add_rows" not in names(graph)
    wanted = interpret(trace(update, *ARGUMENTS).graph, ARGUMENTS)
    step = backends.get("static").compile(update)
    for _ in range(2):
        results = interpret(graph, ARGUMENTS), kerasish.tree.flatten(step(*ARGUMENTS))
        for result in results:
            for a, b in zip(result, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert "update of rows" in [u.name for u in step.executables()[0].units]


def test_many_rows_or_small_tables_stay_dense():
    def made(update, count):
        many, rows = np.zeros((count, 4), "int32"), np.zeros((count, 4, 8), "float32")
        return names(optimize(trace(update, TABLE, AVERAGE, rows, many).graph))

    assert "sparse_update" in made(sgd, 75) and "sparse_update" not in made(sgd, 76)
    assert "sparse_update" in made(adam, 18) and "sparse_update" not in made(adam, 19)
    table = np.zeros((20, 8), "float32")
    result = trace(lambda t, r, i: t - add_rows(r, i, 20), table, ROWS[:, :1], INDICES[:, :1])
    assert "sparse_update" not in names(optimize(result.graph))


@pytest.mark.parametrize("update", [sgd, adagrad])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_static_engine_touches_rows(update, dtype):
    indices = INDICES.astype(dtype)
    want = kerasish.tree.flatten(update(*map(kerasish.Tensor, (TABLE, AVERAGE, ROWS, indices))))
    step = backends.get("static").compile(update)
    for _ in range(2):
        got = kerasish.tree.flatten(step(TABLE, AVERAGE, ROWS, indices))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert "update of rows" in [u.name for u in step.executables()[0].units]


@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad"])
def test_embeddings_are_trained_in_place(optimizer):
    def trained(eagerly):
        kerasish.utils.set_random_seed(0)
        layers = kerasish.layers
        model = kerasish.Sequential(
            [
                kerasish.Input((6,), dtype="int32"),
                layers.Embedding(5000, 16),
                layers.GlobalAveragePooling1D(),
                layers.Dense(3),
            ]
        )
        loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(getattr(kerasish.optimizers, optimizer)(0.5), loss, run_eagerly=eagerly)
        x = np.random.default_rng(0).integers(0, 50, (64, 6)).astype("int32")
        history = model.fit(x, np.arange(64) % 3, batch_size=16, epochs=3, verbose=0)
        return history.history["loss"], model

    eager, model = trained(True)
    static, other = trained(False)
    np.testing.assert_allclose(eager, static, rtol=1e-5)
    for a, b in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    program = other.training_program.step("train").executables()[0]
    assert "update of rows" in [u.name for u in program.units]
    assert not [root for root, _ in program.compiled_plan.copies if root.shape == (5000, 16)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("optimizer", "columns"),
    [
        ("Adam", 16),
        ("AdamW", 16),
        ("RMSprop", 16),
        ("Nadam", 16),
        ("SGD", 16),
        ("Adam", 1),
        ("Adam", 3),
    ],
)
def test_averages_keep_their_bits(optimizer, columns, threads, monkeypatch):
    """Without a table of gradients all rows get the numbers that they get with one."""

    def trained(smallest):
        monkeypatch.setattr(importlib.import_module(sparse_update.__module__), "SMALLEST", smallest)
        COMPILED_PLANS.clear()
        kerasish.utils.set_random_seed(0)
        layers = kerasish.layers
        x = np.random.default_rng(0).integers(0, 50, (64, 6)).astype("int32")
        x[48:] = np.arange(96).reshape(16, 6)  # last, a batch in which no row comes twice
        with config.using_threads(threads):
            model = kerasish.Sequential(
                [layers.Embedding(800, columns), layers.GlobalAveragePooling1D(), layers.Dense(3)]
            )
            options = {"momentum": 0.9, "nesterov": True} if optimizer == "SGD" else {}
            built = getattr(kerasish.optimizers, optimizer)(0.01, **options)
            model.compile(built, "mse")
            model.fit(x, np.ones((64, 3)), batch_size=16, epochs=3, verbose=0, shuffle=False)
            (executable,) = model.training_program.step("train").executables()
        return model, [u.name for u in executable.units]

    (rows, units), (table, plain) = trained(0), trained(np.inf)
    assert "update of rows" in units and "update of rows" not in plain
    for a, b in zip(rows.variables, table.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_an_index_outside_is_an_error_that_changes_nothing_else():
    step = backends.get("static").compile(sgd)
    wrong = INDICES.copy()
    wrong[1, 1] = 600
    with pytest.raises(IndexError, match="out of range"):
        step(TABLE, AVERAGE, ROWS, wrong)
    want = sgd(*map(kerasish.Tensor, ARGUMENTS))
    np.testing.assert_allclose(step(*ARGUMENTS), want, rtol=1e-6, atol=1e-6)
