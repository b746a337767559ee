"""Bias and activation as CUDA kernels, run on the CPU, against the ops."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, Function, assert_close, gradients, numbers, put, wide

from kerasish import ops
from kerasish.backends.eager.cuda import KERNELS
from kerasish.backends.eager.cuda import activation as kernels
from kerasish.errors import UnknownNameError

OF_OPS = {
    "linear": lambda x: x, "relu": ops.relu, "sigmoid": ops.sigmoid, "tanh": ops.tanh,
    "gelu": ops.gelu, "gelu_exact": lambda x: ops.gelu(x, approximate=False), "silu": ops.silu,
    "softplus": ops.softplus,
}  # fmt: skip


def test_every_activation_is_compared():
    assert set(OF_OPS) == set(kernels.ACTIVATIONS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", kernels.ACTIVATIONS)
@pytest.mark.parametrize("shape", [(0, 3), (1,), (5, 7), (3, 2, 16), (70, 300)])
def test_bias_activation_and_its_gradient(cuda, shape, activation, dtype):
    f = OF_OPS[activation]
    for offset in (0, 3):
        x, g = numbers(shape, dtype, offset, 2), numbers(shape, dtype, offset, seed=1)
        bias = numbers(shape[-1], dtype, offset, seed=2)
        y = kernels.bias_activation(x, bias, activation)
        dx, dbias = kernels.bias_activation_gradient(g, x, bias, activation)
        assert y.dtype == dx.dtype == dbias.dtype == x.dtype
        if not x.size:
            assert dbias.tolist() == [0] * shape[-1]
            continue

        def whole(x, b):
            return f(ops.add(x, b))

        assert_close(y, whole(wide(x), wide(bias)).numpy(), dtype)
        expected = gradients(whole, [x, bias], wide(g))
        assert_close(dx, expected[0], dtype, 2)
        assert_close(dbias, expected[1], dtype, 2)


@pytest.mark.parametrize("activation", kernels.ACTIVATIONS)
def test_without_a_bias(cuda, activation):
    x, g = numbers((4, 9), "float32"), numbers((4, 9), "float32", seed=1)
    f = OF_OPS[activation]
    y = kernels.bias_activation(x, activation=activation)
    assert_close(y, ops.convert_to_numpy(f(wide(x))), "float32")
    dx, none = kernels.bias_activation_gradient(g, x, activation=activation)
    assert_close(dx, gradients(lambda x: f(ops.add(x, 0)), [x], wide(g))[0], "float32")
    assert none is None


@pytest.mark.parametrize("name", ["sigmoid", "softplus"])
def test_the_table_s_entries(cuda, name):
    x = np.array([-np.inf, -200, -1, 0, 2, 200, np.inf, np.nan])
    expected = OF_OPS[name](x).numpy()
    np.testing.assert_allclose(KERNELS[name](put(x, "float32")), expected, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(KERNELS[name](put(x)), expected, rtol=1e-12)  # float64: the op's


def test_relu_lets_nan_through(cuda):
    y = kernels.bias_activation(put([np.nan, -1.0, 2.0], "float32"), activation="relu")
    np.testing.assert_array_equal(y, [np.nan, 0, 2])


def test_an_unknown_activation_lists_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'gelu'"):
        kernels._kind("gello")


@pytest.mark.parametrize("columns", [3, 5, 256])
def test_columns_go_on_where_the_grid_turns(cuda, columns):
    x, bias = numbers((300, columns), "float32", 1), numbers(columns, "float32", 1, seed=1)
    Function.grid = 1  # one block does all: its columns wrap many times
    assert_close(kernels.bias_activation(x, bias, "linear"), wide(x) + wide(bias), "float32")
