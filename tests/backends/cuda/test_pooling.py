"""Pooling as CUDA kernels, run on the CPU, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, assert_close, numbers, put, wide

from kerasish.backends.eager.cuda import KERNELS
from kerasish.ops.basic.window import resolve_padding, window_counts
from kerasish.ops.op import REGISTRY

CASES = [
    ((2, 5, 2), (2,), (2,), "valid"), ((1, 7, 6, 3), (3, 2), (2, 1), "same"),
    ((2, 4, 4, 16), (2, 2), (2, 2), "valid"), ((1, 5, 5, 8), (3, 3), (1, 1), "same"),
    ((1, 3, 4, 3, 2), (2, 2, 2), (1, 2, 1), "same"), ((1, 5, 5, 1), (2, 2), (3, 3), "valid"),
    ((0, 4, 4, 3), (2, 2), (2, 2), "valid"), ((1, 6, 6, 4), (3, 3), (2, 2), ((1, 1), (1, 1))),
]  # fmt: skip


def _settings(shape, size, strides, padding):
    pairs = resolve_padding(padding, shape[1:-1], size, strides, (1,) * len(size), "test")
    counts = window_counts(shape[1:-1], size, strides, pairs, (1,) * len(size), "test")
    return {"size": size, "strides": strides, "padding": pairs}, (shape[0], *counts, shape[-1])


def _reference(name, *arrays, **attrs):
    return REGISTRY[name].kernel(np, *arrays, **attrs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "size", "strides", "padding"), CASES)
def test_pooling(cuda, shape, size, strides, padding, dtype):
    attrs, windows = _settings(shape, size, strides, padding)
    for offset in (0, 1):
        x, g = numbers(shape, dtype, offset), numbers(windows, dtype, offset, seed=1)
        h = numbers(shape, dtype, offset, seed=2)
        for name, given, more in (
            ("pool_max", [x], {}),
            ("pool_max_gradient", [g, x], {}),
            ("pool_max_select", [h, x], {}),
            ("pool_average", [x], {}),
            ("pool_average_gradient", [g], {"sizes": shape[1:-1]}),
        ):
            expected = _reference(name, *map(wide, given), **attrs, **more)
            found = KERNELS[name](*given, **attrs, **more)
            assert found.dtype == x.dtype
            assert_close(found, expected, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("channels", [8, 1])
def test_means_of_many_16_bit_numbers_are_summed_in_float32(cuda, dtype, channels):
    """Ones: a sum of 16 bits stays at 2048 (float16) or 256 (bfloat16), to which 1 adds nothing."""
    side = 50
    attrs = {"size": (side, side), "strides": (1, 1), "padding": ((0, 0), (0, 0))}
    x = put(np.ones((1, side, side, channels)), numbers((1,), dtype).dtype)
    assert (wide(KERNELS["pool_average"](x, **attrs)) == 1).all()
    # The place in the middle is in all windows of 50 by 50, each of 2500 places: 1 in all.
    g = put(np.ones((1, side, side, channels)), x.dtype)
    sizes = (2 * side - 1, 2 * side - 1)
    found = KERNELS["pool_average_gradient"](g, sizes=sizes, **attrs)
    assert_close(found[0, side - 1, side - 1], np.ones(channels), dtype)


def test_the_first_largest_and_nan_are_chosen_as_on_the_cpu(cuda):
    attrs, windows = _settings((2, 6, 6, 8), (3, 3), (2, 2), "same")
    x = np.random.default_rng(0).integers(0, 3, (2, 6, 6, 8)).astype("float32")  # many ties
    x[0, 2, 3] = np.nan
    x[1, 1:5, 1:5] = -np.inf
    g = np.arange(np.prod(windows), dtype="float32").reshape(windows)
    np.testing.assert_array_equal(
        KERNELS["pool_max"](put(x), **attrs), _reference("pool_max", x, **attrs)
    )
    for name, arrays in (("pool_max_gradient", (g, x)), ("pool_max_select", (x * 7, x))):
        found = KERNELS[name](*map(put, arrays), **attrs)
        np.testing.assert_array_equal(found, _reference(name, *arrays, **attrs))


def test_whole_numbers_and_four_axes_are_the_reference_s(cuda):
    x = put(np.arange(16).reshape(1, 4, 4, 1))
    attrs, _ = _settings(x.shape, (2, 2), (2, 2), "valid")
    assert KERNELS["pool_max"](x, **attrs).ravel().tolist() == [5, 7, 13, 15]
    deep = numbers((1, 2, 2, 2, 2, 1), "float32")
    attrs, _ = _settings(deep.shape, (2,) * 4, (2,) * 4, "valid")
    assert KERNELS["pool_max"](deep, **attrs).item() == deep.max()
    assert not cuda.launches
