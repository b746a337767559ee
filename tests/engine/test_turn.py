"""Threads that train or evaluate one model: one at a time, or a clear error; nested calls work."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import kerasish as keras
from kerasish.engine.training.busy import BusyModelError, ExclusiveUse

pytestmark = pytest.mark.usefixtures("engine")

X, Y = np.ones((32, 2), "float32"), np.ones((32, 1), "float32")


def make():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def in_threads(*works):
    """Run functions in threads of their own; return what each of them raised, or None."""
    raised = [None] * len(works)

    def run(number):
        try:
            works[number]()
        except BaseException as error:  # noqa: BLE001 (returned)
            raised[number] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return raised


def test_batches_of_two_threads_are_all_counted():
    model = make()
    model.train_on_batch(X[:4], Y[:4])

    def train():
        for i in range(0, 32, 4):
            logs = model.train_on_batch(X[i : i + 4], Y[i : i + 4], return_dict=True)
            assert logs["loss"] >= 0

    assert in_threads(*[train] * 4) == [None] * 4
    assert int(model.optimizer.iterations) == 33


class Meet(keras.callbacks.Callback):
    """Holds a fit until others have tried."""

    def __init__(self):
        super().__init__()
        self.begun, self.over = threading.Event(), threading.Event()

    def on_train_batch_begin(self, batch, logs=None):
        self.begun.set()
        self.over.wait(60)


@pytest.mark.parametrize("other", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_a_second_thread_is_told(other):
    model, meet = make(), Meet()
    model.train_on_batch(X, Y)
    before = int(model.optimizer.iterations)

    def late():
        assert meet.begun.wait(60)
        try:
            options = {} if other.endswith("batch") else {"verbose": 0}
            getattr(model, other)(X, Y, **options)
        finally:
            meet.over.set()

    first, second = in_threads(
        lambda: model.fit(X, Y, batch_size=4, verbose=0, callbacks=[meet]), late
    )
    assert first is None
    assert isinstance(second, BusyModelError)
    assert str(second).startswith(f"{other}: another thread runs fit of this model")
    assert int(model.optimizer.iterations) == before + 8
    model.fit(X, Y, verbose=0)  # the one that comes later has the turn


def test_predictions_need_no_turn():
    model, meet = make(), Meet()
    result = []

    def late():
        assert meet.begun.wait(60)
        try:
            result.append(model.predict(X, verbose=0).shape)
        finally:
            meet.over.set()

    fit = lambda: model.fit(X, Y, batch_size=4, verbose=0, callbacks=[meet])  # noqa: E731
    assert in_threads(fit, late) == [None, None]
    assert result == [(32, 1)]


def test_calls_nest_in_one_thread():
    """As in Keras: a callback may fit and evaluate the model that is being trained."""

    class Nests(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.fit(X, Y, batch_size=8, verbose=0)
            self.model.evaluate(X, Y, verbose=0)
            self.model.train_on_batch(X, Y)

    model = make()
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[Nests()])
    assert int(model.optimizer.iterations) == 2 * (8 + 4 + 1)


def test_an_error_gives_the_turn_back():
    model = make()
    with pytest.raises(ValueError, match="epochs"):
        model.fit(X, Y, epochs=-1)
    assert in_threads(lambda: model.fit(X, Y, verbose=0)) == [None]


def test_copies_have_turns_of_their_own():
    turn = ExclusiveUse()
    with turn.take("fit", long=True):
        for other in (copy.deepcopy(turn), pickle.loads(pickle.dumps(turn))):
            assert in_threads(lambda other=other: other.take("fit", long=True).__enter__()) == [
                None
            ]
