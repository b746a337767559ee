"""Dataset: what each verb gives, what the errors say, threads that end, flat memory."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc

import numpy as np
import pytest
from dataset_cases import CASES, flat, numbers, stream

import kerasish as keras
from kerasish import config
from kerasish.data import AUTOTUNE, DataArray, Dataset, TensorSpec
from kerasish.errors import DTypeError, ShapeError


def lists(dataset):
    """Elements as plain Python values."""

    def plain(part):
        if isinstance(part, tuple):
            return tuple(plain(p) for p in part)
        if isinstance(part, dict):
            return {key: plain(value) for key, value in part.items()}
        return part.tolist() if hasattr(part, "tolist") else part

    return [plain(element) for element in dataset.as_numpy_iterator()]


def threads():
    return [t for t in threading.enumerate() if t.name.startswith("kerasish-data")]


def no_threads_are_left():
    deadline = time.monotonic() + 60
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not threads()


# ------------------------------------------------------------------------------------ elements


def test_elements_are_arrays_with_a_method_numpy():
    x = np.arange(6, dtype="float32").reshape(3, 2)
    data = Dataset.from_tensor_slices({"x": x, "y": ["a", "b", "c"], "n": [1, 2, 3]})
    element = next(iter(data))
    assert list(element) == ["x", "y", "n"]
    assert isinstance(element["x"], DataArray) and isinstance(element["x"], np.ndarray)
    np.testing.assert_array_equal(element["x"].numpy(), x[0])
    assert type(element["x"].numpy()) is np.ndarray
    assert element["y"].numpy() == "a"
    assert element["n"].numpy() == 1 and {element["n"]: "one"}[1] == "one"
    assert element["n"].dtype == np.int32 and element["n"].shape == ()
    batch = next(iter(data.batch(2)))
    assert batch["y"].numpy().tolist() == ["a", "b"]
    assert batch["n"][1].numpy() == 2  # an element picked out of a batch has it too
    assert isinstance(pickle.loads(pickle.dumps(batch["x"])), np.ndarray)


def test_arrays_are_neither_copied_nor_can_be_written_to():
    x = np.zeros((10, 3), "float64")
    batch = next(Dataset.from_tensor_slices(x).batch(4).as_numpy_iterator())
    assert np.shares_memory(batch, x) and batch.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        batch += 1
    x[0] = 5  # the user's own array stays theirs
    assert next(Dataset.from_tensor_slices(x).as_numpy_iterator())[0] == 5


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"), (3, "int32"), (2**40, "int64"), (1.5, "float32"), ([1, 2], "int32"),
        ([0.5, 1], "float32"), (np.float64(2), "float64"), (np.zeros(2, "uint8"), "uint8"),
        (keras.ops.ones((2,)), "float32"), ("text", "object"), (["a", "bc"], "object"),
    ],
)  # fmt: skip
def test_what_functions_return(value, dtype):
    (element,) = Dataset.range(1).map(lambda _: value)
    assert element.dtype == dtype
    stacked = next(iter(Dataset.range(3).map(lambda _: value).batch(3)))
    assert stacked.shape[0] == 3 and stacked.dtype == dtype


def test_lists_of_arrays_of_a_generator_are_tuples():
    """A torch DataLoader gives [x, y]."""
    data = Dataset.from_generator(lambda: ([np.ones((2, 3)), np.zeros(2)] for _ in range(2)))
    assert [tuple(part.shape for part in element) for element in data] == [((2, 3), (2,))] * 2


def test_stored_and_sparse_rows(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is needed")
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is needed for sparse rows")
    x = np.random.default_rng(0).normal(size=(30, 4))
    np.save(tmp_path / "x.npy", x)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        stored = file.create_dataset("x", data=x)
        kinds = (np.load(tmp_path / "x.npy", mmap_mode="r"), stored, sparse.csr_matrix(x))
        for kind in kinds:
            rows = Dataset.from_tensor_slices(kind).shuffle(30, seed=1).batch(7)
            want = Dataset.from_tensor_slices(x).shuffle(30, seed=1).batch(7)
            assert [flat(e) for e in rows] == [flat(e) for e in want]
            assert rows.element_spec == TensorSpec((None, 4), "float64")


# --------------------------------------------------------------------------------------- verbs


def test_verbs_give_what_tf_data_gives():
    """The results in TensorFlow's documentation."""
    r = Dataset.range
    assert lists(r(5)) == [0, 1, 2, 3, 4] and lists(r(2, 9, 3)) == [2, 5, 8]
    assert lists(r(3).repeat(2)) == [0, 1, 2, 0, 1, 2]
    assert lists(r(8).batch(3, drop_remainder=True)) == [[0, 1, 2], [3, 4, 5]]
    assert lists(r(10).skip(7)) == [7, 8, 9] and lists(r(10).take(2)) == [0, 1]
    assert lists(r(3).take(-1)) == [0, 1, 2] and lists(r(3).skip(-1)) == []
    assert lists(r(1, 4).concatenate(r(4, 8))) == [1, 2, 3, 4, 5, 6, 7]
    assert lists(Dataset.zip((r(1, 4), r(4, 7)))) == [(1, 4), (2, 5), (3, 6)]
    assert lists(Dataset.zip({"a": r(2), "b": (r(3), r(9))})) == [
        {"a": 0, "b": (0, 0)}, {"a": 1, "b": (1, 1)}]  # fmt: skip
    assert lists(r(1, 4).enumerate(start=5)) == [(5, 1), (6, 2), (7, 3)]
    blocks = r(1, 6).interleave(
        lambda x: Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    )
    assert lists(blocks) == [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4,
                             3, 3, 4, 4, 5, 5, 5, 5, 5, 5]  # fmt: skip
    assert lists(r(10).shard(3, 1)) == [1, 4, 7]
    assert lists(r(7).window(3)
                 .flat_map(lambda w: w.batch(3))) == [[0, 1, 2], [3, 4, 5], [6]]  # fmt: skip
    assert lists(r(7).window(3, 2, stride=2, drop_remainder=True)
                 .flat_map(lambda w: w.batch(3))) == [[0, 2, 4], [2, 4, 6]]  # fmt: skip
    assert lists(r(5).take_while(lambda x: x < 2)) == [0, 1]
    assert lists(r(1, 5).map(lambda n: np.full(n, n)).padded_batch(2, [None], -1)) == [
        [[1, -1], [2, 2]], [[3, 3, 3, -1], [4, 4, 4, 4]]]  # fmt: skip
    assert lists(r(8).batch(4).rebatch(3)) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert r(5).reduce(0, lambda s, x: s + x) == 10
    assert r(7, 8).get_single_element() == 7
    assert lists(r(3).apply(lambda d: d.map(lambda x: x + 1))) == [1, 2, 3]


def test_shapes_of_padding():
    data = Dataset.from_generator(lambda: iter([([1, 2], "a", 1), ([3], "bc", 2)]))
    x, text, n = next(data.padded_batch(2, ((5,), (), ()), (9, "", 0)).as_numpy_iterator())
    assert x.tolist() == [[1, 2, 9, 9, 9], [3, 9, 9, 9, 9]]
    assert text.tolist() == ["a", "bc"] and n.tolist() == [1, 2]
    with pytest.raises(ShapeError, match=r"element 0 of the pass has shape \(2,\) at \[0\], which"):
        list(data.padded_batch(2, ((1,), (), ())))


def test_buckets_of_lengths():
    rows = Dataset.from_generator(lambda: (np.ones(n) for n in (1, 5, 2, 9, 6, 3)))
    batches = rows.bucket_by_sequence_length(len, [3, 7], [2, 2, 1])
    assert [b.shape for b in batches] == [(2, 2), (1, 9), (2, 6), (1, 3)]
    bound = rows.take(3).bucket_by_sequence_length(len, [3, 7], [2, 2, 1], None, None, True)
    assert [b.shape for b in bound] == [(2, 2), (1, 5)]  # single, and of one shape: nothing to pad
    long = rows.bucket_by_sequence_length(len, [3, 7], [2, 2, 1], pad_to_bucket_boundary=True)
    with pytest.raises(ValueError, match="longer than the last boundary 7"):
        list(long)


def test_cardinality():
    known = {
        "map": 23, "filter": -2, "repeat": 69, "repeat without end": 60, "take": 11, "skip": 12,
        "shard": 8, "batch": 5, "batch, the rest dropped": -2, "unbatch": -2, "cache": 23,
        "zip": 23, "from_generator": -2, "interleave": -2, "enumerate": 23,
    }  # fmt: skip
    assert {name: CASES[name]().cardinality() for name in known} == known
    for name, make in CASES.items():
        data = make()
        if data.cardinality() >= 0:
            assert len(list(data)) == len(data) == data.cardinality(), name
    assert numbers().repeat().cardinality() == keras.data.INFINITE_CARDINALITY
    with pytest.raises(TypeError, match="has no end"):
        len(numbers().repeat())
    with pytest.raises(TypeError, match="assert_cardinality"):
        len(stream())
    with pytest.raises(ValueError, match=r"assert_cardinality\(9\): there are more"):
        list(stream().assert_cardinality(9))


@pytest.mark.parametrize("name", CASES)
def test_the_spec_is_that_of_the_elements(name):
    data = CASES[name]()
    first = data.element_spec

    def fits(spec, part):
        if isinstance(spec, tuple) and not isinstance(part, np.ndarray):
            return all(map(fits, spec, part))
        if isinstance(spec, dict):
            return all(fits(spec[key], part[key]) for key in spec)
        same = all(s is None or s == n for s, n in zip(spec.shape, part.shape, strict=True))
        return same and spec.dtype == part.dtype.name

    assert all(fits(first, element) for element in data)


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n]().node.indexed])
def test_elements_by_number(name):
    data = CASES[name]()
    everything = [flat(e) for e in data]
    assert [flat(data[i]) for i in range(len(data))] == everything
    assert flat(data[-1]) == everything[-1]
    with pytest.raises(IndexError, match=f"of {len(data)}"):
        data[len(data)]


def test_a_stream_has_no_numbers():
    with pytest.raises(TypeError, match="have no numbers"):
        stream()[0]


def test_samples_by_weight():
    ones, twos = Dataset.from_tensors(1).repeat(), Dataset.from_tensors(2).repeat()
    drawn = lists(Dataset.sample_from_datasets([ones, twos], [0.25, 0.75], seed=1).take(4000))
    assert 900 < drawn.count(1) < 1100


def test_list_files(tmp_path):
    for name in "cab":
        (tmp_path / f"{name}.txt").write_text(name)
    names = lists(Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False))
    assert [os.path.basename(n) for n in names] == ["a.txt", "b.txt", "c.txt"]
    assert sorted(lists(Dataset.list_files(str(tmp_path / "*.txt"), seed=1))) == names
    with pytest.raises(ValueError, match="no file matches"):
        Dataset.list_files(str(tmp_path / "*.png"))


def test_random_draws_are_functions_of_pass_and_number():
    def draw(rng, x, y):
        return rng.integers(2**40)

    plain = numbers().random_map(draw, seed=1)
    parallel = numbers().random_map(draw, seed=1, num_parallel_calls=3)
    first, second = lists(plain), lists(plain)
    assert first == lists(parallel) and second == lists(parallel)
    assert len({*first, *second}) == 46
    assert lists(numbers().random_map(draw, seed=2)) != first


def test_seeds_of_the_process():
    keras.utils.set_random_seed(5)
    first = lists(Dataset.range(20).shuffle(20))
    keras.utils.set_random_seed(5)
    assert lists(Dataset.range(20).shuffle(20)) == first
    assert lists(Dataset.range(20).shuffle(20)) != first


def test_shuffles_are_uniform():
    places = np.zeros((10, 10))
    for number in range(400):
        order = Dataset.range(10).shuffle(10, seed=number).as_numpy_iterator()
        places[np.arange(10), list(order)] += 1
    assert abs(places - 40).max() < 30
    near = np.array(lists(Dataset.range(1000).shuffle(10, seed=1)))
    assert (near - np.arange(1000)).max() < 10  # an element cannot come before it is in the buffer


# --------------------------------------------------------------------------------------- cache


def counted(made):
    def count(x, y):
        made.append(int(y))
        return x, y

    return count


@pytest.mark.parametrize("filename", ["", "cached"])
def test_a_cache_is_filled_once(tmp_path, filename):
    made = []
    path = str(tmp_path / filename) if filename else ""
    data = numbers().map(counted(made)).cache(path).shuffle(9, seed=1).batch(4)
    next(iter(data))  # left early: nothing is kept
    assert len(made) < 23 and not os.listdir(tmp_path)
    made.clear()
    first = [flat(e) for e in data]
    assert len(made) == 23
    assert [flat(e) for e in data] != first
    assert len(made) == 23
    assert sorted(os.listdir(tmp_path)) == (["cached"] if filename else [])
    if filename:
        again = numbers().map(counted(made)).cache(path)
        assert len(lists(again)) == 23 and len(made) == 23


def test_a_cache_file_keeps_every_kind_of_element(tmp_path):
    def make():
        yield {"a": np.ones((2, 3), "float16"), "b": ("text", b"\xff", np.int8(3))}
        yield {"a": np.zeros((0, 3), "float16"), "b": ("ä", b"", np.int8(-3))}

    plain = [flat(e) for e in Dataset.from_generator(make)]
    cached = Dataset.from_generator(make).cache(tmp_path / "c")
    assert [flat(e) for e in cached] == plain == [flat(e) for e in cached]
    words = Dataset.from_tensor_slices(["a", "bc", "ä"]).batch(2)
    kept = words.cache(tmp_path / "w")
    assert lists(kept) == lists(kept) == lists(words)


def test_cache_files_that_do_not_fit(tmp_path):
    path = tmp_path / "c"
    lists(numbers().cache(path))
    with pytest.raises(ValueError, match=r"(?s)another pipeline.*range\(0, 5, 1\).*now"):
        lists(Dataset.range(5).cache(path))
    whole = path.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], b"x" + whole[1:], whole[:-30] + b"!" * 30):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="no complete file of cached elements"):
            lists(numbers().cache(path))


def test_cached_elements_cannot_be_changed():
    data = Dataset.range(3).map(lambda i: np.ones(2)).cache()
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            next(data.as_numpy_iterator())[:] = 5
        assert lists(data) == [[1, 1]] * 3


# -------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Dataset.from_tensor_slices((np.ones(3), np.ones(4))), ValueError,
         r"equally many rows, got \[0\]: 3, \[1\]: 4"),
        (lambda: Dataset.from_tensor_slices(5), ValueError, "from_tensors"),
        (lambda: Dataset.from_tensor_slices([[1], [2, 3]]), ValueError, "unequal length"),
        (lambda: Dataset.from_generator(x for x in []), TypeError, "without calling it"),
        (lambda: Dataset.from_generator([1]), TypeError, "lambda: iterable"),
        (lambda: Dataset(np.ones(3)), TypeError, "from_tensor_slices"),
        (lambda: numbers().batch(0), ValueError, "batch: batch_size is an integer >= 1, got 0"),
        (lambda: numbers().batch("4"), ValueError, "batch_size is an integer"),
        (lambda: numbers().shuffle(0), ValueError, "buffer_size"),
        (lambda: numbers().shuffle(5, seed="x"), TypeError, "seed: expected an integer"),
        (lambda: numbers().map(5), TypeError, "map: expected a function"),
        (lambda: numbers().map(len, num_parallel_calls=0), ValueError, "num_parallel_calls"),
        (lambda: numbers().shard(2, 2), ValueError, "0 <= index < 2"),
        (lambda: numbers().concatenate([1]), TypeError, "expected a Dataset, got list"),
        (lambda: Dataset.zip(numbers(), [1]), TypeError, "expected data sets"),
        (lambda: Dataset.sample_from_datasets([numbers()], [1, 2]), ValueError, "one weight"),
        (lambda: numbers().bucket_by_sequence_length(len, [3, 2], [1, 1, 1]), ValueError,
         "must increase"),
        (lambda: numbers().bucket_by_sequence_length(len, [3], [1]), ValueError, "2 numbers"),
        (lambda: iter(numbers()).__reduce__(), TypeError, "cannot be pickled"),
    ],
)  # fmt: skip
def test_mistakes_in_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Dataset.range(9).map(lambda i: np.ones(3 + (i == 5))).batch(3), ShapeError,
         r"batch\(3\): element 2 of the batch \(element 5 of the pass\) has shape \(4,\), but "
         r"element 0 has \(3,\)"),
        (lambda: Dataset.range(9).map(lambda i: {"a": np.ones(2), "b": np.ones(i)}).batch(3),
         ShapeError, r"element 1 of the batch .* has shape \(1,\) at \['b'\]"),
        (lambda: Dataset.range(9).map(lambda i: (1, 2) if i else (1, 2, 3)).batch(3), ShapeError,
         "element 1 of the batch .* built differently"),
        (lambda: Dataset.range(9).map(lambda i: 1 if i else 1.5).batch(3), DTypeError,
         "element 1 of the batch .* dtype int32, but element 0 has float32"),
        (lambda: Dataset.range(9).map(lambda i: "a" if i else 1).batch(3), DTypeError, "string"),
        (lambda: Dataset.range(3).map(lambda i: None), ValueError, "without `return`"),
        (lambda: Dataset.range(3).map(lambda i: object()), ValueError, "gave object, expected"),
        (lambda: Dataset.range(3).unbatch(), ShapeError, "expected batches"),
        (lambda: Dataset.range(3).flat_map(lambda i: [1, 2]), TypeError, "return a Dataset, got"),
        (lambda: Dataset.from_generator(lambda: [1, 2.5], output_signature=TensorSpec((2,))),
         ValueError, r"element 0 has shape \(\), the signature says \(2,\)"),
        (lambda: Dataset.from_generator(lambda: [(1, 2)], output_signature=TensorSpec(())),
         ValueError, r"element 0"),
    ],
)  # fmt: skip
def test_mistakes_in_elements(make, error, message):
    with pytest.raises(error, match=message):
        list(make())


def fails(x):
    if x == 5:
        return int("no number")
    return x


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.range(9).map(fails),
        lambda: Dataset.range(9).map(fails, num_parallel_calls=2),
        lambda: Dataset.range(9).map(fails).prefetch(2),
        lambda: Dataset.range(9).map(fails, num_parallel_calls=2).batch(4).prefetch(1),
        lambda: Dataset.range(9).filter(fails),
        lambda: Dataset.range(9).interleave(
            lambda i: Dataset.range(i, i + 1).map(fails), 2, num_parallel_calls=2
        ),
        lambda: Dataset.from_generator(lambda: (fails(i) for i in range(9))).prefetch(1),
    ],
)
def test_an_error_of_the_users_keeps_its_traceback(make):
    with pytest.raises(ValueError, match="invalid literal for int") as raised:
        list(make())
    frames = [f.name for f in traceback.extract_tb(raised.value.__traceback__)]
    assert "fails" in frames
    del raised
    assert no_threads_are_left()


def test_an_error_says_which_element():
    with pytest.raises(ValueError) as raised:
        list(Dataset.range(9).map(fails, num_parallel_calls=3))
    text = "".join(traceback.format_exception(raised.value))
    assert "This happened while reading element 5 of the pass, in fails of map()." in text


def test_errors_of_fit_name_the_way_out():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="steps_per_epoch: expected a number, got None"):
        model.fit(numbers().batch(4).repeat())
    with pytest.raises(ValueError, match="y: expected None .* x as a Dataset"):
        model.fit(numbers().batch(4), np.ones(4))
    with pytest.raises(ValueError, match=r"single samples. Call .batch\(32\)"):
        model.fit(numbers(), verbose=0)


# ------------------------------------------------------------------------- threads and memory


def busy():
    return (
        stream().map(lambda x, y: (x, y), num_parallel_calls=2).batch(4).prefetch(2)
    )  # fmt: skip


def test_threads_end_with_the_iterator():
    def dropped():
        next(iter(busy()))

    def closed():
        with iter(busy()) as iterator:
            next(iterator)

    def exhausted():
        list(busy())

    def interrupted():
        try:
            for _ in busy():
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            return

    for way in (dropped, closed, exhausted, interrupted):
        way()
        assert no_threads_are_left(), way.__name__


def test_threads_end_with_fit():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    model.fit(busy(), epochs=2, verbose=0, validation_data=busy())
    assert no_threads_are_left()
    with pytest.raises(KeyboardInterrupt):
        model.fit(busy(), verbose=0, callbacks=[Stop()])
    assert no_threads_are_left()
    model.fit(busy().repeat(), epochs=2, steps_per_epoch=3, verbose=0)
    model.predict(busy(), verbose=0, steps=2)
    assert no_threads_are_left()


def test_reading_ahead_is_bounded():
    made = []

    def note(x):
        made.append(int(x))
        return x

    iterator = iter(Dataset.range(1000).map(note).prefetch(3))
    next(iterator)
    time.sleep(0.1)
    assert len(made) <= 5
    iterator = iter(Dataset.range(1000).map(note, num_parallel_calls=2))
    made.clear()
    next(iterator)
    time.sleep(0.1)
    assert len(made) <= 6


def test_order_is_kept_whatever_the_threads_do():
    def slow(x):
        time.sleep(0.002 * (x % 3 == 0))
        return x

    data = Dataset.range(60).map(slow, num_parallel_calls=4)
    assert lists(data) == list(range(60))
    assert lists(data.batch(20)) == [list(range(i, i + 20)) for i in (0, 20, 40)]


def test_threads_work_at_the_same_time():
    barrier = threading.Barrier(3, timeout=20)

    def together(x):
        barrier.wait()
        return x

    assert lists(Dataset.range(9).map(together, num_parallel_calls=3)) == list(range(9))


@pytest.mark.slow
def test_memory_is_flat_over_many_epochs():
    data = busy()
    for _ in range(5):
        list(data)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            list(data)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000
    assert no_threads_are_left()


@pytest.mark.slow
def test_nothing_leaks_over_thousands_of_epochs():
    data = busy().take(2)
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3000):
        next(iter(data))
    assert no_threads_are_left()
    assert not files or len(os.listdir("/proc/self/fd")) <= files + 2


def test_a_stream_holds_no_more_than_its_buffer():
    alive, most = [0], [0]

    class Counted(np.ndarray):
        def __del__(self):
            alive[0] -= 1

    def make():
        for _ in range(400):
            array = np.zeros(2).view(Counted)
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            yield array

    for _ in itertools.islice(Dataset.from_generator(make).shuffle(20, 1), 300):
        pass
    assert 20 <= most[0] <= 25


def test_data_sets_can_be_pickled():
    data = Dataset.from_tensor_slices((np.arange(6.0), np.arange(6))).shuffle(6, 1).batch(4)
    data = pickle.loads(pickle.dumps(data.cache().prefetch(1)))
    assert len(lists(data)) == 2
    assert lists(pickle.loads(pickle.dumps(Dataset.range(3)))) == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_an_iterator_says_that_it_was_forked():
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
from kerasish.data import Dataset
data = Dataset.range(100).prefetch(2)
iterator = iter(data)
next(iterator)
if os.fork() == 0:
    try:
        next(iterator)
    except RuntimeError as error:
        ok = "made before a fork" in str(error) and [int(i) for i in data] == list(range(100))
        os._exit(7 if ok else 1)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 7


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signal")
def test_ctrl_c_ends_a_wait_for_a_thread():
    code = """
import time
from kerasish.data import Dataset
def hang(x):
    print("begun", flush=True)
    time.sleep(1000)
for _ in Dataset.range(3).map(hang, num_parallel_calls=2).prefetch(1):
    pass
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().startswith("begun")  # two threads may write at once
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors


# ------------------------------------------------------------------------------ the whole way


def test_fit_evaluate_predict():
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(200, 4)).astype("float32")
    y = (x @ [[1.0], [2.0], [-1.0], [0.5]]).astype("float32")
    data = Dataset.from_tensor_slices((x, y))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    training = data.take(160).shuffle(160, seed=1).batch(16).prefetch(AUTOTUNE)
    held_out = data.skip(160).batch(16)
    history = model.fit(training, epochs=20, validation_data=held_out, verbose=0).history
    assert history["val_loss"][-1] < 1e-4
    np.testing.assert_allclose(
        model.evaluate(held_out, verbose=0), model.evaluate(x[160:], y[160:], verbose=0), rtol=1e-4
    )
    np.testing.assert_allclose(
        model.predict(held_out, verbose=0), model.predict(x[160:], verbose=0), rtol=1e-4
    )


@pytest.mark.parametrize("engine", ["static", "eager"])
def test_the_same_batches_train_as_arrays_do(engine):
    before = config.backend()
    config.set_backend(engine)
    x = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
    y = x[:, :1].copy()

    def train(*data, **options):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(*data, epochs=3, verbose=0, **options)
        return [np.asarray(w) for w in model.get_weights()]

    try:
        arrays = train(x, y, batch_size=16, shuffle=False)
        through = train(Dataset.from_tensor_slices((x, y)).batch(16).prefetch(1))
    finally:
        config.set_backend(before)
    for a, b in zip(arrays, through):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_class_weights_and_named_inputs():
    a, b = keras.Input((1,), name="a"), keras.Input((1,), name="b")
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(2)(keras.layers.Concatenate()([a, b])))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    columns = {"a": np.ones((8, 1)), "b": np.zeros((8, 1))}
    data = Dataset.from_tensor_slices((columns, np.arange(8) % 2)).batch(4)
    plain = model.evaluate(data, verbose=0)
    history = model.fit(data, class_weight={0: 3.0, 1: 3.0}, verbose=0).history
    np.testing.assert_allclose(history["loss"], 3 * plain, rtol=0.1)
