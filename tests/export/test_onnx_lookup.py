"""Lookups as ONNX: `LabelEncoder` and the output modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import backends, layers, ops
from kerasish.saving import load_onnx

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
from onnx import TensorProto, helper  # noqa: E402

WORDS = [7, -3, 2**40, 0, 11]
CASES: dict[str, dict[str, Any]] = {
    "int": {},
    "one number": {"vocabulary": [5]},
    "mask": {"mask_token": 0, "vocabulary": [7, -3, 2**40, 11]},
    "several unknown": {"num_oov_indices": 3},
    "several unknown, mask": {"num_oov_indices": 2, "mask_token": 100},
    "no unknown": {"num_oov_indices": 0},
    "one_hot": {"output_mode": "one_hot"},
    "one_hot, mask": {"output_mode": "one_hot", "mask_token": 7, "vocabulary": [-3, 2**40, 0, 11]},
    "multi_hot": {"output_mode": "multi_hot", "num_oov_indices": 2},
    "count, padded": {"output_mode": "count", "pad_to_max_tokens": True, "max_tokens": 9},
    "no unknown, mask": {
        "output_mode": "count", "num_oov_indices": 0, "mask_token": 7,
        "vocabulary": [-3, 2**40, 0, 11],
    },
    "tf_idf": {"output_mode": "tf_idf", "idf_weights": [0.5, 1.5, 2.0, 0.25, 3.0]},
    "invert": {"invert": True},
    "invert, mask": {"invert": True, "mask_token": 99, "oov_token": -7, "num_oov_indices": 1},
}  # fmt: skip


def words(name: str, batch: int, dtype: str) -> Any:
    rng = np.random.default_rng(batch)
    if "invert" in name:
        return rng.integers(-2, 9, (batch, 4)).astype(dtype)
    known = CASES[name].get("vocabulary", WORDS)
    known = known if "mask" not in name else [*known, CASES[name]["mask_token"]]
    unknown = [] if "no unknown" in name else [3, -1, -2, -9, 2**33, -(2**40)]
    numbers = [n for n in [*known, *unknown] if dtype == "int64" or abs(n) < 2**31]
    return rng.choice(np.array(numbers), (batch, 4)).astype(dtype)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("name", CASES)
def test_equal_for_batches_of_1_2_and_7(name: str, dtype: str, tmp_path: Path) -> None:
    lookup = layers.IntegerLookup(**{"vocabulary": WORDS, **CASES[name]})
    x = kerasish.Input((4,), dtype=dtype, name="x")
    model = kerasish.Model(x, lookup(x))
    # The example numbers of `verify` are 0 and 1, of which one without unknown numbers knows one.
    model.export(tmp_path / "m.onnx", verbose=False, verify="no unknown" not in name)
    proto = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(proto, full_check=True)
    kinds = {n.op_type for n in proto.graph.node}
    domains = {entry.domain for entry in proto.opset_import}
    assert ("LabelEncoder" in kinds) == ("ai.onnx.ml" in domains) == ("invert" not in name)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    again = load_onnx(tmp_path / "m.onnx")
    for batch in (1, 2, 7):
        rows = words(name, batch, dtype)
        (result,) = session.run(None, {"x": rows})
        expected = np.asarray(lookup(rows))
        assert result.dtype == expected.dtype and result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(model.predict(rows, verbose=0), expected)
        for run in (again, backends.get("static").compile(again)):
            read = np.asarray(run(ops.convert_to_tensor(rows, dtype=dtype)))
            np.testing.assert_array_equal(read, expected)


def test_an_unknown_number_is_an_error_where_it_is_one_here(tmp_path: Path) -> None:
    x = kerasish.Input((2,), dtype="int64", name="x")
    lookup = layers.IntegerLookup(vocabulary=[1, 2], num_oov_indices=0)
    kerasish.Model(x, lookup(x)).export(tmp_path / "m.onnx", verbose=False, verify=False)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    np.testing.assert_array_equal(session.run(None, {"x": np.array([[2, 1]])})[0], [[1, 0]])
    with pytest.raises(Exception, match="out of data bounds"):
        session.run(None, {"x": np.array([[2, 3]])})


STRINGS: dict[str, dict[str, Any]] = {
    "int": {}, "mask": {"mask_token": "b"}, "no unknown": {"num_oov_indices": 0},
    "one_hot": {"output_mode": "one_hot"}, "count": {"output_mode": "count", "mask_token": "b"},
    "tf_idf": {"output_mode": "tf_idf", "idf_weights": [0.5, 1.5, 2.0]},
}  # fmt: skip


@pytest.mark.parametrize("name", STRINGS)
def test_strings_for_batches_of_1_2_and_7(name: str, tmp_path: Path) -> None:
    known = ["a", "\u00e9", "two words"]
    lookup = layers.StringLookup(vocabulary=known, **STRINGS[name])
    x = kerasish.Input((4,), dtype="string", name="x")
    model = kerasish.Model(x, lookup(x))
    model.export(tmp_path / "m.onnx", verbose=False, verify=name != "no unknown")
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    some = known if name == "no unknown" else [*known, "b", "", "A", "\u00c9"]
    for batch in (1, 2, 7):
        rows = np.random.default_rng(batch).choice(np.array(some, object), (batch, 4))
        (result,) = session.run(None, {"x": rows})
        expected = np.asarray(lookup(rows))
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(model.predict(rows, verbose=0), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_oov_indices": 2}, "layer 'look': unknown tokens are hashed"),
        ({"invert": True}, "layer 'look': its results are strings"),
    ],
)
def test_strings_that_are_refused(options: Any, message: str, tmp_path: Path) -> None:
    lookup = layers.StringLookup(vocabulary=["a", "b"], name="look", **options)
    x = kerasish.Input((4,), dtype="int64" if "invert" in options else "string")
    with pytest.raises(ValueError, match=message):
        kerasish.Model(x, lookup(x)).export(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_model_goes_on_after_a_lookup(tmp_path: Path) -> None:
    x = kerasish.Input((3,), dtype="int64", name="x")
    lookup = layers.IntegerLookup(max_tokens=6)
    lookup.adapt(np.array([[1, 2, 3], [1, 1, 9]]))
    y = layers.Dense(2)(layers.Flatten()(layers.Embedding(6, 4)(lookup(x))))
    model = kerasish.Model(x, y)
    model.export(tmp_path / "m.onnx", verbose=False)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    for batch in (1, 2, 7):
        rows = np.random.default_rng(batch).integers(0, 12, (batch, 3))
        expected = model.predict(rows, verbose=0)
        np.testing.assert_allclose(session.run(None, {"x": rows})[0], expected, atol=1e-6)


def test_hashed_numbers_are_refused_with_the_layer(tmp_path: Path) -> None:
    x = kerasish.Input((2,), dtype="int64")
    lookup = layers.IntegerLookup(
        vocabulary=[1, 2], num_oov_indices=2, oov_method="farmhash", name="look"
    )
    model = kerasish.Model(x, lookup(x))
    with pytest.raises(ValueError, match="layer 'look': unknown tokens are hashed"):
        model.export(tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="layer 'look': it runs on the host"):
        model.export(tmp_path / "m", format="native")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keys", ["int64s", "floats", "tensor"])
@pytest.mark.parametrize("values", ["int64s", "floats", "tensor"])
def test_label_encoders_of_numbers_are_read(keys: str, values: str, tmp_path: Path) -> None:
    numbers = [5, -2, 9, 5] if keys != "floats" else [5.0, -2.0, float("nan"), 5.0]
    results = [1, 2, 3, 4] if values != "floats" else [0.5, 1.5, 2.5, 3.5]
    version = 4 if "tensor" in (keys, values) else 2
    attrs: dict[str, Any] = {f"keys_{keys}": numbers, f"values_{values}": results}
    codes = {"int64s": TensorProto.INT64, "floats": TensorProto.FLOAT, "tensor": TensorProto.INT64}
    for part, kind in (("keys", keys), ("values", values)):
        if kind == "tensor":
            listed = attrs[f"{part}_tensor"]
            attrs[f"{part}_tensor"] = helper.make_tensor(part, TensorProto.INT64, [4], listed)
    if values == "tensor":
        attrs["default_tensor"] = helper.make_tensor("d", TensorProto.INT64, [1], [-8])
    else:
        attrs["default_int64" if values == "int64s" else "default_float"] = -8
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", codes[keys], ["n", 3])],
        [helper.make_tensor_value_info("y", codes[values], ["n", 3])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    (tmp_path / "m.onnx").write_bytes(
        helper.make_model(graph, opset_imports=opsets).SerializeToString()
    )
    model = load_onnx(tmp_path / "m.onnx")
    dtype = "float32" if keys == "floats" else "int64"
    x = np.array([[5, -2, 0], [9, numbers[2], 6]], dtype)
    get = dict(zip(numbers[1:3], results[1:3])).get
    expected = [
        [results[0], results[1], -8],
        [results[2] if keys != "floats" else -8, results[2], -8],
    ]
    assert get(numbers[1]) == results[1]
    for run in (model, backends.get("static").compile(model)):
        np.testing.assert_array_equal(
            np.asarray(run(ops.convert_to_tensor(x, dtype=dtype))), expected
        )


@pytest.mark.parametrize(
    "attrs",
    [
        {"keys_int64s": [1, 2], "values_int64s": [1]},
        {"keys_strings": ["a"], "values_int64s": [1]},
        {"keys_int64s": [1]},
    ],
)
def test_damaged_label_encoders_are_refused(attrs: Any, tmp_path: Path) -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["n"])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 2)]
    (tmp_path / "m.onnx").write_bytes(
        helper.make_model(graph, opset_imports=opsets).SerializeToString()
    )
    with pytest.raises(ValueError, match="node LabelEncoder"):
        load_onnx(tmp_path / "m.onnx")
