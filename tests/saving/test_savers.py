"""Several savers and readers of one path: each reader finds one whole save."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers
from kerasish.saving.files.lock import holding
from kerasish.saving.formats.archive import Archive, load_into

NAMES = ["a.keras", "folder", "a.weights.h5", "a.h5", "a.safetensors", "a.weights.json"]


def make(value: float) -> Any:
    model = keras.Sequential([keras.Input((32,)), layers.Dense(32), layers.Dense(3)])
    model.set_weights([np.full(v.shape, value) for v in model.weights])
    return model


def save(model: Any, path: Path) -> None:
    if path.name == "folder":
        model.save(path, zipped=False)
    elif path.name == "a.weights.json":
        model.save_weights(path, max_shard_size=5e-6)
    elif path.name in ("a.keras", "a.h5"):
        model.save(path)
    else:
        model.save_weights(path)


def check_complete(model: Any, path: Path) -> None:
    model.load_weights(path)
    assert len({float(x) for v in model.weights for x in v.numpy().reshape(-1)}) == 1


def run_all(jobs: list[Callable[[], None]]) -> None:
    """Run the jobs in threads; raise the first error of any."""
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def saver(path: Path, value: float, times: int) -> Callable[[], None]:
    model = make(value)
    return lambda: [save(model, path) for _ in range(times)] and None


def reader(path: Path, times: int) -> Callable[[], None]:
    model = make(-1.0)
    return lambda: [check_complete(model, path) for _ in range(times)] and None


@pytest.mark.parametrize("name", NAMES)
def test_threads(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    save(make(0.0), path)
    files = len(os.listdir(tmp_path))
    savers = [saver(path, float(i), 5) for i in range(4)]
    # Two files of a folder are read one after the other: there a reader may meet both saves.
    run_all(savers if name == "folder" else [*savers, reader(path, 10), reader(path, 10)])
    check_complete(make(-1.0), path)
    assert abs(len(os.listdir(tmp_path)) - files) <= 1  # of shards the first has a second name


_SAVE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.saving import test_savers as t
models = [t.make(float(i)) for i in range(3)]
print("ready", flush=True)
sys.stdin.readline()
for i in range(4):
    for name in t.NAMES:
        t.save(models[i % 3], Path(sys.argv[2]) / name)
"""


@pytest.mark.slow
def test_processes(tmp_path: Path) -> None:
    root = str(Path(keras.__file__).parents[1])
    command = [sys.executable, "-c", _SAVE, root, str(tmp_path)]
    others = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for name in NAMES:
        save(make(5.0), tmp_path / name)
    for other in others:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
    for other in others:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
    model = make(-1.0)
    while any(other.poll() is None for other in others):
        for name in NAMES:
            if name != "folder":
                check_complete(model, tmp_path / name)
    for other in others:
        other.communicate()
        assert other.returncode == 0
    for name in NAMES:
        check_complete(model, tmp_path / name)
    assert not [p for p in os.listdir(tmp_path) if p.startswith(".")]


def test_a_lock_lets_one_in_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []

    def enter() -> None:
        for _ in range(20):
            with holding(str(tmp_path / "a")):
                inside.append(1)
                assert sum(inside) == 1
                inside.append(-1)

    run_all([enter] * 4)
    assert os.listdir(tmp_path) == []


def test_an_open_archive_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    save(make(1.0), path)
    model = make(0.0)
    with Archive(str(path)) as archive:
        save(make(2.0), path)
        load_into(model, archive)
    assert {float(x) for v in model.weights for x in v.numpy().reshape(-1)} == {1.0}
