"""Ops that ONNX has no operator for, over all their numbers: both engines and onnxruntime agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import backends, ops
from kerasish.ops.basic import bessel
from kerasish.saving import load_onnx

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


class Applied(kerasish.Layer):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(autocast=False)
        self.function = function

    def call(self, x: Any) -> Any:
        return self.function(*x) if isinstance(x, (list, tuple)) else self.function(x)


def check(
    function: Callable[..., Any], arrays: list[Any], folder: Path, share: float = 1e-5,
    opset: int = 18,
) -> Any:  # fmt: skip
    """Compare onnxruntime, both engines and the model that is read back; return the results."""
    symbols = [kerasish.Input((a.shape[-1],), dtype=str(a.dtype)) for a in arrays]
    given: Any = symbols[0] if len(symbols) == 1 else symbols
    model = kerasish.Model(symbols, Applied(function)(given))
    model.export(folder / "m.onnx", verbose=False, opset_version=opset)
    session = onnxruntime.InferenceSession(str(folder / "m.onnx"))
    again = load_onnx(folder / "m.onnx")
    result = None
    for batch in (1, 2, 7):
        rows = [np.tile(a, (batch, 1)) for a in arrays]
        (result,) = session.run(None, {x.name: a for x, a in zip(session.get_inputs(), rows)})
        assert result.shape[0] == batch
        for m in (model, again):
            for engine in (lambda f: f, backends.get("static").compile):
                run = engine(lambda *tensors, m=m: m(list(tensors) if tensors[1:] else tensors[0]))
                with np.errstate(all="ignore"):
                    tensors = [ops.convert_to_tensor(a, dtype=str(a.dtype)) for a in rows]
                    expected = np.asarray(run(*tensors))
                assert result.dtype == expected.dtype
                tiny = 1.2e-7 if result.dtype == "float16" else 0  # two of its smallest numbers
                np.testing.assert_allclose(result, expected, rtol=share, atol=tiny)
    return result[0]


# Around places where formulas change, near 0, and where results are infinite.
BESSEL = [0.0, -0.0, 1e-30, 1e-3, -0.5, 1.0, 5.0, 9.999, 10.0, 10.001, -12.5, 21.999, 22.0, 30.0,
          60.0, 88.0, -88.0, 91.0, 91.9, 92.5, 100.0, 700.0, 713.0, 714.0, 1e6, -1e6, 3e38, np.inf,
          -np.inf, np.nan]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", [bessel.i0, bessel.i1])
def test_bessel_functions(op: Any, dtype: str, tmp_path: Path) -> None:
    with np.errstate(over="ignore"):
        x = np.array([*BESSEL, *np.linspace(-90, 90, 700), *np.geomspace(1e-6, 30, 300)], dtype)
    result = check(op, [x], tmp_path, {"float16": 1e-3, "float32": 1e-5, "float64": 1e-13}[dtype])
    assert np.isnan(result[np.isnan(x)]).all() and np.isinf(result[np.isinf(x)]).all()
    assert (
        np.sign(result[np.isinf(x)]) == (1 if op is bessel.i0 else np.sign(x[np.isinf(x)]))
    ).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_inverse_of_erf(dtype: str, tmp_path: Path) -> None:
    one = np.array(1, dtype)
    near = [np.nextafter(one, one - one), one - np.finfo(dtype).eps * 4]
    edges = [0, -0.0, 1, -1, *near, 0.85, -0.85, 0.849, 0.8501, 1e-30, 1.0001, -3, 1e30]
    edges += [np.inf, -np.inf, np.nan, 1 - 1e-12, 1 - 2e-16]
    with np.errstate(over="ignore"):
        x = np.array(
            [*edges, *np.linspace(-1, 1, 1001), *(1 - np.geomspace(1e-7, 0.2, 200))], dtype
        )
    share = {"float16": 1e-3, "float32": 1e-5, "float64": 2e-10}[dtype]
    result = check(ops.erfinv, [x], tmp_path, share)
    inside = np.abs(x) < 1
    assert np.isfinite(result[inside]).all() and np.isnan(result[~inside & (np.abs(x) != 1)]).all()
    np.testing.assert_array_equal(result[np.abs(x) == 1], x[np.abs(x) == 1] * np.inf)


WHOLE = {
    "int8": [0, 1, -1, 6, -6, 100, -100, 127, -127, -128, 64],
    "int16": [0, 1, -1, 36, -84, 32767, -32768, 17],
    "int32": [0, 1, -1, 36, -84, 2**31 - 1, -(2**31), 46341, 1836311903, 1134903170],
    "int64": [0, 1, -1, 36, -84, 2**63 - 1, -(2**63), 2**40, 7540113804746346429, 3**30],
    "uint8": [0, 1, 6, 84, 255, 128],
    "uint16": [0, 1, 6, 84, 65535, 32768],
    "uint32": [0, 1, 6, 84, 2**32 - 1, 2**31, 3**20],
}  # fmt: skip


def pairs(dtype: str) -> list[Any]:
    a, b = np.meshgrid(np.array(WHOLE[dtype], dtype), np.array(WHOLE[dtype], dtype))
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    more = rng.integers(info.min, info.max, (2, 50), endpoint=True, dtype=dtype)
    return [np.concatenate([x.ravel(), m]) for x, m in zip((a, b), more)]


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("name", ["gcd", "lcm"])
def test_divisors_and_multiples(name: str, dtype: str, tmp_path: Path) -> None:
    arrays = pairs(dtype)
    result = check(getattr(ops, name), arrays, tmp_path, 0)
    np.testing.assert_array_equal(result, getattr(np, name)(*arrays))


def test_divisors_broadcast_and_may_be_none(tmp_path: Path) -> None:
    x = np.array([[12, 18, -30, 0, 7]], "int32")
    result = check(
        lambda x: ops.lcm(ops.gcd(x, 12), np.array([[4], [0]], "int32")[0]), [x[0]], tmp_path, 0
    )
    np.testing.assert_array_equal(result, np.lcm(np.gcd(x[0], 12), 4))
    check(lambda x: ops.gcd(x, x), [np.zeros(0, "int32")], tmp_path, 0)


def test_divisors_of_the_widest_unsigned_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'gcd' cannot .* runtimes have no remainders of uint64"):
        check(ops.gcd, [np.ones(2, "uint64")] * 2, tmp_path, 0)


@pytest.mark.parametrize("dtype", [*WHOLE, "uint64"])
@pytest.mark.parametrize("name", ["left_shift", "right_shift"])
def test_shifts(name: str, dtype: str, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    numbers = np.array([0, 1, 5, info.max, info.min, info.max - 3, info.min + 77], dtype)
    by = np.array([0, 1, 3, info.bits - 1, info.bits, info.bits + 9, 100], dtype)
    if info.min < 0:
        by = np.append(by, np.array([-1, info.min], dtype))
    a, b = (x.ravel() for x in np.meshgrid(numbers, by))
    result = check(getattr(ops, name), [a, b], tmp_path, 0)
    np.testing.assert_array_equal(result, getattr(np, name)(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighboring_floats(dtype: str, tmp_path: Path) -> None:
    facts = np.finfo(dtype)
    tiny, normal = facts.smallest_subnormal, facts.smallest_normal
    ends = np.array([0, -0.0, tiny, normal, facts.max, np.inf, np.nan, 1, 2, 3.7], dtype)
    x = np.concatenate([ends, -ends])
    a, b = (v.ravel() for v in np.meshgrid(x, x))
    powers = np.ldexp(np.ones(1, dtype), np.arange(facts.minexp - facts.nmant, facts.maxexp))
    powers = powers.astype(dtype)
    around = np.concatenate([powers, np.nextafter(powers, np.array(0, dtype)), powers * 1.7])
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2 ** (8 * powers.itemsize) - 1, 3000, dtype=f"uint{8 * powers.itemsize}")
    from_bits = bits.view(dtype)
    a = np.concatenate([a, around, -around, around, from_bits, from_bits])
    b = np.concatenate(
        [b, np.full(2 * len(around), np.inf), np.zeros(len(around)), np.zeros(3000),
         np.full(3000, -np.inf)]
    ).astype(dtype)  # fmt: skip
    with np.errstate(all="ignore"):
        result = check(ops.nextafter, [a, b], tmp_path, 0)
        expected = np.nextafter(a, b)
    np.testing.assert_array_equal(result, expected)


def test_neighbors_of_halves_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'nextafter' cannot .* neighbors of float16"):
        check(ops.nextafter, [np.ones(2, "float16")] * 2, tmp_path, 0)
