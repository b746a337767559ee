"""The data sets: the bundled ones as they are, the named ones from small files like theirs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from kerasish import config, datasets
from kerasish.datasets import sources
from kerasish.datasets.fashion_mnist import read_idx
from kerasish.datasets.unpickle import load_npz, load_pickle

# ------------------------------------------------------------------------------------- bundled


@pytest.mark.parametrize(
    ("name", "count", "shape", "x_dtype", "y_dtype", "classes"),
    [
        ("digits", 1797, (8, 8), "uint8", "int64", 10),
        ("iris", 150, (4,), "float32", "int64", 3),
        ("wine", 178, (13,), "float32", "int64", 3),
        ("breast_cancer", 569, (30,), "float32", "int64", 2),
        ("diabetes", 442, (10,), "float32", "float32", None),
    ],
)
def test_bundled_sets(name, count, shape, x_dtype, y_dtype, classes):
    load = getattr(datasets, name).load_data
    (x_train, y_train), (x_test, y_test) = load()
    assert (len(x_train) + len(x_test), x_train.shape[1:]) == (count, shape)
    assert (x_train.dtype, y_train.dtype) == (x_dtype, y_dtype)
    assert (x_test.dtype, y_test.dtype) == (x_dtype, y_dtype)
    assert len(x_test) == int(np.ceil(count * 0.2))
    if classes:
        shares = [np.bincount(y, minlength=classes) / len(y) for y in (y_train, y_test)]
        np.testing.assert_allclose(shares[0], shares[1], atol=0.02)
    np.testing.assert_array_equal(load()[0][0], x_train)
    assert not np.array_equal(load(seed=1)[0][0], x_train)
    assert len(load(test_split=0.5)[1][0]) == int(np.ceil(count * 0.5))
    with pytest.raises(ValueError, match="test_split"):
        load(test_split=1.0)


def test_digits_are_the_pictures():
    (x_train, y_train), (x_test, y_test) = datasets.digits.load_data()
    assert (x_train.min(), x_train.max()) == (0, 16)
    sklearn = pytest.importorskip("sklearn.datasets", reason="scikit-learn is a dependency")
    whole = sklearn.load_digits()
    known = {
        image.astype("uint8").tobytes(): int(t) for image, t in zip(whole.images, whole.target)
    }
    assert all(known[x.tobytes()] == y for x, y in zip(x_test, y_test))
    assert all(known[x.tobytes()] == y for x, y in zip(x_train, y_train))


def test_english_text():
    text = datasets.english_text.load_data()
    assert len(text) > 300_000
    (x, y), (x_test, y_test), characters = datasets.english_text.load_windows(50, stride=10)
    assert (x.shape, x.dtype) == (y.shape, np.int32)

    def decoded(codes):
        return "".join(characters[c] for c in codes)

    assert decoded(x[3]) == text[30:80]
    assert decoded(y[3]) == text[31:81]
    assert decoded(x_test[0]) == text[int(len(text) * 0.9) :][:50]
    assert len(x_test) == pytest.approx(len(x) / 9, rel=0.02)
    assert y_test.max() < len(characters)
    with pytest.raises(ValueError, match="stride"):
        datasets.english_text.load_windows(stride=0)
    with pytest.raises(ValueError, match="test_split"):
        datasets.english_text.load_windows(test_split=0)
    with pytest.raises(ValueError, match="characters"):
        datasets.english_text.load_windows(length=10**6)


def test_scikit_learn_is_imported_on_use_only():
    code = (
        "import sys, kerasish.datasets; "
        "print(*[m for m in ('sklearn', 'tqdm', 'urllib.request') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sklearn" not in out.stdout
    assert "urllib.request" not in out.stdout


# -------------------------------------------------------------------------------------- named


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """Return offer(name, contents): the mirror then has that file, with its own checksum."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERASISH_DATASETS_URL", mirror.as_uri())

    def offer(name, contents):
        source = sources.SOURCES[name]
        (mirror / source.file).write_bytes(contents)
        checksum = hashlib.sha256(contents).hexdigest()
        monkeypatch.setitem(sources.SOURCES, name, source._replace(file_hash=checksum))

    return offer


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def objects(lists):
    array = np.empty(len(lists), object)
    array[:] = lists
    return array


def test_mnist(offered):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 28, 28), np.uint8)
    labels = np.arange(6, dtype=np.uint8)
    offered(
        "mnist",
        npz(x_train=images[:4], y_train=labels[:4], x_test=images[4:], y_test=labels[4:]),
    )
    for _ in range(2):
        (x_train, y_train), (x_test, y_test) = datasets.mnist.load_data()
    np.testing.assert_array_equal(np.concatenate([x_train, x_test]), images)
    np.testing.assert_array_equal(np.concatenate([y_train, y_test]), labels)
    assert (x_train.dtype, y_train.dtype) == (np.uint8, np.uint8)


def test_the_real_checksum_is_asked_for(offered, tmp_path):
    (tmp_path / "mirror" / "mnist.npz").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"mnist\.npz: the sha256 .*expected 731c5ac60"):
        datasets.mnist.load_data()


def test_a_missing_mirror_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERASISH_DATASETS_URL", (tmp_path / "nowhere").as_uri())
    with pytest.raises(ConnectionError, match=r"nowhere/imdb\.npz.*put the file at .*imdb\.npz"):
        datasets.imdb.load_data()


def test_the_sources_are_complete():
    for source in sources.SOURCES.values():
        assert source.base.startswith("https://")
        assert len(source.file_hash) in (32, 64)
        assert int(source.file_hash, 16) > 0


def idx(array):
    header = b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes())


def test_fashion_mnist(offered, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28), np.uint8)
    labels = np.arange(5, dtype=np.uint8)
    for part, where in (("train", slice(0, 3)), ("test", slice(3, 5))):
        offered(f"fashion_{part}_images", idx(images[where]))
        offered(f"fashion_{part}_labels", idx(labels[where]))
    (x_train, y_train), (x_test, y_test) = datasets.fashion_mnist.load_data()
    np.testing.assert_array_equal(np.concatenate([x_train, x_test]), images)
    np.testing.assert_array_equal(np.concatenate([y_train, y_test]), labels)
    assert x_train.flags.writeable
    assert len(list((tmp_path / "home/datasets/fashion-mnist").iterdir())) == 4


@pytest.mark.parametrize(
    ("contents", "message"),
    [(b"\x00\x00\x0d\x01", "unsigned bytes"), (b"\x00\x00\x08\x01\x00\x00\x00\x05abc", "wants 5")],
)
def test_damaged_idx_files(tmp_path, contents, message):
    (tmp_path / "a.gz").write_bytes(gzip.compress(contents))
    with pytest.raises(ValueError, match=message):
        read_idx(str(tmp_path / "a.gz"))


def pickle_of_python2(value):
    """The bytes of a pickle (protocol 2) as Python 2 wrote it: strings are byte strings."""

    def text(b):
        return b"U" + bytes([len(b)]) + b

    def written(v):
        if isinstance(v, bytes):
            return b"T" + struct.pack("<i", len(v)) + v
        if isinstance(v, int):
            return b"J" + struct.pack("<i", v)
        if isinstance(v, list):
            return b"](" + b"".join(map(written, v)) + b"e"
        if isinstance(v, dict):
            return b"}(" + b"".join(written(k) + written(w) for k, w in v.items()) + b"u"
        code = text(v.dtype.str[1:].encode())
        shape = b"(" + b"".join(map(written, v.shape)) + b"t"
        start = (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
        )
        state = b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t"
        dtype = b"cnumpy\ndtype\n(" + code + b"K\x00K\x01tR" + state + b"b"
        return start + b"(K\x01" + shape + dtype + b"\x89" + written(v.tobytes()) + b"tb"

    return b"\x80\x02" + written(value) + b"."


def cifar_archive(folder, batches):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, batch in batches.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            contents = pickle_of_python2(batch)
            member.size = len(contents)
            tar.addfile(member, io.BytesIO(contents))
    return file.getvalue()


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_cifar10(offered, data_format):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3 * 32 * 32), np.uint8)
    parts = {
        name: {b"data": pixels[2 * i : 2 * i + 2], b"labels": [2 * i, 2 * i + 1]}
        for i, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"])
    }
    offered("cifar10", cifar_archive("cifar-10-batches-py", parts))
    config.set_image_data_format(data_format)
    (x_train, y_train), (x_test, y_test) = datasets.cifar10.load_data()
    x, y = np.concatenate([x_train, x_test]), np.concatenate([y_train, y_test])
    if data_format == "channels_last":
        x = x.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(x, pixels.reshape(12, 3, 32, 32))
    assert y.tolist() == [[i] for i in range(12)]
    assert (y_train.dtype, y_test.dtype, x_train.dtype) == (np.uint8, np.uint8, np.uint8)
    assert x_train.flags.c_contiguous


def test_cifar100(offered):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3 * 32 * 32), np.uint8)
    parts = {
        name: {b"data": pixels[i], b"fine_labels": [50, 51], b"coarse_labels": [1, 2]}
        for name, i in (("train", slice(0, 2)), ("test", slice(2, 4)))
    }
    offered("cifar100", cifar_archive("cifar-100-python", parts))
    (x_train, y_train), (_, y_test) = datasets.cifar100.load_data()
    assert (x_train.shape, y_train.dtype) == ((2, 32, 32, 3), np.int64)
    assert y_train.tolist() == y_test.tolist() == [[50], [51]]
    assert datasets.cifar100.load_data("coarse")[0][1].tolist() == [[1], [2]]
    with pytest.raises(ValueError, match="'fine' or 'coarse', got 'medium'"):
        datasets.cifar100.load_data("medium")


def test_a_cifar_file_without_labels_is_an_error(offered):
    parts = {key: {b"data": np.zeros((1, 3072), np.uint8)} for key in ("train", "test")}
    offered("cifar100", cifar_archive("cifar-100-python", parts))
    with pytest.raises(ValueError, match="CIFAR batch with data and fine_labels"):
        datasets.cifar100.load_data()


class Opens:
    def __reduce__(self):
        return open, ("/tmp/kerasish-was-here", "w")


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_run_no_code(tmp_path, protocol):
    (tmp_path / "bad").write_bytes(pickle.dumps({"data": Opens()}, protocol))
    with pytest.raises(pickle.UnpicklingError, match=r"asks for .*open; only arrays"):
        load_pickle(tmp_path / "bad")
    np.savez(tmp_path / "bad.npz", x=objects([[1], Opens()]))
    with pytest.raises(pickle.UnpicklingError, match="only arrays"):
        load_npz(tmp_path / "bad.npz")


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_arrays_are_read(tmp_path, protocol):
    value = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": [1, b"x", np.int64(3)],
        "c": objects([[1], [2]]),
    }
    (tmp_path / "good").write_bytes(pickle.dumps(value, protocol))
    got = load_pickle(tmp_path / "good")
    assert str({str(k): v for k, v in got.items()}) == str(value)


REVIEWS = [[1, 5, 9, 2], [3], [7, 8], [2, 2, 4, 6, 1], [10, 1], [5]]


def imdb_file():
    return npz(
        x_train=objects(REVIEWS),
        y_train=np.array([0, 1, 0, 1, 0, 1]),
        x_test=objects(REVIEWS[:3]),
        y_test=np.array([1, 0, 1]),
    )


def test_imdb(offered):
    offered("imdb", imdb_file())
    (x_train, y_train), (x_test, y_test) = datasets.imdb.load_data(num_words=100)
    order = np.arange(6)
    rng = np.random.RandomState(113)
    rng.shuffle(order)
    assert x_train.tolist() == [[1] + [w + 3 for w in REVIEWS[i]] for i in order]
    assert y_train.tolist() == [i % 2 for i in order]
    assert x_train.dtype == object
    order = np.arange(3)
    rng.shuffle(order)
    assert x_test.tolist() == [[1] + [w + 3 for w in REVIEWS[i]] for i in order]
    assert y_test.tolist() == [1 - i % 2 for i in order]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_words": 8}, [[1, 4, 2, 2, 5], [1, 6]]),
        ({"num_words": 8, "oov_char": None}, [[1, 4, 5], [1, 6]]),
        ({"num_words": 99, "skip_top": 5}, [[2, 2, 8, 12, 5], [2, 6]]),
        ({"num_words": 99, "start_char": None, "index_from": 0}, [[1, 5, 9, 2], [3]]),
        ({"num_words": 99, "start_char": None}, [[4, 8, 12, 5], [6]]),
        ({"num_words": 99, "maxlen": 5}, [[1, 6]]),
        ({}, [[1, 4, 8, 12, 5], [1, 6]]),
    ],
)
def test_the_options_of_the_word_sets(offered, options, expected):
    offered("imdb", imdb_file())
    (x_train, y_train), (x_test, _) = datasets.imdb.load_data(**options)
    got = x_train.tolist()
    assert [text for text in got if text in expected] != []
    assert all(text in got for text in expected)
    assert len(x_train) == len(y_train)
    if "maxlen" in options:
        assert all(len(text) < 5 for text in [*got, *x_test])
        assert len(got) == 4
    if not options:  # the rarest word falls away, as in Keras
        assert max(map(max, got)) == 12


def test_bad_options_of_imdb(offered):
    offered("imdb", imdb_file())
    with pytest.raises(ValueError, match="maxlen=1: no text is shorter"):
        datasets.imdb.load_data(maxlen=1)
    with pytest.raises(TypeError, match="'words'"):
        datasets.imdb.load_data(words=3)
    with pytest.warns(UserWarning, match="num_words"):
        assert max(map(max, datasets.imdb.load_data(nb_words=8)[0][0])) == 7


def test_reuters(offered):
    offered("reuters", npz(x=objects(REVIEWS), y=np.arange(6)))
    (x_train, y_train), (x_test, y_test) = datasets.reuters.load_data(num_words=99, test_split=0.5)
    order = np.arange(6)
    np.random.RandomState(113).shuffle(order)
    texts = [[1] + [w + 3 for w in REVIEWS[i]] for i in order]
    assert (x_train.tolist(), x_test.tolist()) == (texts[:3], texts[3:])
    assert [*y_train, *y_test] == order.tolist()
    assert len(datasets.reuters.get_label_names()) == 46
    with pytest.raises(ValueError, match="test_split"):
        datasets.reuters.load_data(test_split=1)


@pytest.mark.parametrize("name", ["imdb", "reuters"])
def test_word_indices(offered, name):
    offered(f"{name}_words", json.dumps({"the": 1, "é": 2}).encode())
    assert getattr(datasets, name).get_word_index() == {"the": 1, "é": 2}


def test_boston_housing(offered):
    x = np.arange(50 * 13, dtype=float).reshape(50, 13)
    offered("boston_housing", npz(x=x, y=x[:, 0]))
    (x_train, y_train), (x_test, y_test) = datasets.boston_housing.load_data()
    order = np.arange(50)
    np.random.RandomState(113).shuffle(order)
    np.testing.assert_array_equal(np.concatenate([x_train, x_test]), x[order])
    np.testing.assert_array_equal(np.concatenate([y_train, y_test]), x[order, 0])
    assert len(x_train) == 40


def test_california_housing(offered):
    x = np.arange(700 * 8, dtype=float).reshape(700, 8)
    offered("california_housing", npz(x=x, y=x[:, 0]))
    (x_train, y_train), (x_test, y_test) = datasets.california_housing.load_data()
    order = np.arange(700)
    np.random.RandomState(113).shuffle(order)
    np.testing.assert_array_equal(np.concatenate([x_train, x_test]), x[order])
    np.testing.assert_array_equal(np.concatenate([y_train, y_test]), x[order, 0])
    assert len(x_train) == 560
    small = datasets.california_housing.load_data("small", test_split=0.0)
    assert (len(small[0][0]), len(small[1][0]), small[0][0].max()) == (600, 0, 600 * 8 - 1)
    with pytest.raises(ValueError, match="'large' or 'small', got 'tiny'"):
        datasets.california_housing.load_data("tiny")
    with pytest.raises(ValueError, match="test_split"):
        datasets.california_housing.load_data(test_split=-0.1)
