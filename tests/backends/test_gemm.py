"""Packed products of our own against NumPy's, for all sizes, strides and numbers of threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerasish import backends, ops
from kerasish.backends.static.codegen import gemm
from kerasish.backends.static.codegen.driver import Program, Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.units import aligned_array
from kerasish.backends.static.machine.machine_code import host_target

MARGIN = 40  # of NaN around what is read, of a number around what is written


def matrix(rng, rows, columns, turned):
    """Return a (rows, columns) array of float32 inside a larger one of NaN."""
    shape = (columns, rows) if turned else (rows, columns)
    whole = np.full((shape[0] + 2, shape[1] + MARGIN), np.nan, "float32")
    inner = whole[1:-1, MARGIN // 2 : MARGIN // 2 + shape[1]]
    inner[...] = rng.normal(size=shape)
    return inner.T if turned else inner


def multiply(a, b, bias=None, relu=False, threads=1, turned=None, begun=None):
    (m, k), n = a.shape, b.shape[1]
    turned = b.strides[1] != 4 if turned is None else turned
    whole = np.full((m + 2, n + MARGIN), 7, "float32")
    c = whole[1:-1, MARGIN // 2 : MARGIN // 2 + n]
    if begun is not None:
        c[...] = begun
    scratch = aligned_array((gemm.scratch_size((m, n, k), threads),), "uint8")
    scratch[...] = 255  # NaN
    kernel = gemm.Gemm(turned)
    block = gemm.pack(
        table=load_runtime().table,
        sizes=(m, n, k),
        a=(a.ctypes.data, a.strides[0] // 4, a.strides[1] // 4),
        b=(b.ctypes.data, b.strides[1 if turned else 0] // 4),
        c=(c.ctypes.data, whole.shape[1]),
        bias=0 if bias is None else bias.ctypes.data,
        relu=relu,
        adds=begun is not None,
        scratch=scratch.ctypes.data,
        threads=threads,
    )
    Program([Record(compile_one(kernel), block, "product", scratch)]).run()
    result = c.copy()
    c[...] = 7
    assert (whole == 7).all(), "something beside the result was written"
    return result


def check(m, k, n, turned_a, turned_b, threads=1, bias=False, relu=False, adds=False):
    rng = np.random.default_rng(m * 1000 + k * 10 + n)
    a, b = matrix(rng, m, k, turned_a), matrix(rng, k, n, turned_b)
    extra = rng.normal(size=n).astype("float32") if bias else None
    begun = rng.normal(size=(m, n)).astype("float32") if adds else None
    got = multiply(a, b, extra, relu, threads, turned_b, begun)
    want = a.astype("float64") @ b.astype("float64")
    want = want + (0 if extra is None else extra)
    want = want + (0 if begun is None else begun)
    want = np.maximum(want, 0) if relu else want
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * k)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 90), st.integers(1, 300), st.integers(1, 90), st.booleans(), st.booleans(),
    st.integers(1, 4), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_size(m, k, n, turned_a, turned_b, threads, bias, relu, adds):
    check(m, k, n, turned_a, turned_b, threads, bias, relu, adds)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (6, 256, 16), (73, 257, 513), (145, 512, 1030), (128, 784, 512)]
)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_blocks(m, k, n, turned):
    check(m, k, n, *turned, threads=1, bias=True, relu=True)
    check(m, k, n, *turned, threads=2)


def test_nan_and_infinity_pass_through_relu():
    a, b = np.eye(3, 40, dtype="float32"), np.zeros((40, 40), "float32")
    b[:3, 0] = [np.nan, np.inf, -np.inf]
    got = multiply(a, b, np.zeros(40, "float32"), relu=True)
    assert np.isnan(got[0, 0])
    assert np.isnan(got[1, 0])  # 0 * NaN


def test_the_result_does_not_depend_on_threads():
    rng = np.random.default_rng(0)
    a, b = matrix(rng, 200, 300, True), matrix(rng, 300, 200, False)
    one = multiply(a, b)
    for threads in (2, 3, 4):
        np.testing.assert_array_equal(multiply(a, b, threads=threads), one)


@pytest.mark.skipif(host_target().level != "avx2", reason="only AVX2 processors choose it")
def test_the_static_engine_chooses_it():
    rng = np.random.default_rng(0)
    x, g = (rng.normal(size=(128, n)).astype("float32") for n in (784, 512))
    w, b = rng.normal(size=(784, 512)).astype("float32"), np.ones(512, "float32")
    step = backends.get("static").compile(
        lambda x, w, b, g: (ops.relu(ops.matmul(x, w) + b), ops.matmul(ops.transpose(x), g))
    )
    y, slope = step(x, w, b, g)
    np.testing.assert_allclose(y, np.maximum(x @ w + b, 0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(slope, x.T @ g, rtol=1e-3, atol=1e-3)
    assert [u.name for u in step.executables()[0].units] == ["packed matmul", "packed matmul"]
