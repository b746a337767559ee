"""Models of many layers, of layers inside layers, and of ops between layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import kerasish as keras
from kerasish import layers, ops
from kerasish.engine.model.sequential import Sequential
from kerasish.saving.formats import json_text
from kerasish.saving.hdf5 import reader as hdf5_input

ENDINGS = ["keras", "h5"]


def masked(x: Any) -> Any:
    y = layers.LSTM(3)(layers.Embedding(10, 4)(x), mask=ops.not_equal(x, 0))
    y = ops.subtract(ops.add(y, 1.0) * 2, ops.mean(y, axis=-1, keepdims=True))
    y = ops.concatenate([y, ops.maximum(y[:, :2], 0.5)], axis=-1)
    return layers.Add()([layers.Dense(2)(ops.reshape(y, (-1, 5))), y[:, :2]])


@pytest.mark.parametrize("ending", ENDINGS)
def test_ops_and_masks_between_layers(ending: str, tmp_path: Path) -> None:
    x = keras.Input((5,), dtype="int32")
    model = keras.Model(x, masked(x))
    model.save(tmp_path / f"a.{ending}")
    result = keras.saving.load_model(tmp_path / f"a.{ending}")
    data = np.array([[1, 2, 0, 3, 0], [4, 4, 4, 0, 0]])
    np.testing.assert_array_equal(
        result.predict(data, verbose=0), model.predict(data, verbose=0)
    )  # fmt: skip
    kinds = [type(o).__name__ for o in result.layer_graph.operations]
    assert kinds == [type(o).__name__ for o in model.layer_graph.operations]


@pytest.mark.parametrize("ending", [*ENDINGS, "weights.h5"])
def test_sixty_models_inside_one_another(ending: str, tmp_path: Path) -> None:
    def nested() -> Any:
        inner: Any = layers.Dense(2)
        for _ in range(60):
            inner = keras.Sequential([inner])
        inner.build((None, 2))
        return inner

    model, path = nested(), tmp_path / f"a.{ending}"
    if ending == "weights.h5":
        model.save_weights(path)
        result = nested()
        result.load_weights(path)
    else:
        model.save(path)
        result = keras.saving.load_model(path)
    for a, b in zip(model.weights, result.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_layers_nested_too_deeply_are_refused_in_clear_words(tmp_path: Path) -> None:
    inner: Any = layers.Dense(2)
    for _ in range(2000):
        inner = layers.TimeDistributed(inner)
    model = keras.Sequential([inner])
    for save in (
        lambda: model.save(tmp_path / "a.keras"),
        lambda: model.save(tmp_path / "a.h5"),
        model.to_json,
    ):
        with pytest.raises(ValueError, match="nested too deeply to be described"):
            save()
    assert list(tmp_path.iterdir()) == []


def test_texts_nested_too_deeply_are_refused() -> None:
    for text in ('[{"a":' * 500, '{"\\\\\\"[[":[' * 500):
        with pytest.raises(ValueError, match="nested more than 900 deep"):
            json_text.read_json(text, "here")
    plain = '["[[[[", "\\\\", "\\"[", {"{{{": "]]"}]'
    whole = f"[{','.join([plain] * 1000)}]"
    assert json_text.read_json(whole, "here") == [["[[[[", "\\", '"[', {"{{{": "]]"}]] * 1000
    with pytest.raises(ValueError, match="no JSON"):
        json_text.read_json('["' + "[" * 1000, "here")


@pytest.mark.parametrize("ending", ENDINGS)
def test_work_grows_with_the_number_of_layers(
    ending: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """Reads of the file, and comparisons of names, per layer: as many for 50 layers as for 200."""
    counts = []
    for number in (50, 200):
        reads = [0]
        original = hdf5_input.Bytes.at

        def counted(self: Any, *args: Any, reads: Any = reads, original: Any = original) -> Any:
            reads[0] += 1
            return original(self, *args)

        path = tmp_path / f"{number}.{ending}"
        keras.Sequential([keras.Input((2,)), *(layers.Dense(2) for _ in range(number))]).save(path)
        with monkeypatch.context() as patch:
            patch.setattr(hdf5_input.Bytes, "at", counted)
            assert len(keras.saving.load_model(path).layers) == number
        counts.append(reads[0] / number)
    assert counts[1] < 1.5 * counts[0]


def test_a_subclass_may_say_what_adding_does() -> None:
    class Doubling(Sequential):
        def add(self, layer: Any, rebuild: bool = True) -> None:
            super().add(layer, rebuild=rebuild)
            if isinstance(layer, layers.Dense):
                super().add(layers.ReLU(), rebuild=rebuild)

    assert len(Doubling([layers.Dense(1), layers.Dense(1)]).layers) == 4
    with pytest.raises(ValueError, match="two layers are called 'a'"):
        keras.Sequential([layers.Dense(1, name="a"), layers.Dense(1, name="a")])


def test_a_class_whose_name_in_h5_files_is_another(tmp_path: Path) -> None:
    x = keras.Input((5, 8))
    inner = keras.Model(x, layers.GroupQueryAttention(4, 4, 2, name="gqa")(x, x))
    model = keras.Sequential([x, inner, layers.Dense(1)])
    path = tmp_path / "a.h5"
    model.save(path)
    with h5py.File(path) as file:
        config = file.attrs["model_config"]
    assert '"class_name": "GroupedQueryAttention"' in config  # as Keras calls it there
    assert '"class_name": "GroupQueryAttention"' not in config
    data = np.random.default_rng(0).normal(size=(2, 5, 8))
    result = keras.saving.load_model(path)
    np.testing.assert_array_equal(
        result.predict(data, verbose=0), model.predict(data, verbose=0)
    )  # fmt: skip
