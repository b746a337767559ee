"""Factorizations of matrices as other ops: equal to LAPACK's, in exported models as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_examples import arguments, call, results

import kerasish
from kerasish import InputSpec, layers, ops
from kerasish.export.factorize import EXPANSIONS, LARGEST, expansion_of
from kerasish.export.tracing import ExpandingTracer
from kerasish.graph.interpret import interpret
from kerasish.graph.trace import trace_by
from kerasish.ops.algebra import solving
from kerasish.tensor import Tensor

CASES = [
    pytest.param(op, example, id=f"{op.name}-{i}")
    for op in EXPANSIONS
    for i, example in enumerate(op.examples)
]


def expanded(op: Any, arrays: list[Any], attrs: dict[str, Any]) -> list[Any]:
    """Return what the steps of an op give."""
    traced = trace_by(ExpandingTracer(), lambda *t: call(op, t, attrs), *map(Tensor, arrays))
    assert op not in [node.op for node in traced.graph.nodes]
    return interpret(traced.graph, arrays)


@pytest.mark.parametrize(("op", "example"), CASES)
def test_equal_to_lapack(op: Any, example: Any) -> None:
    arrays, attrs = arguments(op, example)
    for dtype, share in (("float64", 1e-13), ("float32", 1e-6), ("float16", 1e-3)):
        given = [a.astype(dtype) for a in arrays]
        expected = results(call(op, [Tensor(a) for a in given], attrs))
        for a, b in zip(expanded(op, given, attrs), map(np.asarray, expected), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            atol = share * max(float(np.abs(b.astype("float64")).max()), 1e-6)
            np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=0, atol=atol)


@pytest.mark.parametrize("op", EXPANSIONS, ids=lambda op: op.name)
def test_the_largest_matrices(op: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, LARGEST, LARGEST))
    if op.name == "cholesky_lower":
        x = x @ np.swapaxes(x, -1, -2)
    arrays = [x, rng.normal(size=(2, LARGEST, 3))] if op is solving.solve_matrix else [x]
    attrs = {"mode": "reduced"} if op.name == "qr" else {}
    expected = results(call(op, [Tensor(a) for a in arrays], attrs))
    for a, b in zip(expanded(op, arrays, attrs), map(np.asarray, expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


def test_larger_and_empty_matrices_are_left_to_lapack() -> None:
    for size in (0, LARGEST + 1):
        assert expansion_of(solving.inv, [np.zeros((2, size, size))]) is None
    assert expansion_of(solving.inv, [np.zeros((2, LARGEST, LARGEST))]) is not None


def test_rows_are_swapped_and_columns_of_zeros_stay() -> None:
    x = np.float64([[0, 2, 1], [3, 0, 0], [0, 0, 4]])
    for op in (solving.inv, solving.det):
        (a,) = expanded(op, [x], {})
        np.testing.assert_allclose(a, np.asarray(op(Tensor(x))), atol=1e-15)
    singular = np.float64([[1, 2, 3], [2, 4, 6], [0, 0, 0]])
    assert expanded(solving.det, [singular], {})[0] == 0
    sign, size = expanded(solving.slogdet, [singular], {})
    assert sign == 0 and size == -np.inf
    assert not np.isfinite(expanded(solving.inv, [singular], {})[0]).all()


def solved() -> Any:
    """Return a model of matrices: x y = b, a determinant and an orthonormal basis."""
    x = kerasish.Input((4, 4))
    y = ops.solve(x + 4.0 * ops.eye(4), layers.Dense(2)(x))
    size = ops.linalg.det(x)[:, None, None]
    return kerasish.Model(x, [y, ops.qr(x)[1] * size, ops.cholesky(x @ ops.swapaxes(x, 1, 2))])


def test_as_onnx_for_batches_of_1_2_and_7(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = solved()
    model.export(tmp_path / "m.onnx", verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    for batch in (1, 2, 7):
        x = np.random.default_rng(batch).normal(size=(batch, 4, 4)).astype("float32")
        found = session.run(None, {session.get_inputs()[0].name: x})
        for a, b in zip(found, model.predict(x, verbose=0), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())


def test_open_matrices_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    x = kerasish.Input((None, 3))
    model = kerasish.Model(x, ops.qr(x)[1])
    with pytest.raises(ValueError, match="open"):
        model.export(tmp_path / "m.onnx", input_signature=[InputSpec(shape=(None, None, 3))])
