"""Element-wise ops: values at corners, promotion of dtypes, and what NumPy or `math` gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerasish import autodiff, ops
from kerasish.errors import UnknownNameError
from kerasish.ops import dtypes

floats = st.floats(-30, 30, allow_nan=False, width=64)


@given(floats)
def test_error_function(x):
    assert ops.erf(np.float64(x)).item() == pytest.approx(math.erf(x), rel=4e-16, abs=1e-300)
    assert ops.erfc(np.float64(x)).item() == pytest.approx(math.erfc(x), rel=1e-13, abs=1e-300)


@given(st.floats(-0.999999, 0.999999))
def test_inverse_error_function(y):
    assert math.erf(ops.erfinv(np.float64(y)).item()) == pytest.approx(y, rel=1e-12, abs=1e-15)


def test_inverse_error_function_at_the_ends():
    result = ops.erfinv(np.array([-1.0, 0.0, 1.0, 2.0])).numpy()
    np.testing.assert_array_equal(result, [-np.inf, 0.0, np.inf, np.nan])


def test_inverse_error_function_next_to_1():
    left = 2.0 ** -np.linspace(14, 53, 200)
    results = [ops.erfinv(sign * (1 - left)).numpy() for sign in (1, -1)]
    np.testing.assert_array_equal(results[0], -results[1])
    expected = 1 - (1 - left)  # what is left after rounding
    np.testing.assert_allclose([math.erfc(y) for y in results[0]], expected, rtol=1e-8)


@given(floats)
def test_sigmoid_and_softplus(x):
    stable = 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))
    assert ops.sigmoid(np.float64(x)).item() == pytest.approx(stable, rel=1e-9, abs=2e-16)
    expected = math.log1p(math.exp(-abs(x))) + max(x, 0)
    assert ops.softplus(np.float64(x)).item() == pytest.approx(expected, rel=1e-14)


@given(floats)
def test_bessel_functions(x):
    i0 = ops.i0(np.float64(x)).item()
    assert i0 == pytest.approx(np.i0(x).item(), rel=1e-12)
    slope = autodiff.grad(ops.i0)(np.float64(x)).item()
    step = 1e-5
    expected = (np.i0(x + step).item() - np.i0(x - step).item()) / (2 * step)
    assert slope == pytest.approx(expected, rel=1e-6, abs=1e-7)


@given(st.integers(-40, 40), st.integers(-40, 40))
def test_whole_numbers(a, b):
    x, y = np.int32(a), np.int32(b)
    assert ops.gcd(x, y).item() == math.gcd(a, b)
    assert ops.lcm(x, y).item() == math.lcm(a, b)
    if b:
        assert ops.floor_divide(x, y).item() == a // b
        assert ops.mod(x, y).item() == a % b
        assert ops.fmod(x, y).item() == math.fmod(a, b)
    if 0 <= b < 6:
        assert ops.power(x, y).item() == a**b
    if a in (-1, 0, 1) and b < 0:
        assert ops.power(x, y).item() == {1: 1, -1: (-1) ** b, 0: 0}[a]


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5], "float32")


ODD_NAMES = "isnan isinf isfinite signbit floor ceil trunc sign absolute negative square exp tanh"


@pytest.mark.parametrize("name", ODD_NAMES.split())
def test_special_numbers_as_in_numpy(name):
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(SPECIAL)
    np.testing.assert_array_equal(getattr(ops, name)(SPECIAL), expected)


@pytest.mark.parametrize("name", ["maximum", "minimum", "equal", "less", "arctan2", "hypot", "fmax",
                                  "fmin", "logaddexp", "heaviside"])  # fmt: skip
def test_special_pairs_as_in_numpy(name):
    a, b = SPECIAL[:, None], SPECIAL
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
    np.testing.assert_allclose(getattr(ops, name)(a, b), expected, rtol=1e-6)


def test_ties_share_the_gradient():
    for f in (ops.maximum, ops.minimum):
        da, db = autodiff.grad(f, argnums=(0, 1))(1.0, 1.0)
        assert (da.item(), db.item()) == (0.5, 0.5)


def test_division_by_zero_is_zero_on_request():
    assert ops.divide_no_nan([1.0, 2.0], [0.0, 4.0]).tolist() == [0.0, 0.5]
    slopes = autodiff.grad(ops.divide_no_nan, argnums=(0, 1))(3.0, 0.0)
    assert [s.item() for s in slopes] == [0.0, 0.0]


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 2.0])
def test_every_derivative_of_a_whole_power_is_finite_at_zero(exponent):
    """x ** 0 has the derivative 0, and so has what is left of the others; no 0 * inf."""

    def by_x(g):
        return lambda x: ops.sum(autodiff.grad(g)(x))

    def f(x):
        return ops.sum(ops.power(x, exponent))

    expected = np.polynomial.Polynomial([0.0] * int(exponent) + [1.0])
    for _ in range(4):
        f, expected = by_x(f), expected.deriv()
        for x in (0.0, -2.0, 1.5):
            assert f(np.array([x])).item() == pytest.approx(expected(x), abs=1e-12)
    slope = autodiff.grad(lambda x: ops.sum(ops.power(x, 0)))
    assert slope(np.array([np.inf, -np.inf, 0.0])).tolist() == [0.0, 0.0, 0.0]


def test_mixed_derivative_of_a_power_with_the_exponent_zero():
    """d/dy (y x ** (y - 1)) is 1 / x where y is 0."""
    by_x = autodiff.grad(lambda x, y: ops.sum(ops.power(x, y)))
    mixed = autodiff.grad(lambda y: by_x(np.array(4.0), y))
    assert mixed(np.array(0.0)).item() == pytest.approx(0.25)
    slopes = autodiff.grad(lambda x, y: ops.sum(ops.power(x, y)), argnums=(0, 1))
    assert [s.item() for s in slopes(np.array(0.0), np.array(0.0))] == [0.0, 0.0]


def test_gradient_of_zero_powers():
    assert autodiff.grad(lambda x: x**2)(0.0).item() == 0.0
    assert autodiff.grad(lambda x: ops.power(x, 1.0))(0.0).item() == 1.0
    assert autodiff.grad(lambda y: ops.power(0.0, y))(2.0).item() == 0.0
    assert autodiff.grad(ops.abs)(0.0).item() == 0.0


# --- dtypes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        ("bool", "int8", "int8"),
        ("uint8", "int8", "int16"),
        ("uint32", "int32", "int64"),
        ("int64", "float16", "float16"),
        ("uint64", "int8", "float32"),
        ("float16", "bfloat16", "float32"),
        ("int32", float, "float32"),
        ("float16", float, "float16"),
        ("int8", int, "int8"),
        ("bool", int, "int32"),
        ("float32", "complex64", "complex64"),
        ("float64", "complex64", "complex128"),
    ],
    ids=str,
)
def test_promotion(a, b, joined):
    assert dtypes.result_type(a, b) == dtypes.result_type(b, a) == joined


def test_python_numbers_are_weak():
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        x = ops.ones((2,), dtype)
        assert (x + 1).dtype == (1.5 * x).dtype == ops.maximum(x, 0).dtype == dtype
    assert (ops.ones((2,), "int8") + 1).dtype == "int8"
    assert (ops.ones((2,), "int8") * 1.5).dtype == "float32"
    assert (ops.ones((2,), "bool") + 1).dtype == "int32"


def test_unknown_dtype_lists_the_nearest():
    with pytest.raises(UnknownNameError, match="'float32'"):
        ops.zeros(2, "flot32")


def test_cast_and_saturate():
    x = np.array([-1.5, 300.7, 2.0], "float32")
    assert ops.cast(x, "int32").tolist() == [-1, 300, 2]
    assert ops.cast(x, "bool").tolist() == [True, True, True]
    assert ops.saturate_cast(x, "uint8").tolist() == [0, 255, 2]
    assert ops.saturate_cast(np.array([70000, -5]), "int16").tolist() == [32767, -5]
    assert ops.saturate_cast(np.float32(1e30), "int32").item() == 2147483520


def test_nextafter_and_view():
    assert ops.nextafter(np.float32(1), np.float32(2)).item() == np.nextafter(
        np.float32(1), np.float32(2)
    )
    assert ops.view(np.float32([1.0]), "int32").item() == 0x3F800000
    with pytest.raises(ValueError, match="view"):
        ops.view(np.zeros((2, 3), "uint8"), "int32")
