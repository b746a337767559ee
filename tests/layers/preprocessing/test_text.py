"""TextVectorization: functions of one's own, lengths, shapes, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kerasish import layers, registry
from kerasish.layers import TextVectorization


def shouting(texts):
    assert isinstance(texts, np.ndarray) and texts.dtype.kind == "U"
    return np.char.upper(texts)


def by_comma(texts):
    assert texts.ndim == 1 and texts.dtype.kind == "U"
    return [t.split(",") for t in texts]


def test_functions_of_ones_own():
    layer = TextVectorization(standardize=shouting, split=by_comma)
    layer.adapt(["a,b", "b"])
    assert layer.get_vocabulary() == ["", "[UNK]", "B", "A"]
    assert layer([["b,x,a"], ["a"]]).numpy().tolist() == [[2, 1, 3], [3, 0, 0]]


def test_functions_of_ones_own_are_named_in_files():
    with registry.CustomObjectScope({"shouting": shouting, "by_comma": by_comma}):
        layer = TextVectorization(standardize=shouting, split=by_comma, vocabulary=["A"])
        text = json.dumps(registry.serialize_keras_object(layer))
        other = registry.deserialize_keras_object(json.loads(text))
    assert other.standardize is shouting and other.split is by_comma
    assert other(["a,b"]).numpy().tolist() == [[2, 1]]


@pytest.mark.parametrize(
    "options",
    [
        {"vocabulary": ["a", "b"]},
        {"vocabulary": ["a"], "output_mode": "tf_idf", "idf_weights": [0.5], "ngrams": (1, 2)},
        {"max_tokens": 9, "split": "character", "standardize": None, "output_mode": "count",
         "pad_to_max_tokens": True},
        {"output_sequence_length": 4, "ngrams": 2},
    ],
)  # fmt: skip
def test_configs_make_an_equal_layer(options):
    layer = TextVectorization(**options)
    text = json.dumps(registry.serialize_keras_object(layer))
    other = registry.deserialize_keras_object(json.loads(text))
    assert json.dumps(registry.serialize_keras_object(other)) == text
    assert other.get_vocabulary() == layer.get_vocabulary()


@pytest.mark.parametrize("start", [(None,), (None, 1), (4,)])
@pytest.mark.parametrize(
    ("options", "size", "dtype"),
    [
        ({"output_sequence_length": 5}, 5, "int64"), ({}, None, "int64"),
        ({"output_mode": "count"}, 3, "int64"),
        ({"output_mode": "tf_idf", "idf_weights": [1.0, 1.0]}, 3, "float32"),
        ({"output_mode": "multi_hot", "pad_to_max_tokens": True, "max_tokens": 7}, 7, "int64"),
    ],
)  # fmt: skip
def test_symbolic_results_say_shape_and_dtype(start, options, size, dtype):
    layer = TextVectorization(vocabulary=["a", "b"], **options)
    symbol = layer(layers.Input(batch_shape=start, dtype="string"))
    assert tuple(symbol.shape) == (start[0], size) and symbol.dtype == dtype
    result = layer(np.full([s or 4 for s in start], "a b a"))
    assert result.shape == (4, size or 3) and result.dtype == dtype


def test_white_space_is_that_of_ascii():
    layer = TextVectorization(standardize=None)
    layer.adapt(["a\tb\nc\vd\fe\rf  g", "h\x1ci", "j\u00a0k l\u2003m"])
    assert sorted(layer.get_vocabulary(include_special_tokens=False)) == [
        *"abcdefg", "h\x1ci", "j\u00a0k", "l\u2003m"
    ]  # fmt: skip


def test_no_texts_and_empty_ones():
    layer = TextVectorization(vocabulary=["a"])
    assert layer([]).shape == (0, 0)
    assert layer(["", " . "]).shape == (2, 0)
    assert layer("").shape == (0,)
    counts = TextVectorization(vocabulary=["a"], output_mode="count")
    assert counts(["", "a"]).numpy().tolist() == [[0, 0], [0, 1]]
    assert counts([]).shape == (0, 2)


def test_learning_more_texts_takes_all_into_account():
    layer = TextVectorization()
    layer.adapt(iter([np.array(["a b"]), np.array([["b c"], ["b"]])]), batch_size=2)
    assert layer.get_vocabulary() == ["", "[UNK]", "b", "c", "a"]
    assert layer.vocabulary_size() == 5
    layer.set_vocabulary(["x"])
    assert layer(["x b"]).numpy().tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TextVectorization(standardize="lowercase"), "lower"),
        (lambda: TextVectorization(split="words"), "whitespace"),
        (lambda: TextVectorization(split=3), "a name, None or a function"),
        (lambda: TextVectorization(ngrams="2"), "ngrams is None, a number"),
        (lambda: TextVectorization(ngrams=0), "ngrams is None, a number"),
        (lambda: TextVectorization(output_mode="one_hot"), "multi_hot"),
        (lambda: TextVectorization(output_sequence_length=0), "a number >= 1, got 0"),
        (
            lambda: TextVectorization(output_mode="count", output_sequence_length=3),
            "goes with output_mode='int'",
        ),
        (lambda: TextVectorization(ragged=True), "ragged=True is not supported"),
        (lambda: TextVectorization(output_mode="count", sparse=True), "sparse=True"),
        (lambda: TextVectorization(max_tokens=1), "max_tokens is a number > 1"),
        (lambda: TextVectorization(vocabulary=["a"])([["a", "b"]]), r"got \(1, 2\)"),
        (lambda: TextVectorization(vocabulary=["a"])([1]), "expected strings"),
        (
            lambda: TextVectorization(split=lambda t: ["a"] * len(t)).adapt(["b", "c"]),
            "a list of tokens for each of 2 texts",
        ),
        (
            lambda: TextVectorization(standardize=lambda t: t[:1]).adapt(["b", "c"]),
            "must keep the shape",
        ),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_without_a_vocabulary():
    with pytest.raises(RuntimeError, match="no vocabulary yet"):
        TextVectorization()(["a"])
