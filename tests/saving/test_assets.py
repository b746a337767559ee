"""Vocabularies in files: round trips, Keras's files, folders, damaged and hostile ones."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import feature_space_cases as cases
import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.saving.formats import assets

DATA = Path(__file__).parents[1] / "data"
FACT = json.loads((DATA / "feature_space.json").read_text())["model"]


def numbers(model):
    result = cases.flat(model.predict(cases.text_inputs(), verbose=0))[""]
    assert result["shape"] == FACT[""]["shape"]
    return result["numbers"]


def test_a_file_of_keras():
    model = kerasish.models.load_model(DATA / "lookups.keras")
    np.testing.assert_allclose(numbers(model), FACT[""]["numbers"], rtol=1e-5, atol=1e-6)


def test_the_same_model_made_here():
    np.testing.assert_allclose(
        numbers(cases.text_model(kerasish)), FACT[""]["numbers"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_round_trips(tmp_path, zipped):
    model = cases.text_model(kerasish)
    path = tmp_path / ("model.keras" if zipped else "model")
    model.save(path, zipped=zipped)
    other = kerasish.models.load_model(path)
    assert numbers(other) == numbers(model)
    for name in ("words", "towns", "rooms"):
        assert other.get_layer(name).get_vocabulary() == model.get_layer(name).get_vocabulary()


def test_members_lie_where_keras_puts_them(tmp_path):
    cases.text_model(kerasish).save(tmp_path / "model.keras")
    ours, theirs = (zipfile.ZipFile(p) for p in (tmp_path / "model.keras", DATA / "lookups.keras"))
    with ours, theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())
        for name in theirs.namelist():
            if name.startswith("assets/"):
                assert ours.read(name) == theirs.read(name)


def test_a_vocabulary_that_was_given_is_in_the_config(tmp_path):
    model = kerasish.Sequential(
        [layers.Input((1,), dtype="string"), layers.StringLookup(vocabulary=["a"])]
    )
    model.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        assert not [n for n in archive.namelist() if n.startswith("assets")]
    other = kerasish.models.load_model(tmp_path / "model.keras")
    assert other.layers[0].get_vocabulary() == ["[UNK]", "a"]


def test_tokens_that_hold_line_ends(tmp_path):
    layer = layers.TextVectorization(split="character", standardize=None)
    layer.adapt(["a\nb\r\u2028"])
    model = kerasish.Sequential([layers.Input((1,), dtype="string"), layer])
    model.save(tmp_path / "model.keras")
    other = kerasish.models.load_model(tmp_path / "model.keras")
    assert other.layers[0].get_vocabulary() == layer.get_vocabulary()


def test_weights_alone_hold_the_idf_weights(tmp_path):
    def model(words):
        layer = layers.StringLookup(output_mode="tf_idf")
        layer.adapt(np.array(words))
        return kerasish.Sequential([layers.Input((2,), dtype="string"), layer])

    first, second = model([["a", "b"], ["b", "b"]]), model([["b", "b"], ["b", "a"], ["b", "b"]])
    x = np.array([["a", "b"]])
    assert (first.predict(x, verbose=0) != second.predict(x, verbose=0)).any()
    first.save_weights(tmp_path / "model.weights.h5")
    second.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(second.predict(x, verbose=0), first.predict(x, verbose=0))


def rewritten(tmp_path, change):
    """Return a copy of Keras's file with `change(name, bytes)` for each member; None drops it."""
    path = tmp_path / "changed.keras"
    with zipfile.ZipFile(DATA / "lookups.keras") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda n, b: b"\xff\xfe" if n.endswith("towns/vocabulary.txt") or "lookup" in n and
         n.endswith(".txt") else b, "could not load its assets"),
        (lambda n, b: b"one\ntwo" if "integer_lookup" in n else b, "'one' is no integer"),
        (lambda n, b: b"\n[UNK]\nb\nb" if "text_vec" in n and n.endswith(".txt") else b, "twice"),
    ],
    ids=["no text", "no integers", "twice the same"],
)  # fmt: skip
def test_damaged_vocabularies(tmp_path, change, words):
    with pytest.raises(ValueError, match=words):
        kerasish.models.load_model(rewritten(tmp_path, change))


def test_a_vocabulary_that_is_missing_leaves_the_layer_without_one(tmp_path):
    path = rewritten(tmp_path, lambda n, b: None if "integer_lookup" in n else b)
    model = kerasish.models.load_model(path)
    with pytest.raises(RuntimeError, match="no vocabulary yet"):
        model.predict(cases.text_inputs(), verbose=0)


def test_the_older_format_says_what_it_leaves_out(tmp_path):
    layer = layers.StringLookup()
    layer.adapt(["a"])
    model = kerasish.Sequential([layers.Input((1,), dtype="string"), layer])
    with pytest.warns(UserWarning, match=r"left out: .'assets/layers/string_lookup/vocab"):
        model.save(tmp_path / "model.h5")
    other = kerasish.models.load_model(tmp_path / "model.h5")
    assert other.layers[0].get_vocabulary() == ["[UNK]"]


def test_assets_that_are_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(assets, "_MOST_BYTES", 50)
    with pytest.raises(ValueError, match="assets: more than 50 bytes; refused"):
        kerasish.models.load_model(DATA / "lookups.keras")


def test_assets_without_an_owner_are_left_alone(tmp_path):
    path = tmp_path / "changed.keras"
    path.write_bytes((DATA / "lookups.keras").read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("assets/layers/dense/more.txt", "x" * 100)
    np.testing.assert_allclose(
        numbers(kerasish.models.load_model(path)), FACT[""]["numbers"], rtol=1e-5, atol=1e-6
    )


class Remembering(kerasish.layers.Layer):
    """A layer of a user's own with a file of its own."""

    note = ""

    def call(self, x):
        return x

    def save_assets(self, folder):
        Path(folder, "note.txt").write_text(self.note)

    def load_assets(self, folder):
        self.note = Path(folder, "note.txt").read_text()


def test_layers_of_ones_own_have_assets_too(tmp_path):
    model = kerasish.Sequential([layers.Input((1,)), Remembering()])
    model.layers[0].note = "hello"
    model.save(tmp_path / "model.keras")
    other = kerasish.models.load_model(
        tmp_path / "model.keras", custom_objects={"Remembering": Remembering}
    )
    assert other.layers[0].note == "hello"
