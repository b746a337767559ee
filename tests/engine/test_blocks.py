"""Batches of a Dataset in blocks: the same bits as batch by batch, states at exact batches."""

from __future__ import annotations

import functools
import math
import os

import numpy as np
import pytest

import kerasish as keras
from kerasish import config, layers
from kerasish.callbacks import Callback, NaNAutopsy, Resume
from kerasish.data import Dataset
from kerasish.engine.data import reading
from kerasish.engine.data.source import SourceData
from kerasish.engine.training import blocks

X = np.random.default_rng(0).normal(size=(203, 6)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")
MEAN = X.mean(axis=0)


@pytest.fixture(autouse=True)
def static(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda number: None)
    before = config.backend()
    config.set_backend("static")
    yield
    config.set_backend(before)


class Batches(Callback):
    """Wants every batch, so that there are no blocks."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(batch)


class Cut(BaseException):
    """Ends a run as a kill would."""


class Dies(Resume):
    """Ends the run after a number of saves."""

    saves = None

    def save(self, epoch, batch, logs=None):
        super().save(epoch, batch, logs)
        if self.saves is not None:
            self.saves -= 1
            if not self.saves:
                raise Cut


def data(rows=8):
    return Dataset.from_tensor_slices((X, Y)).shuffle(50, seed=1).batch(rows)


def train(dataset, callbacks=(), epochs=3, **options):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((6,), name="a"), layers.Dense(9, "relu"), layers.Dropout(0.2), layers.Dense(1)]
    )
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(dataset, epochs=epochs, verbose=0, callbacks=list(callbacks), **options)
    return [np.array(v) for v in (*model.variables, *model.optimizer.variables)], dict(
        model.history.history
    )


def assert_same(found, wanted):
    assert found[1] == wanted[1]
    for a, b in zip(found[0], wanted[0], strict=True):
        np.testing.assert_array_equal(a, b)


def half(x, y):
    return x * 0.5 - MEAN, y


def weighted(x, y):
    return x, 1 - y, np.abs(y).reshape(())


def called(function):
    """The same function, which `map` calls for each batch: its code is not examined."""
    return functools.partial(function)


def mapped(rows=8):
    """The same batches, which are no rows in memory for `fit`: they are read."""
    return data(rows).map(called(lambda x, y: (x, y)))


@pytest.fixture
def fills(monkeypatch):
    """The sizes of the blocks that were filled."""
    sizes, fill = [], blocks.BlockRun._fill

    def spy(self, most):
        count = fill(self, most)
        sizes.extend([count] if count else [])
        return count

    monkeypatch.setattr(blocks.BlockRun, "_fill", spy)
    monkeypatch.setattr(blocks, "_SLOW_STEP", math.inf)  # on a busy machine a read may take long
    return sizes


@pytest.fixture
def runs(monkeypatch):
    """The numbers of batches that were left out of the data, since they were run as rows."""
    counts, leave = [], SourceData.leave_out

    def spy(self, count):
        counts.append(count)
        leave(self, count)

    monkeypatch.setattr(SourceData, "leave_out", spy)
    return counts


def test_the_bits_are_those_of_single_batches(fills):
    in_blocks = train(mapped())
    assert fills == [8, 8, 8, 1] * 3  # 25 of 8 rows; the last batch, of 3, is trained on by itself
    fills.clear()
    assert_same(in_blocks, train(mapped(), [Batches()]))
    assert fills == []


ROWS = {
    "in order": lambda rows: rows.batch(8),
    "shuffled": lambda rows: rows.shuffle(1000, seed=1).batch(8),
    "shuffled in a buffer": lambda rows: rows.shuffle(20, seed=1).batch(8),
    "the same order": lambda rows: rows.shuffle(99, 1, reshuffle_each_iteration=False).batch(8),
    "a part": lambda rows: rows.skip(11).shuffle(50, 2).take(101).batch(8),
    "whole batches": lambda rows: rows.shuffle(50, 2).batch(8, drop_remainder=True),
    "some batches": lambda rows: rows.shuffle(50, 2).batch(8).skip(2).take(9),
    "a shard": lambda rows: rows.shard(3, 1).batch(8),
    "passes": lambda rows: rows.shuffle(50, 2).repeat(2).batch(8),
    "passes of batches": lambda rows: rows.shuffle(50, 2).batch(8).repeat(3),
    "prefetch": lambda rows: rows.shuffle(50, 2).batch(8).prefetch(3),
    "prefetch in the middle": lambda rows: rows.prefetch(9).batch(8).prefetch(1).take(20),
    "mapped elements": lambda rows: rows.map(half).shuffle(99, 1).batch(8).prefetch(2),
    "mapped by threads": lambda rows: rows.map(half, num_parallel_calls=-1).batch(8),
    "mapped batches": lambda rows: rows.shuffle(99, 1).batch(8).map(half).prefetch(2),
    "mapped twice": lambda rows: rows.map(half).shuffle(99, 1).batch(8).map(half),
    "mapped weights": lambda rows: rows.map(weighted).shuffle(99, 1).batch(8),
    "other batches": lambda rows: rows.batch(8).map(lambda x, y: (x.astype("float64"), y[:, 0])),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_in_memory_are_run_where_they_lie(name, runs, fills):
    rows = Dataset.from_tensor_slices((X, Y))
    by_rows = train(ROWS[name](rows))
    assert sum(runs) > 8
    assert fills == []
    runs.clear()
    assert_same(by_rows, train(ROWS[name](rows), [Batches()]))
    assert runs == []


@pytest.mark.parametrize(
    ("name", "steps"), [("passes of batches", 11), ("prefetch", 7), ("shuffled", 40)]
)
@pytest.mark.filterwarnings("ignore:the Dataset ran out of data")
def test_rows_in_epochs_of_some_steps(name, steps, runs):
    rows, options = Dataset.from_tensor_slices((X, Y)), {"steps_per_epoch": steps, "epochs": 4}
    by_rows = train(ROWS[name](rows), **options)
    assert sum(runs) > 8
    assert_same(by_rows, train(ROWS[name](rows), [Batches()], **options))


@pytest.mark.parametrize(
    "elements",
    [(X.astype("float64"), Y), ({"a": X}, Y), (X, Y, np.ones(203, "float32")), (X[:, ::-1], Y)],
    ids=["converted", "a dict", "weights", "not contiguous"],
)
def test_elements_of_other_kinds(elements):
    make = Dataset.from_tensor_slices(elements).shuffle(50, 1).batch(8).prefetch(2)
    assert_same(train(make), train(make, [Batches()]))


def test_class_weights_are_not_left_out(runs):
    make = Dataset.from_tensor_slices((X, Y[:, 0].astype("int32"))).batch(8)
    weighted = train(make, class_weight={0: 0.2, 1: 3.0})
    assert runs == []
    assert_same(weighted, train(make, [Batches()], class_weight={0: 0.2, 1: 3.0}))


def test_rows_that_are_not_taken_may_be_wrong():
    labels = np.zeros(203, "int32")
    labels[200] = 7
    model = keras.Sequential([keras.Input((6,)), layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rows = Dataset.from_tensor_slices((X, labels))
    model.fit(rows.take(160).batch(8), verbose=0)
    before = int(model.optimizer.iterations.numpy())
    with pytest.raises(ValueError, match="7"):
        model.fit(rows.batch(8), verbose=0)
    assert int(model.optimizer.iterations.numpy()) - before == 25  # those before the wrong one


@pytest.mark.parametrize(
    "make",
    [
        lambda: data().map(lambda x, y: (x, y, np.ones(len(y), "float32"))),
        lambda: data().map(called(lambda x, y: (x, y[:, 0]))).prefetch(2),
        lambda: data().map(called(lambda x, y: (x.astype("float64"), y))),
        lambda: data(3).concatenate(data(8)).concatenate(data(3)),
        lambda: mapped().repeat(2).take(45),
    ],
)
def test_other_batches(make, fills):
    in_blocks = train(make())
    assert max(fills) > 1
    assert_same(in_blocks, train(make(), [Batches()]))


def test_epochs_of_some_steps(fills):
    options = {"steps_per_epoch": 11, "epochs": 4}
    in_blocks = train(mapped().repeat(), **options)
    assert fills[:5] == [8, 3, 8, 3, 3]  # the third epoch meets the smaller last batch of a pass
    assert_same(in_blocks, train(mapped().repeat(), [Batches()], **options))


def test_large_batches_are_not_copied(fills, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_BYTES", 8 * 6 * 4)  # without the labels
    train(mapped(), epochs=1)
    assert fills == []


@pytest.mark.parametrize("every", [1, 3, 10])
@pytest.mark.parametrize("saves", [1, 2, 5, 8])
@pytest.mark.parametrize("make", [mapped, data, lambda: data().prefetch(2)])
def test_states_are_saved_at_exact_batches(tmp_path, every, saves, make, fills):
    wanted = train(make())
    fills.clear()
    dies = Dies(tmp_path / "s", every=every, background=False)
    dies.saves = saves
    with pytest.raises(Cut):
        train(make(), resume=dies)
    assert make is not mapped or every == 1 or saves == 1 or fills[0] == min(every, 8)
    assert_same(train(make(), resume=Resume(tmp_path / "s", every=4, background=False)), wanted)


def test_states_by_time(tmp_path):
    wanted = train(data())
    for saves in (2, 4):
        dies = Dies(tmp_path / str(saves), seconds=1e-4, background=False)
        dies.saves = saves
        with pytest.raises(Cut):
            train(data(), resume=dies)
        assert_same(train(data(), resume=tmp_path / str(saves)), wanted)


def test_an_autopsy_gets_every_batch(fills, tmp_path):
    plain = train(data(), epochs=1)
    fills.clear()
    assert_same(train(data(), [NaNAutopsy(tmp_path / "crash")], epochs=1), plain)
    assert fills == []


def test_training_can_be_stopped_in_between():
    class Stop(Callback):
        every_batch = False

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

    _, history = train(data(), [Stop()])
    assert len(history["loss"]) >= 1


def test_labels_are_checked_before_a_block_is_trained_on():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = np.zeros(203, "int32")
    labels[100] = 7
    wrong = Dataset.from_tensor_slices((X, labels)).batch(8)
    with pytest.raises(ValueError, match="7"):
        model.fit(wrong, verbose=0)


class Numbered(keras.utils.PyDataset):
    """Batches that note, with the number of steps done, when they are read."""

    def __init__(self, read, **options):
        super().__init__(**options)
        self.read, self.model, self.ends = read, None, []

    def __len__(self):
        return 25

    def __getitem__(self, index):
        self.read.append((index, self.steps()))
        return X[index * 8 : index * 8 + 8], Y[index * 8 : index * 8 + 8]

    def steps(self):
        return 0 if self.model is None else int(self.model.optimizer.iterations.numpy())

    def on_epoch_end(self):
        self.ends.append(self.steps())


class Knows(Callback):
    """Gives the data its model."""

    every_batch = False

    def __init__(self, dataset):
        super().__init__()
        self.dataset = dataset

    def on_train_begin(self, logs=None):
        self.dataset.model = self.model


@pytest.mark.parametrize("options", [{}, {"workers": 0}, {"workers": 2}])
def test_the_main_thread_reads_one_batch_of_a_py_dataset_per_step(options, fills):
    """Batches may depend on the model, as in Keras. Only workers read ahead."""
    read = []
    dataset = Numbered(read, **options)
    in_blocks = train(dataset, [Knows(dataset)], epochs=2, shuffle=False)
    assert sorted(number for number, _ in read) == sorted([*range(25), *range(25)])
    if options.get("workers", 1) < 2:
        assert [number for number, _ in read] == [*range(25), *range(25)]
        early = [number + 25 * (place >= 25) - steps for place, (number, steps) in enumerate(read)]
        assert max(early) == 0
        assert dataset.ends == [25, 50]  # after the last batch was trained on
    single = train(Numbered([], **options), [Batches()], epochs=2, shuffle=False)
    assert_same(in_blocks, single)


def test_slow_reading_ends_a_block(fills, monkeypatch):
    monkeypatch.setattr(blocks, "_SLOW_STEP", 0.0)
    monkeypatch.setattr(blocks, "_SLOW_SHARE", 1e-9)  # each read takes long
    in_blocks = train(mapped(), epochs=2)
    assert fills == [8, *[1] * 17] * 2  # before the first block no step is known
    assert_same(in_blocks, train(mapped(), [Batches()], epochs=2))


@pytest.mark.parametrize("threaded", [False, True])
def test_data_on_disk_are_trained_on_in_blocks(threaded, fills, tmp_path, monkeypatch):
    monkeypatch.setattr(reading.DiskReader, "_is_slow", lambda self, factor: threaded)
    np.save(tmp_path / "x.npy", X)
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    options = {"y": Y, "batch_size": 8}
    from_disk = train(stored, **options)
    assert fills == [8, 8, 8, 1] * 3
    assert_same(from_disk, train(X, **options))
