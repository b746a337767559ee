"""`latest`: the latest file that is whole."""

from __future__ import annotations

import os

import pytest

import kerasish as keras


@pytest.fixture
def folder(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    for i, name in enumerate(("a.weights.h5", "b.keras", "c.h5", "d.keras")):
        path = tmp_path / name
        (model.save_weights if "weights" in name else model.save)(path)
        os.utime(path, ns=(i * 10**9, i * 10**9))
    (tmp_path / ".e.keras.kerasish-new").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("newer")
    return tmp_path


def damage(path):
    """Turn over one bit among the arrays' numbers; the file stays as old as it was."""
    times = os.stat(path)
    data = bytearray(path.read_bytes())
    kernel = bytes(memoryview(keras_kernel(path)).cast("B"))
    data[data.index(kernel) + 3] ^= 16
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def keras_kernel(path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.load_weights(path)
    return model.get_weights()[0]


def test_the_newest(folder):
    assert keras.saving.latest(folder) == str(folder / "d.keras")


def test_damaged_files_are_passed_over(folder):
    for name, older in (("d.keras", "c.h5"), ("c.h5", "b.keras"), ("b.keras", "a.weights.h5")):
        damage(folder / name)
        with pytest.warns(UserWarning, match=rf"{name}.*damaged.* Took an older file"):
            result = keras.saving.latest(folder)
        assert result == str(folder / older)
        (folder / name).unlink()
    (folder / "a.weights.h5").write_bytes(b"half")
    with pytest.warns(UserWarning, match="not a whole HDF5 file"):
        assert keras.saving.latest(folder) is None


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        keras.saving.latest(tmp_path / "none")
    assert keras.saving.latest(tmp_path) is None
