"""Products of few rows by packed weights against NumPy: sizes, layouts, threads, new weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import skipping
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import few_rows, program_threads
from kerasish.backends.static.lowering.few_rows import FewRowsUnit
from kerasish.backends.static.lowering.library import MatmulUnit
from kerasish.backends.static.lowering.packed_units import PackedUnit
from kerasish.backends.static.machine import guard_pages

pytestmark = pytest.mark.skipif(
    bool(native.available() or guard_pages.mode()), reason="without oneDNN nothing is kept"
)
ENGINE = Static()
# (rows, depth, columns): more than SMALL_FLOPS, with whole and partial strips and vectors.
SIZES = [(1, 300, 200), (1, 1, 70_000), (2, 500, 128), (3, 401, 129), (5, 200, 300), (8, 77, 513)]


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def units_of(step: Any, kind: Any) -> list[Any]:
    return [u for e in step.executables() for u in e.units if isinstance(u, kind)]


def product(weights: Any, bias: Any = None, turned: bool = False) -> Any:
    def step(x: Any) -> Any:
        y = ops.matmul(x, ops.transpose(weights) if turned else weights)
        return y if bias is None else ops.add(y, bias)

    return ENGINE.compile(step)


def check(found: Any, x: Any, weights: Any, bias: Any = 0.0) -> None:
    expected = x.astype("float64") @ np.asarray(weights, "float64") + np.asarray(bias, "float64")
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * largest)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_equal_to_numpy_with_one_thread_and_two(
    sizes: tuple[int, int, int], monkeypatch: Any
) -> None:
    rows, depth, columns = sizes
    weights, bias = kerasish.Variable(numbers(depth, columns)), kerasish.Variable(numbers(columns))
    x = numbers(rows, depth, seed=1)
    monkeypatch.setattr(few_rows, "GRAIN", 1)
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    results = []
    for threads in (1, 2):
        with kerasish.config.using_threads(threads):
            COMPILED_PLANS.clear()
            step = product(weights, bias)
            results.append(step(x).numpy().copy())
            (unit,) = units_of(step, FewRowsUnit)
            strips = -(-columns // 128)
            assert len(unit.parts) == min(threads, strips, native.get_threads())
    check(results[0], x, weights.numpy(), bias.numpy())
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("rows", [1, few_rows.MOST_ROWS, few_rows.MOST_ROWS + 1])
def test_transposed_weights_and_the_limit(rows: int) -> None:
    weights = kerasish.Variable(numbers(150, 400))
    step, x = product(weights, turned=True), numbers(rows, 400, seed=1)
    check(step(x).numpy(), x, weights.numpy().T)
    few = rows <= few_rows.MOST_ROWS
    assert len(units_of(step, FewRowsUnit)) == few
    assert len(units_of(step, MatmulUnit | PackedUnit)) == (not few)


def test_new_weights_are_packed_once() -> None:
    weights = kerasish.Variable(numbers(300, 200))
    step, x = product(weights), numbers(2, 300, seed=1)
    for seed in range(3):
        weights.assign(numbers(300, 200, seed=seed))
        for _ in range(2):
            check(step(x).numpy(), x, weights.numpy())
            (executable,) = step.executables()
            assert not executable.kept.flags.any() and executable.kept.is_fresh()
        assert executable.kept.nbytes == 4 * (300 * 208 + skipping.NOTE)


def test_weights_that_a_step_changes_are_not_packed() -> None:
    weights = kerasish.Variable(numbers(300, 200))

    def step(x: Any) -> Any:
        y = ops.matmul(x, weights)
        weights.assign(weights + 1.0)
        return y

    compiled, x = ENGINE.compile(step), numbers(2, 300, seed=1)
    first = weights.numpy()
    for i in range(2):
        check(compiled(x).numpy(), x, first + np.float32(i))
    assert not units_of(compiled, FewRowsUnit)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_reach_their_row_or_column_alone(number: float) -> None:
    weights = numbers(300, 200)
    x = numbers(3, 300, seed=1)
    x[1, 7] = number
    weights[5, 199] = number
    found = product(kerasish.Variable(weights))(x).numpy()
    with np.errstate(invalid="ignore"):
        expected = x.astype("float64") @ weights.astype("float64")
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


def test_predict_after_fit_uses_the_new_weights() -> None:
    kerasish.utils.set_random_seed(0)
    x = kerasish.Input((300,))
    model = kerasish.Model(x, layers.Dense(4)(layers.Dense(256, activation="tanh")(x)))
    model.compile("sgd", "mse")
    one, targets = numbers(1, 300, seed=2), numbers(16, 4, seed=4)
    for turn in range(3):
        found = model.predict(one, verbose=0)
        expected = np.asarray(model(one))  # op by op
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        model.fit(numbers(16, 300, seed=turn), targets, epochs=1, batch_size=16, verbose=0)


@pytest.mark.parametrize("place", [(3, 0), (317, 250), (417, 298)])
def test_zeros_by_weights_that_are_not_finite_for_a_while(place: tuple[int, int]) -> None:
    x = numbers(1, 500)
    x[0, np.random.default_rng(1).random(500) < 0.7] = 0.0
    x[0, [3, 317, 417]] = 0.0
    weights = kerasish.Variable(numbers(500, 299))
    step = product(weights)
    before = step(x).numpy().copy()
    check(before, x, weights.numpy())
    finite = weights.numpy().copy()
    for bad in (np.inf, np.nan):
        changed = finite.copy()
        changed[place] = bad
        weights.assign(changed)
        found = step(x).numpy()
        assert np.isnan(found[0, place[1]]) and np.isnan(found).sum() == 1
        weights.assign(finite)
        assert step(x).numpy().tobytes() == before.tobytes()
    assert units_of(step, FewRowsUnit)
