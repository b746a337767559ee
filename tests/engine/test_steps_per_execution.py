"""`steps_per_execution`: how often callbacks that want batches are called, and with what numbers.

The numbers are those of Keras 3.15 on JAX.
"""

from __future__ import annotations

import numpy as np
import pytest

import kerasish as keras

pytestmark = pytest.mark.usefixtures("engine")

X, Y = np.ones((20, 2), "float32"), np.ones((20, 1), "float32")


class Seen(keras.callbacks.Callback):
    """Notes which batch hooks are called with which numbers."""

    def __init__(self):
        super().__init__()
        self.seen = {}
        self.outputs = []

    def _note(self, what, batch):
        self.seen.setdefault(what, []).append(batch)

    def on_train_batch_begin(self, batch, logs=None):
        self._note("train begin", batch)

    def on_train_batch_end(self, batch, logs=None):
        assert logs["loss"] > 0
        self._note("train end", batch)

    def on_test_batch_begin(self, batch, logs=None):
        self._note("test begin", batch)

    def on_test_batch_end(self, batch, logs=None):
        assert logs["loss"] > 0
        self._note("test end", batch)

    def on_predict_batch_begin(self, batch, logs=None):
        self._note("predict begin", batch)

    def on_predict_batch_end(self, batch, logs=None):
        self.outputs.append(np.asarray(logs["outputs"]))
        self._note("predict end", batch)


def make(steps):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps)
    return model


NUMBERS = {
    1: (list(range(10)), list(range(10))),
    4: ([0, 4, 8], [3, 7, 11]),
    5: ([0, 5], [4, 9]),
    16: ([0], [15]),
}


@pytest.mark.parametrize("steps", NUMBERS)
@pytest.mark.parametrize("stream", [False, True])
def test_batch_numbers(steps, stream):
    model, seen = make(steps), Seen()
    begins, ends = NUMBERS[steps]
    data = [(X[i : i + 2], Y[i : i + 2]) for i in range(0, 20, 2)]
    given = {"x": iter(data)} if stream else {"x": X, "y": Y, "batch_size": 2}
    model.fit(**given, verbose=0, callbacks=[seen])
    assert int(model.optimizer.iterations) == 10
    given = {"x": iter(data)} if stream else given
    model.evaluate(**given, verbose=0, callbacks=[seen])
    result = model.predict(X, batch_size=2, verbose=0, callbacks=[seen])
    assert seen.seen == {
        f"{mode} {when}": numbers
        for mode in ("train", "test", "predict")
        for when, numbers in (("begin", begins), ("end", ends))
    }
    np.testing.assert_array_equal(np.concatenate(seen.outputs), result)
    assert len(seen.outputs) == len(ends)


def test_a_stop_takes_effect_after_an_execution():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

    model = make(4)
    model.fit(X, Y, batch_size=2, epochs=3, verbose=0, callbacks=[Stop()])
    assert int(model.optimizer.iterations) == 4


def test_checkpoints_count_batches(tmp_path):
    """As in Keras: one after 6 batches or more, at the end of an execution."""
    model = make(4)
    path = tmp_path / "e{epoch}b{batch}.weights.h5"
    saver = keras.callbacks.ModelCheckpoint(path, save_freq=6, save_weights_only=True)
    model.fit(X, Y, batch_size=2, epochs=2, verbose=0, callbacks=[saver])
    names = ["e1b8.weights.h5", "e2b12.weights.h5", "e2b4.weights.h5"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
