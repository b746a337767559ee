"""Whatever a save was doing when it was cut off: at the path is the old state or the new one."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crash_replay
import numpy as np
import pytest
from crash_replay import Recorder, recording, snapshot

import kerasish as keras
from kerasish import layers

KINDS = ["m.keras", "m.weights.h5", "m.h5", "m.safetensors", "m.weights.json", "folder"]
NUMBERS = [errno.ENOSPC, errno.EIO, errno.EROFS]


def make(value: float) -> Any:
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, name="dense"), layers.Dense(2, name="dense_1")]
    )
    model.compile("sgd", "mse")
    model.set_weights([np.full(v.shape, value) for v in model.weights])
    return model


def save(value: float, path: Path) -> None:
    model, name = make(value), str(path)
    if name.endswith(".json"):
        model.save_weights(name, max_shard_size=100 / 2**30)
    elif name.endswith((".weights.h5", ".safetensors")):
        model.save_weights(name)
    else:
        model.save(name, **({"zipped": False} if name.endswith("folder") else {}))


def value_in(path: Path) -> float:
    model = make(0.0)
    model.load_weights(str(path))
    values = {float(x) for v in model.weights for x in v.numpy().reshape(-1)}
    assert len(values) == 1, f"a mixture of {values}"
    return values.pop()


@pytest.fixture(params=KINDS)
def path(request: Any, tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models" / request.param


def recorded(path: Path) -> tuple[Any, list[Any]]:
    before = snapshot(path.parent)
    with recording(Recorder(path.parent)) as recorder:
        save(2.0, path)
    return before, recorder.events


def values_of(states: Iterator[Any], path: Path, to: Path) -> set[float | None]:
    """Return the values found at the path in each state; None where nothing is there."""
    result: set[float | None] = set()
    seen: set[str] = set()
    for state in states:
        # Temporary names play no part in what is read.
        visible = {k: v for k, v in state.items() if "kerasish-new" not in k}
        key = hashlib.sha256(repr(visible).encode()).hexdigest()
        if key in seen:
            continue
        seen.add(key)
        shutil.rmtree(to, ignore_errors=True)
        crash_replay.laid_out(visible, path.parent, to)
        result.add(value_in(to / path.name) if (to / path.name).exists() else None)
    return result


@pytest.mark.parametrize("old", [None, 1.0])
def test_each_prefix_gives_the_old_or_the_new_state(
    path: Path, old: float | None, tmp_path: Path
) -> None:
    if old is not None:
        save(old, path)
    before, events = recorded(path)
    assert len(events) > 4
    whole = crash_replay.state_after(before, events, lambda _: True)
    assert whole == snapshot(path.parent), "the record is not complete"
    result = values_of(crash_replay.crashes(before, events), path, tmp_path / "left")
    assert result == {old, 2.0}


def test_a_third_state_would_be_seen(tmp_path: Path) -> None:
    # The control: without the flushing before the rename, a power failure leaves half a file.
    path = tmp_path / "m.weights.h5"
    save(1.0, path)
    before, events = recorded(path)
    careless = [e for e in events if e[0] != "fsync"]
    with pytest.raises((ValueError, AssertionError)):
        values_of(crash_replay.crashes(before, careless), path, tmp_path / "left")


@pytest.mark.slow
def test_an_error_at_any_step_leaves_the_old_file_and_no_litter(path: Path) -> None:
    save(1.0, path)
    _, events = recorded(path)
    save(1.0, path)
    _, events = recorded(path)  # shards take turns
    save(1.0, path)
    names, count = sorted(os.listdir(path.parent)), len(events)
    new = 0
    for step in range(count):
        recorder = Recorder(path.parent, step, NUMBERS[step % 3])
        error = failure(lambda recorder=recorder: _save_recorded(recorder, path))
        if error is None:  # tidying up after the new state is in place may fail
            assert value_in(path) == 2.0
            new += 1
            save(1.0, path)
            continue
        assert error.errno == NUMBERS[step % 3]
        if "unchanged" in str(error):
            assert sorted(os.listdir(path.parent)) == names, step
            assert value_in(path) == 1.0
        else:
            assert "may be back" in str(error)
            assert value_in(path) == 2.0
            new += 1
            save(1.0, path)
    assert new <= 12
    assert new < count / 2


def _save_recorded(recorder: Recorder, path: Path) -> None:
    with recording(recorder):
        save(2.0, path)


def failure(run: Callable[[], None]) -> OSError | None:
    try:
        run()
    except OSError as error:
        return error
    return None


ARRAYS = ["m.keras", "m.weights.h5", "m.h5", "m.safetensors"]


@pytest.mark.parametrize("name", ARRAYS)
def test_each_flipped_bit_of_the_numbers_is_found_and_its_array_named(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    random = np.random.default_rng(0)
    model = make(0.0)
    values = [random.random(v.shape, "float32") for v in model.weights]
    model.set_weights(values)
    (model.save_weights if "weights" in name or "safe" in name else model.save)(str(path))
    whole = path.read_bytes()
    paths = ["dense/", "dense/", "dense_1/", "dense_1/"]
    for array, part in zip(values, paths, strict=True):
        at = whole.index(array.tobytes())
        for bit in range(0, 8 * array.nbytes, 7):  # each place in a byte
            data = bytearray(whole)
            data[at + bit // 8] ^= 1 << bit % 8
            path.write_bytes(bytes(data))
            with pytest.raises(ValueError, match="checksum does not fit") as error:
                model.load_weights(str(path))
            assert part in str(error.value)
            assert name in str(error.value)
    for v, value in zip(model.weights, values, strict=True):
        np.testing.assert_array_equal(v.numpy(), value)


@pytest.mark.filterwarnings("ignore")
def test_a_folder_that_may_only_be_read_says_so(path: Path) -> None:
    if os.name != "posix" or os.geteuid() == 0:
        recorder = Recorder(path.parent, 0, errno.EACCES)  # root may write everywhere
        error = failure(lambda: _save_recorded(recorder, path))
    else:
        path.parent.chmod(0o500)
        error = failure(lambda: save(2.0, path))
        path.parent.chmod(0o700)
    assert error is not None
    assert "no permission to write there" in str(error)
    assert os.listdir(path.parent) == []
