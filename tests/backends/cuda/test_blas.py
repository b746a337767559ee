"""Products by cuBLASLt: how it is called, seen by a library of that interface on the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import pathlib
import re

import numpy as np
import pytest
from cuda_on_cpu import assert_close, numbers, put, wide

from kerasish import config, ops
from kerasish.backends.eager.cuda import KERNELS, blas, cublaslt
from kerasish.errors import UnknownNameError

DTYPES = ("float16", "bfloat16", "float32")


@pytest.fixture
def library(cublaslt_on_cpu):
    return cublaslt_on_cpu


@pytest.fixture
def lib(cuda, library, monkeypatch):
    monkeypatch.setattr(blas, "library", lambda version: library)
    library.stub_fail(0)
    monkeypatch.setattr(config._Settings, "tf32", False)
    cublaslt.plans.clear()
    blas._warn_once.cache_clear()
    return library


def _turned(x):
    """Return x with its matrices lying column by column."""
    return put(np.ascontiguousarray(np.array(x).swapaxes(-1, -2))).swapaxes(-1, -2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(
    ("left", "right"), [((3, 5), (5, 7)), ((1, 1), (1, 1)), ((4, 3, 5), (4, 5, 2))]
)
def test_products(lib, left, right, turned, dtype):
    a, b = numbers(left, dtype), numbers(right, dtype, seed=1)
    given = [_turned(x) if t else x for x, t in zip((a, b), turned)]
    y = cublaslt.multiply(lib, *given)
    assert y.dtype == a.dtype
    assert_close(y, wide(a) @ wide(b), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_bias_and_activation_on_the_way_out(lib, activation, dtype):
    a, b = numbers((6, 5), dtype), numbers((5, 8), dtype, seed=1)
    f = {None: lambda x: ops.add(x, 0), "relu": ops.relu, "gelu": ops.gelu}[activation]
    for seed in (2, 3):  # another bias, the same plan
        bias = numbers((8,), dtype, seed=seed)
        expected = f(wide(a) @ wide(b) + wide(bias)).numpy()
        assert_close(cublaslt.multiply(lib, a, b, bias, activation), expected, dtype)
    expected = f(wide(a) @ wide(b)).numpy()
    assert_close(cublaslt.multiply(lib, a, b, None, activation), expected, dtype)


def test_views_are_told_their_alignment(lib):
    a, b = numbers((6, 5), "float16", offset=1), numbers((5, 8), "float16", offset=4)
    assert (cublaslt._alignment(a), cublaslt._alignment(b)) == (2, 8)
    assert_close(cublaslt.multiply(lib, a, b), wide(a) @ wide(b), "float16")


def test_plans_are_made_once(lib):
    a, b = numbers((6, 5), "float16"), numbers((5, 8), "float16")
    before = lib.stub_choices()
    for _ in range(3):
        cublaslt.multiply(lib, a, b)
    assert lib.stub_choices() == before + 1
    cublaslt.multiply(lib, numbers((7, 5), "float16"), b)
    assert lib.stub_choices() == before + 2


def test_what_the_library_keeps_for_dropped_plans_is_given_back(lib, monkeypatch):
    monkeypatch.setattr(cublaslt, "MOST_PLANS", 3)
    b = numbers((5, 8), "float16")
    for rows in (1, 2, 3, 4, 2, 5, 1):
        a = numbers((rows, 5), "float16")
        assert_close(cublaslt.multiply(lib, a, b), wide(a) @ wide(b), "float16")
        assert lib.stub_alive() <= 3 * 4  # a product's description and three matrices' each
    before = lib.stub_choices()
    cublaslt.multiply(lib, numbers((2, 5), "float16"), b)  # used later than 3 and 4: kept
    assert lib.stub_choices() == before
    lib.stub_fail(1)
    with pytest.raises(cublaslt.LibraryError, match="no algorithm"):
        cublaslt.multiply(lib, numbers((7, 5), "float16"), b)
    cublaslt.plans.clear()
    assert lib.stub_alive() == 0


def test_parts_of_16_bit_products_are_summed_in_float32_only(lib, monkeypatch):
    a, b = numbers((6, 5), "bfloat16"), numbers((5, 8), "bfloat16")
    cublaslt.multiply(lib, a, b)
    for schemes in (0, 1, 4, 7):  # in place and in the result's dtype: refused by the library here
        monkeypatch.setattr(cublaslt, "IN_COMPUTE_TYPE", schemes)
        cublaslt.plans.clear()
        with pytest.raises(cublaslt.LibraryError, match="no algorithm"):
            cublaslt.multiply(lib, a, b)


def test_a_handle_belongs_to_the_product_s_device(lib, cuda, monkeypatch):
    entered = []

    def device(index):
        entered.append(index)
        return contextlib.nullcontext()

    monkeypatch.setattr(cuda.cuda, "Device", device)
    cublaslt._handle.cache_clear()
    cublaslt._handle(lib, 1)
    cublaslt._handle(lib, 0)
    assert entered == [1, 0]


MATMULS = [
    ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 1, 2, 3), (5, 3, 1)), ((3,), (3,)),
    ((3,), (2, 3, 4)), ((2, 4, 3), (3,)), ((0, 3), (3, 2)), ((2, 6, 3, 4), (2, 6, 4, 5)),
    ((2, 0), (0, 3)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("left", "right"), MATMULS)
def test_the_op(lib, monkeypatch, left, right, there, dtype):
    if not there:
        monkeypatch.setattr(blas, "library", lambda version: None)
    a, b = numbers(left, dtype), numbers(right, dtype, seed=1)
    y = blas.matmul(a, b)
    assert y.dtype == a.dtype
    assert_close(y, np.matmul(wide(a), wide(b)), dtype)


def _rounded(x):
    """Return float32 numbers rounded to TF32: 10 bits behind the point, to nearest."""
    bits = np.array(x, "float32").view("uint32")
    bits = (bits + 0xFFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)
    return bits.view("float32").astype("float64")


@pytest.mark.parametrize(("left", "right"), [((6, 5), (5, 8)), ((2, 3, 5), (5, 4))])
def test_float32_is_rounded_to_tf32_only_where_that_is_allowed(lib, left, right):
    a, b = numbers(left, "float32"), numbers(right, "float32", seed=1)
    assert_close(blas.matmul(a, b), wide(a) @ wide(b), "float32")
    assert not config.tf32()
    config.set_tf32(True)
    y = blas.matmul(a, b)
    assert y.dtype == "float32"
    assert_close(y, _rounded(a) @ _rounded(b), "float32")
    assert np.abs(wide(y) - wide(a) @ wide(b)).max() > 1e-5


def test_convolutions_follow_the_setting(lib):
    x, kernel = numbers((2, 5, 5, 3), "float32"), numbers((3, 3, 3, 4), "float32", seed=1)
    attrs = {"strides": (1, 1), "padding": ((0, 0),) * 2, "dilation": (1, 1), "groups": 1}
    exact = wide(KERNELS["convolution"](x, kernel, **attrs))
    before = lib.stub_choices()
    config.set_tf32(True)
    found = wide(KERNELS["convolution"](x, kernel, **attrs))
    assert lib.stub_choices() == before + 1
    error = np.abs(found - exact).max() / np.abs(exact).max()
    assert 1e-5 < error < 2e-3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("within", [True, False])
def test_a_bias_takes_no_kernel_and_relu_one(lib, cuda, monkeypatch, within, activation, dtype):
    monkeypatch.setattr(blas, "RELU_IN_PASSING", within)
    x, k, b = (numbers(s, dtype, seed=i) for i, s in enumerate([(6, 5), (5, 8), (8,)]))
    y = wide(x) @ wide(k) + wide(b)
    expected = y if activation is None else np.maximum(y, 0)
    before = lib.stub_choices()
    assert_close(blas.affine(x, k, b, activation), expected, dtype)
    assert lib.stub_choices() == before + 1
    assert cuda.launches == ({} if within or activation is None else {"bias_activation": 1})
    cuda.launches.clear()
    monkeypatch.setattr(blas, "library", lambda version: None)
    assert_close(blas.affine(x, k, b, activation), expected, dtype)
    assert cuda.launches == {"bias_activation": 1}


def test_nan_survives_the_relu_of_a_dense_layer(lib):
    x, k, b = (numbers(s, "float32") for s in [(6, 5), (5, 8), (8,)])
    x[2, 3] = np.nan  # the stub's relu, as some libraries', gives 0 for it
    y = blas.affine(x, k, b, "relu")
    assert np.isnan(y[2]).all()
    assert not np.isnan(np.delete(y, 2, 0)).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_s_gradient_brings_the_bias_s(lib, cuda, monkeypatch, dtype):
    x, g = numbers((6, 5), dtype), numbers((6, 8), dtype, seed=1)
    expected = [wide(x).T @ wide(g), wide(g).sum(0)]
    before = lib.stub_choices()
    for a, b in zip(blas.kernel_gradient(x, g), expected):
        assert_close(a, b, dtype)
    assert lib.stub_choices() == before + 1
    assert not cuda.launches
    lib.stub_fail(1)
    cublaslt.plans.clear()
    with pytest.warns(UserWarning, match="no algorithm"):
        found = blas.kernel_gradient(x, g)
    for a, b in zip(found, expected):
        assert_close(a, b, dtype)
    assert set(cuda.launches) == {"column_parts", "column_totals"}


def test_what_is_refused_is_asked_once(lib):
    a, b = numbers((2, 3), "float16"), numbers((3, 4), "float16")
    lib.stub_fail(1)
    for _ in range(2):
        with pytest.raises(cublaslt.LibraryError, match="no algorithm"):
            cublaslt.multiply(lib, a, b)
    assert len(cublaslt.plans) == 1


def test_the_setting_is_a_truth_value():
    with pytest.raises(ValueError, match="expected True or False, got 'yes'"):
        config.set_tf32("yes")


def test_what_the_library_refuses_goes_on_to_cupy_and_says_so_once(lib):
    a, b = numbers((2, 3), "float16"), numbers((3, 4), "float16")
    lib.stub_fail(1)
    with pytest.warns(UserWarning, match="no algorithm .* CuPy multiplies"):
        y = blas.matmul(a, b)
    assert_close(y, wide(a) @ wide(b), "float16")
    assert_close(blas.matmul(a, b), wide(a) @ wide(b), "float16")


def test_an_unknown_activation_is_refused(lib):
    a = numbers((2, 2), "float16")
    with pytest.raises(UnknownNameError, match="Did you mean 'gelu'"):
        cublaslt.multiply(lib, a, a, None, "gello")


def test_a_library_that_is_not_there_is_none():
    assert blas.library(0) is None


# What cuBLASLt's headers call the numbers that calls are made of.
FACTS = {
    "CUBLASLT_MATMUL_DESC_TRANSA": cublaslt.TRANSPOSE_A,
    "CUBLASLT_MATMUL_DESC_TRANSB": cublaslt.TRANSPOSE_B,
    "CUBLASLT_MATMUL_DESC_EPILOGUE": cublaslt.EPILOGUE,
    "CUBLASLT_MATMUL_DESC_BIAS_POINTER": cublaslt.BIAS_POINTER,
    "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": cublaslt.BATCH_COUNT,
    "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": cublaslt.BATCH_STRIDE,
    "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": cublaslt.WORKSPACE_BYTES,
    "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK": cublaslt.REDUCTION_SCHEMES,
    "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE": cublaslt.IN_COMPUTE_TYPE,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": cublaslt.ALIGNMENTS[0],
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES": cublaslt.ALIGNMENTS[1],
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES": cublaslt.ALIGNMENTS[2],
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES": cublaslt.ALIGNMENTS[3],
    "CUBLASLT_EPILOGUE_DEFAULT": cublaslt.PLAIN,
    "CUBLASLT_EPILOGUE_BIAS": cublaslt.WITH_BIAS,
    "CUBLASLT_EPILOGUE_RELU": cublaslt.EPILOGUES["relu"],
    "CUBLASLT_EPILOGUE_GELU": cublaslt.EPILOGUES["gelu"],
    "CUBLASLT_EPILOGUE_BGRADA": cublaslt.WITH_SUMS,
    "CUBLAS_COMPUTE_32F": cublaslt.COMPUTE_FLOAT,
    "CUBLAS_COMPUTE_32F_FAST_TF32": cublaslt.COMPUTE_TF32,
    "CUBLAS_OP_T": cublaslt.TRANSPOSED,
    "CUDA_R_32F": cublaslt.TYPES["float32"],
    "CUDA_R_16F": cublaslt.TYPES["float16"],
    "CUDA_R_16BF": cublaslt.TYPES["bfloat16"],
}
HEADERS = ("cublasLt.h", "cublas_api.h", "library_types.h")


def test_numbers_are_those_of_the_headers():
    spec = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(p) for p in spec.submodule_search_locations] if spec else []
    found = [h for f in folders for name in HEADERS for h in sorted(f.glob(f"*/include/{name}"))]
    if not any(h.name == "cublasLt.h" for h in found):
        pytest.skip("cuBLASLt's header is not installed: extras gpu13 or gpu12")
    text = "\n".join(h.read_text() for h in found)
    seen = {n: int(v) for n, v in re.findall(r"\b(CU[A-Z]+_\w+)\s*=\s*(\d+)\s*,", text)}
    known = set(FACTS) & set(seen)
    assert {n: seen[n] for n in known} == {n: FACTS[n] for n in known}
    lt = {n for n in FACTS if n.startswith("CUBLASLT")}
    assert lt <= known
    algorithm = re.search(
        r"typedef struct \{\s*uint64_t data\[(\d+)\];\s*\} cublasLtMatmulAlgo_t", text
    )
    assert int(algorithm[1]) == 8
    assert ctypes.sizeof(cublaslt.Choice) == 64 + 8 + 4 + 4 + 16


def test_the_real_library_takes_the_descriptions():
    found = [lib for lib in map(blas.library, (13, 12)) if lib is not None]
    if not found:
        pytest.skip("cuBLASLt is not installed: extras gpu13 or gpu12")
    for turned in (False, True):
        matrix = cublaslt.Matrix(8, 8, 8, 64, turned)
        for dtype in cublaslt.TYPES:
            given = (0, dtype, 4, matrix, matrix, matrix, (16,) * 4)
            for epilogue in (1, 2, 4, 6, 32, 36, 256):
                product = cublaslt.ProductRequest(*given, epilogue, dtype == "float32")
                assert all(made.value for made in cublaslt.describe(found[0], product))
