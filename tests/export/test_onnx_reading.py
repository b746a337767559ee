"""Models read from ONNX files: predict, fit, save, export again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.saving import load_onnx

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
from onnx import TensorProto, helper  # noqa: E402


def classifier() -> Any:
    x = kerasish.Input((8, 8, 3), name="picture")
    y = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    y = layers.MaxPooling2D()(y)
    y = layers.Dense(5, activation="softmax", name="kind")(layers.Flatten()(y))
    return kerasish.Model(x, y)


def reader() -> Any:
    x = kerasish.Input((None,), dtype="int32", name="words")
    y = layers.LSTM(5, return_sequences=True)(layers.Embedding(9, 4)(x))
    y = layers.LayerNormalization()(layers.MultiHeadAttention(2, 3)(y, y))
    y = layers.Bidirectional(layers.GRU(3))(y)
    return kerasish.Model(x, layers.Dense(5, activation="softmax", name="kind")(y))


def read_back(model: Any, folder: Path, **options: Any) -> Any:
    model.export(folder / "m.onnx", verbose=False)
    return load_onnx(folder / "m.onnx", **options)


def data(model: Any, count: int = 12) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    if model.inputs[0].dtype == "int32":
        x = rng.integers(0, 9, (count, 6)).astype("int32")
    else:
        x = rng.uniform(-1, 1, (count, 8, 8, 3)).astype("float32")
    return x, rng.integers(0, 5, count)


@pytest.mark.parametrize("make", [classifier, reader])
@pytest.mark.parametrize("engine", ["static", "eager"])
def test_round_trip_and_fit(make: Any, engine: str, tmp_path: Path) -> None:
    model = make()
    again = read_back(model, tmp_path)
    assert again.input_names == model.input_names and again.output_names == ["kind"]
    assert again.inputs[0].shape == model.inputs[0].shape
    x, y = data(model)
    losses = []
    for m in (model, again):
        m.compile(
            kerasish.optimizers.SGD(0.1), "sparse_categorical_crossentropy",
            run_eagerly=engine == "eager",
        )  # fmt: skip
        np.testing.assert_allclose(m.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)
    for m in (model, again):
        fitted = m.fit(x, y, epochs=3, batch_size=12, shuffle=False, verbose=0)
        losses.append(fitted.history["loss"])
    np.testing.assert_allclose(losses[0][0], losses[1][0], rtol=1e-5)
    if make is classifier:
        # ONNX's LSTM and GRU have two biases that are added, so that both are trained.
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]


def test_saved_and_exported_again(tmp_path: Path) -> None:
    model = classifier()
    again = read_back(model, tmp_path)
    x, _ = data(model)
    again.save(tmp_path / "m.keras")
    loaded = kerasish.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), again.predict(x, verbose=0))
    third = read_back(loaded, tmp_path)
    np.testing.assert_allclose(third.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6)
    assert third.input_names == ["picture"] and third.output_names == ["kind"]


def test_which_weights_are_trained(tmp_path: Path) -> None:
    x = kerasish.Input((4,))
    model = kerasish.Model(x, layers.BatchNormalization()(layers.Dense(3)(x)))
    again = read_back(model, tmp_path)
    assert len(again.trainable_variables) == 4 and len(again.non_trainable_variables) == 2
    assert not read_back(model, tmp_path, trainable=False).trainable_variables


def proto(nodes: list[Any], inputs: list[Any], out: Any, stored: Any = (), opset: int = 18) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, [out], list(stored))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def value(name: str, shape: list[Any], code: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, code, shape)


def test_sizes_that_are_inputs_become_constants(tmp_path: Path) -> None:
    created = proto(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        [value("x", ["n", 6]), value("shape", [3], TensorProto.INT64)],
        value("y", [None, None, None]),
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(created.SerializeToString())
    with pytest.raises(ValueError, match=r"node Reshape \(y\): input 1 decides shapes.*constants="):
        load_onnx(path)
    model = load_onnx(path, constants={"shape": np.array([-1, 2, 3])})
    assert model.predict(np.zeros((4, 6), "float32"), verbose=0).shape == (4, 2, 3)
    with pytest.raises(ValueError, match="there is no input 'size', but"):
        load_onnx(path, constants={"size": 3})


def test_sizes_computed_of_an_open_batch(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    stored = [
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
        helper.make_tensor("rest", TensorProto.INT64, [2], [2, 3]),
    ]
    path = tmp_path / "m.onnx"
    created = proto(nodes, [value("x", ["n", 6])], value("y", [None, 2, 3]), stored)
    path.write_bytes(created.SerializeToString())
    model = load_onnx(path)
    assert model.output_shape == (None, 2, 3)
    for n in (1, 2, 7):
        assert model.predict(np.zeros((n, 6), "float32"), verbose=0).shape == (n, 2, 3)


def test_old_opsets(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["a"], axes=[1]),
        helper.make_node("Slice", ["a"], ["b"], axes=[2], starts=[0], ends=[2]),
        helper.make_node("Clip", ["b"], ["c"], min=-0.5, max=0.5),
        helper.make_node("Softmax", ["c"], ["y"], axis=1),
    ]
    path = tmp_path / "m.onnx"
    created = proto(nodes, [value("x", ["n", 3])], value("y", None), opset=9)
    path.write_bytes(created.SerializeToString())
    x = np.float32([[-2, 1, 5], [0, 0.25, 1]])
    powers = np.exp(np.clip(x[:, None, :2], -0.5, 0.5))
    result = load_onnx(path).predict(x, verbose=0)
    np.testing.assert_allclose(result, powers / powers.sum(-1, keepdims=True), rtol=1e-6)


def test_unknown_operators_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    node = helper.make_node("Fancy", ["x"], ["y"], domain="com.example")
    path.write_bytes(proto([node], [value("x", [2])], value("y", [2])).SerializeToString())
    with pytest.raises(ValueError, match=r"m.onnx: the operator com.example.Fancy is not known"):
        load_onnx(path)


def test_half_weights_and_external_data(tmp_path: Path) -> None:
    x = kerasish.Input((64,))
    model = kerasish.Model(x, layers.Dense(32, dtype="mixed_float16")(x))
    model.export(tmp_path / "m.onnx", external_data=True, verbose=False)
    assert (tmp_path / "m.onnx.data").stat().st_size == 64 * 32 * 2
    again = load_onnx(tmp_path / "m.onnx")
    rows = np.random.default_rng(0).uniform(-1, 1, (3, 64)).astype("float32")
    expected = np.asarray(model(rows)).astype("float32")
    np.testing.assert_allclose(
        np.asarray(again(rows)).astype("float32"), expected, atol=2e-3 * np.abs(expected).max()
    )


def dequantized(kind: str, numbers: Any, shape: list[int]) -> Any:
    """Return a file that computes x @ dequantized weights."""
    code = getattr(TensorProto, kind)
    scale, zero = np.linspace(0.5, 2.0, shape[1]).astype("float32"), [0] * shape[1]
    if "FLOAT8" not in kind:
        zero[1] = 3
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], axis=1),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    stored = [
        helper.make_tensor("w", code, shape, numbers),
        onnx.numpy_helper.from_array(scale, "s"), helper.make_tensor("z", code, [shape[1]], zero),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [value("x", [2, shape[0]])], [value("y", [2, shape[1]])], stored
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("INT4", -8, 8), ("UINT4", 0, 16), ("FLOAT8E4M3FN", -16, 17), ("FLOAT8E5M2", -4, 5)],
)
def test_weights_of_few_bits(kind: str, low: int, high: int, tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "m.onnx"
    shape = [5, 3]  # 15 elements: the last byte holds one
    w = rng.integers(low, high, shape)
    file = dequantized(kind, w.ravel().tolist(), shape)
    zero = np.array([0, 0 if "FLOAT8" in kind else 3, 0])
    exact = (w - zero) * np.linspace(0.5, 2.0, 3)
    x = rng.normal(size=(2, 5)).astype("float32")
    for raw in (True, False):  # bytes, and numbers in fields
        for t in file.graph.initializer:
            if t.data_type == TensorProto.FLOAT or t.HasField("raw_data") == raw:
                continue
            if raw:
                t.raw_data = bytes(t.int32_data)
                t.ClearField("int32_data")
            else:
                t.int32_data.extend(t.raw_data)
                t.ClearField("raw_data")
        path.write_bytes(file.SerializeToString())
        for engine in ("static", "eager"):
            model = load_onnx(path)
            model.compile(run_eagerly=engine == "eager")
            np.testing.assert_allclose(model.predict(x, verbose=0), x @ exact, rtol=1e-5)
    model = load_onnx(path, trainable=False)
    assert model.trainable_weights == []
    model.save(tmp_path / "m.keras")
    again = kerasish.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(again.predict(x, verbose=0), x @ exact, rtol=1e-5)


def test_few_bits_are_read_by_one_operator_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    file = dequantized("INT4", list(range(-8, 7)), [5, 3])
    file.graph.node.append(helper.make_node("Identity", ["w"], ["copy"]))
    path.write_bytes(file.SerializeToString())
    with pytest.raises(ValueError, match="tensors of int4 are not read"):
        load_onnx(path)
    file = dequantized("INT4", list(range(-8, 7)), [5, 3])
    file.graph.initializer[0].dims[0] = 6
    path.write_bytes(file.SerializeToString())
    with pytest.raises(ValueError, match=r"the tensor 'w' of shape \(6, 3\) has 8 .*, not 9"):
        load_onnx(path)
