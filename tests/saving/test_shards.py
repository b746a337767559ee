"""Weights over several files, here and in files of Keras's layout."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers
from kerasish.saving.formats import shards

SIZE = 3000 / 2**30  # GiB: 3,000 bytes


def make(value: float = 0.0) -> Any:
    model = keras.Sequential([keras.Input((8,)), *(layers.Dense(20) for _ in range(4))])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    if value:
        model.set_weights([np.full(v.shape, value) for v in model.weights])
    return model


def value_in(path: Path) -> float:
    model = make()
    model.load_weights(path)
    result = {float(v.numpy().reshape(-1)[0]) for v in model.weights}
    assert len(result) == 1
    return result.pop()


def test_shards_are_bounded_and_load_again(tmp_path: Path) -> None:
    path = tmp_path / "m.weights.json"
    make(1.0).save_weights(path, max_shard_size=SIZE)
    names = sorted(p.name for p in tmp_path.iterdir() if p != path)
    assert len(names) > 3
    assert names[0] == "m_00000.weights.h5"
    index = json.loads(path.read_text())
    assert set(index) == {"metadata", "weight_map"}
    assert index["weight_map"]["/layers/dense/vars"] == names[0]
    assert any(isinstance(names, list) for names in index["weight_map"].values())
    assert index["metadata"]["total_size"] == sum(
        v.numpy().nbytes for m in [make()] for v in [*m.weights, *m.optimizer.variables]
    )
    assert value_in(path) == 1.0


def test_saves_take_turns_and_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "m.weights.json"
    counts = []
    for value in (1.0, 2.0, 3.0, 4.0):
        make(value).save_weights(path, max_shard_size=SIZE)
        assert value_in(path) == value
        assert (tmp_path / "m_00000.weights.h5").exists()  # Keras opens it before the index
        counts.append(len(os.listdir(tmp_path)))
    assert max(counts) <= min(counts) + 1


@pytest.mark.parametrize("when", range(8))
def test_a_save_that_fails_leaves_the_old_state(
    when: int, tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "m.weights.json"
    make(1.0).save_weights(path, max_shard_size=SIZE)
    before = sorted(os.listdir(tmp_path))
    replace, calls = os.replace, []

    def fail(*args: Any) -> None:
        calls.append(args)
        if len(calls) > when:
            raise OSError(28, "No space left on device")
        replace(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="the disk is full"):
            make(2.0).save_weights(path, max_shard_size=SIZE)
    assert sorted(os.listdir(tmp_path)) == before
    assert value_in(path) == 1.0


def test_another_ending_becomes_an_index(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="index"):
        make(1.0).save_weights(tmp_path / "m.weights.h5", max_shard_size=1)
    assert value_in(tmp_path / "m.weights.json") == 1.0


@pytest.mark.parametrize("size", [0, -1, 1e-9])
def test_sizes_that_hold_nothing_are_refused(size: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_shard_size"):
        make().save_weights(tmp_path / "m.weights.json", max_shard_size=size)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["../m_00000.weights.h5", "/etc/x.weights.h5", "m.txt", 3, None])
def test_an_index_names_files_beside_it_alone(name: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.weights.json"
    make(1.0).save_weights(path, max_shard_size=SIZE)
    index = json.loads(path.read_text())
    index["weight_map"]["/layers/dense/vars"] = name
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"m\.weights\.json"):
        value_in(path)


def test_shards_of_two_saves_do_not_mix(tmp_path: Path) -> None:
    for value, folder in ((1.0, "a"), (2.0, "b")):
        (tmp_path / folder).mkdir()
        make(value).save_weights(tmp_path / folder / "m.weights.json", max_shard_size=SIZE)
    other = (tmp_path / "b" / "m_00002.weights.h5").read_bytes()
    (tmp_path / "a" / "m_00002.weights.h5").write_bytes(other)
    with pytest.raises(ValueError, match="another save"):
        value_in(tmp_path / "a" / "m.weights.json")
    (tmp_path / "a" / "m_00002.weights.h5").unlink()
    with pytest.raises(OSError, match=r"m_00002\.weights\.h5"):
        value_in(tmp_path / "a" / "m.weights.json")


def test_an_index_without_a_save_id_is_keras_s(tmp_path: Path) -> None:
    path = tmp_path / "m.weights.json"
    make(1.0).save_weights(path, max_shard_size=SIZE)
    index = json.loads(path.read_text())
    del index["metadata"][shards.SAVE]
    path.write_text(json.dumps(index))
    assert value_in(path) == 1.0
