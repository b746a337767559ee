"""Helpers that take shares of predictions: every share runs once, by one thread or another."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import team
from kerasish.backends.static.codegen.driver import (
    OUT_OF_RANGE,
    Program,
    Record,
    RecordError,
    UnmetConditionError,
    callback_record,
    condition_record,
    load_runtime,
)
from kerasish.backends.static.codegen.driver_code import equal_bytes
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import few_rows, packed_units
from kerasish.backends.static.lowering.ahead import AheadUnit
from kerasish.backends.static.lowering.few_rows import FewRowsUnit
from kerasish.backends.static.lowering.packed_units import PackedUnit
from kerasish.backends.static.machine import guard_pages

pytestmark = pytest.mark.skipif(
    bool(native.available() or guard_pages.mode() or not team.can_help()),
    reason="helpers take shares of kept weights, on Linux and x86-64",
)
ENGINE = Static()


def copies(source: Any, target: Any, lists: int) -> list[list[Record]]:
    """Return lists of records that copy the numbers of `source`, one each."""
    runtime = load_runtime()
    return [
        [
            Record(
                runtime.call_copy,
                np.array(
                    [runtime.memmove, target.ctypes.data + 8 * i, source.ctypes.data + 8 * i, 8]
                ),
            )
        ]
        for i in range(lists)
    ]


@pytest.mark.parametrize("helpers", [1, 3])
def test_every_share_runs(helpers: int) -> None:
    source, target = np.zeros(7, np.int64), np.zeros(7, np.int64)
    program = Program([team.together_record(copies(source, target, 7), helpers)])
    for turn in range(3000):
        source[:] = np.arange(7) + 10 * turn
        program.run()
        assert target.tobytes() == source.tobytes()
        if turn % 1000 == 0:
            time.sleep(0.002)  # the helpers fall asleep


def test_callers_begin_with_the_first_share_and_helpers_with_the_last() -> None:
    taken: list[tuple[int, int]] = []

    def work(share: int) -> None:
        taken.append((share, threading.get_ident()))
        time.sleep(0.003)

    lists = [[callback_record(functools.partial(work, i), "work")] for i in range(6)]
    program = Program([team.together_record(lists, 1)])
    me = threading.get_ident()
    for _ in range(100):
        taken.clear()
        program.run()
        own = [share for share, thread in taken if thread == me]
        others = [share for share, thread in taken if thread != me]
        assert own == list(range(len(own)))
        assert sorted(others) == list(range(len(own), 6))
        if others and own:
            return
    pytest.fail("no helper has taken a share")


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_first_lists_run_ahead_once_and_before_their_second_lists(helpers: int) -> None:
    source, middle, target = (np.zeros(7, np.int64) for _ in range(3))
    firsts, seconds = copies(source, middle, 7), copies(middle, target, 7)
    program = Program(team.ahead_records(list(zip(firsts, seconds)), helpers))
    for turn in range(3000):
        source[:] = np.arange(7) + 10 * turn
        program.run()
        assert target.tobytes() == source.tobytes()
        if turn % 1000 == 0:
            time.sleep(0.002)  # the helpers fall asleep


def test_a_first_list_runs_once_and_ends_before_its_second_list() -> None:
    counts, seen = [0] * 5, [0] * 5

    def first(number: int) -> None:
        time.sleep(0.001)
        counts[number] += 1

    def second(number: int) -> None:
        seen[number] = counts[number]

    pairs = [
        tuple([callback_record(functools.partial(f, i), "list")] for f in (first, second))
        for i in range(5)
    ]
    program = Program(team.ahead_records(pairs, 1))
    for turn in range(1, 31):
        program.run()
        assert counts == seen == [turn] * 5


def test_an_error_of_a_first_list_is_raised() -> None:
    value, other = np.ones(1, np.int64), np.zeros(2, np.int64)
    nothing = copies(other, other[1:], 1)[0]
    block = np.array([value.ctypes.data, other.ctypes.data, 8], np.int64)
    bad = [Record(compile_one(equal_bytes(OUT_OF_RANGE)), block, "bad")]
    for place in (0, 2):
        pairs = [(bad if i == place else nothing, nothing) for i in range(4)]
        program = Program(team.ahead_records(pairs, 1, "ahead"))
        for _ in range(50):
            with pytest.raises(RecordError, match="ahead.*out of range"):
                program.run()


def test_callers_at_once() -> None:
    errors: list[int] = []

    def call(seed: int) -> None:
        source, target = np.zeros(5, np.int64), np.zeros(5, np.int64)
        program = Program([team.together_record(copies(source, target, 5), 2)])
        for turn in range(1500):
            source[:] = np.arange(5) + turn * seed
            program.run()
            if target.tobytes() != source.tobytes():
                errors.append(turn)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in (3, 5, 7)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not errors and not any(caller.is_alive() for caller in callers)


def test_the_first_error_is_raised_and_the_others_run() -> None:
    source, target = np.arange(4), np.zeros(4, np.int64)
    lists = copies(source, target, 4)
    value = np.ones(1, np.int64)
    for number in (3, 1):
        lists[number].append(condition_record(number, value.ctypes.data, np.array([2])))
    program = Program([team.together_record(lists, 1)])
    for _ in range(50):
        target[:] = -1
        with pytest.raises(UnmetConditionError) as caught:
            program.run()
        assert caught.value.number == 1 and target.tolist() == source.tolist()


def test_without_helpers_and_with_new_ones() -> None:
    source, target = np.arange(6), np.zeros(6, np.int64)
    program = Program([team.together_record(copies(source, target, 6), 1)])
    own = team._team()
    own.stop()
    assert not [t for t in threading.enumerate() if t.name == "kerasish helper"]
    for helpers in (0, 1):
        own.have(helpers)
        target[:] = 0
        program.run()
        assert target.tolist() == source.tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_none() -> None:
    source, target = np.arange(6), np.zeros(6, np.int64)
    program = Program([team.together_record(copies(source, target, 6), 1)])
    program.run()
    child = os.fork()
    if not child:
        target[:] = 0
        program.run()
        words = (ctypes.c_int64 * team.WORDS).from_address(team._team().state)
        os._exit(0 if target.tolist() == source.tolist() and not words[team.HELPERS] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- units ------------------------------------------------------------------------------------


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def results(make: Any, x: Any, kind: type, monkeypatch: Any) -> list[Any]:
    """Return what a step gives with one thread and with helpers; check that they have shares."""
    for module, name in (
        (few_rows, "HELPED"), (packed_units, "HELPED_FLOPS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 1)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(native, "processors", lambda: 3)
        COMPILED_PLANS.clear()
        with kerasish.config.using_threads(threads):
            step = ENGINE.compile(make)
            found.append(step(x).numpy().copy())
            assert step(x).numpy().tobytes() == found[-1].tobytes()
            units = [u for e in step.executables() for u in e.units if isinstance(u, kind)]
        if threads > 1:
            assert units and all(u.helpers == threads - 1 for u in units)
    return found


def check(make: Any, x: Any, kind: type, monkeypatch: Any) -> None:
    found = results(make, x, kind, monkeypatch)
    expected = np.asarray(kerasish.ops.convert_to_numpy(make(x)))
    for own in found:
        np.testing.assert_allclose(own, expected, 0, 3e-6 * np.abs(expected).max())


def test_products_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    w, b = kerasish.Variable(numbers(300, 400)), kerasish.Variable(numbers(400, seed=1))
    check(lambda x: ops.matmul(x, w) + b, numbers(2, 300), FewRowsUnit, monkeypatch)


def test_products_of_many_rows_with_a_sum_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    w, b = kerasish.Variable(numbers(200, 200)), kerasish.Variable(numbers(200, seed=1))

    def step(x: Any) -> Any:
        y = ops.tanh(x)
        h = ops.relu(ops.matmul(y, w) + b)
        return ops.multiply(ops.matmul(h, w) + b + y, 1.0)

    check(step, numbers(37, 200), PackedUnit, monkeypatch)
    with kerasish.config.using_threads(2):
        compiled = ENGINE.compile(step)
        compiled(numbers(37, 200))
        units = [u for e in compiled.executables() for u in e.units if isinstance(u, PackedUnit)]
    assert [len(u.operands) for u in units] == [2, 3]  # bias, what is added, the result


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("rows", [1, 3])
def test_convolutions(strides: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kerasish.Variable(numbers(3, 3, 5, 20))

    def step(x: Any) -> Any:
        y = ops.conv(x, kernel, strides=strides, padding="same")
        return ops.relu(y * 2.0 + 1.0)

    check(step, numbers(rows, 11, 9, 5), PackedUnit, monkeypatch)


@pytest.mark.parametrize(("rows", "steps"), [(1, 80), (1, 9), (3, 33)])
def test_inputs_of_an_lstm_ahead_of_it(
    rows: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layers.LSTM(64, return_sequences=True)
    x = numbers(rows, steps, 64)
    layer.build(x.shape)
    found = results(layer, x, AheadUnit, monkeypatch)
    assert found[1].tobytes() == found[2].tobytes()
    np.testing.assert_allclose(found[1], found[0], 0, 3e-6)
    assert np.abs(found[0][:, -1]).max() > 0.01


def test_inputs_of_few_time_steps_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layers.LSTM(20), numbers(1, 40, 24)
    layer.build(x.shape)
    monkeypatch.setattr(packed_units, "HELPED_FLOPS", 1)
    with kerasish.config.using_threads(2):
        COMPILED_PLANS.clear()
        step = ENGINE.compile(lambda x: layer(x[:, :7]))
        step(x)
        units = [u for e in step.executables() for u in e.units]
    assert not [u for u in units if isinstance(u, AheadUnit)]  # fewer steps than two parts have


def test_a_profile_names_the_layer_of_every_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "HELPED", 1)
    model = kerasish.Sequential([kerasish.Input((300,)), layers.Dense(600, name="wide")])
    x = numbers(1, 300)
    with kerasish.config.using_threads(2):
        COMPILED_PLANS.clear()
        model.predict(x, verbose=0)
        _, timings = model.training_program.step("predict").call_timed(x)
    assert {t.layer.split("/")[-1] for t in timings if t.flops} == {"wide"}
