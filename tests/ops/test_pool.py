"""Pooling against windows written out one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import ops
from kerasish.autodiff import grad
from kerasish.backends.eager import numpy_pool
from kerasish.errors import ShapeError
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec
from kerasish.testing import gradient_check

rng = np.random.default_rng(0)


def same_padding(n, w, s):
    total = max((-(-n // s) - 1) * s + w - n, 0)
    return total // 2, total - total // 2


def windows(sizes, size, strides, padding):
    """Yield (window, its places inside x as slices)."""
    pairs = [same_padding(*q) if padding == "same" else (0, 0) for q in zip(sizes, size, strides)]
    counts = [(n + sum(p) - w) // s + 1 for n, w, s, p in zip(sizes, size, strides, pairs)]
    for at in itertools.product(*map(range, counts)):
        starts = [i * s - p[0] for i, s, p in zip(at, strides, pairs)]
        yield at, tuple(slice(max(a, 0), min(a + w, n)) for a, w, n in zip(starts, size, sizes))


def written_out(x, size, strides, padding, fold):
    result = {
        at: fold(x[(slice(None), *cut)], axis=tuple(range(1, x.ndim - 1)))
        for at, cut in windows(x.shape[1:-1], size, strides, padding)
    }
    counts = [max(at[i] for at in result) + 1 for i in range(x.ndim - 2)]
    y = np.zeros((x.shape[0], *counts, x.shape[-1]))
    for at, value in result.items():
        y[(slice(None), *at)] = value
    return y


GEOMETRIES = [
    (sizes, size, strides, padding)
    for sizes, size in [((7,), (2,)), ((6,), (3,)), ((5, 6), (2, 3)), ((4, 3, 5), (2, 2, 3))]
    for strides in [None, 1, 2, 3]
    for padding in ["valid", "same"]
]  # fmt: skip


@pytest.mark.parametrize("case", GEOMETRIES, ids=str)
def test_pools_are_the_windows_folded(case):
    sizes, size, strides, padding = case
    x = rng.normal(size=(3, *sizes, 2))
    steps = size if strides is None else (strides,) * len(sizes)
    for pool, fold in ((ops.max_pool, np.max), (ops.average_pool, np.mean)):
        expected = written_out(x, size, steps, padding, fold)
        got = pool(x, size, strides, padding)
        np.testing.assert_allclose(got, expected, rtol=1e-12)
        first = pool(np.moveaxis(x, -1, 1), size, strides, padding, "channels_first")
        np.testing.assert_array_equal(np.moveaxis(first.numpy(), 1, -1), got)


@pytest.mark.parametrize("case", GEOMETRIES, ids=str)
def test_fast_kernels_are_the_reference_with_ties(case):
    sizes, size, strides, padding = case
    op = REGISTRY["pool_max"]
    x = rng.integers(-1, 2, (3, *sizes, 2)).astype("float64")  # many ties
    settings = {"size": size, "strides": strides, "padding": padding}
    settings = op.canonical([x.shape], settings)
    y = op.kernel(np, x, **settings)
    g = rng.normal(size=y.shape)
    h = rng.normal(size=x.shape)
    inputs = {
        "pool_max": (x,),
        "pool_max_gradient": (g, x),
        "pool_max_select": (h, x),
        "pool_average": (x,),
        "pool_average_gradient": (g,),
    }
    for name, arrays in inputs.items():
        more = {"sizes": sizes} if name == "pool_average_gradient" else {}
        reference = REGISTRY[name].kernel(np, *arrays, **more, **settings)
        result = numpy_pool.KERNELS[name](*arrays, **more, **settings)
        np.testing.assert_allclose(result, reference, rtol=1e-12, atol=1e-14)
    back = REGISTRY["pool_max_gradient"].kernel(np, g, x, **settings)
    picked = REGISTRY["pool_max_select"].kernel(np, h, x, **settings)
    np.testing.assert_allclose(np.sum(back * h), np.sum(g * picked), rtol=1e-10)


def test_the_first_of_equals_gets_the_gradient():
    slope = grad(lambda x: ops.sum(ops.max_pool(x, 2)))
    np.testing.assert_array_equal(
        slope(np.ones((1, 4, 4, 1))).numpy()[0, :, :, 0],
        np.kron(np.eye(2) * 0 + 1, [[1, 0], [0, 0]]),
    )


def test_infinite_gradients_stay_in_their_place():
    x = np.array([1.0, 2.0, 4.0, 3.0]).reshape(1, 4, 1)
    g = np.array([np.inf, 1.0]).reshape(1, 2, 1)
    back = REGISTRY["pool_max_gradient"](g, x, size=2)
    assert back.numpy().ravel().tolist() == [0.0, np.inf, 1.0, 0.0]


def test_nan_is_the_largest():
    x = np.array([1.0, np.nan, 4.0, 3.0]).reshape(1, 4, 1)
    assert np.isnan(ops.max_pool(x, 2).numpy().ravel()).tolist() == [True, False]
    for kernel in (REGISTRY["pool_max_gradient"].kernel.__get__(np), numpy_pool.pool_max_gradient):
        g = np.ones((1, 2, 1))
        back = kernel(g, x, size=(2,), strides=(2,), padding=((0, 0),))
        assert back.ravel().tolist() == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("strides", [1, 2])
def test_gradients(padding, strides):
    x = rng.normal(size=(1, 4, 5, 2))
    gradient_check(lambda a: ops.max_pool(a, 3, strides, padding) ** 2, [x])
    gradient_check(lambda a: ops.average_pool(a, 3, strides, padding) ** 2, [x])


@pytest.mark.parametrize("counts", [(2,), (3,), (6,), (1, 2), (3, 4), (5, 7), (2, 3, 2)], ids=str)
def test_adaptive_pools_are_the_bins_folded(counts):
    sizes = (6, 7, 5)[: len(counts)]
    x = rng.normal(size=(2, *sizes, 3))
    mean, largest = (np.zeros((2, *counts, 3)) for _ in range(2))
    for at in itertools.product(*map(range, counts)):
        cut = tuple(slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at, sizes, counts))
        part = x[(slice(None), *cut)]
        axes = tuple(range(1, x.ndim - 1))
        mean[(slice(None), *at)] = part.mean(axes)
        largest[(slice(None), *at)] = part.max(axes)
    np.testing.assert_allclose(ops.adaptive_average_pool(x, counts), mean, rtol=1e-6)
    np.testing.assert_allclose(ops.adaptive_max_pool(x, counts), largest, rtol=1e-12)
    size = counts[0] if len(set(counts)) == 1 else counts
    first = ops.adaptive_max_pool(np.moveaxis(x, -1, 1), size, "channels_first").numpy()
    np.testing.assert_array_equal(np.moveaxis(first, 1, -1), largest)
    if len(counts) < 3:
        gradient_check(lambda a: ops.adaptive_max_pool(a, counts) ** 2, [x[:1]])
        gradient_check(lambda a: ops.adaptive_average_pool(a, counts) ** 2, [x[:1]])


def test_whole_numbers():
    x = np.array([3, -5, -7, -9], "int32").reshape(1, 4, 1)
    y = ops.max_pool(x, 3, 2, "same")
    assert (y.dtype, y.numpy().ravel().tolist()) == ("int32", [3, -7])
    assert ops.average_pool(x, 2).numpy().ravel().tolist() == [-1.0, -8.0]


def test_unknown_sizes_and_errors():
    op = REGISTRY["pool_max"]
    attrs = op.canonical([(None, None, 8, 3)], {"size": 2, "strides": None, "padding": "same"})
    assert op.shape(Spec((None, None, 8, 3), "float32"), **attrs).shape == (None, None, 4, 3)
    with pytest.raises(ShapeError, match="window of 5 places does not fit"):
        ops.max_pool(np.ones((1, 3, 1)), 5)
    with pytest.raises(ShapeError, match="size"):
        ops.average_pool(np.ones((1, 3, 1)), (2, 2))
