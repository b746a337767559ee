"""Every kernel of every source: run on the CPU in several orders, compiled for GPUs, run on one."""

from __future__ import annotations

import ctypes
import importlib.util
import pathlib
import re
import sys

import numpy as np
import pytest
from cuda_on_cpu import (
    COMPILER,
    DTYPES,
    NO_COMPILER,
    SCALARS,
    TOLERANCES,
    CudaError,
    Function,
    StandIn,
    dtype_of,
    numbers,
    put,
    signatures,
    wide,
)
from kernel_calls import CALLS

from kerasish import ops
from kerasish.backends.eager.cuda import KERNELS, embedding, kernels, random, softmax
from kerasish.ops.op import REGISTRY
from kerasish.ops.random import philox

NAMES = {name: source for source in kernels.SOURCES for name in signatures(kernels.source(source))}


def test_every_kernel_is_run_on_the_cpu():
    declared = sum(kernels.source(s).count("__global__") for s in kernels.SOURCES)
    assert set(CALLS) == set(NAMES)
    assert declared == len(NAMES), "a name stands in two sources, or the pattern missed one"
    assert {p.stem for p in kernels.FOLDER.glob("*.cu")} == set(kernels.SOURCES)


def test_the_table_names_ops():
    assert set(KERNELS) <= set(REGISTRY)


def _put_as(dtype):
    return lambda values, other=None: put(values, other or dtype_of(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", sorted(CALLS))
def test_the_order_of_threads_changes_nothing(cuda, kernel, dtype):
    found = []
    for seed in (0, 1, 12345):
        Function.seed = seed
        found.append([np.array(a).tobytes() for a in CALLS[kernel](_put_as(dtype))])
        assert cuda.launches[kernel]
    assert found[0] == found[1] == found[2]


# --- more elements than 32 bits count -------------------------------------------------------------


def _sparse(shape, dtype):
    """Return an array of zeros, far larger than memory: pages exist where they are touched."""
    return np.zeros(shape, dtype).view(type(put(0.0)))


def test_dropout_of_more_than_2_to_the_32_elements(cuda):
    count = 2**32 + 4096
    x, y, state = _sparse(count, "float16"), _sparse(count, "float16"), np.array([3, 5], "uint32")
    x[-8:] = 1
    Function.most = 2
    blocks = -(-count // (4 * kernels.THREADS))
    args = (np.uint32(2**31), np.float32(2), np.int64(count), np.int32(1))
    kernels.launch(
        "random", "dropout", x.dtype, blocks, (kernels.THREADS,), x, put(state), y, *args
    )
    far = _philox_at(state, (count - 8) // 4, 2)
    assert y[-8:].tolist() == [0 if b < 2**31 else 2 for b in far]


def _philox_at(state, block, blocks):
    at = np.arange(block, block + blocks, dtype="uint64")
    zero = np.uint64(0)
    counter = (at & np.uint64(2**32 - 1), at >> np.uint64(32), np.uint64(state[1]), zero)
    return np.stack(philox(np, counter, (np.uint64(state[0]), zero)), -1).reshape(-1)


def test_rows_beyond_2_to_the_31_elements(cuda):
    rows, n = 2**22 + 8, 1024
    x, y = _sparse((rows, n), "float16"), _sparse((rows, n), "float16")
    x[-1, 5] = 3
    Function.most = 2
    args = (x, y, np.int64(rows), np.int64(n), np.int32(0), np.int32(1))
    kernels.launch("softmax", "softmax", x.dtype, rows // 8, (32, 8), *args)
    expected = ops.softmax(wide(x[-1])).numpy()
    np.testing.assert_allclose(wide(y[-1]), expected, atol=1e-3)
    np.testing.assert_allclose(wide(y[0]), 1 / n, rtol=1e-3)


def test_rows_of_a_table_of_more_than_2_to_the_31_elements(cuda):
    rows, n = 2**22 + 8, 512
    table = _sparse((rows, n), "float32")
    table[-1] = np.arange(n)
    found = embedding.take_rows(table, put(np.array([rows - 1, 0])), axis=0)
    np.testing.assert_array_equal(found, [np.arange(n), np.zeros(n)])


# --- for GPUs -------------------------------------------------------------------------------------


def _nvrtc():
    spec = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(p) for p in spec.submodule_search_locations] if spec else []
    found = [lib for f in folders for lib in sorted(f.glob("*/lib/libnvrtc.so.*"))]
    if not found:
        pytest.skip("NVRTC is not installed: the wheel nvidia-cuda-nvrtc, part of the extra test")
    return ctypes.CDLL(str(found[0]))


def _compile(nvrtc, text, *options):
    program = ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None
    )
    assert made == 0
    given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    result, size = nvrtc.nvrtcCompileProgram(program, len(options), given), ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    binary = b""
    if result == 0:
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, buffer)
        binary = buffer.raw
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return binary, log.value.decode()


def test_nvrtc_refuses_what_is_wrong():
    binary, log = _compile(_nvrtc(), "__global__ void f() { nothing; }", "-arch=sm_90")
    assert not binary
    assert "nothing" in log


def _check_compiles(source, scalar, architecture):
    options = ("--std=c++17", f"-DSCALAR={scalar}", f"-arch={architecture}")
    binary, log = _compile(_nvrtc(), kernels.source(source), *options)
    assert binary, log
    assert not log, log  # no warning either
    for name in signatures(kernels.source(source)):
        assert name.encode() in binary


@pytest.mark.parametrize("source", kernels.SOURCES)
def test_every_source_compiles_for_the_oldest_gpu(source):
    _check_compiles(source, "17", "sm_75")


# Each scalar for the oldest, a present and the newest chip, one scalar for those between.
BUILDS = [("32", "sm_75"), ("16", "sm_75")]
BUILDS += [(scalar, a) for scalar in sorted(SCALARS) for a in ("sm_90", "sm_100")]
BUILDS += [("17", a) for a in ("sm_80", "sm_86", "sm_89")]


@pytest.mark.slow
@pytest.mark.parametrize("source", kernels.SOURCES)
@pytest.mark.parametrize(("scalar", "architecture"), BUILDS)
def test_every_source_compiles_for_gpus(source, scalar, architecture):
    _check_compiles(source, scalar, architecture)


SCRIPTS = sorted(kernels.FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_cupy_has_what_is_asked_of_it(path):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: extras gpu13 or gpu12")
    used = set(re.findall(r"\b(?:xp|cupy\(\))\.([a-zA-Z_]\w*)", path.read_text()))
    for name in sorted(used):
        assert hasattr(cupy, name), f"{path.name} uses {name}, which CuPy lacks"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", sorted(CALLS))
def test_a_gpu_gives_what_the_cpu_does_and_repeats(monkeypatch, kernel, dtype):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: extras gpu13 or gpu12")
    if not cupy.is_available():
        pytest.skip("no CUDA device")
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cupy", StandIn())
        expected = [wide(a) for a in CALLS[kernel](_put_as(dtype))]

    def to_gpu(values, other=None):
        return cupy.asarray(np.asarray(values, other or dtype_of(dtype)))

    found, again = ([a.get() for a in CALLS[kernel](to_gpu)] for _ in range(2))
    for a, b, c in zip(found, again, expected):
        assert a.tobytes() == b.tobytes()
        size = max(1.0, np.abs(c).max(initial=0))
        atol = 4 * size * TOLERANCES[dtype]
        np.testing.assert_allclose(a.astype("float64"), c, rtol=0, atol=atol)


# --- the stand-in itself: what it would not do, or do wrong, it says ------------------------------


def _wrong(cuda, source, grid=(1,), block=(64,), *args):
    whole = (kernels.FOLDER / "prelude.cuh").read_text() + source
    module = cuda.RawModule(code=whole, options=("-DSCALAR=32",))
    module.get_function("wrong")(grid, block, args)


def test_access_beyond_an_array_is_found(cuda):
    source = 'extern "C" __global__ void wrong(OUT(float) y) { y[threadIdx.x] = 1.0f; }'
    _wrong(cuda, source, (1,), (64,), numbers((64,), "float32"))
    with pytest.raises(CudaError, match=r"access to \[63, 64\) of 63 elements.*thread \(63"):
        _wrong(cuda, source, (1,), (64,), numbers((63,), "float32"))


def test_packs_off_their_alignment_are_found(cuda):
    source = 'extern "C" __global__ void wrong(IN(float) y) { load<4>(y); }'
    _wrong(cuda, source, (1,), (1,), numbers((8,), "float32"))
    with pytest.raises(CudaError, match="not aligned to 16 bytes"):
        _wrong(cuda, source, (1,), (1,), numbers((8,), "float32", offset=1))


def test_barriers_that_not_all_threads_reach_are_found(cuda):
    source = 'extern "C" __global__ void wrong(int n) { if (threadIdx.x < n) __syncthreads(); }'
    _wrong(cuda, source, (1,), (64,), np.int32(64))
    with pytest.raises(CudaError, match="barrier at line .* reached by 32 of 64 threads"):
        _wrong(cuda, source, (1,), (64,), np.int32(32))


def test_warps_that_come_apart_are_found(cuda):
    source = """extern "C" __global__ void wrong(int n) {
        float x = 1.0f;
        if (threadIdx.x < n) x = __shfl_xor_sync(0xffffffffu, x, 1);
    }"""
    _wrong(cuda, source, (1,), (64,), np.int32(32))
    with pytest.raises(CudaError, match="threads of a warp apart"):
        _wrong(cuda, source, (1,), (64,), np.int32(40))


def test_shared_memory_is_nan_until_written_and_races_show(cuda):
    source = """extern "C" __global__ void wrong(OUT(float) y, int wait) {
        SHARED(float, s, 64);
        s[threadIdx.x] = threadIdx.x;
        if (wait) __syncthreads();
        y[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    y = numbers((64,), "float32")
    _wrong(cuda, source, (1,), (64,), y, np.int32(1))
    assert y.tolist() == list(range(63, -1, -1))
    _wrong(cuda, source, (1,), (64,), y, np.int32(0))
    assert np.isnan(y[:32]).all()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.int64(3),), "argument 0"),
        ((3,), "argument 0"),
        ((), "takes 1 arguments, got 0"),
    ],
)
def test_arguments_of_other_types_are_refused(cuda, args, message):
    source = 'extern "C" __global__ void wrong(int n) { }'
    with pytest.raises(CudaError, match=message):
        _wrong(cuda, source, (1,), (1,), *args)


@pytest.mark.parametrize(
    ("grid", "block"), [((0,), (1,)), ((1, 2**16), (1,)), ((1,), (1025,)), ((1,), (0,))]
)
def test_launches_that_a_gpu_refuses_are_refused(cuda, grid, block):
    source = 'extern "C" __global__ void wrong(int n) { }'
    with pytest.raises(CudaError, match="a grid of|a block of"):
        _wrong(cuda, source, grid, block, np.int32(1))


def test_arrays_with_gaps_are_refused(cuda):
    source = 'extern "C" __global__ void wrong(OUT(float) y) { y[0] = 1.0f; }'
    with pytest.raises(CudaError, match="not contiguous"):
        _wrong(cuda, source, (1,), (1,), numbers((4, 4), "float32")[:, 1])


def test_half_numbers_are_rounded_as_numpy_does(cuda):
    words = np.random.default_rng(0).integers(0, 2**32, 20000, "uint32")
    x = np.concatenate([words.view("float32"), np.arange(2**16, dtype="uint16").view("float16")])
    edges = np.array([65519.0, 65520.0, 2**-25, 3 * 2**-25, 2**-24, -0.0], "float32")
    x = np.concatenate([x, edges])
    for dtype in ("float16", "bfloat16"):
        text = kernels.source("softmax") + (
            'extern "C" __global__ void round_all(IN(float) x, OUT(Scalar) y, i64 n) {'
            "for (i64 i = first_element(); i < n; i += element_step()) put(y + i, get(x + i)); }"
        )
        scalar = kernels.SCALARS[dtype]
        rounding = cuda.RawModule(code=text, options=(f"-DSCALAR={scalar}",))
        y = put(np.zeros(x.size, dtype_of(dtype)))
        rounding.get_function("round_all")((4,), (256,), (put(x), y, np.int64(x.size)))
        with np.errstate(all="ignore"):
            expected = x.astype(dtype_of(dtype))
        nan = np.isnan(x)
        np.testing.assert_array_equal(np.isnan(wide(y)), nan)
        same = np.array(y).view("uint16")[~nan] == expected.view("uint16")[~nan]
        assert same.all()


def test_a_kernel_is_compiled_once(cuda):
    x, before = numbers((2, 3), "float32"), kernels.function.cache_info().misses
    softmax.softmax(x)
    softmax.softmax(x)
    assert kernels.function.cache_info().misses == before + 1
    assert cuda.launches["softmax"] == 2
    random.dropout(put(np.array([1, 2], "uint32")), x, 0.5)
    assert kernels.function.cache_info().misses == before + 2
