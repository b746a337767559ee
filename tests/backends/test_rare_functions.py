"""Rarer element-wise ops in native code against their reference kernels: edges, every dtype."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ml_dtypes import bfloat16
from scipy import special

from kerasish import backends, ops
from kerasish.backends.static import engine
from kerasish.backends.static.machine import machine_code
from kerasish.ops.basic.bessel import i0, i1
from kerasish.ops.op import REGISTRY

_HOST = machine_code.host_target("avx512").level
_ORDER = ["avx512", "avx2", "sse"]
LEVELS = _ORDER[_ORDER.index(_HOST) :] if _HOST in _ORDER else ["generic"]
KINDS = {"bfloat16": bfloat16, "float16": np.float16, "float32": np.float32, "float64": np.float64}
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOAT_EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 7.25, 21.5, 22.0, -22.5, 1e-3, 1e-6, -1e-7, 1e-40,
    -1e-45, 5e-324, 80.0, -95.0, 300.0, 6e4, -6.55e4, 3e38, -1e300, np.inf, -np.inf, np.nan,
]  # fmt: skip


def each(dtypes):
    """Every dtype on this processor; on the older ones two, whose code differs most."""
    some = [dtype for dtype in dtypes if dtype in ("float32", "float16", "int8", "uint64")]
    cases = [(dtype, level) for level in LEVELS for dtype in (some if level != _HOST else dtypes)]
    return pytest.mark.parametrize(("dtype", "level"), cases)


def hold_back(level, monkeypatch):
    monkeypatch.setenv("KERASISH_CPU", level if level in _ORDER else "")
    engine.COMPILED_PLANS.clear()


def numbers(dtype):
    rng = np.random.default_rng(0)
    wide = rng.choice([-1, 1], 200) * 10.0 ** rng.uniform(-8, 4, 200)
    with np.errstate(all="ignore"):
        return np.concatenate([FLOAT_EDGES, rng.uniform(-30, 30, 300), wide]).astype(KINDS[dtype])


def pairs(values):
    edges = len(FLOAT_EDGES)
    grid = np.array(list(itertools.product(values[:edges], repeat=2)), values.dtype)
    rest = values[edges:]
    return np.concatenate([grid[:, 0], rest]), np.concatenate([grid[:, 1], rest[::-1]])


def natively(ops_, *arrays):
    """Compute ops by one step of the static engine, which must need no Python for it."""
    compiled = backends.get("static").compile(lambda *xs: [op(*xs) for op in ops_])
    result = [got.numpy() for got in compiled(*arrays)]
    units = compiled.executables()[0].units
    assert all(unit.native for unit in units), [unit.name for unit in units]
    return result


def reference(op, *arrays):
    with np.errstate(all="ignore"):
        return op.kernel(np, *arrays)


def assert_near(got, expected, dtype, ulps):
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    with np.errstate(all="ignore"):
        fine, exact = got.astype(np.float64), expected.astype(np.float64)
        # The distance between neighbors, also of halves.
        digits = {"bfloat16": 7, "float16": 10, "float32": 23, "float64": 52}[dtype]
        smallest = {"bfloat16": -133, "float16": -24, "float32": -149, "float64": -1074}[dtype]
        unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 1 - digits, smallest))
        wrong = ~(np.abs(fine - exact) <= ulps * unit) & (got != expected) & ~np.isnan(got)
    assert not wrong.any(), (got[wrong][:5], expected[wrong][:5], np.flatnonzero(wrong)[:5])


@each(KINDS)
def test_functions_of_one_number(dtype, level, monkeypatch):
    hold_back(level, monkeypatch)
    x = numbers(dtype)
    # erfc's reference is a rational approximation; where results fade away it keeps fewer digits.
    ulps = {"erfc": 700, "cbrt": 2, "i0": 16, "i1": 16}
    if dtype != "float64":
        ulps = {"erfc": 2, "cbrt": 2, "i0": 1, "i1": 1}
    results = natively([REGISTRY[name] for name in ulps], x)
    for (name, limit), got in zip(ulps.items(), results, strict=True):
        assert_near(got, reference(REGISTRY[name], x), dtype, limit)
        np.testing.assert_array_equal(np.signbit(got[:2]), [False, name in ("cbrt", "i1")])


@each(KINDS)
def test_exact_functions_of_two_numbers(dtype, level, monkeypatch):
    hold_back(level, monkeypatch)
    a, b = pairs(numbers(dtype))
    exact = [ops.fmod, ops.nextafter]
    for op, got in zip(exact, natively(exact, a, b), strict=True):
        expected = reference(op, a, b)
        assert_near(got, expected, dtype, 0)
        there = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[there]), np.signbit(expected[there]))


@each(KINDS)
def test_logaddexp(dtype, level, monkeypatch):
    hold_back(level, monkeypatch)
    a, b = pairs(numbers(dtype))
    (got,) = natively([ops.logaddexp], a, b)
    with np.errstate(all="ignore"):
        wide = np.float64 if dtype != "float64" else np.longdouble
        exact = np.logaddexp(a.astype(wide), b.astype(wide))
        largest = np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
        step = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(
            dtype, np.finfo(KINDS[dtype] if dtype.endswith(("32", "64")) else np.float32).eps
        )
        rounded = exact.astype(KINDS[dtype])
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        apart = np.abs(got.astype(np.float64) - exact.astype(np.float64))
        near = apart <= 4 * step * np.maximum(1, np.minimum(largest, 1e308))
        wrong = ~near & (got != rounded) & ~np.isnan(rounded)
    assert not wrong.any(), (a[wrong][:5], b[wrong][:5], got[wrong][:5], exact[wrong][:5])


def whole_pairs(dtype):
    if dtype.endswith("int8"):
        low = -128 if dtype == "int8" else 0
        every = np.arange(low, low + 256).astype(dtype)
        return np.repeat(every, 256), np.tile(every, 256)
    facts = np.iinfo(dtype)
    edges = [facts.min, facts.min + 1, facts.max, facts.max - 1, facts.max // 2 + 1, 0, 1, 2, 3, 46]
    edges += [] if facts.min == 0 else [-1, -2, -46]
    grid = np.array(list(itertools.product(edges, repeat=2)), dtype)
    rng = np.random.default_rng(0)
    wild = rng.integers(facts.min, facts.max, (500, 2), dtype=dtype, endpoint=True)
    small = rng.integers(0, 100, (500, 2)).astype(dtype)
    many = np.concatenate([grid, wild, small])
    return many[:, 0].copy(), many[:, 1].copy()


@each(INTEGERS)
def test_whole_numbers(dtype, level, monkeypatch):
    hold_back(level, monkeypatch)
    a, b = whole_pairs(dtype)
    whole = [ops.gcd, ops.lcm, ops.fmod]
    for op, got in zip(whole, natively(whole, a, b), strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, reference(op, a, b))


def test_truth_values_are_whole_numbers():
    a, b = np.array([True, False, True]), np.array([True, False, False])
    divisors, multiples = natively([ops.gcd, ops.lcm], a, b)
    assert divisors.tolist() == [1, 0, 1]
    assert multiples.tolist() == [1, 0, 0]


@pytest.mark.parametrize("op", [ops.gcd, ops.lcm, ops.bitwise_and, ops.left_shift])
def test_whole_numbers_only(op):
    x = np.ones(3, "float32")
    with pytest.raises(TypeError, match="supported|did not contain"):
        backends.get("static").compile(lambda x: op(x, x))(x)


def test_bessel_functions_are_exact_and_have_no_gaps():
    x = np.concatenate([np.linspace(-60, 60, 5001), np.linspace(60, 709, 500), [1e-12, 1e-300]])
    for op, exact in ((i0, special.i0), (i1, special.i1)):
        for got in (reference(op, x), *natively([op], x)):
            np.testing.assert_allclose(got, exact(x), rtol=8e-15)
    assert np.isfinite(reference(i0, np.array([713.9])))
    assert reference(i0, np.array([np.inf, -np.inf])).tolist() == [np.inf, np.inf]
    assert reference(i1, np.array([np.inf, -np.inf])).tolist() == [np.inf, -np.inf]


def test_halves_are_rounded_before_their_neighbor_is_taken():
    """In one loop with other ops, too, a bfloat16 is one of bfloat16's numbers."""
    x = np.linspace(1, 2, 33).astype(bfloat16)

    (got,) = natively([lambda x: ops.nextafter(x / np.array(3, bfloat16), x)], x)
    third = (x.astype(np.float32) / 3).astype(bfloat16)
    np.testing.assert_array_equal(got, np.nextafter(third, x))
