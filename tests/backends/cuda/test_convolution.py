"""Convolution by im2col kernels, run on the CPU, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, assert_close, numbers, wide

from kerasish.backends.eager.cuda import KERNELS, convolution
from kerasish.ops.basic.window import resolve_padding, window_counts
from kerasish.ops.op import REGISTRY

# x, kernel, strides, padding, dilation, groups
CASES = [
    ((2, 5, 3), (2, 3, 4), (1,), "causal", (2,), 1),
    ((1, 5, 4, 2), (3, 2, 2, 3), (2, 1), "same", (1, 1), 1),
    ((3, 4, 4, 8), (3, 3, 8, 8), (1, 1), "same", (1, 1), 1),
    ((2, 3, 3, 4), (2, 2, 2, 6), (1, 1), "valid", (1, 1), 2),
    ((2, 4, 3, 16), (2, 2, 8, 4), (2, 1), "same", (1, 1), 2),
    ((2, 3, 3, 3), (3, 3, 1, 6), (1, 1), "same", (1, 1), 3),
    ((2, 7, 6, 33), (3, 2, 1, 33), (2, 1), "same", (1, 2), 33),
    ((1, 3, 2, 3, 1), (2, 2, 2, 1, 2), (1, 1, 2), "valid", (1, 1, 1), 1),
    ((2, 3, 3, 4), (1, 1, 4, 2), (1, 1), "valid", (1, 1), 1),
    ((2, 5, 5, 4), (1, 1, 4, 2), (2, 2), "valid", (1, 1), 1),
    ((0, 3, 3, 4), (2, 2, 4, 2), (1, 1), "valid", (1, 1), 1),
]


def _case(x, kernel, strides, padding, dilation, groups):
    pairs = resolve_padding(padding, x[1:-1], kernel[:-2], strides, dilation, "test")
    counts = window_counts(x[1:-1], kernel[:-2], strides, pairs, dilation, "test")
    attrs = {"strides": strides, "padding": pairs, "dilation": dilation, "groups": groups}
    return attrs, (x[0], *counts, kernel[-1])


def _compare(case, dtype, offset=0):
    x_shape, kernel_shape, *_ = case
    attrs, y_shape = _case(*case)
    x, kernel = numbers(x_shape, dtype, offset), numbers(kernel_shape, dtype, seed=1)
    g = numbers(y_shape, dtype, offset, seed=2)
    for name, given, more in (
        ("convolution", [x, kernel], {}),
        ("convolution_data_gradient", [g, kernel], {"size": x_shape[1:-1]}),
        ("convolution_kernel_gradient", [x, g], {"size": kernel_shape[:-2]}),
    ):
        expected = REGISTRY[name].kernel(np, *map(wide, given), **more, **attrs)
        found = KERNELS[name](*given, **more, **attrs)
        assert found.dtype == x.dtype
        assert_close(found, expected, dtype, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_and_its_gradients(cuda, case, dtype):
    _compare(case, dtype)
    _compare(case, dtype, offset=1)


def test_large_batches_go_in_chunks(cuda, monkeypatch):
    monkeypatch.setattr(convolution, "ROWS_BYTES", 1)
    _compare(CASES[2], "float32")
    assert cuda.launches["windows_to_rows"] == 6  # three samples, forward and for the kernel


def test_float64_is_the_reference_s(cuda):
    attrs, _ = _case(*CASES[1])
    x, kernel = numbers(CASES[1][0], "float64"), numbers(CASES[1][1], "float64", seed=1)
    expected = REGISTRY["convolution"].kernel(np, wide(x), wide(kernel), **attrs)
    np.testing.assert_array_equal(KERNELS["convolution"](x, kernel, **attrs), expected)
    assert not cuda.launches
