"""Gather and scatter of rows as CUDA kernels, run on the CPU, against the ops."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, Function, assert_close, numbers, put, wide

from kerasish.backends.eager.cuda import KERNELS
from kerasish.ops.op import REGISTRY


def _indices(high, shape, dtype="int32", seed=0):
    return np.random.default_rng(seed).integers(-high, high, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
@pytest.mark.parametrize(
    ("rows", "n", "shape"), [(4, 3, (5,)), (9, 16, (2, 3)), (3, 1, (0,)), (5, 2000, (4,))]
)
def test_take_rows(cuda, rows, n, shape, kind, dtype):
    for offset in (0, 1):
        x = numbers((rows, n), dtype, offset)
        indices = np.abs(_indices(rows, shape)) % rows if kind == "uint8" else _indices(rows, shape)
        indices = indices.astype(kind)
        found = KERNELS["take_rows"](x, put(indices), axis=0)
        np.testing.assert_array_equal(wide(found), wide(np.take(x, indices, axis=0)))


def test_take_rows_of_several_axes_and_of_numbers(cuda):
    x, indices = numbers((5, 2, 4), "float32"), _indices(5, (3, 2))
    np.testing.assert_array_equal(
        KERNELS["take_rows"](x, put(indices), axis=0), np.take(x, indices, axis=0)
    )
    flat, few = numbers((5,), "float32"), put(_indices(5, (7,)))
    np.testing.assert_array_equal(KERNELS["take_rows"](flat, few, axis=0), flat[few])
    whole = put(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(
        KERNELS["take_rows"](whole, put([2, 0]), axis=1), whole[:, [2, 0]]
    )


def test_rows_that_are_not_there_are_nan(cuda):
    x = numbers((3, 4), "float32")
    found = KERNELS["take_rows"](x, put(np.array([3, 0, -4, -3], "int32")), axis=0)
    assert np.isnan(found).all(-1).tolist() == [True, False, True, False]
    np.testing.assert_array_equal(found[[1, 3]], x[[0, 0]])


CASES = [
    ((5, 3), (5,), 4, 0), ((1000, 2), (1000,), 7, 0), ((2, 3, 8), (2, 3), 5, 0),
    ((0, 4), (0,), 3, 0),
    ((2, 70, 3), (70,), 2, 1), ((300, 300), (300,), 1, 0), ((640, 1), (640,), 640, 0),
    ((64, 2), (64,), 1, 0), ((65, 2), (65,), 1, 0), ((129, 2), (129,), 3, 0), ((6,), (6,), 3, 0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "places", "size", "axis"), CASES)
def test_add_rows(cuda, shape, places, size, axis, dtype):
    x, indices = numbers(shape, dtype), _indices(size, places)
    expected = REGISTRY["add_rows"].kernel(np, wide(x), indices, size=size, axis=axis)
    found = KERNELS["add_rows"](x, put(indices), size=size, axis=axis)
    assert found.dtype == x.dtype
    assert_close(found, expected, dtype)


def test_add_rows_repeats_in_whatever_order_threads_run(cuda):
    x, indices = numbers((700, 40), "float32"), put(_indices(3, (700,)))
    first = np.array(KERNELS["add_rows"](x, indices, size=3))
    for seed in (1, 5):
        Function.seed = seed
        np.testing.assert_array_equal(KERNELS["add_rows"](x, indices, size=3), first)


def test_add_rows_leaves_out_what_has_no_place(cuda):
    x = put(np.ones((4, 2), "float32"))
    found = KERNELS["add_rows"](x, put(np.array([9, 0, 0, -7], "int32")), size=2)
    assert found.tolist() == [[2, 2], [0, 0]]


def test_add_rows_of_whole_numbers_is_the_reference_s(cuda):
    x = put(np.arange(6).reshape(3, 2))
    assert KERNELS["add_rows"](x, put([1, 1, 0]), size=2).tolist() == [[4, 5], [2, 4]]


@pytest.mark.parametrize(
    ("shape", "indices", "axis"),
    [((2, 4), (2, 3), 1), ((5, 3), (4, 3), 0), ((2, 3, 4), (2, 5, 4), 1)],
)
def test_add_along_axis(cuda, shape, indices, axis):
    places, x = _indices(shape[axis], indices), numbers(indices, "float32")
    attrs = {"shape": shape, "axis": axis}
    expected = REGISTRY["add_along_axis"].kernel(np, wide(x), places, **attrs)
    assert_close(KERNELS["add_along_axis"](x, put(places), **attrs), expected, "float32")
    assert cuda.launches["scatter_chunks"] == 1


def test_add_along_axis_that_broadcasts_is_the_reference_s(cuda):
    x, places = numbers((2, 3), "float32"), put(np.array([[0, 1, 1]], "int32"))
    attrs = {"shape": (2, 4), "axis": 1}
    expected = REGISTRY["add_along_axis"].kernel(np, np.array(x), np.array(places), **attrs)
    np.testing.assert_allclose(KERNELS["add_along_axis"](x, places, **attrs), expected)


@pytest.mark.parametrize(
    ("shape", "indices"),
    [((3, 4), (5, 2)), ((3, 4), (2, 2, 1)), ((5,), (9, 1)), ((2, 3, 4), (6, 2))],
)
def test_add_at(cuda, shape, indices):
    count = indices[-1]
    places = np.stack([_indices(n, indices[:-1], seed=i) for i, n in enumerate(shape[:count])], -1)
    x = numbers((*indices[:-1], *shape[count:]), "float32")
    expected = REGISTRY["add_at"].kernel(np, wide(x), places, shape=shape)
    assert_close(KERNELS["add_at"](x, put(places), shape=shape), expected, "float32")
