"""Normalizations as CUDA kernels, run on the CPU, against the ops."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, assert_close, gradients, numbers, put, wide

from kerasish import ops
from kerasish.backends.eager.cuda import kernels as launching
from kerasish.backends.eager.cuda import norm as kernels

SHAPES = [(1, 1), (3, 7), (2, 5, 16), (130, 24), (2, 1024), (2, 1032), (1, 9001)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("centered", [True, False], ids=["layer", "rms"])
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_and_its_gradient(cuda, shape, centered, dtype):
    n = shape[-1]
    for offset in (0, 1):
        x, g = numbers(shape, dtype, offset), numbers(shape, dtype, offset, seed=1)
        gamma, beta = numbers(n, "float32", seed=2), numbers(n, "float32", seed=3)
        y, mean, scale = kernels.layer_norm(x, gamma, beta if centered else None, 0.01, centered)

        def layer(x, gamma, beta):
            return ops.layer_normalization(x, gamma, beta, epsilon=0.01)

        def rms(x, gamma):
            return ops.rms_normalization(x, gamma, epsilon=0.01)

        f, given = (layer, [x, gamma, beta]) if centered else (rms, [x, gamma])
        assert_close(y, f(*map(wide, given)).numpy(), dtype)
        dx, dgamma, dbeta = kernels.layer_norm_gradient(g, x, gamma, mean, scale, centered)
        expected = gradients(f, given, wide(g))
        assert_close(dx, expected[0], dtype, 8)
        assert_close(dgamma, expected[1], dtype, 2)
        if centered:
            assert_close(dbeta, expected[2], dtype, 2)


def test_layer_norm_without_factors(cuda):
    x = numbers((5, 12), "float32")
    y, mean, scale = kernels.layer_norm(x, epsilon=1e-3)
    assert_close(y, ops.layer_normalization(wide(x), epsilon=1e-3).numpy(), "float32")
    dx, _, _ = kernels.layer_norm_gradient(x, x, None, mean, scale)
    f = lambda x: ops.layer_normalization(x, epsilon=1e-3)  # noqa: E731
    assert_close(dx, gradients(f, [x], wide(x))[0], "float32", 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_off_their_alignment_are_read_one_by_one(cuda, dtype):
    x = numbers((5, 16), dtype)
    gamma, beta = numbers(16, "float32", 1, seed=2), numbers(16, "float32", 3, seed=3)
    y, mean, scale = kernels.layer_norm(x, gamma, beta, 0.01)
    expected = ops.layer_normalization(*map(wide, (x, gamma, beta)), epsilon=0.01).numpy()
    assert_close(y, expected, dtype)
    kernels.layer_norm_gradient(x, x, gamma, mean, scale)  # raises where packs are not aligned


def test_layer_norm_of_nothing(cuda):
    y, mean, _ = kernels.layer_norm(numbers((0, 4), "float32"))
    assert y.shape == (0, 4)
    assert mean.shape == (0,)
    assert not cuda.launches


def _group_norm(groups):
    def f(x, gamma, beta):
        n, c = x.shape[0], x.shape[-1]
        split = ops.reshape(x, (n, -1, groups, c // groups))
        center = ops.mean(split, (1, 3), True)
        spread = ops.mean(ops.square(split - center), (1, 3), True)
        y = ops.reshape((split - center) / ops.sqrt(spread + 0.01), x.shape)
        return y * gamma + beta

    return f


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 3, 3, 6), 2), ((2, 4, 16), 2), ((1, 5, 5, 16), 16), ((3, 8), 4), ((2, 40, 40, 3), 1)],
)
def test_group_norm_and_its_gradient(cuda, shape, groups, dtype):
    x, g, c = numbers(shape, dtype), numbers(shape, dtype, seed=1), shape[-1]
    gamma, beta = numbers(c, "float32", seed=2), numbers(c, "float32", seed=3)
    y, mean, scale = kernels.group_norm(x, groups, gamma, beta, 0.01)
    f = _group_norm(groups)
    assert_close(y, f(*(ops.convert_to_tensor(wide(v)) for v in (x, gamma, beta))).numpy(), dtype)
    found = kernels.group_norm_gradient(g, x, groups, gamma, mean, scale)
    for a, b in zip(found, gradients(f, [x, gamma, beta], wide(g))):
        assert_close(a, b, dtype, 8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (65, 33), (2, 9, 9, 32), (20000, 3)])
def test_column_sums_and_moments(cuda, shape, dtype):
    x = numbers(shape, dtype)
    axes = tuple(range(len(shape) - 1))
    assert_close(kernels.column_sums(x), wide(x).sum(axes), "float32", 4)
    mean, variance = kernels.column_moments(x)
    assert_close(mean, wide(x).mean(axes), "float32")
    assert_close(variance, wide(x).var(axes), "float32")


def test_moments_far_from_zero_keep_their_precision(cuda):
    x = (1e4 + np.random.default_rng(0).standard_normal((3000, 5))).astype("float32")
    mean, variance = kernels.column_moments(put(x))
    np.testing.assert_allclose(mean, wide(x).mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, wide(x).var(0), rtol=2e-3)


def test_moments_of_nothing(cuda):
    mean, variance = kernels.column_moments(numbers((0, 4), "float32"))
    assert np.isnan(mean).all()
    assert np.isnan(variance).all()
    assert kernels.column_sums(numbers((0, 4), "float32")).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 5, 8), (300, 16), (2, 3, 3, 5)])
def test_batch_norm_and_its_gradient(cuda, shape, dtype):
    axes = tuple(range(len(shape) - 1))

    def f(x, gamma, beta):
        mean, variance = ops.moments(x, axes)
        return ops.batch_normalization(x, mean, variance, -1, beta, gamma, 0.01)

    x, g, c = numbers(shape, dtype), numbers(shape, dtype, seed=1), shape[-1]
    gamma, beta = numbers(c, "float32", seed=2), numbers(c, "float32", seed=3)
    mean, variance = kernels.column_moments(x)
    y, scale = kernels.batch_norm(x, mean, variance, gamma, beta, 0.01)
    assert_close(y, f(*map(wide, (x, gamma, beta))).numpy(), dtype, 2)
    found = kernels.batch_norm_gradient(g, x, mean, scale, gamma)
    for a, b in zip(found, gradients(f, [x, gamma, beta], wide(g))):
        assert_close(a, b, dtype, 8)


def test_packs_are_as_wide_as_the_smallest_elements_allow(cuda):
    """Half the columns of a pack of float16 must not be read as one, beside float32."""
    half, single = (put(np.zeros(64, dtype)) for dtype in ("float16", "float32"))
    aligned = [a for a in (half, single) if a.data.ptr % 16 == 0]
    assert len(aligned) == 2
    assert launching.packed(8, half, single) == 1
    assert launching.packed(4, half, single) == 0
    assert launching.packed(4, single) == 1
