"""Products by SciPy's BLAS, and convolutions made of them, against NumPy."""

import convolution_reference as reference
import numpy as np
import pytest

from kerasish.backends.onednn.convolution import Geometry
from kerasish.backends.static.lowering import blas

RNG = np.random.default_rng(3)
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def random(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def close(got, expected, tolerance=2e-5):
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)


def test_it_is_here():
    assert blas.available() == ""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("batch", "m", "k", "n"),
    [((), 1, 1, 1), ((), 32, 20, 31), ((), 1, 9, 5), ((), 6, 1, 1), ((2, 3), 4, 5, 6)],
)
def test_gemm_is_numpys(batch, m, k, n, transposed, dtype):
    left, right = transposed
    a = random(*batch, *((k, m) if left else (m, k)), dtype=dtype)
    b = random(*batch, *((n, k) if right else (k, n)), dtype=dtype)
    out = np.full((*batch, m, n), np.nan, dtype)
    product = blas.gemm(
        (*batch, m, k), (*batch, k, n), transpose_a=left, transpose_b=right, dtype=dtype
    )
    product.bind({"a": a, "b": b, "out": out}).execute()
    expected = (np.swapaxes(a, -1, -2) if left else a) @ (np.swapaxes(b, -1, -2) if right else b)
    close(out, expected, TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((4, 5, 6), (6, 7)), ((2, 1, 5, 6), (1, 3, 6, 7))]
)
def test_gemm_broadcasts_batches(a_shape, b_shape):
    a, b = random(*a_shape), random(*b_shape)
    out = np.empty((a @ b).shape, np.float32)
    blas.gemm(a_shape, b_shape).bind({"a": a, "b": b, "out": out}).execute()
    close(out, a @ b)


def test_accumulating_strides_and_rebinding():
    whole, b, out = random(10, 40), random(20, 30), random(10, 30)
    before, other = out.copy(), random(20, 30)
    product = blas.gemm((10, 20), (20, 30), a_strides=(40, 1), accumulate=True)
    binding = product.bind({"a": whole[:, 5:25], "b": b, "out": out})
    binding.execute()
    close(out, before + whole[:, 5:25] @ b)
    binding.rebind("b", other)
    binding.execute()
    close(out, before + whole[:, 5:25] @ (b + other))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: blas.gemm((2, 3), (4, 5)), "a's last size 3"),
        (lambda: blas.gemm((2, 3), (3, 5), dtype="bfloat16"), "expected a dtype"),
        (lambda: blas.gemm((2, 3), (3, 5), a_strides=(6, 2)), "stride 1"),
        (lambda: blas.gemm((2, 3), (3, 5), out_strides=(1, 2)), "out's last axis"),
        (lambda: blas.gemm((2, 3), (3, 5)).bind({"a": (1, 99), "b": (1, 99)}), "expected buffers"),
        (
            lambda: blas.gemm((2, 3), (3, 5)).bind({"a": (8, 9), "b": (8, 99), "out": (8, 99)}),
            "needs 24 bytes",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "g",
    [
        Geometry((2, 7, 6, 3), 5, (3, 2), (2, 1), padding=((1, 1), (0, 1))),
        Geometry((2, 8, 8, 4), 6, (3, 3), dilations=(2, 2), groups=2),
        Geometry((2, 6, 6, 5), 10, (3, 3), groups=5),
        Geometry((3, 9, 2), 4, (3,)),
        Geometry((1, 4, 5, 6, 2), 3, (2, 2, 3)),
    ],
    ids=str,
)
def test_convolution_by_columns(g):
    x, w, dy = random(*g.x_shape), random(*g.weights_shape), random(*g.y_shape)
    gemms = blas.convolution_gemms(g)
    columns = reference.columns(g, x).astype(np.float32)
    assert columns.shape == gemms.columns
    y, dw = np.empty(g.y_shape, np.float32), np.empty(g.weights_shape, np.float32)
    dcolumns = np.empty(gemms.columns, np.float32)
    gemms.forward.bind({"a": columns, "b": w, "out": y}).execute()
    gemms.weights_gradient.bind({"a": columns, "b": dy, "out": dw}).execute()
    gemms.data_gradient.bind({"a": dy, "b": w, "out": dcolumns}).execute()
    close(y, reference.forward(g, x, w))
    close(dw, reference.weights_gradient(g, x, dy))
    close(reference.scattered(g, dcolumns), reference.data_gradient(g, dy, w))


def test_blocks_run_on_the_driver():
    pytest.importorskip("llvmlite")
    driver = pytest.importorskip("kerasish.backends.static.codegen.driver")
    a, b, out = random(3, 4, 5), random(3, 5, 6), np.empty((3, 4, 6), np.float32)
    binding = blas.gemm((3, 4, 5), (3, 5, 6)).bind({"a": a, "b": b, "out": out})
    assert len(binding.blocks) == 3
    runtime = driver.load_runtime()
    driver.Program([driver.Record(runtime.call_blas, block) for block in binding.blocks]).run()
    close(out, a @ b)
