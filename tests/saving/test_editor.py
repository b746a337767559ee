"""KerasFileEditor and safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers


def make(units: int = 2) -> Any:
    return keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Dense(units)])


@pytest.fixture(params=["weights.h5", "keras"])
def path(request: Any, tmp_path: Path) -> Path:
    path = tmp_path / f"model.{request.param}"
    (make().save if request.param == "keras" else make().save_weights)(path)
    return path


def test_a_file_is_edited_and_loaded(path: Path, tmp_path: Path) -> None:
    editor = keras.saving.KerasFileEditor(path)
    editor.delete_weight("dense_1", "0")
    editor.add_weights("dense_1", {"0": np.full((4, 3), 2.0, "float32"), "1": np.zeros(3)})
    editor.save(tmp_path / "new.weights.h5")
    model = make(3)
    model.load_weights(tmp_path / "new.weights.h5")
    assert float(model.layers[1].kernel.numpy()[0, 0]) == 2.0
    other = keras.saving.KerasFileEditor(tmp_path / "new.weights.h5")
    assert other.compare(make(3)) == {"status": "success", "error_count": 0, "match_count": 4}
    assert other.compare(make(2))["error_count"] == 2


def test_objects_are_renamed_added_and_deleted(path: Path, capsys: Any) -> None:
    editor = keras.saving.KerasFileEditor(path)
    editor.rename_object("layers/dense_1", "last")
    editor.add_object("layers/extra", {"0": np.ones(2)})
    editor.delete_object("dense")
    editor.summary()
    shown = capsys.readouterr().out
    assert "layers/last" in shown
    assert "layers/extra" in shown
    assert "layers/dense" not in shown
    with pytest.raises(ValueError, match="layers/last"):
        editor.delete_object("lasd")
    with pytest.raises(ValueError, match="already"):
        editor.add_object("layers/extra", {})


def test_safetensors_hold_weights_and_optimizer(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = keras.Sequential(
        [keras.Input((3,)), layers.Dense(4), layers.Dense(2, dtype="bfloat16")]
    )
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    model.save_weights(path)
    other = keras.Sequential(
        [keras.Input((3,)), layers.Dense(4), layers.Dense(2, dtype="bfloat16")]
    )
    other.load_weights(path)
    for a, b in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    with pytest.raises(ValueError, match="do not fit"):
        make(5).load_weights(path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        other.load_weights(path)
