"""FeatureSpace: Keras's results, files both ways, models, and what it refuses."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import feature_space_cases as cases
import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.utils import FeatureSpace

DATA = Path(__file__).parents[1] / "data"
FACTS = json.loads((DATA / "feature_space.json").read_text())["spaces"]


def compare(found, fact):
    found = cases.flat(found)
    assert set(found) == set(fact)
    for name, part in fact.items():
        assert found[name]["shape"] == part["shape"]
        np.testing.assert_allclose(found[name]["numbers"], part["numbers"], rtol=1e-5, atol=1e-6)


def adapted(name, data=None):
    space = cases.space_of(FeatureSpace, name)
    space.adapt(cases.table_of(name) if data is None else data)
    return space


@pytest.mark.parametrize("name", cases.SPACES)
def test_as_keras(name):
    space, table = adapted(name), cases.table_of(name)
    compare(space(table), FACTS[name])
    compare(space({n: column[1] for n, column in table.items()}), FACTS[f"{name}, one row"])
    compare(space({n: np.array(c)[:, None] for n, c in table.items()}), FACTS[name])


@pytest.mark.parametrize("name", cases.SPACES)
def test_files_hold_all_that_was_learnt(name, tmp_path):
    space, table = adapted(name), cases.table_of(name)
    space.save(tmp_path / "space.keras")
    other = kerasish.models.load_model(tmp_path / "space.keras")
    assert isinstance(other, FeatureSpace)
    compare(other(table), cases.flat(space(table)))


def test_bins_of_integers_are_encoded_in_a_model():
    ages = np.array([[20], [30], [40], [70]])
    space = FeatureSpace({"age": FeatureSpace.float_discretized(num_bins=2)})
    space.adapt({"age": ages})
    bins = space.preprocessors["age"](kerasish.Input((1,)))
    assert (bins.shape, bins.dtype) == ((None, 1), "int32")
    model = kerasish.Model(space.get_inputs(), space.get_encoded_features())
    found = model.predict({"age": ages}, verbose=0)
    np.testing.assert_array_equal(found, space({"age": ages}))
    np.testing.assert_array_equal(found.sum(1), np.ones(4))


def test_a_file_of_keras():
    space = kerasish.models.load_model(DATA / "feature_space.keras")
    compare(space(cases.table_of("by name")), FACTS["by name"])


@pytest.mark.parametrize(
    "split",
    [
        lambda t: [{n: c[i : i + 2] for n, c in t.items()} for i in range(0, 6, 2)],
        lambda t: [{n: c[i] for n, c in t.items()} for i in range(6)],
        lambda t: (({n: c[i : i + 3] for n, c in t.items()}, np.ones(3)) for i in (0, 3)),
    ],
    ids=["batches", "rows", "a generator of pairs"],
)
def test_adapting_to_batches(split):
    table = cases.table_of("by name")
    compare(adapted("by name", split(table))(table), FACTS["by name"])


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("as_layer", [False, True])
def test_a_model_that_starts_from_a_table(eagerly, as_layer, tmp_path):
    space, table = adapted("by name"), cases.table_of("by name")
    inputs = space.get_inputs()
    encoded = space(inputs) if as_layer else space.get_encoded_features()
    model = kerasish.Model(inputs, layers.Dense(1)(encoded))
    model.compile("adam", "mse", run_eagerly=eagerly)
    x, y = {n: np.array(c) for n, c in table.items()}, np.arange(6.0)
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, epochs=20, verbose=0, batch_size=4)
    assert model.evaluate(x, y, verbose=0) < before
    result = model.predict(x, verbose=0)
    np.testing.assert_allclose(result, model(x).numpy(), rtol=1e-5, atol=1e-5)
    model.save(tmp_path / "model.keras")
    other = kerasish.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(other.predict(x, verbose=0), result, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_and_pickles_are_equal(again):
    space, table = adapted("by name"), cases.table_of("by name")
    space.get_encoded_features()
    other = again(space)
    compare(other(table), FACTS["by name"])
    model = kerasish.Model(other.get_inputs(), other.get_encoded_features())
    x = {n: np.array(c) for n, c in table.items()}
    compare(model.predict(x, verbose=0), FACTS["by name"])


def test_a_feature_with_a_layer_of_its_own():
    text = layers.TextVectorization(output_mode="count")
    space = FeatureSpace({"text": FeatureSpace.feature("string", text, "float")}, "dict")
    space.adapt({"text": ["b a b", "a b"]})
    assert space({"text": ["b b", "c"]})["text"].numpy().tolist() == [[0, 2, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FeatureSpace({}), "at least one"),
        (lambda: FeatureSpace({"a": "floaty"}), "float"),
        (lambda: FeatureSpace({"a": "float"}, output_mode="list"), "output_mode"),
        (lambda: FeatureSpace({"a": "float"}, crosses=[("a", "b")]), "feature of a cross"),
        (lambda: FeatureSpace({"a": "float_normalized"})({"a": [1.0]}), "call adapt"),
        (lambda: FeatureSpace({"a": "float_normalized"}).get_encoded_features(), "call adapt"),
        (lambda: FeatureSpace({"a": "float"})([1.0]), "dict of columns, got list"),
        (lambda: FeatureSpace({"a": "float"})({"b": [1.0]}), r"\['a'\] are missing"),
        (lambda: FeatureSpace({"a": "float_normalized"}).adapt({"b": [1.0]}), "are missing"),
        (lambda: FeatureSpace({"a": "float_normalized"}).adapt([]), "no data"),
        (lambda: FeatureSpace({"a": "float_normalized"}).adapt(3), "dict of columns or an iter"),
        (
            lambda: FeatureSpace({"a": FeatureSpace.string_hashed(3, "int")})({"a": ["x"]}),
            "output_mode='dict'",
        ),
        (lambda: FeatureSpace.float_discretized(3, output_mode="many"), "output_mode"),
        (
            lambda: FeatureSpace({"a": FeatureSpace.feature("float32", layers.Rescaling(2.0),
                                                            "one_hot")})({"a": [1.0]}),
            "no integers",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
