"""StringLookup and IntegerLookup: what they take, learn, give back and refuse."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from kerasish import config, layers, registry
from kerasish.layers import IntegerLookup, StringLookup


@pytest.mark.parametrize(
    "inputs",
    [
        ["b", "x", "é"], np.array(["b", "x", "é"]), np.array(["b", "x", "é"], dtype=object),
        [b"b", b"x", "é".encode()], np.array([b"b", b"x", "é".encode()]), ("b", "x", "é"),
    ],
    ids=["list", "array", "objects", "bytes", "array of bytes", "tuple"],
)  # fmt: skip
def test_strings_in_any_dress(inputs):
    layer = StringLookup(vocabulary=["a", "b", "é"])
    assert layer(inputs).numpy().tolist() == [2, 0, 3]
    other = StringLookup()
    other.adapt(inputs)
    assert other.get_vocabulary() == ["[UNK]", "é", "x", "b"]


def test_bytes_in_an_encoding_of_their_own():
    layer = StringLookup(vocabulary=["é"], encoding="latin-1")
    assert layer(["é".encode("latin-1"), b"e"]).numpy().tolist() == [1, 0]


@pytest.mark.parametrize("inputs", [2, [3, 2], np.array([[2.0]]), np.array([], int)])
def test_integers_of_any_shape(inputs):
    result = IntegerLookup(vocabulary=[2, 3])(inputs)
    assert result.shape == np.shape(inputs)
    assert result.numpy().ravel().tolist() == [int(x) - 1 for x in np.ravel(inputs)]


def test_one_string_is_a_scalar():
    assert StringLookup(vocabulary=["a"])("a").shape == ()
    assert StringLookup(vocabulary=["a"], output_mode="one_hot")("a").numpy().tolist() == [[0, 1]]


def test_vocabularies_from_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("b\na\nlast one\n", encoding="utf-8")
    assert StringLookup(vocabulary=str(path)).get_vocabulary() == ["[UNK]", "b", "a", "last one"]
    path.write_text("7\r\n-3", encoding="utf-8")
    layer = IntegerLookup()
    layer.set_vocabulary(path)
    assert layer.get_vocabulary() == [-1, 7, -3]
    with pytest.raises(ValueError, match="no file"):
        StringLookup(vocabulary=str(tmp_path / "none.txt"))


def test_a_config_names_no_file(tmp_path):
    """A model's file must not make its reader read another file."""
    config_ = {**StringLookup().get_config(), "vocabulary": str(tmp_path / "secret.txt")}
    (tmp_path / "secret.txt").write_text("secret")
    for kind in (StringLookup, layers.TextVectorization):
        with pytest.raises(ValueError, match="do not read other files"):
            kind.from_config({"name": "x", "vocabulary": config_["vocabulary"]})


def test_adapting_to_batches_is_adapting_to_all():
    whole, parts, some = StringLookup(), StringLookup(), StringLookup()
    data = [["a", "b"], ["b", "c"], ["c", "b"]]
    whole.adapt(np.array(data))
    parts.adapt(iter(np.array([row]) for row in data))
    some.adapt((np.array([row]) for row in data), steps=1)
    assert whole.get_vocabulary() == parts.get_vocabulary() == ["[UNK]", "b", "c", "a"]
    assert some.get_vocabulary() == ["[UNK]", "b", "a"]
    whole.adapt(["q"])
    assert whole.get_vocabulary() == ["[UNK]", "q"]


def test_update_state_goes_on_counting():
    layer = StringLookup()
    layer.update_state(["a", "b"])
    layer.update_state(["b"])
    layer.finalize_state()
    assert layer.get_vocabulary(include_special_tokens=False) == ["b", "a"]
    assert layer.vocabulary_size() == 3


def test_frequent_tokens_come_first_and_special_ones_are_not_learnt():
    layer = StringLookup(max_tokens=4, mask_token="")
    layer.adapt(["a", "b", "b", "", "", "", "[UNK]", "c", "c"])
    assert layer.get_vocabulary() == ["", "[UNK]", "c", "b"]
    assert layer(["", "a", "c"]).numpy().tolist() == [0, 1, 2]


def test_inverse():
    layer = StringLookup(mask_token="")
    layer.adapt(["a", "b", "b"])
    back = StringLookup(vocabulary=layer.get_vocabulary(), mask_token="", invert=True)
    words = np.array([["a", "b", ""], ["b", "b", "a"]])
    assert (back(layer(words)) == words).all()
    assert back([1, 99]).tolist() == ["[UNK]", "[UNK]"]


def test_idf_weights_weigh_counts():
    layer = StringLookup(vocabulary=["a", "b"], output_mode="tf_idf", idf_weights=[2.0, 4.0])
    assert layer([["a", "a", "x"]]).numpy().tolist() == [[3.0, 4.0, 0.0]]
    assert layer.idf_weights.tolist() == [3.0, 2.0, 4.0]


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count", "tf_idf"])
@pytest.mark.parametrize("shape", [(None, 3), (None, 1), (2, 4, 3)])
def test_symbolic_results_say_shape_and_dtype(mode, shape):
    idf = {"idf_weights": [1.0, 2.0]} if mode == "tf_idf" else {}
    layer = StringLookup(vocabulary=["a", "b"], output_mode=mode, **idf)
    symbol = layer(layers.Input(batch_shape=shape, dtype="string"))
    result = layer(np.full([s or 5 for s in shape], "a"))
    assert tuple(symbol.shape[1:]) == result.shape[1:] and symbol.dtype == result.dtype


@pytest.mark.parametrize(
    "layer",
    [
        StringLookup(vocabulary=["a", "é"], mask_token="", num_oov_indices=2, salt=[1, 2]),
        StringLookup(vocabulary=["a"], output_mode="tf_idf", idf_weights=[0.5], max_tokens=5),
        IntegerLookup(vocabulary=[4, -7], oov_method="farmhash", salt=3, num_oov_indices=4),
        IntegerLookup(output_mode="count", pad_to_max_tokens=True, max_tokens=9),
    ],
)
def test_configs_make_an_equal_layer(layer):
    text = json.dumps(registry.serialize_keras_object(layer))
    for other in (
        registry.deserialize_keras_object(json.loads(text)),
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
    ):
        assert json.dumps(registry.serialize_keras_object(other)) == text
        assert other.get_vocabulary() == layer.get_vocabulary()
        if layer.get_vocabulary(include_special_tokens=False):
            inputs = np.array([["a", "x"]]) if isinstance(layer, StringLookup) else [[4, 9]]
            assert (other(inputs).numpy() == layer(inputs).numpy()).all()


@pytest.mark.parametrize("kind", [StringLookup, IntegerLookup])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tokens": 1}, "max_tokens is a number > 1"),
        ({"max_tokens": 3, "num_oov_indices": 3}, "leaves no index beyond the special tokens"),
        ({"num_oov_indices": -1}, "num_oov_indices is a number >= 0"),
        ({"output_mode": "multi"}, "multi_hot"),
        ({"output_mode": "count", "invert": True}, "invert=True goes with output_mode='int'"),
        ({"output_mode": "count", "pad_to_max_tokens": True}, "needs max_tokens"),
        ({"output_mode": "count", "sparse": True}, "sparse=True is not supported"),
        ({"vocabulary": []}, "at least one token"),
        ({"vocabulary": ["1", "2", "1"]}, "twice"),
        ({"vocabulary": ["1", "2"], "max_tokens": 2}, "max_tokens=2, but the vocabulary"),
        ({"vocabulary": ["1"], "output_mode": "tf_idf"}, "needs idf_weights"),
        ({"vocabulary": ["1"], "idf_weights": [1.0]}, "idf_weights go with"),
        (
            {"vocabulary": ["1"], "idf_weights": [1.0, 2.0, 3.0], "output_mode": "tf_idf"},
            "expected 1 idf_weights",
        ),
        ({"salt": "pepper", "oov_method": "farmhash"}, "salt is an integer or a pair"),
        ({"oov_method": "modulo"}, "floormod"),
    ],
)
def test_arguments_that_do_not_fit(kind, options, words):
    with pytest.raises(ValueError, match=words):
        kind(**options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StringLookup(vocabulary=["a", ""], mask_token=""), "Leave the special tokens out"),
        (lambda: StringLookup(vocabulary=["a", "[UNK]"], invert=True), "the oov_token '.UNK.'"),
        (lambda: IntegerLookup(vocabulary=["x"]), "'x' is no integer"),
        (lambda: IntegerLookup(vocabulary_dtype="int32"), "can only be 'int64'"),
        (lambda: IntegerLookup(salt=3), "salt goes with oov_method='farmhash'"),
        (lambda: StringLookup(vocabulary=["a"]).adapt(["b"]), "nothing to adapt"),
        (lambda: StringLookup().adapt("a b"), "an array of strings, got the one string"),
        (lambda: StringLookup().adapt(iter([])), "no data"),
        (lambda: StringLookup(vocabulary=["a"])([1, 2]), "expected strings, got numbers"),
        (lambda: StringLookup(vocabulary=["a"])(np.array(["a", 1.5], object)), "1.5 of type float"),
        (lambda: StringLookup(vocabulary=["a"])([["a"], ["a", "a"]]), "unequal length"),
        (lambda: IntegerLookup(vocabulary=[1])(["a"]), "expected integers"),
        (
            lambda: StringLookup(vocabulary=["a"], num_oov_indices=0)(["a", "z", "y"]),
            r"not in the vocabulary: \['y', 'z'\]",
        ),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("kind", [StringLookup, IntegerLookup])
def test_without_a_vocabulary(kind):
    with pytest.raises(RuntimeError, match="no vocabulary yet; call adapt"):
        kind()(["a"] if kind is StringLookup else [1])


def test_results_have_keras_s_dtypes():
    config.set_floatx("float64")
    idf = {"idf_weights": [1.0], "output_mode": "tf_idf"}
    assert StringLookup(vocabulary=["a"], **idf)([["a"]]).dtype == "float64"
    assert StringLookup(vocabulary=["a"], output_mode="count")([["a"]]).dtype == "int64"
