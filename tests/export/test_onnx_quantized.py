"""Quantized layers as ONNX: 4-bit initializers and `DequantizeLinear` where opset 21 has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers, quantizers
from kerasish.export.onnx import save, stored
from kerasish.quantizers import Int4QuantizationConfig, Int8QuantizationConfig

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
from onnx import TensorProto  # noqa: E402

LATEST = min(onnx.defs.onnx_opset_version(), 24)
FOUR = {TensorProto.INT4, TensorProto.UINT4}


def dense(**config: Any) -> Any:
    x = kerasish.Input((37,))
    y = layers.Dense(32, activation="relu")(x)
    model = kerasish.Model(x, layers.Dense(7)(y))  # an odd number: the last byte holds one
    model.quantize(config=Int4QuantizationConfig(**config))
    return model


def einsum(block: int | None, equation: str = "abc,cde->abde", shape: Any = (None, 6, 3)) -> Any:
    x = kerasish.Input((4, 20))
    model = kerasish.Model(x, layers.EinsumDense(equation, shape, bias_axes="e")(x))
    model.quantize(config=Int4QuantizationConfig(block_size=block))
    return model


def table(block: int | None) -> Any:
    """Scores of all words for words: the table serves both ways."""
    ids = kerasish.Input((5,), dtype="int32")
    both = layers.ReversibleEmbedding(11, 9)
    model = kerasish.Model(ids, both(both(ids), reverse=True))
    both.quantize(config=Int4QuantizationConfig(block_size=block))
    return model


def calibrated(config: Any, **options: Any) -> Any:
    data = np.random.default_rng(5).normal(size=(16, 12)).astype("float32")
    model = kerasish.Sequential([kerasish.Input((12,)), layers.Dense(9), layers.Dense(6)])
    structure = {"pre_block_layers": [], "sequential_blocks": [model.layers[0], model.layers[1]]}
    model.quantize(config=config([data], None, quantization_layer_structure=structure, **options))
    return model


def other_order() -> Any:
    """Rows of a group that are not next to each other, as in files of other programs."""
    model = calibrated(quantizers.GPTQConfig, group_size=5)
    model.layers[0].g_idx.assign(np.arange(12) % 3)
    return model


def low_rank() -> Any:
    model = dense(block_size=8)
    model.layers[1].enable_lora(2)
    model.layers[1].lora_kernel_b.assign(np.ones((2, 32), "float32"))
    return model


MAKERS: dict[str, Any] = {
    "one block": lambda: dense(),
    "blocks": lambda: dense(block_size=8),
    "blocks of 32": lambda: dense(block_size=32),
    "columns": lambda: dense(block_size=None),
    "rounded inputs": lambda: dense(
        block_size=None, activation_quantizer=quantizers.AbsMaxQuantizer(axis=-1)
    ),
    "einsum": lambda: einsum(8),
    "einsum of columns": lambda: einsum(None),
    "einsum, no matrices": lambda: einsum(8, "abc,bce->abe", (None, 3)),
    "table": lambda: table(4),
    "table of rows": lambda: table(None),
    "low rank": low_rank,
    "gptq": lambda: calibrated(quantizers.GPTQConfig, group_size=4),
    "gptq, 8 bits": lambda: calibrated(quantizers.GPTQConfig, weight_bits=8, group_size=5),
    "gptq, another order": other_order,
    "awq": lambda: calibrated(quantizers.AWQConfig, group_size=4),
}  # fmt: skip
# What is not computed by `DequantizeLinear`, and why.
OTHERWISE = {
    "rounded inputs": "a product of integers",
    "table of rows": "integers are divided by scales",
    "gptq, another order": "a layer's rows of a group are not next to each other",
}


def inputs_of(model: Any, batch: int) -> Any:
    rng, spec = np.random.default_rng(batch), model.inputs[0]
    shape = (batch, *spec.shape[1:])
    if spec.dtype == "int32":
        return rng.integers(0, 11, shape).astype("int32")
    return rng.uniform(-1, 1, shape).astype("float32")


def same(result: Any, expected: Any) -> None:
    largest = float(np.abs(expected).max())
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("opset", [18, 21, LATEST])
@pytest.mark.parametrize("kind", MAKERS)
def test_equal_for_batches_of_1_2_and_7(kind: str, opset: int, tmp_path: Path) -> None:
    kerasish.utils.set_random_seed(0)
    model = MAKERS[kind]()
    model.export(tmp_path / "m.onnx", verbose=False, opset_version=opset)
    graph = onnx.load(tmp_path / "m.onnx").graph
    kinds = {n.op_type for n in graph.node}
    codes = {t.data_type for t in graph.initializer}
    if "8 bits" not in kind:
        assert bool(codes & FOUR) == (opset >= 21)
    if kind != "gptq, another order":  # its second layer has the usual order
        assert ("DequantizeLinear" in kinds) == (opset >= 21 and kind not in OTHERWISE)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    again = kerasish.saving.load_onnx(tmp_path / "m.onnx") if kind not in OTHERWISE else None
    for batch in (1, 2, 7):
        rows = inputs_of(model, batch)
        (result,) = session.run(None, {session.get_inputs()[0].name: rows})
        for eagerly in (False, True):
            model.compile(run_eagerly=eagerly)
            expected = model.predict(rows, verbose=0)
            same(result, expected)
            if again is not None:
                again.compile(run_eagerly=eagerly)
                same(again.predict(rows, verbose=0), expected)


@pytest.mark.parametrize("opset", [18, 21])
def test_weights_take_as_many_bits_as_they_have(opset: int, tmp_path: Path) -> None:
    sizes = {}
    for name, config in {
        "int4": Int4QuantizationConfig(block_size=32),
        "int8": Int8QuantizationConfig(activation_quantizer=None),
    }.items():
        x = kerasish.Input((256,))
        model = kerasish.Model(x, layers.Dense(256, use_bias=False)(x))
        model.quantize(config=config)
        model.export(tmp_path / "m.onnx", verbose=False, opset_version=opset)
        sizes[name] = (tmp_path / "m.onnx").stat().st_size
        rows = inputs_of(model, 3)
        session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
        (result,) = session.run(None, {session.get_inputs()[0].name: rows})
        same(result, model.predict(rows, verbose=0))
    assert 256 * 256 <= sizes["int8"] < 256 * 256 + 4096
    scales = 8 * 256 * 5
    assert 256 * 128 <= sizes["int4"] < 256 * 128 + scales + 6144


def test_zero_points_beyond_4_bits(tmp_path: Path) -> None:
    """A zero point that no layer here makes, though a file may hold it: stored in 8 bits."""
    model = dense(block_size=8)
    zero = np.array(model.layers[1].kernel_zero)
    zero[0, 0] = 9
    model.layers[1].kernel_zero.assign(zero)
    model.export(tmp_path / "m.onnx", verbose=False, opset_version=21)
    codes = [t.data_type for t in onnx.load(tmp_path / "m.onnx").graph.initializer]
    assert codes.count(TensorProto.INT8) == 2 and codes.count(TensorProto.INT4) == 2
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    rows = inputs_of(model, 3)
    (result,) = session.run(None, {session.get_inputs()[0].name: rows})
    same(result, model.predict(rows, verbose=0))


def test_4_bits_in_a_file_of_their_own(tmp_path: Path) -> None:
    x = kerasish.Input((65,))
    model = kerasish.Model(x, layers.Dense(63)(x))
    model.quantize(config=Int4QuantizationConfig(block_size=None))
    model.export(tmp_path / "m.onnx", verbose=False, opset_version=21, external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_size == -(-65 * 63 // 2)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    rows = inputs_of(model, 3)
    (result,) = session.run(None, {session.get_inputs()[0].name: rows})
    expected = model.predict(rows, verbose=0)
    same(result, expected)
    same(kerasish.saving.load_onnx(tmp_path / "m.onnx").predict(rows, verbose=0), expected)


def test_the_limit_of_a_file_counts_half_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dense(block_size=None)
    monkeypatch.setattr(save, "_MOST_INSIDE", 37 * 16 + 32 * 4 + 4 * (32 + 32 + 7 + 7))
    model.export(tmp_path / "m.onnx", verbose=False, opset_version=21)
    assert not (tmp_path / "m.onnx.data").exists()


@pytest.mark.parametrize("name", ["int4", "uint4"])
@pytest.mark.parametrize("count", [0, 1, 6, 7])
def test_half_bytes_are_those_of_onnx(name: str, count: int) -> None:
    low, high = stored.HALVES[name]
    array = stored.halves(np.arange(low, low + count) if count else np.zeros(0, "int8"), name)
    message = stored.tensor(onnx, "w", array)
    back = onnx.numpy_helper.to_array(message)
    assert back.dtype == array.dtype and message.raw_data == stored.content(array).tobytes()
    assert len(message.raw_data) == stored.size_of(array)
    np.testing.assert_array_equal(back.astype("int32"), np.arange(low, low + count))
    assert high - low == 15
