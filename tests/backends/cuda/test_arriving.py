"""Gradients that arrive at one value of a GPU: added by the products that make them."""

from __future__ import annotations

import fake_cupy
import numpy as np
import pytest
from cuda_on_cpu import DTYPES, assert_close, numbers, wide

import kerasish
from kerasish import ops
from kerasish.backends.eager import Eager
from kerasish.backends.eager.cuda import blas, cublaslt
from kerasish.ops.arrays.contraction import affine
from kerasish.ops.op import using_engine


@pytest.fixture
def lib(cublaslt_on_cpu, monkeypatch):
    monkeypatch.setattr(blas, "library", lambda version: cublaslt_on_cpu)
    cublaslt_on_cpu.stub_fail(0)
    cublaslt.plans.clear()
    blas._warn_once.cache_clear()
    return cublaslt_on_cpu


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_is_added_to_what_has_arrived(cuda, lib, monkeypatch, dtype):
    g, kernel = numbers((6, 5), dtype), numbers((8, 5), dtype, seed=1)
    onto = numbers((6, 8), dtype, seed=2, scale=40.0)
    before = np.array(onto)
    product = wide(g) @ wide(kernel).T
    choices = lib.stub_choices()
    assert_close(blas.rows_gradient(g, kernel, onto), product + wide(onto), dtype)
    assert_close(blas.rows_gradient(g, kernel), product, dtype)
    assert lib.stub_choices() == choices + 1  # one plan serves both: aligned alike
    np.testing.assert_array_equal(onto, before)  # others may hold it
    monkeypatch.setattr(blas, "library", lambda version: None)
    assert_close(blas.rows_gradient(g, kernel, onto), product + wide(onto), dtype)
    assert_close(blas.rows_gradient(g, kernel), product, dtype)


def test_16_bit_sums_are_rounded_once(cuda, lib):
    """1 + 2^-9 + 2^-9 in bfloat16: two roundings to 8 bits would give 1."""
    g, kernel, onto = (numbers((1, 1), "bfloat16") for _ in range(3))
    g[...], kernel[...], onto[...] = 1, 2**-8 + 2**-9, 1
    assert float(wide(blas.rows_gradient(g, kernel, onto)).item()) == 1 + 2**-7


def test_what_the_library_refuses_is_added_by_itself(cuda, lib):
    g, kernel, onto = (numbers((4, 4), "float32", seed=i) for i in range(3))
    lib.stub_fail(1)
    with pytest.warns(UserWarning, match="no algorithm"):
        found = blas.rows_gradient(g, kernel, onto)
    np.testing.assert_array_equal(found, onto + np.matmul(g, np.array(kernel).T))


def _branches(x, *weights):
    """Return a number to which x comes in four ways: three products and as it is."""
    a, b, c = weights
    bias = ops.zeros(4)
    branches = [affine(x, a, bias), affine(x, b, bias, True), affine(x, c, bias), x]
    total = branches[0] * branches[1] + branches[2] * branches[3]
    return ops.sum(total * ops.reshape(ops.arange(24, dtype="float32"), (2, 3, 4)))


def _given():
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype("float32") for s in [(2, 3, 4), *[(4, 4)] * 3]]


def _slopes(engine, device, function, arrays):
    with kerasish.device(device), using_engine(engine):
        given = [kerasish.Tensor(a) for a in arrays]
        fake_cupy.work.clear()
        found = kerasish.grad(function, argnums=tuple(range(len(given))))(*given)
        return [t.numpy() for t in found]


@pytest.mark.parametrize("there", [True, False])
def test_branches_meet_as_on_the_cpu(gpu, lib, monkeypatch, there):
    if not there:
        monkeypatch.setattr(blas, "library", lambda version: None)
    expected = _slopes(Eager(), "cpu", _branches, _given())
    found = _slopes(gpu, "gpu", _branches, _given())
    adds = fake_cupy.work.launches["add"]
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * np.abs(b).max())
        # Without cuBLASLt each product is added as a pair, in the order of the reverse pass.
        assert there or np.array_equal(a, b)
    assert adds == (1 if there else 4)  # the sum that the function itself takes, then three


def test_what_has_arrived_is_added_before_the_next_layer_s_gradient_is_taken(gpu, lib):
    """The value has a maker of its own, whose rule needs the whole sum."""

    def f(x, *weights):
        return _branches(ops.tanh(x), *weights)

    for a, b in zip(_slopes(gpu, "gpu", f, _given()), _slopes(Eager(), "cpu", f, _given())):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * np.abs(b).max())


def test_a_value_that_is_both_factors(gpu, lib):
    x = np.random.default_rng(1).standard_normal((4, 4)).astype("float32")

    def f(x):
        return ops.sum(ops.square(affine(x, x, ops.ones(4)) + x))

    (found,), (expected,) = _slopes(gpu, "gpu", f, [x]), _slopes(Eager(), "cpu", f, [x])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_gradients_of_gradients(gpu, lib):
    def f(*given):
        slopes = kerasish.grad(_branches, argnums=(0, 1, 2))(*given)
        return sum(ops.sum(ops.square(s)) for s in slopes)

    arrays = _given()
    for a, b in zip(_slopes(gpu, "gpu", f, arrays), _slopes(Eager(), "cpu", f, arrays)):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())


def test_a_tape_gives_the_sum_of_a_value_inside(gpu, lib):
    def slopes(engine, device):
        with kerasish.device(device), using_engine(engine):
            x, *weights = (kerasish.Tensor(a) for a in _given())
            with kerasish.GradientTape() as tape:
                tape.watch(x)
                inner = ops.tanh(x)
                y = _branches(inner, *weights)
            return [t.numpy() for t in tape.gradient(y, [inner, x])]

    for a, b in zip(slopes(gpu, "gpu"), slopes(Eager(), "cpu")):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * np.abs(b).max())
