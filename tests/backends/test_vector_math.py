"""Every function of one number against NumPy and SciPy: values, NaN, infinities, subnormals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from kerasish.backends.static.machine import machine_code

_HOST = machine_code.host_target("avx512").level
_ORDER = ["avx512", "avx2", "sse"]
LEVELS = _ORDER[_ORDER.index(_HOST) :] if _HOST in _ORDER else ["generic"]
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 2.0, 1e-40, -1e-40, 1e38, -1e38]


def samples(dtype):
    """Numbers over the whole range, denser where functions bend."""
    rng = np.random.default_rng(0)
    near = np.concatenate([rng.uniform(-a, a, 3000) for a in (1e-3, 0.5, 2, 10, 90)])
    size = 45 if dtype == "float32" else 300
    wide = rng.choice([-1, 1], 3000) * 10.0 ** rng.uniform(-size, min(size, 38), 3000)
    with np.errstate(over="ignore", under="ignore"):
        return np.concatenate([EDGES, near, wide]).astype(dtype)


def ulps(got, exact, dtype):
    """Distance in units in the last place of `dtype`; NaN and infinities must agree."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        same = (got == rounded) | np.isnan(got)
        unit = np.spacing(np.maximum(np.abs(rounded), np.finfo(dtype).tiny).astype(dtype))
        distance = np.abs(got.astype(np.longdouble) - exact) / unit
        return np.where(same, 0, distance)


FUNCTIONS = {
    "exp": (np.exp, 2, 3),
    "expm1": (np.expm1, 2, 3),
    "log": (np.log, 2, 3),
    "log1p": (np.log1p, 3, 4),
    "log2": (np.log2, 1, 2),
    "log10": (np.log10, 1, 2),
    "tanh": (np.tanh, 5, 6),
    "sigmoid": (lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x))), 4, 6),
    "softplus": (lambda x: np.logaddexp(x, 0), 4, 6),
    "erf": (lambda x: special.erf(x.astype(np.float64)), 3, 3),
    "erfc": (np.vectorize(lambda x: math.erfc(float(x))), 2, 3),
    "sin": (np.sin, 2, 2),
    "cos": (np.cos, 2, 2),
    "tan": (np.tan, 1, 2),
    "sqrt": (np.sqrt, 1, 1),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2, 2),
    "reciprocal": (lambda x: 1 / x, 1, 1),
    "arctan": (np.arctan, 1, 2),
    "arcsin": (np.arcsin, 1, 2),
    "sinh": (np.sinh, 1, 3),
    "cosh": (np.cosh, 1, 3),
    "arcsinh": (np.arcsinh, 1, 3),
    "floor": (np.floor, 0, 0),
    "ceil": (np.ceil, 0, 0),
    "rint": (np.rint, 0, 0),
    "trunc": (np.trunc, 0, 0),
    "absolute": (np.abs, 0, 0),
    "negative": (np.negative, 0, 0),
    "sign": (np.sign, 0, 0),
    "square": (np.square, 1, 1),
    "relu": (lambda x: np.maximum(x, 0), 0, 0),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_of_one_number_are_as_exact_as_stated(apply_op, name, dtype, level):
    function, single, double = FUNCTIONS[name]
    x = samples(dtype)
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.longdouble))
        if np.asarray(exact).dtype != np.longdouble:
            exact = np.asarray(exact).astype(np.longdouble)
    got = apply_op(name, [x], out=dtype, target=machine_code.host_target(level))
    distance = ulps(got, exact, dtype)
    worst = int(distance.argmax())
    limit = (single if dtype == "float32" else double) + 0.01
    assert distance[worst] <= limit, (x[worst], got[worst], exact[worst], distance[worst])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers(apply_op, dtype, level):
    rng = np.random.default_rng(1)
    bases = np.concatenate([EDGES, rng.uniform(-4, 4, 400), np.arange(-5, 6)])
    exponents = np.concatenate([EDGES, rng.uniform(-9, 9, 30), np.arange(-7, 8)])
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(bases, exponents))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    got = apply_op("power", [x, y], out=dtype, target=machine_code.host_target(level))
    distance = ulps(got, exact, dtype)
    worst = int(distance.argmax())
    assert distance[worst] <= 1.01, (x[worst], y[worst], got[worst], exact[worst])


def test_signed_zeros_stay(apply_op):
    zeros = np.array([0.0, -0.0], np.float32)
    for name in ("tanh", "erf", "expm1", "log1p", "sin", "negative", "rint", "sqrt", "arcsinh"):
        expected = FUNCTIONS[name][0](zeros) if name in FUNCTIONS else zeros
        got = apply_op(name, [zeros])
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected), err_msg=name)


def test_erfinv(apply_op):
    x = np.concatenate([np.linspace(-0.9999, 0.9999, 501), [1, -1, 1.5, np.nan, 0]])
    for dtype, tolerance in (("float32", 3e-7), ("float64", 1e-14)):
        got = apply_op("erfinv", [x.astype(dtype)], out=dtype)
        np.testing.assert_allclose(got, special.erfinv(x.astype(dtype)), rtol=tolerance)
    edge = 1 - 2.0 ** -np.linspace(14, 53, 200)
    edge = np.concatenate([edge, -edge])
    got = apply_op("erfinv", [edge], out="float64")
    np.testing.assert_allclose(got, special.erfinv(edge), rtol=1e-10)


def test_huge_angles_are_reduced_exactly(apply_op):
    x = np.array([1e10, 3e20, -1e38, 123456.0, 1e9], np.float32)
    np.testing.assert_allclose(apply_op("sin", [x]), np.sin(x.astype(np.float64)), rtol=3e-7)


def test_elements_below_vector_size(apply_op):
    for n in (0, 1, 3, 8, 17):
        x = np.linspace(0.1, 1, n).astype(np.float32)
        np.testing.assert_allclose(apply_op("exp", [x]), np.exp(x), rtol=2e-7)
