"""Every op of the registry as ONNX, by its own examples: a translation, or a reason for none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_examples import arguments, call, results

from kerasish.engine import InputSpec
from kerasish.export.onnx.convert import convert
from kerasish.export.onnx.registry import COMPOSED, TRANSLATIONS, UNTRANSLATED
from kerasish.export.onnx.verify import runner
from kerasish.ops.arrays import complexes
from kerasish.ops.basic import movement, pool
from kerasish.ops.op import REGISTRY
from kerasish.tensor import Tensor

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

# Examples that ONNX's operators do not take, though they take others of the op.
BEYOND = {
    complexes.conj: "complex",
    complexes.imag: "complex",
    complexes.real: "complex",
}
# Numbers that a rounding of the operators makes differ more than those of the others.
LOOSE = {"expm1": 1e-5, "erfc": 1e-4, "cbrt": 1e-5}

CASES = [
    pytest.param(op, example, id=f"{name}-{i}")
    for name, op in sorted(REGISTRY.items())
    if op in TRANSLATIONS
    for i, example in enumerate(op.examples)
]


def test_each_op_has_a_translation_or_a_reason() -> None:
    missing = [n for n, op in REGISTRY.items() if op not in TRANSLATIONS and op not in UNTRANSLATED]
    assert missing == []
    assert all(len(reason) > 10 for reason in UNTRANSLATED.values())
    known = {*REGISTRY.values(), "scan_along", "loop", "branch"}
    composed = {type(op).__name__ for op in TRANSLATIONS if op not in known}
    assert composed == {"ComposedOp"} and len(COMPOSED) > 10


def test_the_ops_without_a_translation() -> None:
    """What ONNX cannot say: a new op that joins these is a decision, so it is listed here."""
    assert sorted(op.name for op in UNTRANSLATED) == WITHOUT


WITHOUT = sorted(
    "cholesky_lower eig eigh lu_factor qr singular_values svd_full svd_reduced swaps inv pinv "
    "slogdet solve_matrix join_parts reinterpret random_bits "
    "convolution_kernel_gradient pool_average_gradient pool_max_gradient pool_max_select "
    "gru_gradient lstm_gradient simple_rnn_gradient all_gather all_sum print_values".split()
)


def written(op: Any, arrays: list[Any], attrs: dict[str, Any], folder: Any) -> Any:
    def function(*tensors: Any) -> Any:
        result = call(op, tensors, attrs)
        # Results that only gradients use have no counterpart in ONNX's recurrent operators.
        return result[0] if op.kind == "recurrent" and isinstance(result, tuple) else result

    specs = [InputSpec(shape=a.shape, dtype=str(a.dtype)) for a in arrays]
    names = [f"x{i}" for i in range(len(arrays))]
    named = convert(function, specs, names, [], 18)
    onnx.checker.check_model(named.proto, full_check=True)
    path = folder / "op.onnx"
    path.write_bytes(named.proto.SerializeToString())
    result = runner(str(path))(dict(zip(names, arrays)))
    return result, results(function(*map(Tensor, arrays)))


@pytest.mark.parametrize(("op", "example"), CASES)
def test_equal_to_the_op(op: Any, example: Any, tmp_path: Any) -> None:
    arrays, attrs = arguments(op, example)
    if op in BEYOND and is_beyond(op, arrays, attrs):
        with pytest.raises(ValueError, match=BEYOND[op]):
            written(op, arrays, attrs, tmp_path)
        return
    result, expected = written(op, arrays, attrs, tmp_path)
    assert len(result) == len(expected)
    for a, b in zip(result, map(np.asarray, expected)):
        assert a.shape == b.shape and a.dtype == b.dtype
        largest = max(float(np.abs(b.astype("float64")).max(initial=0)), 1e-6)
        share = LOOSE.get(op.name, 1e-6)
        np.testing.assert_allclose(a, b, rtol=share, atol=share * largest)


def is_beyond(op: Any, arrays: list[Any], attrs: dict[str, Any]) -> bool:
    return arrays[0].dtype.kind == "c"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_pooling_of_whole_numbers(dtype: str, tmp_path: Any) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.max, info.max - 1, info.min, info.min + 1, 3, 5, 7], dtype)
    attrs = {"size": 2, "strides": 1, "padding": "same"}
    (result,), (expected,) = written(pool.pool_max, [x.reshape(1, 7, 1)], attrs, tmp_path)
    np.testing.assert_array_equal(result, np.asarray(expected))


def test_pooling_of_the_widest_whole_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="'pool_max' cannot be written as ONNX: ONNX pools no int"):
        convert(
            lambda x: pool.pool_max(x, size=2), [InputSpec(shape=(1, 4, 1), dtype="int64")],
            ["x"], ["y"],
        )  # fmt: skip


@pytest.mark.parametrize(
    "slices",
    [
        ((1, 6, 2), (0, 3, 1)), ((1, 7, 3), (0, 3, 2)), ((6, None, -1), (1, 2, 1)),
        ((5, None, -3), (2, None, -2)), ((None, None, -2), (0, 3, 1)), ((4, 4, 2), (0, 3, 1)),
        ((0, 7, 6), (0, 1, 2)),
    ],
)  # fmt: skip
def test_places_with_strides(slices: Any, tmp_path: Any) -> None:
    shape = (7, 3)
    part = np.zeros(shape, "float32")[tuple(slice(*s) for s in slices)]
    x = np.arange(1, part.size + 1, dtype="float32").reshape(part.shape)
    attrs = {"shape": shape, "slices": slices}
    (result,), (expected,) = written(movement.unslice, [x], attrs, tmp_path)
    np.testing.assert_array_equal(result, np.asarray(expected))


@pytest.mark.parametrize(("bits", "smallest"), [(3, -6), (2, -14), (7, -100)])
def test_rounded_mantissas(bits: int, smallest: int, tmp_path: Any) -> None:
    """Next to powers of two, halfway between two numbers, and below all normal ones."""
    powers = np.ldexp(1.0, np.arange(max(smallest - 4, -30), 9)).astype("float32")
    near = [np.nextafter(powers, np.float32(0)), powers, np.nextafter(powers, np.float32(np.inf))]
    halves = [powers * np.float32(1 + k * 2.0 ** -(bits + 1)) for k in range(2 ** (bits + 1))]
    x = np.concatenate([*near, *halves, [0]]).astype("float32")
    x = np.concatenate([x, -x])
    attrs = {"bits": bits, "smallest": smallest}
    (result,), (expected,) = written(REGISTRY["round_mantissa"], [x], attrs, tmp_path)
    np.testing.assert_array_equal(result, np.asarray(expected))
