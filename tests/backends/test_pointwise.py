"""Convolutions by kernels of one pixel as products, against NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from kerasish import ops
from kerasish.autodiff import grad
from kerasish.backends import onednn
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering.convolutions import ConvolutionUnit
from kerasish.ops.basic.convolution import convolution

pytestmark = pytest.mark.skipif(bool(onednn.available()), reason="oneDNN computes the products")


class Case(NamedTuple):
    x: tuple[int, ...]
    filters: int
    strides: tuple[int, ...]


CASES = [
    Case((2, 6, 6, 5), 7, (1, 1)),
    Case((3, 6, 5, 32), 48, (2, 3)),
    Case((2, 7, 11, 3), 4, (2, 2)),
    Case((1, 12, 1, 16), 64, (4, 1)),
    Case((8, 9, 6), 33, (2,)),
    Case((2, 3, 4, 5, 8), 6, (1, 2, 2)),
    Case((40, 3, 3, 64), 96, (1, 1)),
]


@pytest.fixture(autouse=True)
def compiled_again():
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


def numbers(case):
    """Return x, the kernel, a bias and the gradient of the results: small integers."""
    rng = np.random.default_rng(0)
    places = [-(-size // step) for size, step in zip(case.x[1:-1], case.strides)]
    shapes = (
        case.x, (*(1,) * len(places), case.x[-1], case.filters), (case.filters,),
        (case.x[0], *places, case.filters),
    )  # fmt: skip
    return [rng.integers(-3, 4, shape).astype("float32") for shape in shapes]


def run(function, *arrays):
    """Return the results, and the units that are convolutions of the library."""
    step = Static().compile(function)
    results = step(*map(ops.convert_to_tensor, arrays))
    units = [unit for e in step.executables() for unit in e.units]
    return results, [unit for unit in units if isinstance(unit, ConvolutionUnit)]


def read(case, x):
    return x[(slice(None), *(slice(None, None, step) for step in case.strides))]


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results(case, padding):
    x, kernel, bias, _ = numbers(case)

    def convolve(x, kernel, bias):
        return ops.conv(x, kernel, strides=case.strides, padding=padding) + bias

    result, convolutions = run(convolve, x, kernel, bias)
    expected = read(case, x) @ kernel.reshape(kernel.shape[-2:]) + bias
    np.testing.assert_array_equal(result, expected)
    assert not convolutions


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients(case):
    x, kernel, _, dy = numbers(case)

    def gradients(x, kernel, dy):
        def loss(x, kernel):
            return ops.sum(ops.conv(x, kernel, strides=case.strides) * dy)

        return grad(loss, (0, 1))(x, kernel)

    (by_x, by_kernel), convolutions = run(gradients, x, kernel, dy)
    expected = np.zeros_like(x)
    read(case, expected)[...] = dy @ kernel.reshape(kernel.shape[-2:]).T
    np.testing.assert_array_equal(by_x, expected)
    rows = read(case, x).reshape(-1, case.x[-1])
    expected = rows.T @ dy.reshape(-1, case.filters)
    np.testing.assert_array_equal(by_kernel, expected.reshape(kernel.shape))
    assert not convolutions


def test_a_convolution_is_added_to_another_value():
    case = CASES[0]
    x, kernel, _, dy = numbers(case)
    result, _ = run(lambda x, kernel, y: y + ops.conv(x, kernel), x, kernel, dy)
    np.testing.assert_array_equal(result, dy + x @ kernel.reshape(kernel.shape[-2:]))


def test_pixels_that_are_not_read_may_be_nan():
    case = CASES[1]
    x, kernel, _, _ = numbers(case)
    x[:, 1], x[0, 0, 3] = np.nan, np.inf
    result, _ = run(lambda x, kernel: ops.conv(x, kernel, strides=case.strides), x, kernel)
    result = np.asarray(result)
    assert np.isfinite(result[1:]).all() and np.isfinite(result[0, 1:]).all()
    assert not np.isfinite(result[0, 0, 1]).any()


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((1, 7, 7, 4), (1, 1, 4, 8), {}),  # a larger image
        ((1, 4, 4, 4), (2, 1, 4, 8), {}),
        ((1, 4, 4, 4), (1, 1, 2, 8), {"groups": 2}),
        ((1, 3, 3, 4), (1, 1, 4, 8), {"padding": ((1, 0), (0, 1))}),
    ],
)
def test_other_convolutions(shape, kernel, options):
    rng = np.random.default_rng(1)
    x, weights = (rng.integers(-3, 4, s).astype("float32") for s in (shape, kernel))
    given = {"strides": (1, 1), "dilation": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1}
    given |= options
    result, convolutions = run(lambda x, weights: convolution(x, weights, **given), x, weights)
    np.testing.assert_array_equal(result, convolution.kernel(np, x, weights, **given))
    assert convolutions
