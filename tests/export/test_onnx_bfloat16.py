"""bfloat16 in ONNX: onnxruntime's CPU has no operators for it, so copies of the files are run.

A number of bfloat16 is off by up to 2e-3 of itself, and two computations that round in other places
differ by that: 1e-3 can be shown where nothing is rounded, and where all is rounded alike.

- `floats`: a copy in float32 with the same weights computes what a float32 model with these weights
  computes, within 1e-3: the file says the right formula.
- `rounding`: a copy whose operators compute in float32 and round each result to bfloat16, as an
  operator of bfloat16 does. Where our eager engine rounds in the same places, results are equal
  within 1e-3; elsewhere the file is as close to the formula as our engines are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.export.onnx.convert import convert
from kerasish.export.onnx.save import inference_of
from kerasish.ops import dtypes

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

BFLOAT16 = dtypes.array_dtype("bfloat16")


def convolutions(policy: str) -> tuple[Any, Any]:
    x = kerasish.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, padding="same", activation="relu", dtype=policy)(x)
    y = layers.MaxPooling2D(dtype=policy)(layers.BatchNormalization(dtype=policy)(y))
    return x, layers.GlobalAveragePooling2D(dtype=policy)(y)


def products(policy: str) -> tuple[Any, Any]:
    x = y = kerasish.Input((48,))
    for _ in range(3):
        y = layers.Dense(64, activation="relu", dtype=policy)(y)
    return x, layers.Dense(6, dtype=policy)(y)


def attention(policy: str) -> tuple[Any, Any]:
    x = kerasish.Input((6, 16))
    y = layers.MultiHeadAttention(2, 8, dtype=policy)(x, x)
    y = layers.LayerNormalization(dtype=policy)(y)
    return x, layers.Dense(8, activation="gelu", dtype=policy)(y)


def recurrence(policy: str) -> tuple[Any, Any]:
    x = kerasish.Input((6, 16))
    y = layers.LSTM(8, return_sequences=True, dtype=policy)(x)
    return x, layers.GRU(5, dtype=policy)(y)


MAKERS = [convolutions, products, attention, recurrence]
# Models that the eager engine rounds in the same places. (In pure bfloat16 it rounds the steps of a
# batch normalization, which is one operator of the file.)
ALIKE = {(products, "bfloat16"), (products, "mixed_bfloat16"), (convolutions, "mixed_bfloat16")}
Maker = Callable[[str], tuple[Any, Any]]


def model_of(make: Maker, policy: str) -> Any:
    """Return a model whose weights are numbers of bfloat16, all apart; the result is float32."""
    x, y = make(policy)
    model = kerasish.Model(x, layers.Activation("linear", dtype="float32")(y))
    rng = np.random.default_rng(4)
    for v in model.weights:
        low = 0.5 if "variance" in v.name or "gamma" in v.name else -0.5
        v.assign(rng.uniform(low, low + 1, v.shape).astype(BFLOAT16).astype("float32"))
    return model


def rows_of(model: Any, batch: int) -> Any:
    shape = (batch, *model.input_shape[1:])
    numbers = np.random.default_rng(batch).uniform(-1, 1, shape)
    return numbers.astype(BFLOAT16).astype("float32")


def file_of(model: Any) -> Any:
    f, signature = inference_of(model, None)
    proto = convert(f, signature, ["x"], ["y"], 18).proto
    onnx.checker.check_model(proto, full_check=True)
    codes = {t.data_type for t in proto.graph.initializer}
    assert TensorProto.BFLOAT16 in codes
    return proto


def session_of(proto: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def floats(proto: Any) -> Any:
    """Return a copy of a file in float32."""
    result = copy.deepcopy(proto)
    for t in result.graph.initializer:
        if t.data_type == TensorProto.BFLOAT16:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype("float32"), t.name))
    _to_floats(result.graph)
    onnx.checker.check_model(result, full_check=True)
    return result


def _to_floats(graph: Any) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.HasField("g"):
                _to_floats(attribute.g)


def rounding(proto: Any) -> Any:
    """Return a copy of a file whose operators of bfloat16 compute in float32, and round."""
    inferred = onnx.shape_inference.infer_shapes(proto)
    graph = inferred.graph
    values = (*graph.value_info, *graph.input, *graph.output)
    half = {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.BFLOAT16}
    half |= {t.name for t in graph.initializer if t.data_type == TensorProto.BFLOAT16}
    nodes: list[Any] = []
    for i, node in enumerate(graph.node):
        after = []
        if node.op_type != "Cast":
            for names, before in ((node.input, True), (node.output, False)):
                for j, name in enumerate(names):
                    if name not in half:
                        continue
                    names[j] = wide = f"{name}/wide_{i}_{j}"
                    ends = ([name], [wide]) if before else ([wide], [name])
                    to = TensorProto.FLOAT if before else TensorProto.BFLOAT16
                    cast = helper.make_node("Cast", *ends, to=to)
                    (nodes if before else after).append(cast)
        nodes += [node, *after]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(inferred, full_check=True)
    return inferred


def apart(a: Any, b: Any) -> float:
    """Return the largest difference as a share of the largest number."""
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
@pytest.mark.parametrize("make", MAKERS)
def test_the_formula_is_within_a_thousandth(make: Maker, policy: str) -> None:
    model, plain = model_of(make, policy), model_of(make, "float32")
    session = session_of(floats(file_of(model)))
    for batch in (1, 2, 7):
        rows = rows_of(model, batch)
        (result,) = session.run(None, {"x": rows})
        # Constants of the formula are rounded, too: 3e-5.
        assert apart(result, plain.predict(rows, verbose=0)) < 1e-4


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
@pytest.mark.parametrize("make", MAKERS)
def test_results_rounded_after_each_operator(make: Maker, policy: str) -> None:
    model, plain = model_of(make, policy), model_of(make, "float32")
    session = session_of(rounding(file_of(model)))
    for batch in (1, 2, 7):
        rows = rows_of(model, batch)
        (result,) = session.run(None, {"x": rows})
        exact = plain.predict(rows, verbose=0)
        engines = []
        for eagerly in (True, False):
            model.compile(run_eagerly=eagerly)
            engines.append(model.predict(rows, verbose=0))
        if (make, policy) in ALIKE:
            assert apart(result, engines[0]) < 1e-3
        # Numbers have 8 bits: half a step is 2e-3.
        assert apart(result, exact) < 2 * max(2e-3, *(apart(y, exact) for y in engines))


def test_the_evaluator_of_onnx_rounds_so(tmp_path: Any) -> None:
    """What `rounding` does is what an evaluator with bfloat16 does."""
    from onnx.reference import ReferenceEvaluator

    model = model_of(products, "bfloat16")
    proto, rows = file_of(model), rows_of(model, 7)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": rows})
    (result,) = session_of(rounding(proto)).run(None, {"x": rows})
    assert apart(result, expected) < 1e-3
