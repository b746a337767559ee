"""`predict` from several threads: runs at the same time, each in its memory, with equal bits."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.backends.onednn import native
from kerasish.backends.static import engine
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.runtime import lanes, ready
from kerasish.backends.static.runtime.program import Executable
from kerasish.changes import Changes

WAIT = 60.0  # seconds; a test that waits as long has failed
shared = pytest.mark.skipif(
    bool(guard_pages.mode()), reason="strict memory: runs take turns, their memory is checked"
)


@pytest.fixture(autouse=True)
def _static_with_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    kerasish.config.set_backend("static")
    monkeypatch.setattr(native, "processors", lambda: 3)


def dense(bias: bool = True) -> Any:
    kerasish.utils.set_random_seed(3)
    x = kerasish.Input((40,))
    y = layers.Dense(300, activation="relu", use_bias=bias)(x)
    return kerasish.Model(x, layers.Dense(7, use_bias=bias)(y))


def rows(seed: int, count: int = 5) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 40)).astype("float32")


def lanes_of(model: Any) -> list[lanes.Lanes]:
    return [call._lanes for call in model.training_program.step("predict")._calls()]


def together(tasks: list[Callable[[], None]]) -> None:
    """Run functions in threads; raise the first error."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    end = time.monotonic() + WAIT
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


@shared
@pytest.mark.parametrize("threads", [2, 3])
def test_runs_meet_and_give_equal_bits(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    model = dense()
    inputs = [rows(i) for i in range(threads)]
    expected = [model.predict(x, verbose=0).tobytes() for x in inputs]
    inside, run = threading.Barrier(threads), Executable.run_sharing

    def meet(self: Executable) -> None:
        inside.wait(WAIT)  # all are here at the same time, or this fails
        run(self)
        inside.wait(WAIT)

    monkeypatch.setattr(Executable, "run_sharing", meet)
    monkeypatch.setattr(Changes, "mark", object())
    monkeypatch.setattr(ready, "ready_call", lambda *args: None)  # it would run something else
    monkeypatch.setattr(engine, "ready_call", ready.ready_call)
    found: dict[tuple[int, int], bytes] = {}

    def predict(i: int) -> None:
        for turn in range(5):
            found[i, turn] = model.predict(inputs[i], verbose=0).tobytes()

    together([lambda i=i: predict(i) for i in range(threads)])  # type: ignore[misc]
    assert found == {(i, turn): expected[i] for i in range(threads) for turn in range(5)}
    (own,) = lanes_of(model)
    assert len(own._free) == threads and not own._runs


@shared
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dense()
    model.predict(rows(0), verbose=0)
    (own,) = lanes_of(model)
    kept = own.first.kept
    assert lanes.most_at_once(own.first) == 3
    monkeypatch.setattr(lanes, "MOST_MEMORY", own.first.plan.nbytes)
    assert lanes.most_at_once(own.first) == 2
    expected = [model.predict(rows(i), verbose=0).tobytes() for i in range(8)]

    def predict(i: int) -> None:
        for _ in range(10):
            assert model.predict(rows(i), verbose=0).tobytes() == expected[i]

    together([lambda i=i: predict(i) for i in range(8)])  # type: ignore[misc]
    assert len(own._free) <= 3  # one per processor, however many threads there are
    assert all(e.kept is kept for e in own._free)  # the weights lie in memory once
    monkeypatch.setattr(lanes, "MOST_MEMORY", 0)
    assert lanes.most_at_once(own.first) == 1


def test_assigned_weights_reach_all_runs() -> None:
    model = dense(bias=False)
    x = rows(0)
    last = model.layers[2].kernel
    choices = [last.numpy().copy(), np.full(last.shape, 0.25, "float32")]
    results = []
    for kernel in choices:
        last.assign(kernel)
        results.append(model.predict(x, verbose=0).tobytes())
    assert results[0] != results[1]
    stop = threading.Event()

    def predict() -> None:
        while not stop.is_set():
            assert model.predict(x, verbose=0).tobytes() in results

    def assign() -> None:
        try:
            for turn in range(60):
                last.assign(choices[turn % 2])
                assert model.predict(x, verbose=0).tobytes() == results[turn % 2]
        finally:
            stop.set()

    together([predict, predict, assign])


def test_a_thread_that_has_waited_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not wait for all runs of another that enters again as soon as it has left."""
    monkeypatch.setattr(lanes, "PATIENCE", 0.0)
    model = dense()
    model.predict(rows(0), verbose=0)
    (own,) = lanes_of(model)
    order = []

    def wait() -> None:
        own.enter(exclusive=True)
        order.append("waited")
        own.leave()

    for _ in range(5):
        own.enter(exclusive=True)
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        end = time.monotonic() + WAIT
        while not own._waiting and thread.is_alive() and time.monotonic() < end:
            time.sleep(0.001)
        own.leave()
        own.enter(exclusive=True)
        order.append("came later")
        own.leave()
        thread.join(WAIT)
    assert order == ["waited", "came later"] * 5
    assert not own._waiting and not own._runs


def test_a_place_in_front_that_an_interrupt_left_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "LOST", 0.01)
    model = dense()
    expected = model.predict(rows(0), verbose=0).tobytes()
    (own,) = lanes_of(model)
    own._waiting[-1] = 0.0  # as if Ctrl-C had ended that thread's wait
    together([lambda: own.leave() if own.enter(exclusive=True) else None] * 3)
    assert not own._waiting and not own._runs
    assert model.predict(rows(0), verbose=0).tobytes() == expected


def test_an_error_in_one_thread_leaves_the_others_alone() -> None:
    x = kerasish.Input((3,), dtype="int32")
    model = kerasish.Model(x, layers.Embedding(5, 4)(x))
    good, bad = np.array([[0, 4, 2]], "int32"), np.array([[0, 5, 2]], "int32")
    expected = model.predict(good, verbose=0).tobytes()

    def predict() -> None:
        for _ in range(20):
            assert model.predict(good, verbose=0).tobytes() == expected

    def fail() -> None:
        for _ in range(20):
            with pytest.raises(IndexError, match="Index 5"):
                model.predict(bad, verbose=0)

    together([predict, fail, fail])
    assert all(not own._runs and not own.exclusive for own in lanes_of(model))


@contextlib.contextmanager
def held(own: lanes.Lanes) -> Iterator[None]:
    """Let another thread have memory in this block."""
    entered, ended = threading.Event(), threading.Event()

    def hold() -> None:
        own.enter()
        entered.set()
        ended.wait(WAIT)
        own.leave()

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(WAIT)
    try:
        yield
    finally:
        ended.set()
        thread.join(WAIT)


@shared
@pytest.mark.timeout(120)  # without memory that was given back the last run would wait
def test_memory_that_cannot_be_had_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dense()
    expected = model.predict(rows(0), verbose=0).tobytes()
    (own,) = lanes_of(model)

    def no_memory(*args: Any, **options: Any) -> Any:
        raise MemoryError("no memory")

    with held(own):
        with monkeypatch.context() as patched:
            patched.setattr(lanes, "Executable", no_memory)
            for _ in range(native.processors()):
                with pytest.raises(MemoryError, match="no memory"):
                    own.enter()
        assert model.predict(rows(0), verbose=0).tobytes() == expected
    assert not own._runs and len(own._free) == 2


@shared
@pytest.mark.timeout(120)  # without it a run would wait for itself
@pytest.mark.parametrize("alone", [False, True])
def test_what_ctrl_c_left_behind_is_taken_back(alone: bool) -> None:
    model = dense()
    expected = model.predict(rows(0), verbose=0).tobytes()
    (own,) = lanes_of(model)
    own.enter(alone)  # Ctrl-C ends the run here, before it leaves
    assert model.predict(rows(0), verbose=0).tobytes() == expected
    assert not own._runs and not own.exclusive and own._free == [own.first]
    model.layers[-1].bias.assign(model.layers[-1].bias + 1.0)  # the next run is exclusive
    own.enter(alone)
    assert model.predict(rows(0), verbose=0).tobytes() != expected
    assert not own._runs and not own.exclusive and own._free == [own.first]


def test_steps_that_change_variables_take_turns() -> None:
    model = dense()
    model.compile("sgd", "mse")
    x, y = rows(0, 8), np.zeros((8, 7), "float32")
    model.fit(x, y, batch_size=8, verbose=0)
    calls = model.training_program.step("train")._calls()
    assert calls and not any(call._lanes._shares for call in calls)
    together([lambda: model.train_on_batch(x, y)] * 3)  # type: ignore[list-item]
    assert int(model.optimizer.iterations.numpy()) == 4


def test_a_run_alone_waits_for_the_others() -> None:
    model = dense()
    model.predict(rows(0), verbose=0)
    (own,) = lanes_of(model)
    entered = threading.Event()

    def alone() -> None:
        only = own.enter(exclusive=True)
        entered.set()
        assert only is own.first
        own.leave()

    waiter = threading.Thread(target=alone)
    with held(own):
        waiter.start()
        assert not entered.wait(0.05)
    waiter.join(WAIT)
    assert entered.is_set()
