"""InputMonitor: the share of the time in which training waits for data."""

from __future__ import annotations

import types

import numpy as np
import pytest

import kerasish as keras
from kerasish.callbacks import Callback, InputMonitor
from kerasish.data import Dataset
from kerasish.engine.data import data as data_module
from kerasish.engine.training import loop as loop_module

X, Y = np.ones((40, 3), "float32"), np.ones((40, 1), "float32")
STEP = 0.25  # seconds


class Clock:
    """A clock that stops between the calls of `pass_by`."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """Return the clock of the training loop, and of its data."""
    result = Clock()
    for module in (loop_module, data_module):
        monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=result.perf_counter))
    return result


class Steps(Callback):
    """Lets each step of training take a quarter of a second."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_train_batch_begin(self, batch, logs=None):
        self.clock.pass_by(STEP)


def fit(*data, monitor, more=(), **options):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(*data, epochs=3, verbose=0, callbacks=[monitor, *more], **options)
    return model.history.history["input_wait"]


def test_slow_data_is_seen_and_reported(capsys, clock):
    def slow(x, y):
        clock.pass_by(0.75)
        return x, y

    data = Dataset.from_tensor_slices((X, Y)).batch(10).map(slow)
    validation = Dataset.from_tensor_slices((X, Y)).batch(5).map(slow)
    steps = Steps(clock)
    shares = fit(data, monitor=InputMonitor(), more=[steps], validation_data=validation)
    assert shares[1:] == [0.75] * 2  # the first batch of all is read before the training begins
    assert shares[0] == pytest.approx(3 * 0.75 / (3 * 0.75 + 4 * STEP))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("Epoch 3: training waited 3.0s of 4.0s for data (75%).")
    assert sum("prefetch()" in line for line in lines) == 1


@pytest.mark.parametrize("kind", ["arrays", "generator", "PyDataset"])
def test_fast_data_is_not(kind, capsys, clock):
    def read():
        clock.pass_by(0.02)
        return X, Y

    class Whole(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return read()

    generator = (read() for _ in range(20))
    data = {"arrays": (X, Y), "generator": (generator,), "PyDataset": (Whole(),)}[kind]
    options = {"steps_per_epoch": 5} if kind == "generator" else {}
    shares = fit(*data, monitor=InputMonitor(), more=[Steps(clock)], **options)
    assert shares[1:] == pytest.approx([0.0 if kind == "arrays" else 0.02 / (0.02 + STEP)] * 2)
    assert 0 <= shares[0] <= shares[1]
    assert capsys.readouterr().out == ""


def test_all_epochs_on_demand(capsys):
    assert all(0 <= share <= 1 for share in fit(X, Y, monitor=InputMonitor(verbose=2)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Epoch 1", "Epoch 2", "Epoch 3"]
    assert not any("prefetch" in line for line in lines)


def test_arrays_still_run_natively():
    assert not InputMonitor().wants_updates("train")


@pytest.mark.parametrize("arguments", [{"threshold": 2}, {"verbose": 3}])
def test_mistakes(arguments):
    with pytest.raises(ValueError, match="InputMonitor"):
        InputMonitor(**arguments)


def slow_data(clock):
    def slow(x, y):
        clock.pass_by(STEP)
        return x, y

    return Dataset.from_tensor_slices((X, Y)).batch(10).map(slow)


def test_the_history_and_the_line_of_an_epoch_say_how_long_training_waited(capsys, clock):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(slow_data(clock), epochs=2, verbose=2, callbacks=[Steps(clock)])
    # The first batch of the first epoch was read before.
    assert history.input_wait == pytest.approx([3 / 7, 1 / 2])
    assert set(history.history) == {"loss"}
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" - ")[2] for line in lines] == [
        "waiting for data: 43%",
        "waiting for data: 50%",
    ]
    model.fit(X, Y, verbose=2)
    assert model.history.input_wait == [0.0]
    assert "waiting" not in capsys.readouterr().out
