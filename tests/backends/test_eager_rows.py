"""Rows taken and added by places on the eager engine, natively and by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import config, layers, ops
from kerasish.backends.eager import loop_rows
from kerasish.backends.eager.numpy_kernels import KERNELS
from kerasish.backends.loops import compile_row_sums

pytestmark = pytest.mark.skipif(compile_row_sums() is None, reason="no loops can be compiled here")


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.fixture(autouse=True)
def _any_size(monkeypatch):
    monkeypatch.setattr(loop_rows, "LEAST", 1)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize(
    ("count", "size", "columns"), [(1, 1, 1), (50, 7, 67), (9, 300, 64), (5, 3, 70_000)]
)
def test_rows_are_added_in_order(count, size, columns, dtype):
    rows = normal(count, columns)
    places = np.random.default_rng(1).integers(0, size, count).astype(dtype)
    wanted = np.zeros((size, columns), "float32")
    np.add.at(wanted, places, rows)
    for threads in (1, 2, 3):
        with config.using_threads(threads):
            result = loop_rows.add_rows(places, rows, size)
        np.testing.assert_array_equal(result, wanted)


def test_all_of_the_result_is_written(monkeypatch):
    monkeypatch.setattr(loop_rows, "empty", lambda shape, dtype: np.full(shape, np.nan, dtype))
    x, places = normal(6, 4, 5), np.array([[2, -1, 0, 0]] * 6)
    result = KERNELS["add_rows"](x, places, size=9, axis=0)
    monkeypatch.setattr(loop_rows, "LEAST", 1 << 40)
    np.testing.assert_allclose(
        result, KERNELS["add_rows"](x, places, size=9, axis=0), rtol=1e-6, atol=1e-6
    )
    taken = KERNELS["add_rows"](normal(4, 6, 5), np.array([1, 1, -2, 0, 3, 4]), size=5, axis=1)
    monkeypatch.setattr(loop_rows, "LEAST", 1)
    again = KERNELS["add_rows"](normal(4, 6, 5), np.array([1, 1, -2, 0, 3, 4]), size=5, axis=1)
    np.testing.assert_allclose(taken, again, rtol=1e-6, atol=1e-6)


def test_no_rows_are_zeros():
    result = KERNELS["add_rows"](normal(0, 3), np.zeros(0, "int32"), size=4, axis=0)
    np.testing.assert_array_equal(result, np.zeros((4, 3), "float32"))
    assert KERNELS["add_rows"](normal(2, 0), np.zeros(2, "int32"), size=4, axis=0).shape == (4, 0)


@pytest.mark.parametrize("place", [-6, 5])
def test_places_out_of_range_are_refused(place):
    with pytest.raises(IndexError):
        KERNELS["add_rows"](normal(2, 3), np.array([0, place]), size=5, axis=0)
    with pytest.raises(IndexError):
        KERNELS["take_rows"](normal(5, 3), np.array([0, place]), axis=0)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("indices", [[0], [[1, -1], [-3, 2]], 2, []], ids=str)
def test_rows_are_taken(axis, indices):
    x, places = normal(3, 4, 5), np.array(indices, "int32")
    for array in (x, x.astype("float64"), x > 0, np.asfortranarray(x)):
        result = KERNELS["take_rows"](array, places, axis=axis)
        wanted = np.take(array, places, axis=axis)
        assert result.dtype == wanted.dtype and result.shape == wanted.shape
        np.testing.assert_array_equal(result, wanted)


def test_nan_stays_in_its_row():
    rows = normal(4, 20)
    rows[1, 3] = np.nan
    result = loop_rows.add_rows(np.array([0, 2, 2, 1]), rows, 4)
    assert np.isnan(result[2, 3]) and np.isnan(result).sum() == 1


def test_an_embedding_trains_by_them():
    before = config.backend()
    config.set_backend("eager")
    try:
        layer = layers.Embedding(6, 20)
        ids = ops.convert_to_tensor(np.array([[1, 5, 1], [0, 1, 2]]))
        layer.build()
        y = ops.sum(layer(ids) * np.float32(2))
        y.backward()
        counts = np.array([1, 3, 1, 0, 0, 1], "float32")
        np.testing.assert_array_equal(layer.embeddings.grad, np.outer(2 * counts, np.ones(20)))
    finally:
        config.set_backend(before)
