"""Softmax and cross-entropies as CUDA kernels, run on the CPU, against the ops."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, assert_close, gradients, numbers, put, wide

from kerasish import ops
from kerasish.backends.eager.cuda import softmax as kernels

SHAPES = [(0, 5), (1, 1), (3, 7), (2, 3, 10), (9, 64), (2, 1024), (2, 1031), (2, 2048), (1, 9000)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("logarithm", [False, True])
def test_softmax_and_its_gradient(cuda, shape, dtype, logarithm):
    f = ops.log_softmax if logarithm else ops.softmax
    for offset in (0, 1):
        x, g = numbers(shape, dtype, offset, 3), numbers(shape, dtype, offset, seed=1)
        y = kernels.softmax(x, logarithm)
        assert y.dtype == x.dtype
        if not x.size:
            continue
        assert_close(y, f(wide(x)).numpy(), dtype)
        dx = kernels.softmax_gradient(g, y, logarithm)
        assert_close(dx, gradients(f, [x], wide(g))[0], dtype, 4)


@pytest.mark.parametrize("row", [
    [np.nan, 1.0, 2.0], [1.0, np.nan], [-np.inf, 0.0, 1.0], [np.inf, 0.0], [-np.inf, -np.inf],
    [1e30, -1e30, 0.0], [-np.inf, np.nan, 0.0], [np.nan, -np.inf], [3e38, 3e38],
])  # fmt: skip
def test_softmax_of_what_is_not_finite_is_the_ops(cuda, row):
    x = np.array([row], "float32")
    np.testing.assert_allclose(kernels.softmax(put(x)), ops.softmax(x).numpy(), rtol=1e-6)
    found = kernels.softmax(put(x), logarithm=True)
    np.testing.assert_allclose(found, ops.log_softmax(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 10), (2, 3, 8), (2, 1500)])
def test_class_loss(cuda, shape, dtype):
    x = numbers(shape, dtype, scale=3)
    classes = np.random.default_rng(0).integers(0, shape[-1], shape[:-1], "int32")
    classes.reshape(-1)[-1] = -1 if shape[0] > 1 else 0  # no class at all
    loss, whole = kernels.class_loss(put(classes), x)

    def of_ops(logits):
        return ops.sparse_categorical_crossentropy(classes, logits, from_logits=True)

    assert_close(loss, of_ops(wide(x)).numpy(), dtype)
    g = numbers(shape[:-1], dtype, seed=2)
    dx = kernels.class_loss_gradient(g, put(classes), x, whole)
    assert_close(dx, gradients(of_ops, [x], wide(g))[0], dtype, 2)


def test_class_loss_keeps_its_precision_far_from_zero(cuda):
    x = np.array([[1000.0, 1000.0]], "float32")
    loss, _ = kernels.class_loss(put(np.array([0], "int32")), put(x))
    np.testing.assert_allclose(loss, np.log(2), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 10), (2, 3, 8), (2, 1500)])
def test_target_loss(cuda, shape, dtype):
    x = numbers(shape, dtype, scale=3)
    target = put(np.abs(numbers(shape, dtype, seed=3)) / np.asarray(shape[-1], x.dtype))
    loss, whole, weight = kernels.target_loss(target, x)

    def of_ops(logits):
        return ops.categorical_crossentropy(wide(target), logits, from_logits=True)

    assert_close(loss, of_ops(wide(x)).numpy(), dtype)
    g = numbers(shape[:-1], dtype, seed=2)
    dx = kernels.target_loss_gradient(g, target, x, whole, weight)
    assert_close(dx, gradients(of_ops, [x], wide(g))[0], dtype, 2)


def test_dtypes_that_kernels_do_not_take_are_refused(cuda):
    with pytest.raises(TypeError, match="softmax: arrays of one dtype among .* got float64"):
        kernels.softmax(put(np.ones((2, 2))))
