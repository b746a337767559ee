"""The backend keeps the contract, trains as the eager engine does, and counts right."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish as keras
from kerasish import backends, ops
from kerasish.testing import check_backend


@pytest.fixture
def op_times():
    """The backend that the entry point names, in charge of steps, with empty measurements."""
    before = keras.config.backend()
    backend = backends.get("op_times")
    backend.reset()
    keras.config.set_backend("op_times")
    yield backend
    keras.config.set_backend(before)


def train():
    keras.utils.set_random_seed(3)
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    y = x @ np.float32([[1.0], [-2.0], [0.5], [3.0]])
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=8, epochs=5, verbose=0)
    return history.history["loss"], model.predict(x, verbose=0)


def test_the_entry_point_is_found():
    assert "op_times" in backends.names()


def test_it_keeps_the_contract():
    assert "trains a line" in check_backend("op_times")


def test_it_trains_as_the_eager_engine_does(op_times):
    losses, predictions = train()
    keras.config.set_backend("eager")
    expected_losses, expected = train()
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    np.testing.assert_allclose(predictions, expected, rtol=1e-3, atol=1e-5)


def test_calls_and_bytes_are_counted(op_times):
    step = op_times.compile(lambda x: ops.sum(ops.exp(ops.exp(x))))
    step(np.zeros((2, 3), "float32"))
    times = op_times.times()
    assert (times["exp"].calls, times["exp"].nbytes) == (2, 2 * 6 * 4)
    assert (times["reduce_sum"].calls, times["reduce_sum"].nbytes) == (1, 4)
    assert times["exp"].seconds > 0
    ops.exp(1.0)  # outside of a step: the eager engine's
    assert op_times.times()["exp"].calls == 2
    lines = op_times.table().splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["op", "calls", "milliseconds", "bytes"]
    op_times.reset()
    assert op_times.times() == {}


def test_a_training_runs_the_optimizer_and_the_reverse_pass_here(op_times):
    train()
    times = op_times.times()
    steps = 5 * 4
    # Two layers forward, and three products back (the first layer's input needs no gradient).
    assert times["matmul"].calls >= 5 * steps
    assert times["sqrt"].calls > 0  # Adam


def test_shapes_that_do_not_fit_are_named(op_times):
    step = op_times.compile(lambda a, b: ops.add(a, b))
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        step(np.ones(2, "float32"), np.ones(3, "float32"))
