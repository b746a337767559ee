"""The static engine: what is compiled again, and what is said of it."""

import itertools

import numpy as np
import pytest

import kerasish
from kerasish import backends, ops
from kerasish.backends.static import engine
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.runtime.row_runs import can_gather
from kerasish.errors import TraceError
from kerasish.graph import passes


def test_python_values_that_always_change_are_an_error():
    scaled = kerasish.function(lambda x, n: x * n)
    x = np.ones(2, "float32")
    for n in range(32):
        scaled(x, n)
    with pytest.raises(TraceError, match=r"compiled 32 times.*32 instead of 0.*np\.asarray"):
        scaled(x, 32)
    scaled(x, 3)  # what is compiled stays so
    for n in range(40):
        assert scaled(x, np.float32(n)).tolist() == [n, n]


def test_compilations_are_explained(capsys):
    kerasish.config.explain_compiles()
    try:
        scaled = kerasish.function(lambda x, n: x * n)
        scaled(np.ones(2, "float32"), 2.0)
        scaled(np.ones(3, "float32"), 2.0)
        scaled(np.ones(3, "float32"), 5.0)
    finally:
        kerasish.config.explain_compiles(False)
    first, second, third = capsys.readouterr().err.splitlines()
    assert "first call" in first
    assert "float32[3] instead of float32[2]" in second
    assert "5.0 instead of 2.0" in third


@pytest.mark.parametrize("level", ["fast_run", "fast_compile", "none"])
def test_levels_give_equal_numbers(level, monkeypatch):
    monkeypatch.setattr(kerasish.config._Settings, "optimize", "fast_run")
    kerasish.config.set_optimize(level)
    assert kerasish.config.optimize() == level
    kerasish.utils.set_random_seed(0)
    layers = kerasish.layers
    model = kerasish.Sequential(
        [kerasish.Input((8, 8, 2)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten(),
         layers.Dropout(0.2), layers.Dense(3, activation="softmax")]
    )  # fmt: skip
    model.compile("adam", "sparse_categorical_crossentropy")
    x = np.random.default_rng(0).normal(size=(40, 8, 8, 2)).astype("float32")
    losses = model.fit(x, np.arange(40) % 3, batch_size=16, epochs=2, verbose=0).history["loss"]
    _seen.setdefault("losses", losses)
    np.testing.assert_allclose(losses, _seen["losses"], rtol=1e-5)
    fused = [n for _, g in model.training_program.step("train").graphs()[1:] for n in g.nodes]
    assert ("fused" in {n.op.name for n in fused}) == (level == "fast_run")


_seen = {}


@pytest.mark.parametrize("rows", [3, 70])
@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_transposed_matrices_meet_one_matrix(axes, rows):
    """Their rows follow each other in memory for some orders of the axes only."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4, 50)).astype("float32")
    w = rng.normal(size=(x.shape[axes[-1]], 6)).astype("float32")
    product = kerasish.function(lambda x, w: ops.matmul(ops.transpose(x, axes), w))
    np.testing.assert_allclose(product(x, w), x.transpose(axes) @ w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "axes", "matrix"),
    [
        ((8, 6, 64, 40), (0, 3, 1, 2), True),  # 320 matrices of 6 rows, with separate columns
        ((8, 40, 6, 64), (0, 2, 1, 3), False),  # 48 matrices of 40 rows
        ((8, 64, 40), (0, 2, 1), False),
    ],
)
def test_many_small_matrices_are_copied_before_one_product(shape, axes, matrix):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    w = np.ones((x.shape[axes[-1]], 8), "float32")
    product = kerasish.backends.get("static").compile(
        lambda x, w: ops.matmul(ops.transpose(x, axes), w)
    )
    result = np.asarray(product(x, w))
    np.testing.assert_allclose(result, x.transpose(axes) @ w, rtol=1e-4, atol=1e-4)
    units = [unit.name for unit in product.executables()[0].units]
    assert len(units) == (2 if matrix else 1) and units[-1] == "matmul"


def test_gradients_of_two_poolings_belong_to_their_own_data():
    x, y = np.random.default_rng(0).normal(size=(2, 2, 8, 8, 4)).astype("float32")

    def total(x, y):
        return ops.sum(ops.max_pool(x, 2) * 2) + ops.sum(ops.max_pool(y, 2) * 3)

    # With the total itself asked for, the maxima are computed, and keep their places.
    value, slopes = kerasish.function(kerasish.value_and_grad(total, argnums=(0, 1)))(x, y)
    for data, slope, factor in zip((x, y), slopes, (2, 3)):
        blocks = data.reshape(2, 4, 2, 4, 2, 4)
        largest = (blocks == blocks.max((2, 4), keepdims=True)).reshape(data.shape)
        np.testing.assert_array_equal(slope, factor * largest)
    assert float(value) == pytest.approx(float(total(ops.array(x), ops.array(y))), rel=1e-5)


def test_only_rows_as_the_step_reads_them_are_gathered():
    target = np.zeros((4, 3), "float32")
    x = np.ones((8, 3), "float32")
    assert can_gather([x], [target])
    assert not can_gather([], [])
    others = {
        "dtype": x.astype("float64"), "byte order": x.astype(x.dtype.newbyteorder()),
        "columns": x[:, :2].copy(), "order in memory": np.asfortranarray(x), "steps": x[::2],
        "no rows": x[:0], "a list": x.tolist(),
    }  # fmt: skip
    assert not [name for name, other in others.items() if can_gather([x, other], [target] * 2)]


@pytest.mark.parametrize("rates", [(2.0, 2.0), (2.0, 3.0)])
def test_updates_of_several_variables_have_each_its_rate(rates):
    """Equal loops over values of other sizes are one record only where they read one rate."""

    def move(x, y, one, other):
        return ops.exp(x) * one, ops.exp(y) * other

    x, y = np.arange(5, dtype="float32"), np.arange(7, dtype="float32")
    result = backends.get("static").compile(move)(x, y, *np.array(rates, "float32"))
    np.testing.assert_allclose(result[0], np.exp(x) * rates[0], rtol=1e-5)
    np.testing.assert_allclose(result[1], np.exp(y) * rates[1], rtol=1e-5)


def test_plans_of_one_level_of_the_processor_serve_no_other(monkeypatch):
    created = []
    for level in ("sse", "avx2", "sse"):
        monkeypatch.setenv("KERASISH_CPU", level)
        before = engine.COMPILED_PLANS.count
        kerasish.function(lambda x: ops.tanh(x * 1.3125) - 0.71875)(np.ones(7, "float32"))
        created.append(engine.COMPILED_PLANS.count - before)
    assert created == [1, 1, 0]


def test_unknown_levels():
    with pytest.raises(ValueError, match="fast_run.*'fastest'"):
        kerasish.config.set_optimize("fastest")


def record_passes(monkeypatch, marker):
    """Return a set that gathers the names of the passes that see a graph with the op `marker`."""
    seen = set()

    def recorded(step):
        def run(graph):
            if any(node.op.name == marker for node in graph.nodes):
                seen.add(step.__name__)
            return step(graph)

        run.__name__ = step.__name__
        return run

    for level, (rounds, steps) in passes.LEVELS.items():
        monkeypatch.setitem(passes.LEVELS, level, (rounds, tuple(map(recorded, steps))))
    monkeypatch.setattr(passes, "FUSION_PASSES", tuple(map(recorded, passes.FUSION_PASSES)))
    return seen


BODIES = {
    "cond": lambda x: ops.cond(ops.sum(x) > 0, lambda: ops.sinh(x), lambda: x),
    "switch": lambda x: ops.switch(ops.cast(x[0], "int32"), [ops.cosh, ops.sinh], x),
    "while_loop": lambda x: ops.while_loop(
        lambda i, y: i < ops.cast(ops.sum(x), "int32"), lambda i, y: (i + 1, ops.sinh(y)), (0, x)
    )[1],
    "scan": lambda x: ops.scan(lambda c, _: (ops.sinh(c), None), x, None, length=20)[0],
    "nested": lambda x: ops.cond(
        ops.sum(x) > 0,
        lambda: ops.scan(lambda c, _: (ops.sinh(c), None), x, None, length=20)[0],
        lambda: x,
    ),
}


@pytest.mark.parametrize("level", ["fast_run", "fast_compile", "none"])
@pytest.mark.parametrize("kind", BODIES)
def test_branches_and_loop_bodies_go_through_the_passes_of_the_level(kind, level, monkeypatch):
    monkeypatch.setattr(kerasish.config._Settings, "optimize", level)
    steps = passes.LEVELS[level][1] + (passes.FUSION_PASSES if level == "fast_run" else ())
    # These run on fused loops, in which no op is seen by its name.
    on_loops = {"hoist_exchanges", "recompute_cheap", "recompute_late"}
    expected = {step.__name__ for step in steps} - on_loops
    seen = record_passes(monkeypatch, "sinh")
    x = np.array([1.0, 0.0], "float32")
    compiled = kerasish.backends.get("static").compile(lambda x: BODIES[kind](x) * (1.0 + 0 * x))
    got = compiled(x).numpy()
    assert seen == expected
    np.testing.assert_allclose(got, kerasish.ops.convert_to_numpy(BODIES[kind](x)), rtol=1e-5)


def test_a_level_given_to_a_function_holds_in_its_bodies(monkeypatch):
    seen = record_passes(monkeypatch, "sinh")
    x = np.array([1.0, 0.0], "float32")
    kerasish.backends.get("static").compile(BODIES["cond"], optimize="none")(x)
    assert not seen
    kerasish.backends.get("static").compile(BODIES["cond"], optimize="fast_compile")(x)
    assert seen == {"drop_dead", "fold_constants"}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rows_are_picked_up_to_the_last_and_no_further(dtype):
    table = np.arange(15, dtype="float32").reshape(5, 3)
    take = backends.get("static").compile(lambda t, i: ops.take(t, i, 0))
    for places in ([0, 4], [-5, -1]):
        result = take(table, np.asarray(places, dtype)).numpy()
        np.testing.assert_array_equal(result, table[places])
    for places in ([0, 5], [-6, 0]):
        with pytest.raises(IndexError, match="out of range"):
            take(table, np.asarray(places, dtype))


@pytest.mark.parametrize(("columns", "threads"), [(4, 1), (4096, 2), (4096, 3)])
def test_large_batches_are_gathered_by_the_threads_of_the_program(columns, threads):
    x = np.random.default_rng(0).integers(-3, 4, (512, columns)).astype("float32")
    order = np.random.default_rng(1).permutation(512)
    kernel = np.ones((columns, 256), "float32")
    with kerasish.config.using_threads(max(threads, 2)):
        total = kerasish.Variable(np.zeros((256, 256), "float32"))

        def add(batch):
            total.assign(total + ops.matmul(batch, kernel))

        step = backends.get("static").compile(add)
        step(x[:256] * 0.0)
        run = step.over_rows([x], lambda parts: (parts[0],), order, 256)
        assert [r.block[arguments.THREADS] for r in run._gather.records] == [threads]
        assert run.run(60.0) == 2
    np.testing.assert_array_equal(total.numpy(), (x[order[:256]] + x[order[256:]]) @ kernel)
