"""Small matrix products of our own against NumPy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kerasish.backends.static.codegen import driver, kernels, matmul
from kerasish.backends.static.codegen.description import KernelBuilder
from kerasish.backends.static.machine import machine_code

_ORDER = ["avx512", "avx2", "sse"]
_HOST = machine_code.host_target("avx512").level
LEVELS = _ORDER[_ORDER.index(_HOST) :] if _HOST in _ORDER else ["generic"]
SIZES = [(1, 1, 1), (32, 32, 20), (5, 3, 7), (4, 16, 0), (0, 4, 3), (33, 65, 9), (7, 130, 64)]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def dense(activation="relu"):
    k = KernelBuilder()
    product, bias = k.input("float32"), k.input("float32", level="column")
    k.output(k.op(activation, product + bias))
    return k.build()


def plain(combine="set"):
    k = KernelBuilder()
    k.output(k.op("stop_gradient", k.input("float32")), combine=combine)
    return k.build()


def run(structure, target, sizes, a, b, operands):
    _, n, k = sizes
    owner, scratch = driver.aligned(matmul.scratch_size(structure, n, k))
    block = matmul.pack(
        structure, table=driver.load_runtime().table, sizes=sizes, a=a, b=b, operands=operands,
        scratch=scratch,
    )  # fmt: skip
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    assert call(kernels.compile_one(structure, target))(block.ctypes.data) == 0
    assert len(owner)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_product_with_bias_and_activation(level, sizes, turned):
    m, n, k = sizes
    a, b, bias = numbers(m, k), numbers(k, n, seed=1), numbers(n, seed=2)
    y = np.full((m, n), np.nan, np.float32)
    stored_a = np.ascontiguousarray(a.T) if "a" in turned else a
    stored_b = np.ascontiguousarray(b.T) if "b" in turned else b
    steps = (1, m) if "a" in turned else (k, 1)
    run(
        matmul.Matmul(dense(), "b" in turned), machine_code.host_target(level), sizes,
        (stored_a.ctypes.data, *steps), (stored_b.ctypes.data, k if "b" in turned else n),
        [(bias.ctypes.data, 0), (y.ctypes.data, n)],
    )  # fmt: skip
    np.testing.assert_allclose(y, np.maximum(a @ b + bias, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", range(1, 18))
def test_few_columns_have_the_bits_of_many(level, columns):
    sizes = 21, columns, 37
    a, b, bias = numbers(21, 37), numbers(37, columns, seed=1), numbers(columns, seed=2)
    found = []
    for lanes in (0, matmul.few_lanes(columns)):
        y = np.full((22, columns), np.nan, np.float32)
        run(
            matmul.Matmul(dense("tanh"), False, lanes), machine_code.host_target(level), sizes,
            (a.ctypes.data, 37, 1), (b.ctypes.data, columns),
            [(bias.ctypes.data, 0), (y.ctypes.data, columns)],
        )  # fmt: skip
        found.append(y)
    assert found[0].tobytes() == found[1].tobytes() and np.isnan(y[21]).all()
    np.testing.assert_allclose(y[:21], np.tanh(a @ b + bias), rtol=1e-4, atol=1e-5)


def test_lanes_of_few_columns():
    lanes = [matmul.few_lanes(n) for n in (1, 2, 3, 4, 5, 8, 9, 16, 17)]
    assert lanes == [2, 2, 4, 4, 8, 8, 16, 16, 0]


def test_product_added_to_what_is_there():
    a, b, y = numbers(6, 5), numbers(5, 11, seed=1), numbers(6, 11, seed=2)
    expected = y + a @ b
    run(
        matmul.Matmul(plain("add")), None, (6, 11, 5), (a.ctypes.data, 5, 1),
        (b.ctypes.data, 11), [(y.ctypes.data, 11)],
    )  # fmt: skip
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_epilogues_have_no_reductions():
    k = KernelBuilder()
    x = k.input("float32")
    k.output(x - k.op("row_max", x))
    with pytest.raises(ValueError, match="no reductions"):
        matmul.generate(matmul.Matmul(k.build()), "f", machine_code.host_target())
