"""Data on disk: read ahead by a thread where reading is slow, with the same batches and errors."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

import kerasish as keras
from kerasish.engine.data import make_data, reading
from kerasish.engine.data.reading import DiskReader
from kerasish.engine.data.rows import StoredRows


class Clock:
    """A clock that stops between the calls of `sleep`."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    result = Clock()
    monkeypatch.setattr(reading, "time", result)
    return result


def reader(threads, seconds=0.0, fails=None, sleep=time.sleep):
    """Return a function that reads a batch, and notes which thread did."""

    def read(number):
        threads.append(threading.current_thread().name)
        sleep(seconds)
        if number == fails:
            raise OSError("the disk is gone")
        return number, None, None

    return read


def test_slow_batches_are_read_by_a_thread_in_order():
    disk, threads = DiskReader(), []
    numbers = [x for x, _, _ in disk.batches(reader(threads, 0.002), range(5, 25))]
    assert numbers == [*range(5, 25)]
    assert threads == ["MainThread"] * 8 + ["kerasish-data-0"] * 12
    assert disk.threaded  # in the next epoch from its first batch on
    threads.clear()
    assert [x for x, _, _ in disk.batches(reader(threads, 0.002), range(3))] == [0, 1, 2]
    assert threads == ["kerasish-data-0"] * 3


@pytest.mark.parametrize(
    ("busy", "seconds", "threaded"),
    [(True, 0.1, False), (True, 0.3, True), (False, 0.02, False), (False, 0.1, True)],
)
def test_a_thread_reads_where_reading_takes_a_large_share(
    clock, monkeypatch, busy, seconds, threaded
):
    monkeypatch.setattr(reading, "all_cores_compute", lambda: busy)
    disk, threads = DiskReader(), []
    for _ in disk.batches(reader(threads, seconds, sleep=clock.sleep), range(20)):
        clock.sleep(1.0)
    assert (threads[8] != "MainThread") == threaded


def test_no_thread_reads_what_takes_less_than_a_switch_of_threads(clock):
    disk, threads = DiskReader(), []
    for _ in disk.batches(reader(threads, 5e-5, sleep=clock.sleep), range(20)):
        pass
    assert threads == ["MainThread"] * 20


@pytest.mark.parametrize(("seconds", "threaded"), [(0.05, False), (0.1, True)])
def test_a_thread_ends_with_an_epoch_in_which_reading_was_fast(
    clock, monkeypatch, seconds, threaded
):
    monkeypatch.setattr(reading, "all_cores_compute", lambda: True)
    monkeypatch.setattr(reading, "read_ahead", lambda read, numbers, *_: map(read, numbers))
    disk = DiskReader()
    disk.threaded = True
    for _ in disk.batches(reader([], seconds, sleep=clock.sleep), range(9)):
        clock.sleep(1.0)
    assert disk.threaded == threaded


def test_an_error_is_raised_where_its_batch_is_due():
    disk, seen = DiskReader(), []
    disk.threaded = True
    batches = disk.batches(reader([], fails=4), range(9))
    with pytest.raises(OSError, match="gone"):
        seen.extend(x for x, _, _ in batches)
    assert seen == [0, 1, 2, 3]


def test_a_thread_ends_with_an_epoch_that_is_left():
    disk = DiskReader()
    disk.threaded = True
    batches = disk.batches(reader([]), range(1000))
    next(batches)
    batches.close()
    assert not [t for t in threading.enumerate() if t.name == "kerasish-data-0"]


def test_only_h5py_and_memory_maps_are_read_by_a_thread(tmp_path):
    class Sliceable:
        shape, dtype = (6, 2), np.dtype("float32")

        def __getitem__(self, key):
            return np.zeros((6, 2), "float32")[key]

    np.save(tmp_path / "x.npy", np.zeros((6, 2), "float32"))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert make_data(mapped)._reader is not None
    assert make_data(Sliceable())._reader is None
    assert make_data((mapped, Sliceable()))._reader is None
    assert make_data(np.zeros((6, 2)))._reader is None


@pytest.mark.parametrize("engine", ["static", "eager"])
def test_a_file_that_becomes_shorter_ends_a_training_at_its_batch(tmp_path, monkeypatch, engine):
    h5py = pytest.importorskip("h5py", reason="h5py is a dependency of kerasish")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((400, 100), "float32")
    monkeypatch.setattr(reading.DiskReader, "_is_slow", lambda self, factor: True)
    before = keras.config.backend()
    keras.config.set_backend(engine)
    try:
        model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        with h5py.File(path, "r") as file:
            rows = file["x"]
            start = rows.id.get_offset()
            first = StoredRows(rows, "x")
            assert first.file is not None

            class Shorten(keras.callbacks.Callback):
                every_batch = False

                def on_epoch_begin(self, epoch, logs=None):
                    os.truncate(path, start + 205 * 400)  # 205 rows of 400 bytes

            with pytest.raises(OSError, match=r"a\.h5 has become shorter"):
                model.fit(
                    rows, np.ones((400, 1)), batch_size=10, shuffle=False, verbose=0,
                    callbacks=[Shorten()],
                )  # fmt: skip
            assert int(model.optimizer.iterations.numpy()) == 20
    finally:
        keras.config.set_backend(before)


ORDERS = {
    "adjacent": [*range(40, 70), 3, *range(10, 20)],
    "backwards": [*range(99, 40, -1)],
    "twice": [5, 6, 5, 6, 7, 8, 8, 9, 10],
    "scattered": [90, 2, 50, 7],
    "many": [*range(100)] * 7,
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("most", [1, 3, 512])
def test_rows_that_lie_in_sequence_are_read_at_once(tmp_path, monkeypatch, name, most):
    h5py = pytest.importorskip("h5py", reason="h5py is a dependency of kerasish")
    from kerasish.engine.data import file_rows

    monkeypatch.setattr(file_rows, "_MOST_PARTS", most)
    x, order = np.arange(300, dtype="float32").reshape(100, 3), np.array(ORDERS[name])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = x
    with h5py.File(tmp_path / "x.h5", "r") as file:
        rows, reads = StoredRows(file["x"], "x"), []
        preadv = os.preadv

        def spy(descriptor, parts, start):
            reads.append(len(parts))
            return preadv(descriptor, parts, start)

        monkeypatch.setattr(os, "preadv", spy)
        np.testing.assert_array_equal(rows.take(order), x[order])
    assert sum(reads) == len(order)
    if name == "adjacent":
        assert len(reads) == {1: 41, 3: 15, 512: 3}[most]
