"""InputMonitor: the share of the time in which training waits for data."""

from __future__ import annotations

import time

import numpy as np
import pytest

import kerasish as keras
from kerasish.callbacks import InputMonitor
from kerasish.data import Dataset

X, Y = np.ones((40, 3), "float32"), np.ones((40, 1), "float32")


def fit(*data, monitor, **options):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(*data, epochs=3, verbose=0, callbacks=[monitor], **options)
    return model.history.history["input_wait"]


def slow(x, y):
    time.sleep(0.02)
    return x, y


def test_slow_data_is_seen_and_reported(capsys):
    data = Dataset.from_tensor_slices((X, Y)).batch(10).map(slow)
    validation = Dataset.from_tensor_slices((X, Y)).batch(5).map(slow)
    shares = fit(data, monitor=InputMonitor(), validation_data=validation)
    assert all(0.5 < share <= 1 for share in shares[1:])  # the first epoch compiles
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("Epoch 3: training waited")]
    assert sum("prefetch()" in line for line in lines) == 1


@pytest.mark.parametrize("kind", ["arrays", "generator", "PyDataset"])
def test_fast_data_is_not(kind, capsys):
    class Whole(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return X, Y

    data = {"arrays": (X, Y), "generator": (iter([(X, Y)] * 20),), "PyDataset": (Whole(),)}[kind]
    options = {"steps_per_epoch": 5} if kind == "generator" else {}
    shares = fit(*data, monitor=InputMonitor(threshold=0.9), **options)
    assert len(shares) == 3
    assert all(0 <= share < 0.9 for share in shares)
    assert capsys.readouterr().out == ""


def test_all_epochs_on_demand(capsys):
    assert all(0 <= share < 0.9 for share in fit(X, Y, monitor=InputMonitor(verbose=2)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Epoch 1", "Epoch 2", "Epoch 3"]
    assert not any("prefetch" in line for line in lines)


def test_arrays_still_run_natively():
    assert not InputMonitor().wants_updates("train")


@pytest.mark.parametrize("arguments", [{"threshold": 2}, {"verbose": 3}])
def test_mistakes(arguments):
    with pytest.raises(ValueError, match="InputMonitor"):
        InputMonitor(**arguments)
