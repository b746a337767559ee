"""`Model.export("m.onnx")`: names, dimensions, options, refusals; nothing is half done."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import InputSpec, layers, ops
from kerasish.export.onnx import convert, save, verify

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def dims(values: Any) -> dict[str, list[Any]]:
    return {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values
    }


def dense() -> Any:
    return kerasish.Sequential([kerasish.Input((4,), name="x"), layers.Dense(3, name="y")])


def test_names_and_symbolic_dimensions(tmp_path: Path, capsys: Any) -> None:
    a = kerasish.Input((None, 4), name="series")
    b = kerasish.Input((4,), name="facts")
    y = layers.LSTM(4, return_sequences=True, name="steps")(a)
    z = layers.Dense(2, name="total")(layers.Add()([ops.mean(y, 1), b]))
    model = kerasish.Model([a, b], [y, z])
    model.export(tmp_path / "m.onnx")
    assert "m.onnx" in capsys.readouterr().out
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert dims(graph.input) == {"series": ["batch", "input0_axis1", 4], "facts": ["batch", 4]}
    assert dims(graph.output) == {"steps": ["batch", "input0_axis1", 4], "total": ["batch", 2]}
    stored = {t.name for t in graph.initializer}
    assert "total/kernel" in stored and "total/bias" in stored


def test_dicts_and_subclassed_models(tmp_path: Path) -> None:
    x = kerasish.Input((4,), name="a")
    model = kerasish.Model({"a": x}, {"p": layers.Dense(2, name="p")(x)})
    model.export(tmp_path / "m.onnx", verbose=False)
    assert set(dims(onnx.load(tmp_path / "m.onnx").graph.output)) == {"p"}

    class Own(kerasish.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.inner(x)

    own = Own()
    own(np.zeros((1, 4), "float32"))
    with pytest.raises(ValueError, match="input_signature is needed"):
        own.export(tmp_path / "n.onnx")
    signature = [InputSpec(shape=(None, 4), dtype="float32")]
    own.export(tmp_path / "n.onnx", verbose=False, input_signature=signature)
    assert dims(onnx.load(tmp_path / "n.onnx").graph.input) == {"input_0": ["batch", 4]}


def test_dropout_and_augmentation_do_nothing(tmp_path: Path) -> None:
    x = kerasish.Input((8, 8, 3))
    y = layers.RandomRotation(0.2)(layers.Dropout(0.5)(x))
    kerasish.Model(x, layers.Conv2D(2, 3)(y)).export(tmp_path / "m.onnx", verbose=False)
    kinds = [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]
    assert kinds == ["Transpose", "Conv", "Transpose"]


@pytest.mark.parametrize("opset", [18, 20, 21, 23])
def test_opsets(opset: int, tmp_path: Path) -> None:
    x = kerasish.Input((None, 8))
    y = layers.RMSNormalization()(layers.Dense(8, activation="gelu")(x))
    model = kerasish.Model(x, layers.LayerNormalization()(layers.GRU(4)(y)))
    model.export(tmp_path / "m.onnx", verbose=False, opset_version=opset)
    proto = onnx.load(tmp_path / "m.onnx")
    assert [(e.domain, e.version) for e in proto.opset_import] == [("", opset)]
    kinds = {n.op_type for n in proto.graph.node}
    assert ("Gelu" in kinds) == (opset >= 20)
    assert ("RMSNormalization" in kinds) == (opset >= 23)


def plain_attention() -> Any:
    x = kerasish.Input((None, 8))
    return kerasish.Model(x, layers.MultiHeadAttention(2, 4)(x, x))


def causal_attention() -> Any:
    x = kerasish.Input((5, 8))
    return kerasish.Model(x, layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True))


def masked_attention() -> Any:
    ids = kerasish.Input((7,), dtype="int32")
    x = layers.Embedding(5, 8, mask_zero=True)(ids)
    y = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    return kerasish.Model(ids, layers.GroupQueryAttention(4, 4, 2)(y, x))


def biased_attention() -> Any:
    x, bias = kerasish.Input((6, 2, 4)), kerasish.Input((2, 6, 6))
    y = ops.dot_product_attention(x, x, x, bias=bias)
    y = ops.dot_product_attention(y, x, x, mask=bias[:, :1] > 0.6)  # some targets have no source
    return kerasish.Model([x, bias], ops.dot_product_attention(y, x, x, is_causal=True, scale=2.0))


@pytest.mark.parametrize("make", [
    plain_attention, causal_attention, masked_attention, biased_attention,
])  # fmt: skip
@pytest.mark.parametrize("opset", [22, 23, 24])
def test_attention_is_one_operator_from_opset_23_on(make: Any, opset: int, tmp_path: Path) -> None:
    model = make()
    model.export(tmp_path / "m.onnx", verbose=False, opset_version=opset)
    kinds = [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]
    assert ("Attention" in kinds) == (opset >= 23) != ("Softmax" in kinds)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    rng = np.random.default_rng(0)
    inputs = []
    for x in model.inputs:
        shape = (3, *(n or 4 for n in x.shape[1:]))
        draw = rng.integers(0, 3, shape) if x.dtype == "int32" else rng.normal(size=shape)
        inputs.append(draw.astype(x.dtype))  # among the ids are sequences that begin with a mask
    named = dict(zip([i.name for i in session.get_inputs()], inputs))
    (result,) = session.run(None, named)
    expected = model.predict(inputs if len(inputs) > 1 else inputs[0], verbose=0)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    again = kerasish.saving.load_onnx(tmp_path / "m.onnx")
    read = again.predict(inputs if len(inputs) > 1 else inputs[0], verbose=0)
    np.testing.assert_allclose(read, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 1000, "18", 18.0])
def test_opsets_that_are_not_written(opset: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="opset_version is a number from 18 to"):
        dense().export(tmp_path / "m.onnx", opset_version=opset)


class Inverse(kerasish.Layer):
    def call(self, x: Any) -> Any:
        return ops.linalg.inv(x)


def test_what_onnx_cannot_say_is_refused_with_the_layer(tmp_path: Path) -> None:
    x = kerasish.Input((33, 33))
    model = kerasish.Model(x, Inverse(name="turned")(x), name="m")
    (tmp_path / "m.onnx").write_bytes(b"old")
    message = r"layer 'm/turned': the op 'inv' cannot be written as .* 1 to 32 rows and columns"
    with pytest.raises(ValueError, match=message):
        model.export(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_open_sizes_that_are_rounded_are_refused_with_the_layer(tmp_path: Path) -> None:
    x = kerasish.Input((None, 3))
    model = kerasish.Model(x, layers.Conv1D(2, 3, strides=2, padding="same", name="c")(x), name="m")
    with pytest.raises(ValueError, match="layer 'm/c': sizes are left open"):
        model.export(tmp_path / "m.onnx")
    steps = kerasish.Input((None, 4))
    looped = kerasish.Model(steps, layers.LSTM(3, activation="relu", name="l")(steps), name="m")
    with pytest.raises(ValueError, match="the number of steps of the layer 'm/l.* depends on them"):
        looped.export(tmp_path / "m.onnx")


def test_nothing_is_written_where_results_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(path: str) -> Any:
        run = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run
        return lambda feeds: [y + 0.01 for y in run(None, feeds)]

    monkeypatch.setattr(verify, "runner", wrong)
    with pytest.raises(ValueError, match="output 'y' for a batch of 1: the largest difference"):
        dense().export(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="the largest difference"):
        dense().export(tmp_path / "m.onnx", external_data=True)
    assert not list(tmp_path.iterdir())
    dense().export(tmp_path / "m.onnx", verify=False, verbose=False)
    assert (tmp_path / "m.onnx").is_file()


@pytest.mark.parametrize("mode", ["int8", "int4", "float8", "float16", "mixed_float16"])
def test_fewer_bits_for_batches_of_1_2_and_7(mode: str, tmp_path: Path) -> None:
    kerasish.utils.set_random_seed(0)
    x = kerasish.Input((20,))
    policy = mode if "16" in mode else None
    y = layers.Dense(3, dtype=policy)(layers.Dense(33, activation="relu", dtype=policy)(x))
    model = kerasish.Model(x, layers.Activation("linear", dtype="float32")(y))
    if policy is None:
        model.quantize(mode)
    model.export(tmp_path / "m.onnx", verbose=False)  # and verifies
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    for batch in (1, 2, 7):
        rows = np.random.default_rng(batch).uniform(-1, 1, (batch, 20)).astype("float32")
        (result,) = session.run(None, {session.get_inputs()[0].name: rows})
        expected = model.predict(rows, verbose=0)
        share = 1e-3 if policy else 1e-5
        np.testing.assert_allclose(result, expected, rtol=0, atol=share * np.abs(expected).max())


def test_external_data(tmp_path: Path) -> None:
    x = kerasish.Input((64,))
    model = kerasish.Model(x, layers.Dense(32)(x))
    model.export(tmp_path / "m.onnx", external_data=True, verbose=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx").stat().st_size < 1000
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    rows = np.random.default_rng(0).uniform(-1, 1, (3, 64)).astype("float32")
    (result,) = session.run(None, {session.get_inputs()[0].name: rows})
    np.testing.assert_allclose(result, model(rows), atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "bfloat16", "int8"])
def test_weights_beyond_the_limit_of_a_file_lie_beside_it(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kerasish.utils.set_random_seed(0)
    x = kerasish.Input((64,))
    made = {} if policy == "int8" else {"dtype": policy}
    y = layers.Dense(40, activation="relu", **made)(x)
    model = kerasish.Model(x, layers.Dense(40, **made)(y))
    if policy == "int8":
        model.quantize("int8")
    size = sum(v.numpy().nbytes for v in model.weights)
    monkeypatch.setattr(save, "_MOST_INSIDE", size + 4096)
    model.export(tmp_path / "inside.onnx", verbose=False)
    assert not (tmp_path / "inside.onnx.data").exists()
    monkeypatch.setattr(save, "_MOST_INSIDE", size // 2)
    model.export(tmp_path / "m.onnx", verbose=False)
    assert (tmp_path / "m.onnx.data").stat().st_size >= 64 * 40
    assert (tmp_path / "m.onnx").stat().st_size < (tmp_path / "inside.onnx").stat().st_size
    both = [onnx.load(tmp_path / name) for name in ("inside.onnx", "m.onnx")]
    arrays = [[onnx.numpy_helper.to_array(t) for t in p.graph.initializer] for p in both]
    assert [(a.dtype, a.tobytes()) for a in arrays[0]] == [
        (a.dtype, a.tobytes()) for a in arrays[1]
    ]
    read = kerasish.saving.load_onnx(tmp_path / "m.onnx")
    rows = np.random.default_rng(0).uniform(-1, 1, (3, 64)).astype("float32")
    np.testing.assert_allclose(
        read.predict(rows, verbose=0), model.predict(rows, verbose=0), atol=0.05
    )
    with pytest.raises(ValueError, match="an ONNX file holds at most"):
        model.export(tmp_path / "n.onnx", external_data=False)
    assert not (tmp_path / "n.onnx").exists()


def test_without_the_package_the_message_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.import_module

    def absent(name: str) -> Any:
        if name.partition(".")[0] == "onnx":
            raise ImportError(name)
        return find(name)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'kerasish\[onnx\]'"):
        dense().export(tmp_path / "m.onnx")


def test_control_flow(tmp_path: Path) -> None:
    class Doubling(kerasish.Layer):
        def call(self, x: Any) -> Any:
            (y,) = ops.while_loop(lambda a: ops.sum(a) < 100, lambda a: (a * 2 + 1,), (x,))
            y = ops.cond(ops.sum(y) > 110, lambda: y - 1, lambda: y * 2)
            return ops.fori_loop(0, 20, lambda i, a: a + ops.cast(i, "float32"), y)

    x = kerasish.Input((4,))
    kerasish.Model(x, Doubling()(x)).export(tmp_path / "m.onnx", verbose=False)
    kinds = {n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node}
    assert {"Loop", "If", "Scan"} <= kinds


def test_masks(tmp_path: Path) -> None:
    x = kerasish.Input((None,), dtype="int32")
    y = layers.Embedding(3, 4, mask_zero=True)(x)
    y = layers.GRU(3)(layers.Bidirectional(layers.LSTM(3, return_sequences=True))(y))
    kerasish.Model(x, y).export(tmp_path / "m.onnx", verbose=False)
    assert "Scan" in {n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node}


def test_the_parts_have_one_purpose() -> None:
    f, signature = save.inference_of(dense(), None)
    named = convert.convert(f, signature, ["x"], ["y"])
    assert named.inputs == [("x", "float32", ("batch", 4))]
    assert named.outputs == [("y", "float32", ("batch", 3))]
