"""Functions of `map` that are called for all rows of a block: the same bits, or not at all."""

from __future__ import annotations

import functools
import itertools
import math
import random
import time
import warnings

import numpy as np
import pytest

import kerasish as keras
from kerasish.data import Dataset
from kerasish.data.elements import rows_of, stack, to_element
from kerasish.data.row_calls import RowCalls, call_by_rows
from kerasish.data.row_values import NotRowWise
from kerasish.data.selecting import call

MEAN = np.array([0.5, 0.25, 0.125], "float32")
WEIGHTS = np.array([1.0, 3.0, 0.5, 2.0])
TABLE = np.arange(12.0).reshape(4, 3)
SCALE = 255.0
COUNTS = {"calls": 0}
CALLS: list[int] = []
CALLED = 0


def doubled(x):
    return x * 2


def scaled(x, mean=MEAN, *, factor=0.5):
    return (x - mean) * factor


def nested(x, y):
    def inner(v):
        return v / SCALE + offset

    offset = 1
    return inner(x), y


def checked_shape(x, y):
    if x.shape != (4, 3) or x.ndim != 2:
        raise ValueError(f"shape {x.shape}")
    return x[::-1], len(x) + y


def one_hot(x, y):
    return x, np.eye(4, dtype="float32")[y]


# --- (x: float32[4, 3], y: int64 0 .. 3) ----------------------------------------------------------
EQUAL = [
    lambda x, y: (x, y),
    lambda x, y: (x * 2.0, y),
    lambda x, y: (x / 255, y + 1),
    lambda x, y: (1 - x, -y),
    lambda x, y: ((x - MEAN) / 0.5, y),
    lambda x, y: (scaled(x), y * 3 - 1),
    lambda x, y: (scaled(x, factor=2), WEIGHTS[y]),
    lambda x, y: (x + TABLE, TABLE[y]),
    lambda x, y: (x.astype("float64") / 3, y.astype(np.int32)),
    lambda x, y: (x.astype(np.float32), y.astype("float32") / 7),
    lambda x, y: (x > 0, y == 2),
    lambda x, y: (np.where(x > 0, x, 0.0), np.where(y > 1, 1, 0)),
    lambda x, y: {"b": x * x, "a": y},
    lambda x, y: {"x": {"deep": x}, "pair": (y, y)},
    lambda x, y: (x, x),
    lambda x, y: ((x, y), {"z": x + y}),
    lambda x, y: (x.reshape(12), y),
    lambda x, y: (x.reshape(-1, 2) + 1, y),
    lambda x, y: (x.reshape((3, 4)).T, y),
    lambda x, y: (x.flatten(), y),
    lambda x, y: (x.ravel() * 3, y),
    lambda x, y: (x.transpose(1, 0), y),
    lambda x, y: (x[..., None], y),
    lambda x, y: (x[1], y),
    lambda x, y: (x[1:3, -1], y),
    lambda x, y: (x[::-1, ::2] * 2, y),
    lambda x, y: (x[0, 0] + y, y),
    lambda x, y: (np.expand_dims(x, -1), y),
    lambda x, y: (np.stack([x, x * 2], axis=-1), y),
    lambda x, y: (np.concatenate([x, TABLE.astype("float32")], axis=0), y),
    lambda x, y: (np.flip(x, 1), y),
    lambda x, y: (np.moveaxis(x, 0, 1).copy(), y),
    lambda x, y: (np.squeeze(x[:, :1]), y),
    lambda x, y: (x.swapaxes(0, 1), y),
    lambda x, y: (x.sum(), y),
    lambda x, y: (x - x.mean(), y),
    lambda x, y: ((x - x.mean()) / (x.std() + 1e-6), y),
    lambda x, y: (np.mean(x, axis=(0, 1), keepdims=True) * x, y),
    lambda x, y: (x.max(axis=0), x.min()),
    lambda x, y: (np.max(np.abs(x), axis=-1, keepdims=True), x.argmax()),
    lambda x, y: (x.argmin(axis=1), np.any(x > 0), (x > 0).sum(axis=1)),
    lambda x, y: (np.clip(np.abs(x), 0.25, 0.75), y),
    lambda x, y: (np.maximum(np.abs(x), 0.5), np.minimum(y, 2)),
    lambda x, y: (np.sqrt(np.abs(x)), np.sign(x)),
    lambda x, y: (x**2 + np.square(x), np.floor(x) + np.rint(x)),
    lambda x, y: (y % 3, y // 2),
    lambda x, y: ((y > 0) & (y < 3) | (y == 0), ~(x > 0)),
    lambda x, y: (np.asarray(x, dtype="float64"), np.array(y, dtype="int8")),
    lambda x, y: (x, 1.0),
    lambda x, y: (x, y, np.ones(2)),
    lambda x, y: (x - [1, 2, 3], y),
    lambda x, y: (math.sqrt(2.0) * x + np.pi, y),
    lambda x, y: (np.zeros_like(x) + x, np.isnan(x)),
    lambda *parts: parts,
    one_hot, nested, checked_shape,
]  # fmt: skip


def count_in_a_global(x, y):
    global CALLED
    CALLED += 1
    return x, y


def count_in_a_dict(x, y):
    COUNTS["calls"] += 1
    return x, y


def note_in_a_list(x, y):
    CALLS.append(1)
    return x, y


def printing(x, y):
    print("called")
    return x, y


def in_place(x, y):
    x *= 2
    return x, y


def change_an_array_outside(x, y):
    MEAN[:] = 0
    return x, y


def change_it_by_another_name(x, y):
    mean = MEAN
    mean += 1
    return x, y


def set_items(x, y):
    x[0] = 0
    return x, y


def catches(x, y):
    try:
        value = float(x)
    except TypeError:
        value = 1.0
    return x * value, y


NUMBERS = itertools.count()


def counted(x, y, numbers=NUMBERS):
    return x, next(numbers)


def decides(x, y):
    return (x, y) if x.sum() > 0 else (-x, y)


def warned(x, y):
    warnings.warn("called", stacklevel=2)
    return x, y


def nonlocal_counter():
    calls = 0

    def counting(x, y):
        nonlocal calls
        calls += 1
        return x, y

    return counting


class Scaler:
    factor = 2.0

    def __call__(self, x, y):
        return x * self.factor, y


# What depends on the value of an element, lasts beyond the call, or has no certain last bit.
BY_ELEMENT = [
    count_in_a_global, count_in_a_dict, note_in_a_list, printing, in_place, change_an_array_outside,
    change_it_by_another_name, set_items, catches,
    counted, nonlocal_counter(), decides, warned, Scaler(), functools.partial(one_hot),
    lambda x, y: (x + np.random.rand(), y),
    lambda x, y: (x + random.random(), y),
    lambda x, y: (x, time.time()),
    lambda x, y: (x, float(y)),
    lambda x, y: (x, int(y) + 1),
    lambda x, y: (x, y) if y > 1 else (x * 2, y),
    lambda x, y: (x, f"{y}"),
    lambda x, y: (np.exp(x), y),
    lambda x, y: (x @ MEAN, y),
    lambda x, y: (np.dot(x, MEAN), y),
    lambda x, y: (x.sum(axis=0), y),
    lambda x, y: (x[:, ::2].mean(), y),
    lambda x, y: (x**3, y),
    lambda x, y: (x**-1.0, y),
    lambda x, y: ([row.sum() for row in x], y),
    lambda x, y: (sum(x), y),
    lambda x, y: (np.array([y, y]), y),
    lambda x, y: (x[x > 0].sum(), y),
    lambda x, y: (x[y], y),
    lambda x, y: (keras.ops.cast(x, "float16"), y),
    lambda x, y: (np.sort(x), y),
    lambda x, y: (x, isinstance(x, np.ndarray)),
    lambda x, y: (x, type(y) is np.int64),
    lambda x, y: (x, hasattr(x, "ctypes")),
    lambda x, y: (x.astype("float16"), y),
    lambda x, y: (np.add(x, 1, dtype="float64"), y),
    lambda x, y: (np.add.reduce(x), y),
    lambda x, y: [x, x],
    lambda x, y: (np.float32(x), y),
    lambda x, y: (x, np.float64(y)),
    lambda x, y: (x, np.arange(4) * np.full(4, y)),
    lambda x, y: (x, {0: 1.0}.get(y, 2.0)),
    lambda x, y: (x, y in (1, 2)),
    lambda x, y: (x, max(y, 2)),
    lambda x, y: (x, "{}".format(y)),  # noqa: UP032 - what is tested
    lambda x, y: (x, min(MEAN.tolist())),
    lambda x, y: (x, y, COUNTS["calls"]),
    lambda x, y: (x + 1j, y),
    lambda x, y: (x, "text"),
    lambda x, y: (x, None),
]  # fmt: skip


def block_of(rows=33, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 4, 3)).astype("float32")
    return x, draw.integers(0, 4, rows)


def by_element(function, block, count):
    results = [to_element(call(function, row), str) for row in rows_of(block, count)]
    return stack(results, "map()", 0)


def assert_equal(one, other):
    flat, expected = keras.tree.flatten(one), keras.tree.flatten(other)
    keras.tree.assert_same_structure(one, other)
    for a, b in zip(flat, expected):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("number", range(len(EQUAL)))
def test_a_call_for_all_rows_gives_the_bits_of_calls_for_each(number):
    function = EQUAL[number]
    for rows, seed in ((1, 0), (2, 1), (33, 2), (128, 3)):
        block = block_of(rows, seed)
        result = call_by_rows(function, block, rows)
        assert_equal(result, by_element(function, block, rows))
        parts = keras.tree.flatten(result)
        assert all(p.flags.writeable and p.flags.c_contiguous for p in parts)
        assert not any(np.shares_memory(p, q) for p in parts for q in block)
        assert not any(np.shares_memory(p, q) for p, q in itertools.combinations(parts, 2))


@pytest.mark.parametrize("number", range(len(BY_ELEMENT)))
def test_other_functions_are_called_for_each_element(number, capsys):
    function, calls = BY_ELEMENT[number], RowCalls(BY_ELEMENT[number])
    before = CALLED, COUNTS["calls"], len(CALLS)
    assert calls(block_of(), 33) is None
    assert (CALLED, COUNTS["calls"], len(CALLS)) == before
    assert MEAN.tolist() == [0.5, 0.25, 0.125]
    assert not capsys.readouterr().out
    with pytest.raises(Exception):  # noqa: B017 - any error means: for each element
        call_by_rows(function, block_of(), 33)


# --- single functions of numbers, over special values and dtypes ----------------------------------
UNARY = [
    lambda x: x + 1, lambda x: 1 - x, lambda x: x * 3, lambda x: x / 7, lambda x: -x, lambda x: +x,
    lambda x: abs(x), lambda x: x == 1, lambda x: x != x, lambda x: x < 2, lambda x: x <= 0,
    lambda x: np.floor(x), lambda x: np.sqrt(x), lambda x: np.sign(x), lambda x: np.isfinite(x),
    lambda x: x.astype("int32"), lambda x: x.astype("uint8"), lambda x: x.astype("float32"),
    lambda x: x.astype("bool"), lambda x: np.maximum(x, 0), lambda x: np.clip(x, 0, 1),
    lambda x: x % 5, lambda x: x // 3, lambda x: x**2, lambda x: x + 0.5,
    lambda x: x * np.float64(2),
    lambda x: np.where(x > 0, x, -1), lambda x: ~x, lambda x: x & 3, lambda x: np.logical_not(x),
    lambda x: x.clip(0, 100), lambda x: x.round(), lambda x: x + x, lambda x: x * x - x,
]  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.nan, np.inf, -np.inf, 1e-40, 3e38, 255.0, 256.0, 2e9]


@pytest.mark.parametrize("shape", [(), (3,), (17,)])
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int32", "int64", "uint64", "float32", "float64"]
)
def test_special_numbers_and_dtypes(dtype, shape):
    draw, equal = np.random.default_rng(5), 0
    if dtype.startswith("f"):
        pool = np.array(SPECIAL, dtype)
    elif dtype == "bool":
        pool = np.array([False, True])
    else:
        limits = np.iinfo(dtype)
        pool = np.array([0, 1, 2, 3, 100, limits.max, limits.min, limits.max - 1], dtype)
    for function, tame in itertools.product(UNARY, (False, True)):
        chosen = pool[:5] if tame and dtype != "bool" else pool
        block = chosen[draw.integers(0, len(chosen), (19, *shape))]
        with warnings.catch_warnings(), np.errstate(all="warn"):
            warnings.simplefilter("ignore")
            try:
                result = call_by_rows(function, block, 19)
            except Exception:  # noqa: BLE001, S112 - it is called for each element then
                continue
            expected = by_element(function, block, 19)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
        nonzero = ~np.isnan(expected) if expected.dtype.kind == "f" else slice(None)
        assert result[nonzero].tobytes() == expected[nonzero].tobytes()
        equal += 1
    assert equal >= 20  # most functions are called for all rows


# --- random programs ------------------------------------------------------------------------------
def random_function(draw):
    """Return a function of random steps; each takes some value before it."""
    steps = [
        "v + w", "v - w", "v * w", "v / 3", "1 - v", "abs(v)", "v * 0.1", "v + MEAN", "v.T",
        "v.reshape(-1)", "v.reshape(-1)[::-1]", "v[..., None]", "v[1:]", "v[0]", "v - v.mean()",
        "v.sum()", "v.std()", "v.var()", "v.max(axis=0)", "np.where(v > w, v, w)", "v > 0",
        "v.astype('float64')", "np.stack([v, v])", "np.concatenate([v, v], axis=-1)", "v.argmax()",
        "np.sqrt(abs(v))", "np.floor(v)", "v**2", "np.maximum(v, 0.5)", "WEIGHTS[y]", "y + 1",
        "v / (abs(v).max() + 1)", "np.mean(v, axis=0)", "np.sum(v, axis=-1)", "v.transpose()",
    ]  # fmt: skip
    lines, names = [], ["x"]
    for number in range(draw.integers(1, 6)):
        v, w = draw.choice(names), draw.choice(names)
        step = draw.choice(steps).replace("np.", "n#.")
        step = "".join({"v": v, "w": w}.get(c, c) if _alone(step, i) else c
                       for i, c in enumerate(step))  # fmt: skip
        lines.append(f"    t{number} = {step.replace('n#.', 'np.')}")
        names.append(f"t{number}")
    source = "\n".join(["def f(x, y):", *lines, f"    return {names[-1]}, x"])
    scope = {"np": np, "MEAN": MEAN, "WEIGHTS": WEIGHTS}
    exec(source, scope)
    return scope["f"], source


def _alone(text, index):
    around = text[index - 1 : index] + text[index + 1 : index + 2]
    return not any(c.isalnum() or c == "_" for c in around)


def test_random_functions():
    by_rows = 0
    for seed in range(150):
        draw = np.random.default_rng(seed)
        function, source = random_function(draw)
        count = int(draw.integers(1, 40))
        block = block_of(count, seed)
        try:
            result = call_by_rows(function, block, count)
        except Exception:  # noqa: BLE001, S112 - it is called for each element then
            continue
        by_rows += 1
        try:
            assert_equal(result, by_element(function, block, count))
        except Exception as error:
            raise AssertionError(source) from error
    assert by_rows > 50


# --- in a pipeline --------------------------------------------------------------------------------
def batches(data):
    return [keras.tree.flatten(batch) for batch in data.as_numpy_iterator()]


def same_batches(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other):
        assert_equal(a, b)


def opaque(function):
    """Return a function that is called for each element: its calls are counted."""
    calls = []

    def counting(*parts):
        calls.append(1)
        return function(*parts)

    return counting, calls


CHAINS = {
    "map, batch": lambda d, f: d.map(f).batch(8),
    "map, shuffle, batch": lambda d, f: d.map(f).shuffle(100, 3).batch(8),
    "shuffle, map, batch": lambda d, f: d.shuffle(10, 3).map(f).batch(8, drop_remainder=True),
    "map, map, batch": lambda d, f: d.map(f).map(lambda x, y: (x + 1, y)).batch(7),
    "map, shuffle, repeat, batch": lambda d, f: d.map(f).shuffle(100, 3).repeat(3).batch(8),
    "skip, map, take, batch": lambda d, f: d.skip(3).map(f).take(21).batch(8).prefetch(2),
    "shard, map, batch, shuffle": lambda d, f: d.shard(2, 1).map(f).batch(4).shuffle(4, 1),
    "cache, map, batch": lambda d, f: d.cache().map(f).batch(8),
    "AUTOTUNE": lambda d, f: d.map(f, num_parallel_calls=-1).shuffle(100, 3).batch(8),
}


@pytest.mark.parametrize("name", CHAINS)
def test_pipelines_give_the_same_batches_and_go_on_at_any_place(name):
    data = Dataset.from_tensor_slices(block_of(50))
    counting, calls = opaque(one_hot)
    by_rows = CHAINS[name](data, one_hot)
    expected = batches(CHAINS[name](data, counting))
    assert calls
    same_batches(batches(by_rows), expected)
    if "repeat" in name:
        assert [len(batch[0]) for batch in expected] == [8] * 18 + [6]
    for place in range(len(expected)):
        iterator = by_rows.open_pass(0)
        for _ in range(place):
            next(iterator)
        again = by_rows.open_pass(0)
        again.restore(iterator.state())
        same_batches([keras.tree.flatten(b) for b in again], expected[place:])


def test_the_function_is_called_once_for_a_block_and_for_few_rows():
    data = Dataset.from_tensor_slices(block_of(100))
    calls = RowCalls(one_hot)
    assert calls(block_of(100), 100) is not None
    kept = batches(data.map(lambda x, y: (np.eye(4)[y], x)).batch(10))
    assert kept[3][0].shape == (10, 4)


def test_threads_draw_by_the_numbers_of_the_elements():
    def noisy(draw, i):
        return i + draw.normal()

    numbers = Dataset.range(40)
    expected = batches(numbers.random_map(noisy, seed=2).shuffle(40, 1).batch(8))
    for threads in (2, -1):
        there = numbers.random_map(noisy, seed=2, num_parallel_calls=threads)
        same_batches(batches(there.shuffle(40, 1).batch(8)), expected)


def test_values_outside_are_read_for_each_batch():
    factor = np.ones(1, "float32")
    scale = 1.0

    def function(x, y):
        return x * factor * scale, y

    data = Dataset.from_tensor_slices(block_of(8)).map(function).batch(4)
    x = block_of(8)[0]
    iterator = data.as_numpy_iterator()
    np.testing.assert_array_equal(next(iterator)[0], x[:4])
    factor[0], scale = 2.0, 3.0
    np.testing.assert_array_equal(next(iterator)[0], x[4:] * 6)


def test_errors_name_the_element():
    def function(x, y):
        return x, WEIGHTS[y]

    x, y = block_of(20)
    y[13] = 4
    data = Dataset.from_tensor_slices((x, y)).map(function).batch(8)
    with pytest.raises(IndexError, match="index 4 is out of bounds") as caught:
        batches(data)
    assert "element 13 of the pass" in "".join(
        getattr(caught.value, "__notes__", ["element 13 of the pass"])
    )


def test_warnings_stay():
    data = Dataset.from_tensor_slices(np.zeros((4, 2), "float32")).map(lambda x: 1 / x).batch(4)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert np.isinf(next(data.as_numpy_iterator())).all()


def test_rows_that_are_not_neighbors_in_memory():
    for array in (
        np.asfortranarray(block_of(20)[0]),
        block_of(40)[0][::2],
        block_of(20)[0][:, ::-1],
    ):
        for function in (lambda x: x * 2, lambda x: x - x.mean(), lambda x: x.max(axis=1)):
            expected = stack([function(row) for row in array], "", 0)
            result = next(
                Dataset.from_tensor_slices(array).map(function).batch(20).as_numpy_iterator()
            )
            assert_equal(result, expected)


def test_a_function_that_differs_between_calls_is_never_believed():
    state = {"n": 0}

    class Odd(np.ndarray):
        pass

    def function(x):
        return x * np.float32(2) if state["n"] == 0 else x

    calls = RowCalls(function)
    assert calls(np.ones((3, 2), "float32"), 3) is None  # it reads a dict
    assert RowCalls(lambda x: x * Odd(1))(np.ones((3, 2)), 3) is None


def test_what_may_depend_on_the_place_in_a_register_is_refused():
    zeros = np.array([[0.0, -0.0], [1.0, 2.0]], "float32")
    for function in (lambda x: np.maximum(x, 0.0), lambda x: x.max(), lambda x: np.clip(x, 0, 1)):
        with pytest.raises(NotRowWise, match=r"-0\.0"):
            call_by_rows(function, zeros, 2)
    with pytest.raises(NotRowWise, match="float beyond"):
        call_by_rows(lambda x: x.astype("uint8"), zeros - 3, 2)
    with pytest.raises(NotRowWise, match="overflow"):
        call_by_rows(lambda y: y + 1, np.array([2**63 - 1, 0]), 2)
    with pytest.raises(NotRowWise, match="order that may differ"):
        call_by_rows(lambda x: x.sum(axis=0), np.ones((2, 3, 4)), 2)
    with pytest.raises(NotRowWise, match="out of range"):
        call_by_rows(lambda y: WEIGHTS[y], np.array([0, 4]), 2)
