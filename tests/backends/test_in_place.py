"""Loops that write in the memory of what they read for the last time."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import kerasish
from kerasish import config, ops
from kerasish.backends.static import engine
from kerasish.backends.static.lowering import in_place
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.graph.interpret import interpret
from kerasish.graph.trace import trace

rng = np.random.default_rng(0)
X, W = (rng.normal(size=s).astype("float32") for s in ((24, 40), (40, 40)))


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(in_place, "LARGE", 0)
    monkeypatch.setattr(engine, "COMPILED_PLANS", engine.CompiledPlans())


def softmax(x, w):
    """The reader of the logits that the loop does not contain comes after it."""
    logits = ops.matmul(x, w)
    return ops.matmul(ops.softmax(logits), w), ops.argmax(logits, -1)


def chain(x, w):
    y = ops.exp(ops.matmul(x, w) * 0.1)
    return ops.matmul(ops.tanh(ops.matmul(y, w) * 0.1), w)


def two_results(x, w):
    """Two results of a loop, one operand that nothing reads later."""
    y = ops.matmul(x, w)
    return ops.matmul(ops.exp(y * 0.1), w), ops.matmul(ops.sin(y), w)


def of_both(x, w):
    a, b = ops.matmul(x, w), ops.matmul(w[:24], w)
    return ops.matmul(ops.tanh(a + b * 2.0), w)


def turned(x, w):
    """The copy that is read along other axes gives its memory, the product does not."""
    y = ops.matmul(x[:, :24], w[:24, :24])
    return ops.matmul(ops.transpose(y) + y, w[:24])


def read_twice(x, w):
    y = ops.matmul(x, w)
    return ops.matmul(y - ops.max(y, -1, keepdims=True), w) + ops.sum(y, 0)


def read_later(x, w):
    y = ops.matmul(x, w)
    return ops.matmul(y, w) + ops.matmul(ops.exp(y * 0.1), w) * ops.matmul(y * 2.0, w)


def an_argument(x, w):
    return ops.matmul(ops.exp(x * 0.1), w)


def a_result(x, w):
    y = ops.matmul(x, w)
    return y, ops.matmul(ops.exp(y * 0.1), w)


def narrow(x, w):
    """Results of another dtype are never written in place."""
    return ops.matmul(ops.cast(ops.matmul(x, w), "bfloat16") * 2, ops.cast(w, "bfloat16"))


PROGRAMS = {
    f.__name__: (f, count)
    for f, count in (
        (softmax, 1), (chain, 2), (two_results, 1), (of_both, 1), (turned, 1), (read_twice, 1),
        (read_later, None), (an_argument, 0), (a_result, 0), (narrow, None),
    )
}  # fmt: skip


def units_of(step):
    (executable,) = step.executables()
    return executable.units


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_stay_the_same(name, threads, monkeypatch):
    function, count = PROGRAMS[name]
    graph = trace(function, X, W).graph
    with config.using_threads(threads):
        got = kerasish.backends.get("static").compile(function)
        results = got(X, W)
        shared = [
            (v, unit.in_place_of(v))
            for unit in units_of(got) if type(unit) is LoopUnit
            for v in unit.writes if unit.in_place_of(v) is not None
        ]  # fmt: skip
        if count is not None:
            assert len(shared) == count
        monkeypatch.setattr(in_place, "LARGE", 1 << 60)
        monkeypatch.setattr(engine, "COMPILED_PLANS", engine.CompiledPlans())
        plain = kerasish.backends.get("static").compile(function)
        expected = plain(X, W)
    several = isinstance(results, tuple)
    for a, b in zip(results if several else (results,), expected if several else (expected,)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    for a, b in zip(results if several else (results,), interpret(graph, (X, W))):
        a, b = (np.asarray(n).astype("float32") for n in (a, b))
        scale = max(1.0, float(np.abs(b).max()))
        np.testing.assert_allclose(a / scale, b / scale, atol=2e-2 if name == "narrow" else 1e-5)


def test_a_reader_after_the_loop_runs_before_it():
    step = kerasish.backends.get("static").compile(softmax)
    step(X, W)
    names = [unit.name for unit in units_of(step)]
    at = next(i for i, name in enumerate(names) if "exp" in name)
    assert any("argmax" in name for name in names[:at]), names


def test_a_step_needs_less_memory():
    def large(x, w):
        logits = ops.matmul(x, w)
        return ops.matmul(ops.softmax(logits), ops.transpose(w))

    x, w = np.ones((64, 8), "float32"), np.ones((8, 4096), "float32")
    sizes = []
    for limit in (0, 1 << 60):
        in_place.LARGE = limit  # restored by the fixture
        engine.COMPILED_PLANS.clear()
        step = kerasish.backends.get("static").compile(large)
        step(x, w)
        (executable,) = step.executables()
        sizes.append(executable.plan.nbytes)
    assert sizes[1] - sizes[0] > 0.9 * 4 * 64 * 4096


def passes(y, t):
    """A row is read twice; the exponential of the first pass may be kept for the second one."""
    c = y * 2.0
    result = ops.where(ops.greater(y, 0), 1.0, ops.exp(y)) * (t - c)
    apart = c - ops.sum(c, -1, keepdims=True) / 4.0
    return result, ops.sum(ops.square(apart), -1), ops.sum(result, (0, 1))


ROWS, TARGETS = (rng.normal(size=(2, 2, 4)).astype("float32") for _ in range(2))
FOUR = rng.normal(size=(4, 4)).astype("float32")


def close(results, expected):
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)


def test_a_loop_that_would_keep_more_writes_apart():
    def step(x, t):
        result, *others = passes(ops.matmul(x, FOUR), t)
        return ops.matmul(result, FOUR), *others

    compiled = kerasish.backends.get("static").compile(step)
    close(compiled(ROWS, TARGETS), kerasish.backends.get("eager").compile(step)(ROWS, TARGETS))
    (unit,) = (u for u in units_of(compiled) if "exp" in u.name)
    assert not any(unit.in_place_of(v) for v in unit.writes)


def test_a_variable_is_updated_by_a_loop_that_keeps_values():
    """Its scratch memory is that of the loop that writes in place."""
    v = kerasish.Variable(ROWS)

    def step(t):
        result, *others = passes(v.value, t)
        v.assign(result)
        return others

    compiled = kerasish.backends.get("static").compile(step)
    others = compiled(TARGETS)
    (unit,) = (u for u in units_of(compiled) if "exp" in u.name)
    assert any(unit.in_place_of(w) for w in unit.writes) and unit.scratch
    close((v, *others), passes(ROWS, TARGETS))


def test_updates_of_variables_are_not_moved():
    """A unit that writes a variable stays behind the units that read the value before."""

    def weights():
        kerasish.utils.set_random_seed(1)
        model = kerasish.Sequential(
            [kerasish.Input((12,)), kerasish.layers.Dense(16, "gelu"), kerasish.layers.Dense(6)]
        )
        loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
        x = np.random.default_rng(3).normal(size=(40, 12)).astype("float32")
        model.fit(x, np.arange(40) % 6, batch_size=8, epochs=2, verbose=0, shuffle=False)
        return model.get_weights()

    got = weights()
    in_place.LARGE = 1 << 60
    engine.COMPILED_PLANS.clear()
    for a, b in zip(got, weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    gc.collect()


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_noted_stays_true(name, monkeypatch):
    """Places, readers and writers are noted once, then kept up to date."""
    walks = []
    run = in_place._Walk.run
    monkeypatch.setattr(in_place._Walk, "run", lambda walk: walks.append(walk) or run(walk))
    kerasish.backends.get("static").compile(PROGRAMS[name][0])(X, W)
    (walk,) = walks
    kept = walk.place, walk.users, walk.makers
    walk._note_places()
    assert kept == (walk.place, walk.users, walk.makers)
