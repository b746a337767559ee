"""The data adapters: what every kind of data gives, and what the errors say."""

from __future__ import annotations

import functools
import gc
import operator
import os
import threading
import time
import traceback
import tracemalloc
import types
import warnings

import numpy as np
import pytest

import kerasish
from kerasish import config
from kerasish.engine.data import (
    PyDataset,
    make_data,
    pack_x_y_sample_weight,
    train_validation_split,
    unpack_x_y_sample_weight,
)
from kerasish.engine.data.rows import StoredRows


def batches(data, epoch=0, start=0):
    with data.epoch(epoch, start) as opened:
        return list(opened)


def xs(data, epoch=0, start=0):
    """The x of each batch of an epoch, as lists."""
    return [x.ravel().tolist() for x, _, _ in batches(data, epoch, start)]


def reader_threads():
    return [t for t in threading.enumerate() if t.name.startswith("kerasish-data")]


def all_readers_end():
    """Wait for the threads: who closes the data does so for a second at most."""
    until = time.monotonic() + 60
    while reader_threads() and time.monotonic() < until:
        time.sleep(0.001)
    return not reader_threads()


# ------------------------------------------------------------------------------------- arrays


def test_arrays_are_cut_into_batches_in_order():
    x, y = np.arange(10, dtype="float32").reshape(5, 2), np.arange(5)
    data = make_data(x, y, batch_size=2)
    got = batches(data)
    np.testing.assert_array_equal(np.concatenate([b[0] for b in got]), x)
    assert [b[1].tolist() for b in got] == [[0, 1], [2, 3], [4]]
    assert all(b[2] is None for b in got)
    assert (data.num_samples, data.num_batches, data.batch_size) == (5, 3, 2)


def test_plain_arrays_are_used_as_they_are():
    x, y = np.zeros((6, 3), "float32"), np.zeros(6, "int64")
    data = make_data({"a": x, "b": [x, x]}, y, shuffle=True)
    assert data.in_memory
    assert [np.shares_memory(a, b) for a, b in zip(data.arrays, (x, x, x, y))] == [True] * 4
    unshuffled = batches(make_data(x, batch_size=4))
    assert np.shares_memory(unshuffled[0][0], x)


@pytest.mark.parametrize(
    "structure",
    [
        lambda a: a,
        lambda a: [a, a + 1],
        lambda a: (a, {"k": a + 2}),
        lambda a: {"b": a, "a": a + 3},
        lambda a: {"a": a, "b": None},
    ],
)
def test_pack_rebuilds_the_structure(structure):
    a = np.arange(4, dtype="float32")
    x, y = structure(a), structure(a * 10)
    data = make_data(x, y, sample_weight=a)
    order = data.order(0)
    gathered = data.pack([array[order] for array in data.arrays])
    ((direct),) = batches(data)
    assert str(gathered) == str(direct)
    assert str(direct[0]) == str(x)
    assert str(direct[1]) == str(y)


def test_order_names_the_rows_of_the_batches():
    x = np.arange(50, dtype="float32")
    data = make_data(x, batch_size=8, shuffle=True, seed=3)
    for epoch in (0, 1, 7):
        order = data.order(epoch)
        assert order.dtype == np.int64
        assert sorted(order.tolist()) == list(range(50))
        assert np.concatenate(xs(data, epoch)).tolist() == x[order].tolist()


def test_the_order_is_a_function_of_seed_and_epoch():
    def order(seed, epoch):
        return make_data(np.zeros(64), shuffle=True, seed=seed).order(epoch).tolist()

    assert order(1, 5) == order(1, 5)
    assert order(1, 5) != order(1, 6)
    assert order(1, 5) != order(2, 5)
    assert order(-1, 0) != order(0, 0)  # negative and large seeds serve as well
    assert len(order(2**70, 0)) == 64


def test_orders_of_neighboring_epochs_are_unrelated():
    orders = np.stack([make_data(np.zeros(1000), shuffle=True, seed=0).order(e) for e in range(6)])
    correlations = np.corrcoef(orders) - np.eye(6)
    assert np.abs(correlations).max() < 0.15


@pytest.mark.parametrize("shuffle", [False, True, "batch"])
def test_an_epoch_is_resumed_at_a_batch(shuffle):
    data = make_data(np.arange(23.0), batch_size=4, shuffle=shuffle, seed=9)
    for start in range(7):
        assert xs(data, 2, start) == xs(data, 2)[start:]


def test_shuffle_batch_keeps_batches_together():
    data = make_data(np.arange(22.0), batch_size=4, shuffle="batch", seed=1)
    got = xs(data, 0)
    assert all(np.diff(batch).tolist() == [1.0] * (len(batch) - 1) for batch in got)
    assert got[-1] == [20.0, 21.0]
    assert [b[0] for b in got[:-1]] != sorted(b[0] for b in got[:-1]) or xs(data, 1) != got
    assert sorted(functools.reduce(operator.iadd, got, [])) == list(range(22))


@pytest.mark.parametrize("shuffle", [False, True, "batch"])
@pytest.mark.parametrize("kind", ["plain", "nested", "class_weight", "sparse"])
def test_all_parts_of_a_row_travel_together(shuffle, kind):
    """Each row is its number, in x, y and weights: whatever the order, the numbers agree."""
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is needed for sparse rows")
    row = np.arange(1.0, 24.0)
    x, y, w = row[:, None], row * 10, row * 100
    options = {"class_weight": {0: 1.0}} if kind == "class_weight" else {}
    if kind == "nested":
        x, y, w = {"a": row, "b": [row[:, None]]}, (row * 10, row * 20), (row * 100, row)
    data = make_data(
        sparse.csr_matrix(x) if kind == "sparse" else x, y, w,
        batch_size=4, shuffle=shuffle, seed=9, **options,
    )  # fmt: skip
    seen = []
    for batch in batches(data, 3):
        first, second, third = batch if kind != "nested" else [
            batch[0]["a"], batch[1][0], batch[2][0]
        ]  # fmt: skip
        if kind == "nested":
            assert batch[0]["b"][0].ravel().tolist() == first.tolist()
            assert batch[1][1].tolist() == (first * 20).tolist()
            assert batch[2][1].tolist() == first.tolist()
        assert second.tolist() == (first.ravel() * 10).tolist()
        assert third.tolist() == (first.ravel() * 100).tolist()
        seen += first.ravel().tolist()
    assert sorted(seen) == row.tolist()
    assert (seen == row.tolist()) == (shuffle is False)


def test_lists_of_numbers_are_arrays_and_lists_of_arrays_inputs():
    ((x, y, _),) = batches(make_data([[1, 2.5], [3, 4]], [0, 1]))
    assert x.dtype == np.float32
    assert x.tolist() == [[1, 2.5], [3, 4]]
    assert y.dtype == np.int64
    ((x, _, _),) = batches(make_data([np.zeros((2, 3)), np.ones(2)]))
    assert [part.shape for part in x] == [(2, 3), (2,)]
    ((x, _, _),) = batches(make_data(["a", "bc"]))
    assert x.tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("float64", "float32"),
        ("float16", "float32"),
        (">f4", "float32"),
        ("int64", "int64"),
        (">i4", "int32"),
        ("uint8", "uint8"),
        ("bool", "bool"),
        ("complex64", "complex64"),
    ],
)
def test_dtypes_of_arrays_and_of_batches(given, used):
    array = np.array([0, 1, 1], given)
    ((x, _, _),) = batches(make_data(array))
    assert x.dtype == used
    assert x.dtype.isnative
    assert x.tolist() == array.tolist()
    ((x, y, _),) = batches(make_data(iter([(array, array)])))
    assert x.dtype == y.dtype == used


@pytest.mark.parametrize("floatx", ["float16", "bfloat16", "float32", "float64"])
def test_floats_become_floatx(floatx):
    config.set_floatx(floatx)
    for given in ("float16", "float32", "float64"):
        ((x, _, _),) = batches(make_data(np.ones(3, given)))
        assert x.dtype.name == floatx


def test_bfloat16_becomes_float32():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes has bfloat16")
    ((x, _, _),) = batches(make_data(np.ones(3, ml_dtypes.bfloat16)))
    assert x.dtype == np.float32


def test_one_dimensional_x_keeps_its_shape():
    ((x, y, _),) = batches(make_data(np.zeros(4), np.zeros((4, 1))))
    assert (x.shape, y.shape) == ((4,), (4, 1))


def test_arrays_that_are_not_contiguous_are_copied():
    x = np.arange(24, dtype="float32").reshape(4, 6)
    data = make_data(x[:, ::2], shuffle=True)
    assert data.arrays[0].flags.c_contiguous
    assert data.arrays[0].tolist() == x[:, ::2].tolist()


def test_objects_of_other_libraries_are_taken_by_their_protocols():
    class WithArray:
        shape = (3,)

        def __array__(self, dtype=None, copy=None):
            return np.arange(3.0)

    class WithDlpack:
        def __dlpack__(self, **options):
            return np.arange(3.0).__dlpack__(**options)

        def __dlpack_device__(self):
            return np.arange(3.0).__dlpack_device__()

    class LikeTorch:
        dtype = "torch.bfloat16"

        def detach(self):
            return self

        cpu = float = detach

        def numpy(self):
            return np.arange(3.0)

    for thing in (WithArray(), WithDlpack(), LikeTorch()):
        assert xs(make_data(thing)) == [[0.0, 1.0, 2.0]]


def test_torch_tensors_and_data_loaders():
    torch = pytest.importorskip("torch", reason="torch is not installed (extra `bench`)")
    x = torch.arange(6.0, requires_grad=True)
    assert xs(make_data(x, batch_size=4)) == [[0, 1, 2, 3], [4, 5]]
    dataset = torch.utils.data.TensorDataset(torch.arange(6.0), torch.arange(6))
    data = make_data(torch.utils.data.DataLoader(dataset, batch_size=4))
    assert data.num_batches == 2
    assert xs(data) == xs(data, 1) == [[0, 1, 2, 3], [4, 5]]


# ------------------------------------------------------------------- steps_per_epoch on arrays


def test_steps_without_a_batch_size_hold_all_the_rows():
    data = make_data(np.arange(64.0), steps_per_epoch=5)
    assert [len(x) for x in xs(data)] == [13, 13, 13, 13, 12]


def test_an_epoch_of_fewer_steps_goes_on_where_the_last_one_stopped():
    data = make_data(np.arange(8.0), batch_size=2, steps_per_epoch=2)
    assert data.num_batches == 2
    assert [xs(data, e) for e in range(3)] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
        [[0, 1], [2, 3]],
    ]
    shuffled = make_data(np.arange(8.0), batch_size=2, steps_per_epoch=2, shuffle=True)
    seen = functools.reduce(operator.iadd, xs(shuffled, 2) + xs(shuffled, 3), [])
    assert sorted(seen) == list(range(8))
    assert shuffled.order(3).tolist() == functools.reduce(operator.iadd, xs(shuffled, 3), [])


def test_too_many_steps_warn_once_and_end_the_epoch():
    data = make_data(np.arange(4.0), batch_size=2, steps_per_epoch=5)
    with pytest.warns(UserWarning, match="after 2 batches of steps_per_epoch=5"):
        assert xs(data) == [[0, 1], [2, 3]]
    assert xs(data, 1) == [[0, 1], [2, 3]]
    assert data.num_batches == 2


# ------------------------------------------------------------------------- on disk, and sparse


@pytest.fixture
def stored(tmp_path):
    """An h5py dataset, a memory map and a sliceable thing, all float64, with their contents."""
    h5py = pytest.importorskip("h5py", reason="h5py is a dependency of kerasish")
    rows = np.random.default_rng(0).normal(size=(30, 3))
    np.save(tmp_path / "rows.npy", rows)

    class Sliceable:
        shape = rows.shape
        dtype = rows.dtype

        def __len__(self):
            return 30

        def __getitem__(self, key):
            if not isinstance(key, (int, slice)):
                raise TypeError("integers and slices only")
            return rows[key]

    with h5py.File(tmp_path / "read.h5", "w") as file:
        file["x"] = rows
        file.create_dataset("chunks", data=rows, chunks=(7, 2))
    with (
        h5py.File(tmp_path / "rows.h5", "w") as file,
        h5py.File(tmp_path / "read.h5", "r") as read,
    ):
        file["x"] = rows
        yield (
            rows,
            {
                "h5py": file["x"],
                "h5py, in a piece": read["x"],
                "h5py, chunks": read["chunks"],
                "memmap": np.load(tmp_path / "rows.npy", mmap_mode="r"),
                "sliceable": Sliceable(),
            },
        )


KINDS = ["h5py", "h5py, in a piece", "h5py, chunks", "memmap", "sliceable"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shuffle", [False, True, "batch"])
def test_stored_rows_are_those_of_the_array(stored, kind, shuffle):
    rows, sources = stored
    options = {"batch_size": 4, "shuffle": shuffle, "seed": 5}
    lazy, plain = make_data(sources[kind], np.arange(30), **options), make_data(rows, **options)
    assert not lazy.in_memory
    assert xs(lazy, 1) == xs(plain, 1)
    expected = [part.tolist() for part in np.split(lazy.order(1), range(4, 30, 4))]
    assert [b[1].tolist() for b in batches(lazy, 1)] == expected
    assert batches(lazy)[0][0].dtype == np.float32


def test_only_hdf5_that_nothing_writes_is_read_from_the_file(stored):
    _, sources = stored
    rows = {kind: StoredRows(source, "x", exact=True) for kind, source in sources.items()}
    direct = [kind for kind, reader in rows.items() if reader.file is not None]
    assert direct == ["h5py, in a piece"]


def test_rows_of_an_hdf5_file_that_was_replaced_or_closed(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is a dependency of kerasish")
    for name in ("a.h5", "b.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = np.full((4, 2), ord(name[0]), "float32")
    with h5py.File(tmp_path / "a.h5", "r") as file:
        (tmp_path / "b.h5").replace(tmp_path / "a.h5")
        reader = StoredRows(file["x"], "x")
        assert reader.take(np.array([2, 0])).tolist() == [[97, 97], [97, 97]]
        (tmp_path / "a.h5").unlink()
        assert StoredRows(file["x"], "x").part(1, 3).tolist() == [[97, 97], [97, 97]]
    assert reader.take(np.array([3])).tolist() == [[97, 97]]  # the file is the reader's, too


def test_an_hdf5_file_that_becomes_shorter_is_an_error(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is a dependency of kerasish")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((4000, 100), "float32")
    with h5py.File(path, "r") as file:
        reader = StoredRows(file["x"], "x")
        assert reader.file is not None and reader.take(np.array([3999, 0])).all()
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(OSError, match=r"a\.h5 has become shorter"):
            reader.take(np.array([3999, 0]))
        assert reader.take(np.array([0, 7])).all()
        assert StoredRows(file["x"], "x").file is None


@pytest.mark.parametrize("kind", KINDS)
def test_stored_rows_that_are_taken_are_the_callers_own(stored, kind):
    rows, sources = stored
    reader = StoredRows(sources[kind], "x", exact=True)
    for order in ([3, 4, 5], [9, 2, 2, 28], [7]):
        taken = reader.take(np.array(order, np.int64))
        np.testing.assert_array_equal(taken, rows[order])
        assert taken.flags.writeable
        taken[...] = -1
        np.testing.assert_array_equal(reader.take(np.array(order, np.int64)), rows[order])


@pytest.mark.parametrize("kind", KINDS)
def test_stored_rows_are_split_without_reading(stored, kind):
    rows, sources = stored
    (first, _), (last, y) = train_validation_split((sources[kind], np.arange(30)), 0.2)
    assert xs(make_data(first, batch_size=30)) == [rows[:24].astype("float32").ravel().tolist()]
    shuffled = np.array(xs(make_data(last, batch_size=30, shuffle=True))).reshape(6, 3)
    assert sorted(shuffled[:, 0]) == sorted(rows[24:, 0].astype("float32"))
    assert y.tolist() == list(range(24, 30))


def test_a_memory_map_is_not_loaded(tmp_path):
    path = tmp_path / "large.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype="float32", shape=(200_000, 32)).flush()
    tracemalloc.start()
    data = make_data(np.load(path, mmap_mode="r"), batch_size=64)
    with data.epoch() as epoch:
        for _ in range(10):
            next(epoch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000  # of 25.6 MB


def test_only_the_rows_asked_for_are_read_each_once_in_ascending_order():
    asked = []

    class Source:
        shape = (10, 1)

        def __getitem__(self, key):
            asked.append(key)
            return np.arange(10.0)[key, None]

    data = make_data(Source(), batch_size=3, shuffle=True, seed=2)
    xs(data)
    scattered = [key.tolist() for key in asked if isinstance(key, np.ndarray)]
    assert scattered
    assert all(key == sorted(set(key)) for key in scattered)


@pytest.mark.parametrize("form", ["csr_matrix", "coo_matrix", "csc_array"])
def test_sparse_rows_are_made_dense_a_batch_at_a_time(form):
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy comes with scikit-learn")
    dense = np.arange(12.0).reshape(4, 3) * (np.arange(12).reshape(4, 3) % 2)
    data = make_data(getattr(sparse, form)(dense), batch_size=2, shuffle=True)
    assert not data.in_memory
    got = np.concatenate([b[0] for b in batches(data)])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, dense[data.order(0)])
    first, _ = train_validation_split(getattr(sparse, form)(dense), 0.25)
    np.testing.assert_array_equal(first.toarray(), dense[:3])


def test_data_frames():
    pandas = pytest.importorskip("pandas", reason="pandas is in the extra `test`")
    frame = pandas.DataFrame({"a": [1, 2, 3, 4], "b": [0.5, 1.5, 2.5, 3.5]})
    data = make_data(frame, pandas.Series([1, 0, 1, 0]))
    ((x, y, _),) = batches(data)
    assert (x.dtype, y.dtype, y.shape) == (np.float32, np.int64, (4,))
    assert x.tolist() == frame.to_numpy().tolist()
    mixed = pandas.DataFrame({"a": [1, 2], "b": [True, False]})
    assert xs(make_data(mixed)) == [[1, 1, 2, 0]]
    ((x, _, _),) = batches(make_data(dict(frame)))
    assert [x["a"].dtype, x["b"].dtype] == [np.int64, np.float32]
    (_, _), (x, y) = train_validation_split((frame, frame["a"]), 0.5)
    assert (list(x.columns), y.tolist()) == (["a", "b"], [3, 4])
    nullable = pandas.DataFrame({"a": pandas.array([1, 2], "Int64")})
    assert xs(make_data(nullable)) == [[1, 2]]
    text = pandas.DataFrame({"s": ["u", "v"]})
    assert xs(make_data(text)) == [["u", "v"]]


def test_frames_say_which_column_and_row_is_no_number():
    pandas = pytest.importorskip("pandas", reason="pandas is in the extra `test`")
    with pytest.raises(ValueError, match="strings in column 'city'"):
        make_data(pandas.DataFrame({"a": [1, 2], "city": ["x", "y"]}))
    gap = pandas.DataFrame({"a": pandas.Series([1, None], dtype=object), "b": [1, 2]})
    with pytest.raises(ValueError, match=r"column 'a': .*row 1 holds None.*missing"):
        make_data(gap)
    with pytest.raises(ValueError, match=r"column 'day'.*dates into numbers"):
        make_data(pandas.DataFrame({"day": pandas.to_datetime(["2020-01-01"]), "a": [1]}))


# ------------------------------------------------------------------- generators and iterables


def make_generator(count, first=0):
    return ((np.array([float(i)]), np.array([i])) for i in range(first, first + count))


def test_a_generator_without_steps_is_read_to_its_end_then_training_stops():
    data = make_data(make_generator(3))
    assert data.num_batches is None
    assert xs(data, 0) == [[0], [1], [2]]
    assert data.num_batches == 3
    assert not data.exhausted
    with pytest.warns(UserWarning, match=r"generator ran out of data in epoch 2.*training stops"):
        assert xs(data, 1) == []
    assert data.exhausted


def test_a_generator_with_steps_goes_on_and_warns_when_it_runs_dry():
    data = make_data(make_generator(5), steps_per_epoch=2)
    assert data.num_batches == 2
    assert xs(data, 0) == [[0], [1]]
    assert xs(data, 1) == [[2], [3]]
    with pytest.warns(UserWarning, match=r"epoch 3 after 1 batches of steps_per_epoch=2") as caught:
        assert xs(data, 2) == [[4]]
    assert "while True" in str(caught[0].message)
    assert data.exhausted
    assert xs(data, 3) == []


def test_no_batch_of_a_generator_is_read_ahead():
    source = make_generator(10)
    data = make_data(source, steps_per_epoch=2)
    xs(data, 0)
    assert next(source)[0] == [2.0]


def test_peek_gives_the_first_batch_without_consuming_it():
    data = make_data(make_generator(3))
    assert data.peek()[0].tolist() == [0.0]
    assert data.peek()[0].tolist() == [0.0]
    assert xs(data) == [[0], [1], [2]]


@pytest.mark.parametrize("steps", [None, 3])
def test_what_peek_read_is_not_lost_when_training_begins_later(steps):
    data = make_data(make_generator(3), steps_per_epoch=steps)
    data.peek()
    assert xs(data, epoch=5) == [[0], [1], [2]]
    data = make_data(make_generator(3), steps_per_epoch=steps)
    data.peek()
    assert xs(data, epoch=5, start=2) == [[2]]


@pytest.mark.parametrize("kind", ["arrays", "generator", "list iterator", "py_dataset"])
def test_peek_then_a_whole_epoch(kind):
    x = np.arange(6.0)
    sources = {
        "arrays": x,
        "generator": ((part,) for part in np.split(x, 3)),
        "list iterator": iter([(part,) for part in np.split(x, 3)]),
        "py_dataset": Numbers(3, size=2, workers=2),
    }
    with make_data(sources[kind], batch_size=2 if kind == "arrays" else None) as data:
        first = data.peek(epoch=4)
        got = batches(data, 4)
    np.testing.assert_array_equal(first[0], got[0][0])
    np.testing.assert_array_equal(np.concatenate([b[0] for b in got]), x)
    assert all_readers_end()


@pytest.mark.parametrize("form", [lambda x, y: (x, y), lambda x, y: [x, y]])
def test_batches_are_tuples_or_lists(form):
    data = make_data(form(x, y) for x, y in make_generator(2))
    assert [(x.tolist(), y.tolist()) for x, y, _ in batches(data)] == [([0], [0]), ([1], [1])]


@pytest.mark.parametrize("batch", [np.ones((2, 3)), (np.ones((2, 3)),), {"a": np.ones((2, 3))}])
def test_batches_of_x_alone(batch):
    ((x, y, w),) = batches(make_data(iter([batch])))
    assert y is None
    assert w is None
    assert (x["a"] if isinstance(x, dict) else x).shape == (2, 3)


class Loader:
    """An iterable like a torch DataLoader: iterable again and again, lists of tensors."""

    def __init__(self, count, length=True):
        self.count = count
        self.starts = 0
        if length:
            self.__class__ = type("SizedLoader", (Loader,), {"__len__": lambda self: self.count})

    def __iter__(self):
        self.starts += 1
        return iter([[np.array([float(i)]), np.array([i])] for i in range(self.count)])


@pytest.mark.parametrize("length", [True, False])
def test_an_iterable_starts_again_each_epoch(length):
    loader = Loader(3, length)
    data = make_data(loader)
    assert data.num_batches == (3 if length else None)
    assert [xs(data, e) for e in range(3)] == [[[0], [1], [2]]] * 3
    assert data.num_batches == 3
    assert loader.starts == 3


def test_an_iterable_left_in_the_middle_starts_again():
    data = make_data(Loader(3))
    with data.epoch(0) as epoch:
        next(epoch)
    assert xs(data, 1) == [[0], [1], [2]]


def test_an_iterable_with_steps_goes_on_and_begins_again():
    data = make_data(Loader(4), steps_per_epoch=2)
    assert [xs(data, e) for e in range(3)] == [[[0], [1]], [[2], [3]], [[0], [1]]]
    data = make_data(Loader(3), steps_per_epoch=2)
    assert xs(data, 0) == [[0], [1]]
    with pytest.warns(UserWarning, match="ran out of data in epoch 2 after 1 batches"):
        assert xs(data, 1) == [[2]]
    assert xs(data, 2) == [[0], [1]]
    assert not data.exhausted


def test_an_epoch_of_a_generator_can_skip_batches():
    assert xs(make_data(make_generator(4)), 0, start=3) == [[3]]


def test_an_error_in_a_generator_says_which_batch():
    def failing():
        yield (np.zeros(1),)
        raise ZeroDivisionError("boom")

    with pytest.raises(ZeroDivisionError, match="boom") as caught:
        batches(make_data(failing()))
    text = "".join(traceback.format_exception(caught.value))
    assert "in failing" in text
    assert "batch 2 of epoch 1 from the generator" in text


PLAIN = (np.zeros((3, 2), "float32"), np.zeros(3, "int32"))


class Listed(PyDataset):
    def __init__(self, items):
        super().__init__()
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


@pytest.mark.parametrize("source", [iter, Listed], ids=["iterator", "PyDataset"])
@pytest.mark.parametrize(
    "batch",
    [
        (np.ones((3, 2)), PLAIN[1]),
        (np.ones((3, 2), ">f4"), PLAIN[1]),
        (np.ones((3, 2), "float32"), np.ones(3)),
        [np.ones((3, 2), "float32"), PLAIN[1]],
        (*PLAIN, np.ones(3, "float16")),
        (np.ones((3, 2), "float32"),),
        ({"a": np.ones((3, 2))}, PLAIN[1]),
        (np.ma.array(np.ones((3, 2), "float32")), PLAIN[1]),
    ],
    ids=["float64", "bytes", "y", "list", "weights", "x", "dict", "masked"],
)
def test_a_batch_after_plain_ones_is_converted_as_the_first_one_is(source, batch):
    (first,) = batches(make_data(source([batch]), steps_per_epoch=1))
    *before, after = batches(make_data(source([PLAIN, PLAIN, batch]), steps_per_epoch=3))
    for x, y, weights in before:
        assert x is PLAIN[0] and y is PLAIN[1] and weights is None
    for a, b in zip(kerasish.tree.flatten(after), kerasish.tree.flatten(first), strict=True):
        assert type(a) is type(b)
        assert a is None or a.dtype == b.dtype and a.dtype.isnative
        np.testing.assert_array_equal(a, b)


def test_plain_batches_are_checked_and_follow_floatx():
    unequal = (PLAIN[0], np.zeros(2, "int32"))
    with pytest.raises(ValueError, match=r"batch 2 of .* equal numbers of rows, got x: 3, y: 2"):
        batches(make_data(iter([PLAIN, unequal]), steps_per_epoch=2))
    with make_data(iter([PLAIN, PLAIN]), steps_per_epoch=2).epoch(0) as opened:
        assert next(opened)[0].dtype == "float32"
        config.set_floatx("float64")
        assert next(opened)[0].dtype == "float64"


def test_class_weights_apply_to_every_plain_batch():
    data = make_data(iter([PLAIN, PLAIN]), class_weight={0: 2.0}, steps_per_epoch=2)
    assert [w.tolist() for _, _, w in batches(data)] == [[2.0] * 3] * 2


def test_an_empty_generator_is_an_error():
    with pytest.raises(ValueError, match="at least one batch from the generator"):
        batches(make_data(make_generator(0)))
    with pytest.raises(ValueError, match="at least one batch"):
        make_data(make_generator(0)).peek()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((np.zeros(2),) * 4, r"batch 1 of epoch 1 from the list_iterator: .*tuple of 4 parts"),
        ((), "tuple of 0 parts"),
        ((np.zeros(2), np.zeros(3)), "equal numbers of rows, got x: 2, y: 3"),
        (({"a": np.zeros(2), "b": np.zeros(1)},), r"x\['a'\]: 2, x\['b'\]: 1"),
        ((None, np.zeros(3)), "x to be an array"),
        ((np.array([1, None], object),), r"x: .*row 1 holds None"),
        ((object(),), "x: expected an array, got object"),
    ],
)
def test_bad_batches(batch, message):
    with pytest.raises(ValueError, match=message):
        batches(make_data(iter([batch])))


# ------------------------------------------------------------------------------------ PyDataset


class Numbers(PyDataset):
    def __init__(self, count, size=1, delay=0.0, **options):
        super().__init__(**options)
        self.count, self.size, self.delay = count, size, delay
        self.read, self.events = [], []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read.append(index)
        time.sleep(self.delay * (index % 3))
        x = np.arange(index * self.size, (index + 1) * self.size, dtype=float)
        return x, x.astype(int)

    def on_epoch_begin(self):
        self.events.append("begin")

    def on_epoch_end(self):
        self.events.append("end")


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
@pytest.mark.parametrize("multiprocessing", [False, True])
def test_py_dataset_gives_its_batches_in_order(workers, multiprocessing):
    dataset = Numbers(7, delay=0.002, workers=workers, use_multiprocessing=multiprocessing)
    data = make_data(dataset)
    assert data.num_batches == 7
    assert [xs(data, e) for e in range(2)] == [[[i] for i in range(7)]] * 2
    assert dataset.events == ["begin", "end"] * 2
    assert all_readers_end()


@pytest.mark.parametrize("workers", [1, 3])
def test_py_dataset_is_shuffled_and_resumed_by_batch(workers):
    data = make_data(Numbers(9, workers=workers), shuffle=True, seed=4)
    order = xs(data, 1)
    assert sorted(order) == [[i] for i in range(9)]
    assert order != xs(data, 2)
    assert xs(data, 1) == order
    assert xs(data, 1, start=5) == order[5:]


def test_workers_read_at_the_same_time():
    together = threading.Barrier(3, timeout=20)

    class Meeting(Numbers):
        def __getitem__(self, index):
            together.wait()  # passes only if three reads are under way at once
            return super().__getitem__(index)

    assert len(xs(make_data(Meeting(6, workers=3)))) == 6


def test_the_queue_is_bounded():
    dataset = Numbers(50, workers=2, max_queue_size=4)
    with make_data(dataset).epoch() as epoch:
        next(epoch)
        time.sleep(0.05)
        assert len(dataset.read) <= 5
    assert all_readers_end()


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_in_a_py_dataset_reaches_the_user(workers):
    class Failing(Numbers):
        def __getitem__(self, index):
            if index == 4:
                raise KeyError("no such file")
            return super().__getitem__(index)

    with pytest.raises(KeyError) as caught:
        batches(make_data(Failing(9, workers=workers)))
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise KeyError("no such file")' in text
    if hasattr(caught.value, "add_note"):
        assert "batch 4 of Failing" in text
    assert all_readers_end()


def test_leaving_an_epoch_stops_the_threads():
    data = make_data(Numbers(100, workers=4))
    epoch = data.epoch()
    next(epoch)
    assert reader_threads()
    data.close()
    assert all_readers_end()
    dropped = make_data(Numbers(100, workers=2)).epoch()
    next(dropped)
    del dropped
    gc.collect()
    assert all_readers_end()


def test_ctrl_c_in_a_worker_ends_the_epoch():
    class Interrupted(Numbers):
        def __getitem__(self, index):
            if index == 2:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt):
        batches(make_data(Interrupted(9, workers=2)))
    assert all_readers_end()


def test_a_worker_that_hangs_does_not_hang_the_close():
    released = threading.Event()

    class Stuck(Numbers):
        def __getitem__(self, index):
            if index == 1:
                released.wait(250)
            return super().__getitem__(index)

    epoch = make_data(Stuck(9, workers=2)).epoch()
    next(epoch)
    epoch.close()
    assert len(reader_threads()) >= 1  # not the minutes that the worker waits
    released.set()
    assert all_readers_end()


def test_endless_py_dataset():
    class Endless(Numbers):
        @property
        def num_batches(self):
            return None

    with pytest.raises(ValueError, match=r"steps_per_epoch: .*Endless is endless"):
        make_data(Endless(0))
    data = make_data(Endless(0), steps_per_epoch=3)
    assert data.num_batches == 3
    assert [xs(data, e) for e in range(2)] == [[[0], [1], [2]], [[3], [4], [5]]]


def test_py_dataset_with_steps():
    data = make_data(Numbers(4), steps_per_epoch=2)
    assert [xs(data, e) for e in range(3)] == [[[0], [1]], [[2], [3]], [[0], [1]]]
    data = make_data(Numbers(3), steps_per_epoch=4)
    with pytest.warns(UserWarning, match="after 3 batches of steps_per_epoch=4"):
        assert len(xs(data)) == 3


def test_py_dataset_without_super_init_and_without_methods():
    class Bare(PyDataset):
        def __init__(self):
            self.count = 2

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            return np.array([index])

    assert xs(make_data(Bare())) == [[0], [1]]
    with pytest.raises(NotImplementedError, match="__len__"):
        make_data(type("Nothing", (PyDataset,), {})())
    with pytest.raises(NotImplementedError, match="__getitem__"):
        PyDataset()[0]
    with pytest.raises(ValueError, match="workers=-1"):
        PyDataset(workers=-1)
    with pytest.raises(ValueError, match="num_batches 0"):
        make_data(Numbers(0))


# -------------------------------------------------------------------------------- class weights


@pytest.mark.parametrize(
    "y",
    [
        np.array([0, 1, 2, 1]),
        np.array([[0], [1], [2], [1]]),
        np.eye(3)[[0, 1, 2, 1]],
        np.array([0.0, 1.0, 2.0, 1.0]),
        [0, 1, 2, 1],
    ],
)
def test_class_weights_become_sample_weights(y):
    weights = {0: 2.0, 1: 3.0}
    data = make_data(np.zeros(4), y, class_weight=weights)
    assert data.in_memory
    ((_, _, w),) = batches(data)
    assert (w.dtype, w.tolist()) == (np.float32, [2, 3, 1, 3])
    data = make_data(np.zeros(4), y, np.array([1, 0, 10, 2]), class_weight=weights)
    assert batches(data)[0][2].tolist() == [2, 0, 10, 6]
    data = make_data(iter([(np.zeros(4), y)]), class_weight=weights)
    assert batches(data)[0][2].tolist() == [2, 3, 1, 3]


def test_class_weights_of_stored_targets(stored):
    class Targets:
        shape = (30,)

        def __getitem__(self, key):
            return (np.arange(30) % 2)[key]

    data = make_data(stored[0], Targets(), class_weight={1: 5.0}, batch_size=10, shuffle=True)
    assert not data.in_memory
    for _, y, w in batches(data):
        assert w.tolist() == np.where(y == 1, 5.0, 1.0).tolist()
    assert data.peek()[2].tolist() == [1.0, 5.0] * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weight": [1, 2]}, r"expected a dict.*got list \[1, 2\]"),
        ({"class_weight": {"a": 1.0}}, "integer classes"),
        ({"class_weight": {0: float("nan")}}, "finite"),
        ({"class_weight": {0: 1.0}}, "got no y"),
        ({"class_weight": {0: 1.0}, "y": {"a": np.zeros(4)}}, "y as a dict of 1"),
        (
            {"class_weight": {0: 1.0}, "y": np.zeros(4), "sample_weight": {"a": np.zeros(4)}},
            "one array as sample_weight",
        ),
    ],
)
def test_bad_class_weights(options, message):
    with pytest.raises(ValueError, match=message):
        batches(make_data(np.zeros(4), **options))


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x": np.zeros((4, 2)), "y": np.zeros(5)}, "got x: 4, y: 5"),
        ({"x": {"a": np.zeros(4), "b": np.zeros(3)}}, r"x\['a'\]: 4, x\['b'\]: 3"),
        ({"x": np.zeros(4), "sample_weight": np.zeros(3)}, "sample_weight: 3"),
        (
            {"x": np.zeros((0, 2)), "y": np.zeros(0)},
            r"got none \(shape \(0, 2",
        ),
        ({"x": []}, "at least one sample"),
        ({"x": {}}, "structure of arrays, got none"),
        ({"x": None}, "NoneType: no data was passed"),
        ({"x": 3.0}, r"got float\. A single number"),
        ({"x": "abc"}, "got str"),
        ({"x": {1, 2}}, "got set"),
        ({"x": np.float32(3)}, r"x: .*single value 3\.0.*\[value\]"),
        ({"x": np.array(3)}, "single value 3"),
        ({"x": make_generator}, r"got function\. .*call it"),
        ({"x": [[1, 2], [3]]}, r"x: .*unequal length\. Pad"),
        ({"x": np.array([[1, 2], [3, "b"]], object)}, r"row 1, column 1 holds 'b' \(str\)"),
        ({"x": np.array([[1, 2], [3]], object)}, r"row 0 holds \[1, 2\] \(list\).*pad_sequences"),
        ({"x": np.array([1, 2**70], object)}, "64 bits"),
        ({"x": np.zeros(2), "y": np.array(["a", "b"])}, "y: expected numbers, got dtype <U1"),
        ({"x": np.array(["2020-01-01"], "M8[D]")}, r"datetime64\[D\].*dates"),
        ({"x": np.ma.masked_array([1, 2], [0, 1])}, "masked array"),
        (
            {"x": np.zeros(4), "batch_size": 0},
            "batch_size: expected a positive integer or None, got 0",
        ),
        ({"x": np.zeros(4), "batch_size": 2.5}, "batch_size: .*got 2.5"),
        ({"x": np.zeros(4), "batch_size": -1}, "batch_size"),
        ({"x": np.zeros(4), "steps_per_epoch": 0}, "steps_per_epoch"),
        ({"x": np.zeros(4), "steps_per_epoch": 0, "training": False}, "^steps: "),
        ({"x": np.zeros(4), "shuffle": "rows"}, "shuffle: .*'rows'"),
        ({"x": iter([1]), "y": np.zeros(3)}, "y: expected None with x as a list_iterator"),
        ({"x": Loader(2), "sample_weight": np.zeros(3)}, "sample_weight: expected None"),
        ({"x": Numbers(2), "y": np.zeros(3)}, "y: expected None with x as a Numbers.*ndarray"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        make_data(**options)


def test_single_samples_are_no_batches():
    class Samples:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return np.zeros(2)

    with pytest.raises(ValueError, match=r"got Samples.*DataLoader"):
        make_data(Samples())


# ----------------------------------------------------------------------------------------- split


@pytest.mark.parametrize(("count", "part", "cut"), [(10, 0.2, 8), (7, 0.3, 4), (3, 0.1, 2)])
def test_the_last_part_is_for_validation(count, part, cut):
    x, y = np.arange(count), list(range(count))
    first, last = train_validation_split(({"a": x, "b": [x, x]}, y, None), part)
    assert first[0]["a"].tolist() == first[1] == list(range(cut))
    assert last[0]["b"][1].tolist() == last[1] == list(range(cut, count))
    assert first[2] is last[2] is None
    assert np.shares_memory(first[0]["a"], x)


@pytest.mark.parametrize(
    ("arrays", "part", "message"),
    [
        ((np.zeros(4),), 1.2, "between 0 and 1, got 1.2"),
        ((np.zeros(4),), 0.0, "between 0 and 1"),
        ((np.zeros(4), np.zeros(3)), 0.5, "x: 4, y: 3"),
        ((np.zeros(1),), 0.5, "leaves 0 for training and 1 for validation"),
        ((make_generator(3), None, None), 0.5, "got x as a generator"),
        ((Numbers(3), None), 0.5, "got x as a Numbers"),
        ((None, None), 0.5, "no arrays"),
    ],
)
def test_bad_splits(arrays, part, message):
    with pytest.raises(ValueError, match=message):
        train_validation_split(arrays, part)


# ------------------------------------------------------------------------------ forms and upkeep


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (1, (1, None, None)),
        ((1,), (1, None, None)),
        ((1, 2), (1, 2, None)),
        ([1, 2, 3], (1, 2, 3)),
        ({"a": 1}, ({"a": 1}, None, None)),
    ],
)
def test_unpack(data, parts):
    assert unpack_x_y_sample_weight(data) == parts


def test_pack_is_undone_by_unpack():
    for parts in [(1, None, None), ([1, 2], None, None), (1, 2, None), (1, None, 3), (1, 2, 3)]:
        assert unpack_x_y_sample_weight(pack_x_y_sample_weight(*parts)) == parts
    with pytest.raises(ValueError, match="4 parts"):
        unpack_x_y_sample_weight((1, 2, 3, 4))


def test_data_passes_through():
    data = make_data(np.zeros(3))
    assert make_data(data) is data
    assert isinstance(make_generator(1), types.GeneratorType)


@pytest.mark.slow
def test_memory_does_not_grow_over_epochs():
    x = np.zeros((64, 8), "float32")
    kinds = [
        make_data(x, x[:, 0], batch_size=8, shuffle=True),
        make_data(Loader(8)),
        make_data(Numbers(8)),
    ]
    for data in kinds:
        if hasattr(getattr(data, "_dataset", None), "read"):
            data._dataset.read = data._dataset.events = types.SimpleNamespace(append=lambda _: None)
        for epoch in range(3):
            batches(data, epoch)
        tracemalloc.start()
        for epoch in range(200):
            batches(data, epoch)
        gc.collect()
        left = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert left < 20_000


def test_closing_twice_and_warnings_are_clean():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generator = make_generator(2)
        data = make_data(generator)
        data.peek()
        data.close()
        data.close()
        assert [int(y[0]) for _, y in generator] == [1], "closing reads no further"


def test_lists_of_numbers_are_split_as_arrays_are():
    first, last = train_validation_split(([1, 2, 3, 4], [5, 6, 7, 8], None), 0.25)
    assert (first, last) == (([1, 2, 3], [5, 6, 7], None), ([4], [8], None))


def test_a_batch_size_beside_a_py_dataset_is_ignored_with_a_warning():
    class Batches(kerasish.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return np.ones((4, 3), "float32"), np.ones((4, 1), "float32")

    model = kerasish.Sequential([kerasish.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="batch_size=3 is ignored: x is a Batches"):
        model.fit(Batches(), batch_size=3, verbose=0)
    with pytest.warns(UserWarning, match="is ignored"):
        assert model.predict(Batches(), batch_size=3, verbose=0).shape == (8, 1)
