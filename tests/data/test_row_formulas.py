"""Functions of `map` that the engine computes while it gathers rows: the bits of their calls."""

from __future__ import annotations

import itertools
import math
import re
import threading
import warnings

import numpy as np
import pytest

import kerasish as keras
from kerasish import config, layers
from kerasish.backends.static.codegen.driver import Program, UnmetConditionError
from kerasish.backends.static.runtime.row_runs import UNSURE, RowGather
from kerasish.callbacks import Callback, NaNAutopsy
from kerasish.data import Dataset
from kerasish.data.row_calls import RowCalls
from kerasish.engine.data.rows import RowsAhead
from kerasish.engine.data.source import SourceData
from kerasish.engine.training import blocks
from kerasish.row_formulas import MappedRows, RowFormula, by_row

MEAN = np.linspace(-1, 1, 21, dtype="float32").reshape(7, 3)
CHANNELS = np.array([0.25, 0.5, 2.0])
SCALE = 255.0
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-40, -1e-45, 1e-30, 3.1, 7e11, 255.0, 16777217.0]

# Of x, 7 rows of 3 numbers.
FORMULAS = [
    lambda x: x * 2.0,
    lambda x: x / 255,
    lambda x: 1 / (x * x + 1),
    lambda x: x + x,
    lambda x: 1 - x,
    lambda x: -x,
    lambda x: abs(x) + 1,
    lambda x: x * 3 + 2,
    lambda x: (x - MEAN) / 0.5,
    lambda x: (x / SCALE - CHANNELS) * CHANNELS,
    lambda x: x.astype("float32") / 255.0,
    lambda x: x.astype("float64") * 0.1,
    lambda x: np.sqrt(abs(x)),
    lambda x: np.square(x) - x**2 + x,
    lambda x: x.reshape(21) * 0.1,
    lambda x: (x[..., None] + 0.5).reshape(3, 7),
    lambda x: np.expand_dims(x, 0) * 2,
    lambda x: x.flatten() - [0.5] * 21,
    lambda x: np.asarray(x, "float64").ravel() / 3,
    lambda x: np.squeeze(x[None], 0).copy() - np.float32(0.1),
    lambda x: x * np.float64(0.1),
    lambda x: x + True,
    lambda x: x[:] * 1e-3,
    lambda x: x,
    lambda x: x.reshape(3, 7),
]
INTEGERS = [
    lambda x: x.astype("int32"),
    lambda x: x.astype("uint8") + 1,
    lambda x: x.astype("int64") * x,
]
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def numbers(dtype, rows=40, seed=0):
    """Rows of 7 x 3 numbers, with the special ones of the dtype among them."""
    draw = np.random.default_rng(seed)
    if dtype == "bool":
        return draw.integers(0, 2, (rows, 7, 3)).astype(bool)
    if dtype.startswith("float"):
        pool = np.array(FLOATS, dtype)
    else:
        limits = np.iinfo(dtype)
        pool = np.array([0, 1, 2, 77, limits.max, limits.min, limits.max - 1], dtype)
    x = draw.normal(size=(rows, 7, 3)) * 100
    x = x.astype(dtype) if dtype.startswith("f") else draw.integers(0, 100, x.shape).astype(dtype)
    return np.where(draw.random(x.shape) < 0.5, pool[draw.integers(0, len(pool), x.shape)], x)


def formula_of(function, columns, order=None, size=0):
    """The columns of a function's results, or None."""
    leaf = keras.tree.flatten(columns)[0]
    order = np.arange(len(leaf)) if order is None else order
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ahead = RowCalls(function).formulas(RowsAhead(columns, order, size))
    return None if ahead is None else ahead.columns


def computed(rows, order, threads=1):
    """Rows as the engine computes them; None where it says that NumPy may have a warning."""
    target = np.full((len(order), *rows.shape[1:]), 7, rows.dtype)
    gather = RowGather([rows], [target], threads)
    gather.start(np.ascontiguousarray(order, np.int64))
    try:
        Program(gather.records).run()
    except UnmetConditionError as error:
        if error.number != UNSURE:
            raise
        return None
    return target


def assert_bits(one, other):
    assert one.dtype == other.dtype and one.shape == other.shape
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", [*DTYPES, "float32", "float64"])
def test_the_bits_are_those_of_numpy(dtype):
    x, order = numbers(dtype), np.random.default_rng(1).permutation(40)[:33]
    used = 0
    functions = FORMULAS if dtype.startswith("float") else [*FORMULAS, *INTEGERS]
    for function, threads in itertools.product(functions, (1, 2)):
        columns = formula_of(function, x, order)
        if columns is None:  # such as -x of booleans, an error of NumPy
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.stack([function(row) for row in x[order]])
        assert_bits(columns.take(order), expected)
        assert_bits(computed(columns, order, threads), expected)
        used += 1
    assert used >= 40 - 8 * (dtype == "bool")


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 784, 5000])
def test_rows_of_any_length(columns):
    x = np.random.default_rng(2).normal(size=(9, columns)).astype("float32")
    order = np.array([8, 0, 3, 3, 5])
    for threads in (1, 2, 3):
        mapped = formula_of(lambda x: x * 3 + 1, x)
        assert_bits(computed(mapped, order, threads), x[order] * 3 + 1)


def test_results_that_may_have_a_warning_are_not_used():
    x = np.ones((6, 7, 3), "float32")
    x[3, 2, 1], x[4, 0, 0], x[5, 6, 2] = 3e38, np.nan, 0
    mapped = formula_of(lambda x: (2 * x) * 2 / x, x, np.arange(3))
    good, every = computed(mapped, np.arange(3)), [3, 4, 5]
    assert_bits(good, np.full((3, 7, 3), 4, "float32"))
    for row in every:
        for threads in (1, 2):
            assert computed(mapped, np.array([0, row, 1]), threads) is None
    # An infinite number on the way, none at the end.
    mapped = formula_of(lambda x: 1 / (x * 10), x, np.arange(3))
    assert computed(mapped, np.array([3])) is None


def test_an_index_out_of_range_is_an_error():
    mapped = formula_of(lambda x: x * 2, np.ones((4, 2)))
    gather = RowGather([mapped], [np.zeros((2, 2))])
    gather.start(np.array([0, 4]))
    with pytest.raises(RuntimeError, match="index is out of range"):
        Program(gather.records).run()


OTHERS = [
    lambda x: np.exp(x),
    lambda x: x * x.sum(),
    lambda x: x * x[0, 0],
    lambda x: x[::-1],
    lambda x: x.T,
    lambda x: x[1:],
    lambda x: x.astype("int32"),
    lambda x: np.maximum(x, 0),
    lambda x: x > 0,
    lambda x: (x, 1.0),
    lambda x: np.stack([x, x]),
    lambda x: x[:, :1] + x,
    lambda x: x * np.random.rand(),
    lambda x: x.astype(bool),
]


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_other_functions_have_no_formula(number):
    assert formula_of(OTHERS[number], numbers("float32")) is None


def test_other_rows_have_no_formula():
    x = numbers("float32")
    assert formula_of(lambda x: x * 2, np.asfortranarray(x)) is None
    assert formula_of(lambda x: x * 2, np.ones((3, 2), "float16")) is None
    assert formula_of(lambda x: x * 2, x.astype(">f4")) is None
    assert formula_of(lambda x: x * 2, x, np.arange(0)) is None
    assert formula_of(lambda x: x * 2, np.ones((3, 0), "float32")) is None
    assert formula_of(lambda x: x + 1, np.arange(9)) is None  # single integers may overflow
    assert formula_of(lambda x: x * 2, x, size=41) is None
    assert formula_of(lambda x: x[:2] * 2, x, np.array([3])) is None
    with np.errstate(under="warn"):
        assert formula_of(lambda x: x * 2, x) is None
    with np.errstate(all="ignore"):
        assert formula_of(lambda x: x * 2, x) is not None


def test_batches_have_the_formula_of_their_rows():
    x, order = numbers("float32"), np.random.default_rng(1).permutation(40)
    by_row = [
        lambda x: x / 2 - MEAN,
        lambda x: x.reshape(-1, 21) * 2,
        lambda x: x.reshape(-1) * 0.5 * np.ones((len(x), 1, 1)).reshape(-1)[0],
        lambda x: x * np.ones((8, 1, 1)),
    ]
    for number, function in enumerate(by_row):
        mapped = formula_of(function, x, order, 8)
        if number == 2:
            assert mapped is None  # the rows of the result are not those of the batch
            continue
        assert_bits(computed(mapped, order[8:16]), function(x[order[8:16]]))
    ranks = np.arange(8.0).reshape(8, 1, 1)
    assert formula_of(lambda x: x * ranks, x, order, 8) is None
    assert formula_of(lambda x: x[:4] * 2, x, order, 8) is None


def test_formulas_of_formulas():
    x, order = numbers("uint8"), np.arange(40)
    first = formula_of(lambda x: (x / 255.0, x.astype("int32")), x)
    second = formula_of(lambda a, b: (a - MEAN, {"b": b, "c": a * a}), first)
    third = formula_of(lambda a, rest: (a * rest["c"], rest["b"]), second, order, 8)
    a = x / 255.0
    expected = (a - MEAN) * (a * a)
    assert_bits(computed(third[0], order), expected)
    assert_bits(third[0].take(order), expected)
    assert_bits(computed(third[1], order), x.astype("int32"))


def test_equal_parts_are_computed_once():
    root = RowFormula("input", "float64", content=np.arange(3.0)[:, None])
    for _ in range(60):  # 2**60 parts of a tree
        root = RowFormula("multiply", "float64", (root, root))
    assert root.count() == 60
    assert MappedRows(root, (3, 1)).take(np.array([1, 0]))[:, 0].tolist() == [1.0, 0.0]
    assert by_row(root, 0).count() == 60


def test_long_formulas_are_not_used():
    def long(x):
        for _ in range(65):
            x = x * 1.01
        return x

    assert formula_of(long, np.ones((3, 2))) is None


STEPS = [
    "v + w", "v - w", "v * w", "v / w", "v / 3", "1 - v", "abs(v)", "-v", "v * 0.1", "v + MEAN",
    "v / CHANNELS", "np.sqrt(abs(v))", "v**2", "v.astype('float64')", "v.astype('float32')",
    "v.reshape(21).reshape(7, 3)", "v[None][0:1].reshape(7, 3)", "v * v - v", "v * SCALE + 1",
]  # fmt: skip


def random_function(draw):
    """A function of random steps, each of values before it, and its source."""
    lines = []
    for number in range(1, draw.integers(2, 9)):
        v, w = (f"t{draw.integers(0, number)}" for _ in range(2))
        step = re.sub(r"\bv\b", v, re.sub(r"\bw\b", w, STEPS[draw.integers(0, len(STEPS))]))
        lines.append(f"    t{number} = {step}")
    source = "\n".join(["def f(t0):", *lines, f"    return {lines[-1].split()[0]}"])
    scope = {"np": np, "MEAN": MEAN, "CHANNELS": CHANNELS, "SCALE": SCALE}
    exec(source, scope)
    return scope["f"], source


def test_random_formulas():
    used = refused = 0
    for seed in range(80):
        draw = np.random.default_rng(seed)
        function, source = random_function(draw)
        x = numbers(str(draw.choice([*DTYPES[1:], "float32", "float64"])), seed=seed)
        size = int(draw.choice([0, 8]))
        order = np.random.default_rng(seed).permutation(40)
        if x.dtype.kind == "f":
            x[order[-1], 0, 0] = draw.choice([1.0, 3e38, np.nan])
        columns = formula_of(function, x, order, size)
        if columns is None:
            continue
        result = computed(columns, order[32:], int(draw.integers(1, 3)))
        refused += result is None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if result is None else "error")
            expected = np.stack([function(row) for row in x[order[32:]]])
        if result is not None:
            used += 1
            assert result.tobytes() == expected.tobytes(), source
    assert used > 25
    assert refused > 3


# --- in fit ---------------------------------------------------------------------------------------
ROWS = 203
X = np.random.default_rng(3).integers(0, 256, (ROWS, 6)).astype("uint8")
Y = np.random.default_rng(4).integers(0, 3, ROWS)


@pytest.fixture(autouse=True)
def static():
    before = config.backend()
    config.set_backend("static")
    yield
    config.set_backend(before)


@pytest.fixture
def runs(monkeypatch):
    """The numbers of batches that were run as rows in memory."""
    counts, leave = [], SourceData.leave_out

    def spy(self, count):
        counts.append(count)
        leave(self, count)

    monkeypatch.setattr(SourceData, "leave_out", spy)
    return counts


class Batches(Callback):
    """Wants every batch: each is read."""

    def on_train_batch_end(self, batch, logs=None):
        pass


def train(dataset, callbacks=(), epochs=2, first=None):
    keras.utils.set_random_seed(1)
    hidden = [layers.Dense(9, "relu")] if first is None else first()
    model = keras.Sequential([keras.Input((6,)), *hidden, layers.Dense(3, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(dataset, epochs=epochs, verbose=0, callbacks=list(callbacks))
    return [np.array(v) for v in (*model.variables, *model.optimizer.variables)], dict(
        model.history.history
    )


def assert_same(one, other):
    np.testing.assert_equal(one[1], other[1])
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(a, b)


def prepared(x, y):
    return x / SCALE - 0.5, y.astype("int32")


CHAINS = {
    "elements": lambda rows: rows.map(prepared).shuffle(ROWS, 1).batch(8),
    "elements, prefetch": lambda rows: rows.map(prepared).shuffle(ROWS, 1).batch(8).prefetch(2),
    "AUTOTUNE": lambda rows: rows.map(prepared, num_parallel_calls=-1).batch(8).prefetch(2),
    "batches": lambda rows: rows.shuffle(ROWS, 1).batch(8).map(prepared).prefetch(2),
    "a part": lambda rows: rows.skip(9).map(prepared).take(100).batch(8, drop_remainder=True),
    "passes": lambda rows: rows.map(prepared).shuffle(ROWS, 1).repeat(2).batch(8),
}


@pytest.mark.parametrize("name", CHAINS)
def test_training_is_the_same(name, runs):
    chain = CHAINS[name](Dataset.from_tensor_slices((X, Y)))
    by_rows = train(chain)
    assert sum(runs) > 20
    runs.clear()
    assert_same(by_rows, train(chain, [Batches()]))
    assert not runs


@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_few_rows(rows, runs):
    chain = Dataset.from_tensor_slices((X[:rows], Y[:rows])).map(prepared).batch(8)
    assert_same(train(chain), train(chain, [Batches()]))
    one = Dataset.from_tensor_slices((X[:rows], Y[:rows])).map(prepared).batch(1)
    runs.clear()
    by_rows = train(one)
    assert sum(runs) == 2 * rows - 1  # the first batch is read before the training
    assert_same(by_rows, train(one, [Batches()]))


def test_batches_with_warnings_are_read(runs):
    x = X.astype("float32")
    x[100, 3] = 3e38

    def doubled(x, y):
        return x * 2, y

    chain = Dataset.from_tensor_slices((x, Y)).map(doubled).batch(8)
    with pytest.warns(RuntimeWarning, match="overflow"):
        by_rows = train(chain, epochs=1)
    assert sum(runs) == 25 - 2  # not the first batch, and not that of row 100
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert_same(by_rows, train(chain, [Batches()], epochs=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="overflow") as caught:
            train(chain, epochs=1)
    assert "element 100 of the pass" in "".join(
        getattr(caught.value, "__notes__", ["element 100 of the pass"])
    )


def test_data_with_many_missing_numbers_is_read(runs):
    x = X.astype("float32")
    x[9::9, 1] = np.nan
    chain = Dataset.from_tensor_slices((x, Y)).map(lambda x, y: (x * 2, y)).batch(8)
    by_rows = train(chain)
    assert runs == [1]  # the first batch of the second epoch; the others are no more tried
    assert_same(by_rows, train(chain, [Batches()]))


def test_values_outside_may_change_between_runs(monkeypatch):
    """As between batches that are read: here a run is one batch."""
    monkeypatch.setattr(blocks, "SECONDS_BETWEEN_UPDATES", 0.0)
    factor, scale, changes = np.ones(6, "float32"), 1.0, 0

    def change():
        nonlocal scale, changes
        factor[2], scale, changes = factor[2] + 1, scale * 0.5, changes + 1

    def function(x, y):
        return x * factor * scale, y

    class Changes(Batches):
        def on_train_batch_end(self, batch, logs=None):
            if batch:  # the first one is run before there are rows
                change()

    leave = SourceData.leave_out

    def leave_out(self, count):
        leave(self, count)
        for _ in range(count):
            change()

    monkeypatch.setattr(SourceData, "leave_out", leave_out)
    chain = Dataset.from_tensor_slices((X[:200], Y[:200])).map(function).batch(8)
    by_rows = train(chain, epochs=1)
    assert changes == 24
    factor[:], scale = 1.0, 1.0
    assert_same(by_rows, train(chain, [Changes()], epochs=1))


def test_an_array_outside_is_copied_before_the_run():
    mean, factor = MEAN.copy(), np.array(0.5, "float32")
    mapped = formula_of(lambda x: (x - mean) * factor, numbers("float32"))
    expected = (numbers("float32") - mean) * factor
    mean[:], factor[()] = 9, 9
    assert_bits(computed(mapped, np.arange(40)), expected)


def test_the_place_in_the_data_is_exact(runs):
    chain = CHAINS["elements, prefetch"](Dataset.from_tensor_slices((X, Y)))
    iterator, other = chain.open_pass(1), chain.open_pass(1)
    assert_bits(next(iterator)[0], next(other)[0])
    ahead = iterator.rows_ahead()
    for number in range(3):
        rows = ahead.order[number * 8 : number * 8 + 8]
        assert_bits(ahead.columns[0].take(rows), next(other)[0])
    assert iterator.skip(3) == 3
    again = chain.open_pass(0)
    again.restore(iterator.state())
    for a, b, c in zip(iterator, other, again, strict=True):
        assert_bits(a[0], b[0])
        assert_bits(a[0], c[0])


def test_wrong_labels_are_found_before_their_batch():
    labels = Y.copy()
    labels[100] = 5
    chain = Dataset.from_tensor_slices((X, labels)).map(lambda x, y: (x / 255, y - 0.0)).batch(8)
    with pytest.raises(ValueError, match="5"):
        train(chain)
    cast = Dataset.from_tensor_slices((X, labels)).map(prepared).batch(8)
    with pytest.raises(ValueError, match="5"):
        train(cast)


def test_labels_are_checked_again_where_their_formula_has_changed(monkeypatch):
    monkeypatch.setattr(blocks, "SECONDS_BETWEEN_UPDATES", 0.0)
    leave, offset, counts = SourceData.leave_out, 0.0, []

    def leave_out(self, count):
        nonlocal offset
        leave(self, count)
        counts.append(count)
        offset = 3.0 if len(counts) == 5 else 0.0

    def function(x, y):
        return x / 255, y.astype("float32") + offset

    monkeypatch.setattr(SourceData, "leave_out", leave_out)
    with pytest.raises(ValueError, match="numbers 0 to 2"):
        train(Dataset.from_tensor_slices((X, Y)).map(function).batch(8))
    assert counts == [1] * 5


def test_embeddings_get_checked_batches(runs):
    def lookup(count):
        return lambda: [layers.Embedding(count, 2), layers.Flatten()]

    chain = Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x.astype("int32"), y)).batch(8)
    by_rows = train(chain, first=lookup(256))
    assert not runs
    assert_same(by_rows, train(chain, [Batches()], first=lookup(256)))
    with pytest.raises(ValueError, match="Embedding"):
        train(chain, first=lookup(200))


def test_callbacks_that_watch_steps_read_the_batches(runs, tmp_path):
    chain = CHAINS["elements"](Dataset.from_tensor_slices((X, Y)))
    assert_same(train(chain, [NaNAutopsy(tmp_path / "crash")], epochs=1), train(chain, epochs=1))
    runs.clear()
    train(chain, [keras.callbacks.Profiler(tmp_path / "steps.html", batches=(90, 95))], epochs=1)
    assert not runs


def test_two_trainings_at_once():
    chains = [CHAINS[name](Dataset.from_tensor_slices((X, Y))) for name in ("elements", "batches")]
    results = {}

    def run(number):
        config.set_backend("static")
        results[number] = [
            [next(it)[0] for _ in range(5)] for it in [chains[number].open_pass(0)]
        ] + [chains[number].open_pass(0).rows_ahead().columns[0].take(np.arange(8))]

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_bits(results[0][1], results[1][1])
    assert math.prod(results[0][1].shape) == 48
