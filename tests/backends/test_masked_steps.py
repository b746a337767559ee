"""Time steps that a mask leaves out in all rows: the static engine skips their products."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import config, ops
from kerasish.backends import choose
from kerasish.backends.static.codegen.driver import Program, Record, load_runtime
from kerasish.backends.static.codegen.nested_records import choice_record

STEPS, ROWS, UNITS = 40, 3, 5
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}
RNG = np.random.default_rng(0)


def mask_of(kind):
    mask = np.zeros((STEPS, ROWS), "float32")
    if kind == "tail":
        for row, length in enumerate((3, 9, 17)):
            mask[:length, row] = 1
    elif kind == "head":
        mask[30:] = RNG.integers(0, 2, (10, ROWS))
    elif kind == "holes":
        mask[::3] = RNG.integers(0, 2, (len(mask[::3]), ROWS))
    elif kind == "last":
        mask[-1, 1] = 1
    elif kind == "all":
        mask[:] = 1
    return mask


def function_of(name, steps):
    """Return a function of the inputs of a recurrence: its results, and all their gradients."""
    weights = [RNG.normal(size=(steps, ROWS, UNITS)).astype("float32") for _ in range(2)]

    def loss(*inputs):
        results = getattr(ops, name)(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        shown = results[:2] if name == "lstm" else results[:1]
        total = sum(ops.sum(ops.multiply(r, w)) for r, w in zip(shown, weights))
        return ops.add(total, ops.sum(shown[0][-1]))

    def both(*inputs):
        states = getattr(ops, name)(*inputs)
        states = states[0] if isinstance(states, tuple) else states
        return (states, *kerasish.grad(loss, tuple(range(len(inputs) - 1)))(*inputs))

    return both


def inputs_of(name, steps):
    width = GATES[name] * UNITS
    inputs = [RNG.normal(size=(steps, ROWS, width)), RNG.normal(size=(UNITS, width)) / 2]
    if name == "gru":
        inputs.append(RNG.normal(size=width))
    inputs += [RNG.normal(size=(ROWS, UNITS)) for _ in range(2 if name == "lstm" else 1)]
    return [x.astype("float32") for x in inputs]


@pytest.mark.parametrize("kind", ["tail", "head", "holes", "last", "none", "all"])
@pytest.mark.parametrize("name", GATES)
def test_states_and_gradients_are_those_of_the_eager_engine(name, kind):
    function, inputs = function_of(name, STEPS), inputs_of(name, STEPS)
    mask = mask_of(kind)
    results = [
        [np.asarray(r) for r in choose(engine).compile(function)(*inputs, mask)]
        for engine in ("static", "eager")
    ]
    for static, eager in zip(*results):
        np.testing.assert_allclose(static, eager, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", GATES)
def test_all_results_are_written_where_others_read_them(name):
    inputs = inputs_of(name, STEPS)
    for kind in ("all", "tail", "holes"):
        mask = mask_of(kind)
        results = [
            choose(engine).compile(getattr(ops, name))(*inputs, mask)
            for engine in ("static", "eager")
        ]
        static, eager = (r if isinstance(r, (list, tuple)) else (r,) for r in results)
        counted = np.any(np.asarray(mask), axis=1)
        for a, b in zip(static, eager, strict=True):
            a, b = np.asarray(a), np.asarray(b)
            if a.shape != static[0].shape:  # gates of a step that counts for no row: any numbers
                assert np.isfinite(a).all()
                a, b = a[counted], b[counted]
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", GATES)
def test_one_compiled_step_serves_masks_that_change(name):
    function, inputs = function_of(name, STEPS), inputs_of(name, STEPS)
    static, eager = (choose(engine).compile(function) for engine in ("static", "eager"))
    for kind in ("all", "tail", "none", "holes", "all"):
        mask = mask_of(kind)
        for a, b in zip(static(*inputs, mask), eager(*inputs, mask)):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("steps", [1, 2, 17, 18])
def test_any_number_of_steps(steps):
    function, inputs = function_of("lstm", steps), inputs_of("lstm", steps)
    mask = np.ones((steps, ROWS), "float32")
    mask[steps // 2 :] = 0
    static, eager = (choose(e).compile(function)(*inputs, mask) for e in ("static", "eager"))
    for a, b in zip(static, eager):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_numbers_of_steps_that_are_left_out_do_not_matter():
    function, inputs = function_of("lstm", STEPS), inputs_of("lstm", STEPS)
    mask = mask_of("tail")
    static = choose("static").compile(function)
    expected = [np.array(r) for r in static(*inputs, mask)]
    inputs[0][17:] = np.nan
    for got, wanted in zip(static(*inputs, mask), expected):
        np.testing.assert_array_equal(got, wanted)


def test_a_choice_runs_some_records_or_others_and_reports_failures():
    runtime = load_runtime()
    numbers = np.zeros(3, "float32")
    source, target = np.arange(2, dtype=np.int64), np.zeros(1, np.int64)

    def copied(place):
        block = [runtime.memmove, target.ctypes.data, source.ctypes.data + 8 * place, 8]
        return Record(runtime.call_copy, np.array(block, np.int64))

    record = choice_record(numbers.ctypes.data, 3, [copied(1)], [copied(0)], "choice")
    program = Program([record])
    for values, expected in (
        ([0, 0, 2], 1),
        ([0, 0, 0], 0),
        ([np.nan, 0, 0], 1),
        ([0, -0.0, 0], 0),
    ):
        numbers[:] = values
        target[:] = 9
        program.run()
        assert target[0] == expected


def test_products_are_skipped(monkeypatch):
    before = config.backend()
    config.set_backend("static")
    try:
        function, inputs = function_of("lstm", STEPS), inputs_of("lstm", STEPS)
        step = choose("static").compile(function)
        step(*inputs, mask_of("tail"))
    finally:
        config.set_backend(before)
    (executable,) = step.executables()
    chosen = [
        record
        for part in executable.parts
        for record in getattr(part, "records", ())
        if record.function == load_runtime().choose
    ]
    # Three blocks: the inputs, the time steps, their gradients, and the weights' gradient.
    assert len(chosen) == 4 * 3
