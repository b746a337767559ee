"""`fit(resume=...)` over a Dataset: cut off at any batch, a training ends with the same bits."""

from __future__ import annotations

import contextlib
import os
import warnings

import numpy as np
import pytest
from dataset_cases import CASES, made, numbers, stream

import kerasish as keras
from kerasish import config, layers, tree
from kerasish.callbacks import Resume
from kerasish.data import Dataset
from kerasish.errors import ResumeError

EPOCHS = 3
pytestmark = pytest.mark.filterwarnings("ignore:The place in from_generator")


class Cut(BaseException):
    """Ends a run as a kill would: no handler catches it."""


class CutAt(keras.callbacks.Callback):
    """Ends the run after a number of batches; None counts them only."""

    def __init__(self, batches):
        super().__init__()
        self.left, self.seen = batches, 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.left:
            raise Cut


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda number: None)


@pytest.fixture(autouse=True)
def eager():
    before = config.backend()
    config.set_backend("eager")
    yield
    config.set_backend(before)


def features(*element):
    """Make three numbers and a target of any element."""
    parts = [np.ravel(np.asarray(p)).astype("float32") for p in tree.flatten(element)]
    row = np.concatenate(parts) / 50
    return np.array([row.mean(), row.min(), row.max()], "float32"), row[:1]


def train(dataset, folder=None, cut=None, epochs=EPOCHS, **fitted):
    """Return (weights, losses of each epoch, number of batches)."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((3,)), layers.Dropout(0.2), layers.Dense(1)])
    model.compile("adam", "mse")
    resume = None if folder is None else Resume(folder, every=1, background=False)
    counter = CutAt(cut)
    with contextlib.nullcontext() if cut is None else pytest.raises(Cut):
        model.fit(dataset, epochs=epochs, verbose=0, callbacks=[counter], resume=resume, **fitted)
    weights = [np.array(v) for v in (*model.variables, *model.optimizer.variables)]
    return weights, model.history.history["loss"] if cut is None else None, counter.seen


def assert_same(found, wanted):
    assert found[1] == wanted[1]
    for a, b in zip(found[0], wanted[0], strict=True):
        np.testing.assert_array_equal(a, b)


def batches(name):
    keras.utils.set_random_seed(11)  # seeds that are drawn are those of the first process
    return CASES[name]().map(features).batch(4)


def check(make, tmp_path, cuts, **fitted):
    wanted = train(make(), **fitted)
    for cut in [c for c in cuts if c < wanted[2]]:
        folder = tmp_path / str(cut)
        train(make(), folder, cut, **fitted)
        keras.utils.set_random_seed(99)
        assert_same(train(make(), folder, **fitted), wanted)


@pytest.mark.parametrize("name", list(CASES)[::2])
def test_cut_once(tmp_path, name):
    """In the second epoch, where shuffles have another order than in the first.

    `test_cut_at_any_batch` does so for all cases.
    """
    per_epoch = train(batches(name), epochs=1)[2]
    check(lambda: batches(name), tmp_path, {per_epoch + 2}, epochs=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_cut_at_any_batch(tmp_path, name):
    """At both ends of an epoch, and at every fourth batch; at every twentieth of long ones."""
    per_epoch = train(batches(name), epochs=1)[2]
    ends = {n for end in (0, per_epoch, 2 * per_epoch) for n in range(end - 2, end + 3) if n > 0}
    between = range(1, 200, 4 if per_epoch < 20 else 20)
    check(lambda: batches(name), tmp_path, sorted({*ends, *between}), epochs=2)


@pytest.mark.parametrize("steps", [2, 5])
def test_epochs_of_some_steps(tmp_path, steps):
    """Epochs that continue where the one before stopped, over the ends of passes or not."""
    for make in (
        lambda: stream().shuffle(7, 1).map(features).batch(4).repeat(),
        lambda: stream().shuffle(7, 1).map(features).batch(4).take(4),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the Dataset ran out of data")
            check(make, tmp_path / str(id(make)), range(1, 3 * steps, 4), steps_per_epoch=steps)


def test_drawn_seeds_are_those_of_the_state(tmp_path):
    """Another process draws other seeds: the state's are taken."""

    def make(seed):
        keras.utils.set_random_seed(seed)
        return stream().shuffle(7).map(features).batch(4)

    wanted = train(make(1))
    for cut in (2, 6, 9):
        folder = tmp_path / str(cut)
        train(make(1), folder, cut)
        assert_same(train(make(2), folder), wanted)


def test_a_validation_set_is_read_from_its_start(tmp_path):
    held_out = numbers().shuffle(9, 1).map(features).batch(4)
    check(
        lambda: stream().map(features).batch(4), tmp_path, (3, 8),
        validation_data=held_out, validation_steps=2,
    )  # fmt: skip


def test_on_the_static_engine(tmp_path):
    config.set_backend("static")
    make = lambda: stream().shuffle(6, 1).map(features, 2).batch(4).prefetch(2)  # noqa: E731
    check(make, tmp_path, (1, 6, 10))


def test_through_host_preprocessing(tmp_path):
    words = np.array(["a", "b", "c", "d"])[np.arange(24) % 4]

    def run(folder=None, cut=None):
        keras.utils.set_random_seed(3)
        lookup = layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")
        model = keras.Sequential([keras.Input((1,), dtype="string"), lookup, layers.Dense(1)])
        model.compile("adam", "mse")
        data = Dataset.from_tensor_slices((words[:, None], np.arange(24.0))).shuffle(9, 1).batch(5)
        resume = None if folder is None else Resume(folder, every=1, background=False)
        with contextlib.nullcontext() if cut is None else pytest.raises(Cut):
            model.fit(data, epochs=3, verbose=0, callbacks=[CutAt(cut)], resume=resume)
        return [np.array(v) for v in model.variables], model.history.history if not cut else 0

    wanted = run()
    for cut in (2, 5, 7):
        run(tmp_path / str(cut), cut)
        assert_same(run(tmp_path / str(cut)), wanted)


def test_another_pipeline_is_refused(tmp_path):
    train(numbers().map(features).batch(4), tmp_path, 3)
    with pytest.raises(ResumeError, match=r"(?s)data: from_tensor_slices.*batch\(4\) in the state"):
        train(numbers().map(features).batch(5), tmp_path)


def test_a_place_that_does_not_fit_changes_nothing(tmp_path):
    """Data that has become shorter is an error before the first step."""
    train(Dataset.from_generator(made).map(features).batch(4), tmp_path, 10)

    def shorter():
        yield from list(made())[:3]

    shorter.__qualname__ = "made"
    with pytest.raises(ResumeError, match="the saved state does not fit it"):
        train(Dataset.from_generator(shorter).map(features).batch(4), tmp_path)
