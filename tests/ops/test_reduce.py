"""Reductions and runs along axes: as in NumPy, their dtypes, ties and zeros in gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerasish
from kerasish import autodiff, ops
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.shapes import Spec
from kerasish.testing import gradient_check


@st.composite
def arrays_and_axes(draw, least=0):
    shape = draw(st.lists(st.integers(least, 4), min_size=1, max_size=4).map(tuple))
    chosen = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    axes = tuple(a - len(shape) if draw(st.booleans()) else a for a in chosen)
    axis = draw(st.sampled_from([None, axes, axes[0]]))
    numbers = np.random.default_rng(draw(st.integers(0, 9))).normal(size=shape)
    return numbers, axis, draw(st.booleans())


@given(arrays_and_axes())
def test_sums_and_truths(case):
    x, axis, keepdims = case
    kept = {"axis": axis, "keepdims": keepdims}
    np.testing.assert_allclose(ops.sum(x, **kept), np.sum(x, **kept), atol=1e-12)
    np.testing.assert_allclose(ops.prod(x, **kept), np.prod(x, **kept), atol=1e-12)
    np.testing.assert_array_equal(ops.any(x > 1, **kept), np.any(x > 1, **kept))
    np.testing.assert_array_equal(ops.all(x > -1, **kept), np.all(x > -1, **kept))


@given(arrays_and_axes(least=1))
def test_extremes_and_statistics(case):
    x, axis, keepdims = case
    kept = {"axis": axis, "keepdims": keepdims}
    for name in ("max", "min", "mean", "var", "std"):
        np.testing.assert_allclose(
            getattr(ops, name)(x, **kept), getattr(np, name)(x, **kept), atol=1e-12
        )
    if not isinstance(axis, tuple):
        for name in ("argmax", "argmin"):
            np.testing.assert_array_equal(
                getattr(ops, name)(x, **kept), getattr(np, name)(x, **kept)
            )


@given(arrays_and_axes(least=1), st.data())
def test_sums_of_unknown_sizes(case, data):
    x, axis, keepdims = case
    unsure = tuple(None if data.draw(st.booleans()) else s for s in x.shape)
    attrs = reduce_sum.canonical([unsure], {"axis": axis, "keepdims": keepdims})
    result = reduce_sum.shape(Spec(unsure, "float64"), **attrs)
    expected = np.sum(x, axis=axis, keepdims=keepdims).shape
    assert len(result.shape) == len(expected)
    assert all(a in (None, b) for a, b in zip(result.shape, expected))


@pytest.mark.parametrize(
    ("dtype", "summed", "run"),
    [
        ("bool", "int32", "int32"),
        ("int8", "int32", "int8"),
        ("int16", "int32", "int16"),
        ("uint8", "uint32", "uint8"),
        ("uint16", "uint32", "uint16"),
        ("int32", "int32", "int32"),
        ("int64", "int64", "int64"),
        ("float16", "float16", "float16"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("float32", "float32", "float32"),
    ],
)
def test_dtypes(dtype, summed, run):
    x = ops.ones((2, 3), dtype)
    assert ops.sum(x).dtype == ops.prod(x).dtype == summed
    assert ops.cumsum(x, 0).dtype == run
    assert ops.max(x).dtype == dtype
    assert ops.argmax(x).dtype == ops.argsort(x).dtype == "int32"
    assert ops.mean(x).dtype == (dtype if "float" in dtype else "float32")


def test_ties_share_the_gradient_of_extremes():
    slope = autodiff.grad(lambda x: ops.max(x))(np.array([1.0, 3.0, 3.0]))
    assert slope.tolist() == [0.0, 0.5, 0.5]


def test_the_first_of_equals_is_found():
    assert ops.argmax([1, 3, 3]).item() == 1
    assert ops.argmin([[1, 0], [0, 0]], axis=1).tolist() == [1, 0]
    assert ops.argsort([2, 1, 2, 1]).tolist() == [1, 3, 0, 2]


def test_nan_wins():
    x = np.array([1.0, np.nan, 3.0])
    assert np.isnan(ops.max(x).item())
    assert np.isnan(ops.min(x).item())


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_products_with_zeros(zeros):
    x = np.array([[2.0, 3.0, 0.5, -1.5]])
    x[0, :zeros] = 0.0
    gradient_check(lambda x: ops.prod(x, 1), [x])
    gradient_check(lambda x: ops.cumprod(x, 1), [x])
    gradient_check(lambda x: ops.prod(x, (0, 1)), [x])


@pytest.mark.parametrize("axis", [0, (0, 1), (0, 2), (1, 3), (3, 0)])
def test_gradient_of_products_over_some_of_many_axes(axis):
    """The order that brings the axes to the end is often not its own inverse."""
    x = 1.5 + np.random.default_rng(0).normal(size=(2, 3, 1, 2)) / 4
    gradient_check(lambda x: ops.prod(x, axis), [x])


def test_products_of_infinities():
    x = np.array([np.inf, 2.0, 0.5, -1.0])
    np.testing.assert_array_equal(ops.cumprod(x), np.cumprod(x))


def test_large_half_precision_sums():
    x = np.full(4096, 0.25, "float16")
    assert ops.sum(x).item() == 1024.0
    assert ops.mean(x).item() == 0.25


ADDING = {
    "sum of rows": lambda x: ops.sum(x, 1)[0],
    "sum of columns": lambda x: ops.sum(ops.transpose(x), 0)[0],
    "mean": lambda x: ops.mean(x, 1)[0] * x.shape[1],
    "cumsum": lambda x: ops.cumsum(x, 1)[0, -1],
    "norm": lambda x: ops.square(ops.norm(x, axis=1)[0]),
    "segment_sum": lambda x: ops.segment_sum(x[0], np.zeros(x.shape[1], "int32"), 1)[0],
    "scatter": lambda x: ops.scatter(np.zeros((x.shape[1], 1), "int32"), x[0], (1,))[0],
    "average_pool": lambda x: ops.average_pool(x[..., None], x.shape[1], 1)[0, 0, 0] * x.shape[1],
    "softmax": lambda x: 1 / ops.softmax(x, 1)[0, 0],
    "matmul": lambda x: ops.matmul(x, ops.transpose(x))[0, 0],
    "gradient of gather": lambda x: autodiff.grad(
        lambda table: ops.sum(ops.take(table, np.zeros(x.shape[1], "int32"), 0))
    )(x[:, 0])[0],
    "gradient of a broadcast": lambda x: autodiff.grad(
        lambda one: ops.sum(ops.broadcast_to(one, x.shape), None)
    )(x[:, :1])[0, 0],
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", ADDING)
def test_halves_are_added_up_in_float32(name, dtype):
    """In bfloat16 itself 256 + 1 is 256, in float16 2048 + 1 is 2048."""
    x = ops.cast(np.ones((2, 4096)), dtype)
    for function in (ADDING[name], kerasish.function(ADDING[name])):
        got = function(x)
        assert got.dtype == dtype
        assert float(ops.cast(got, "float32").numpy()) == pytest.approx(4096, rel=1e-2)
