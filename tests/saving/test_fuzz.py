"""Broken files, at random but always the same ones: every one loads or gives a clear error.

KERASISH_FUZZ=500 makes that many per format instead of the few that every run makes.
"""

from __future__ import annotations

import functools
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers

COUNT = int(os.environ.get("KERASISH_FUZZ", "40"))


def make() -> Any:
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dense(2)]
    )
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def broken(data: bytes, random: np.random.Generator) -> bytes:
    """Return the file cut off, with flipped bits, or with a field overwritten or moved."""
    kind = random.integers(4)
    if kind == 0:
        return data[: random.integers(len(data))]
    made = bytearray(data)
    if kind == 1:
        for at in random.integers(len(data), size=random.integers(1, 20)):
            made[at] ^= 1 << random.integers(8)
    elif kind == 2:
        at, size = random.integers(len(data)), random.integers(1, 9)
        made[at : at + size] = random.choice([b"\x00", b"\xff", b"\x7f"]) * int(size)
    else:
        one, two = random.integers(len(data) - 16, size=2)
        made[one : one + 8], made[two : two + 8] = made[two : two + 8], made[one : one + 8]
    return bytes(made)


@pytest.mark.parametrize("ending", ["weights.h5", "keras", "h5"])
def test_broken_files_give_clear_errors(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{ending}"
    source = make()
    (source.save_weights if ending == "weights.h5" else source.save)(path)
    data = path.read_bytes()
    errors = 0
    for seed in range(COUNT):
        path.write_bytes(broken(data, np.random.default_rng(seed)))
        model = make()
        before = [v.numpy().copy() for v in model.variables]
        error = failure(functools.partial(read, model, path))
        if error is not None:
            errors += 1
            assert path.name in str(error), f"seed {seed}: {error!r}"
            for v, old in zip(model.variables, before, strict=True):
                np.testing.assert_array_equal(v.numpy(), old, err_msg=f"seed {seed}")
    assert errors > COUNT // 5


def read(model: Any, path: Path) -> None:
    if path.name.endswith("weights.h5"):
        model.load_weights(path)
    else:
        assert keras.saving.load_model(path).layers


def failure(run: Callable[[], None]) -> Exception | None:
    """Return the error of the kinds that loading may raise; others are the test's failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run()
        except (ValueError, OSError) as error:
            return error
    return None


@pytest.mark.parametrize("name", ["config.json", "model.weights.h5"])
def test_broken_members_give_clear_errors(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    make().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    for seed in range(COUNT):
        random = np.random.default_rng(seed)
        changed = {**members, name: broken(members[name], random)}
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in changed.items():
                archive.writestr(member, data)
        error = failure(functools.partial(read, make(), path))
        assert error is None or path.name in str(error), f"seed {seed}: {error!r}"
