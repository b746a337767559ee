"""A save is there whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers

ENDINGS = ["weights.h5", "keras", "h5"]


def make(value: float) -> Any:
    model = keras.Sequential([keras.Input((64,)), layers.Dense(64)])
    model.set_weights([np.full(v.shape, value) for v in model.weights])
    return model


def save(model: Any, path: Path) -> None:
    if path.name.endswith("weights.h5"):
        model.save_weights(path)
    else:
        model.save(path)


def value_in(path: Path) -> float:
    model = make(-1.0)
    model.load_weights(path)
    return float(model.weights[0].numpy()[0, 0])


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_errors_of_the_disk_leave_the_old_file(
    ending: str, function: str, number: int, tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / f"model.{ending}"
    save(make(1.0), path)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(OSError, match="unchanged") as error:
            save(make(2.0), path)
    assert error.value.errno == number
    assert os.listdir(tmp_path) == [path.name]
    assert value_in(path) == 1.0


_TOO_LARGE = """
import resource, signal, sys
import numpy as np
import kerasish as keras
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
model.set_weights([np.full(v.shape, 2.0) for v in model.weights])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
save = model.save_weights if sys.argv[1].endswith("weights.h5") else model.save
try:
    save(sys.argv[1])
except OSError as error:
    print("OSError", error)
"""


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("limit", [0, 3000, 12000])
def test_a_write_that_fails_midway_leaves_the_old_file(
    ending: str, limit: int, tmp_path: Path
) -> None:
    path = tmp_path / f"model.{ending}"
    save(make(1.0), path)
    command = [sys.executable, "-c", _TOO_LARGE, str(path), str(limit)]
    root = str(Path(keras.__file__).parents[1])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": root}
    )
    assert done.returncode == 0, done.stderr
    assert "OSError" in done.stdout
    assert "unchanged" in done.stdout
    assert os.listdir(tmp_path) == [path.name]
    assert value_in(path) == 1.0


_KILLED = """
import os, sys
from kerasish.saving.files.atomic import replacing
with replacing(sys.argv[1]) as new:
    if sys.argv[2] == "folder":
        os.mkdir(new)
        new = os.path.join(new, "part")
    with open(new, "wb") as file:
        file.write(b"half of a file")
    print("there", flush=True)
    sys.stdin.read()
    os._exit(9)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_save_left_is_cleared_by_the_next(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    save(make(1.0), path)
    command = [sys.executable, "-c", _KILLED, str(path), kind]
    root = str(Path(keras.__file__).parents[1])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"there\n"
        save(make(2.0), path)  # what a living one writes is not touched
        assert len(os.listdir(tmp_path)) == 2
        other.communicate()
    assert len(os.listdir(tmp_path)) == 2
    assert value_in(path) == 2.0
    save(make(3.0), path)
    assert os.listdir(tmp_path) == [path.name]
    assert value_in(path) == 3.0


def test_litter_of_other_machines_and_versions(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    new, old, before = (
        tmp_path / f".model.keras{mark}.kerasish-new"
        for mark in (".0123abcd-7-0", ".0123abcd-8-0", "")
    )
    for litter in (new, old, before):
        litter.write_bytes(b"x")
    os.utime(old, (1e9, 1e9))
    save(make(1.0), path)
    assert sorted(os.listdir(tmp_path)) == sorted([new.name, path.name])


def test_long_names_are_saved(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 244 + ".weights.h5")
    save(make(1.0), path)
    assert value_in(path) == 1.0
    assert os.listdir(tmp_path) == [path.name]


def test_an_error_of_the_model_itself_passes_through(tmp_path: Path) -> None:
    class Broken(layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.w = self.add_weight(shape=())

        def call(self, x: Any) -> Any:
            return x * self.w

        def save_own_variables(self, store: Any) -> None:
            raise RuntimeError("my own mistake")

    path = tmp_path / "a.weights.h5"
    save(make(1.0), path)
    model = keras.Sequential([keras.Input((64,)), Broken()])
    with pytest.raises(RuntimeError, match="my own mistake"):
        model.save_weights(path)
    assert os.listdir(tmp_path) == [path.name]
    assert value_in(path) == 1.0


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the folder does not exist"):
        make(1.0).save(tmp_path / "none" / "model.keras")
