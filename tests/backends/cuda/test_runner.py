"""The runner of kernels on the CPU: what a GPU would not do, or do wrong, it says."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import (
    CudaError,
    Function,
    dtype_of,
    numbers,
    put,
    wide,
)

from kerasish.backends.eager.cuda import (
    kernels,
    random,
    softmax,
)

# --- the fake itself: what it would not do, or do wrong, it says ------------------------------


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


def test_unwritten_shared_memory_and_races_are_found(cuda):
    source = """extern "C" __global__ void wrong(OUT(float) y, int kind) {
        SHARED(float, s, 64);
        if (kind != 1) s[threadIdx.x] = threadIdx.x;
        if (kind != 2) __syncthreads();
        float x = s[63 - threadIdx.x];
        if (kind != 3) __syncthreads();
        s[threadIdx.x] = x;
        if (kind == 4) s[0] = x;
        y[threadIdx.x] = x;
    }"""
    y = numbers((64,), "float32")
    _wrong(cuda, source, (1,), (64,), y, np.int32(0))
    assert y.tolist() == list(range(63, -1, -1))
    said = ["read before it is written", "read before it is written|written by thread .* read by",
            "without a barrier",
            "written by threads .* without a barrier"]  # fmt: skip
    for kind, message in enumerate(said, 1):
        for seed in (0, 5):
            Function.seed = seed
            with pytest.raises(CudaError, match=message):
                _wrong(cuda, source, (1,), (64,), y, np.int32(kind))


def test_a_race_that_one_order_alone_would_show_is_found_in_any(cuda):
    source = """extern "C" __global__ void wrong(OUT(float) y) {
        SHARED(float, total, 1);
        if (threadIdx.x == 0) total[0] = 3.0f;
        y[threadIdx.x] = total[0];  // thread 0 is first here, and need not be on a GPU
    }"""
    with pytest.raises(CudaError, match="written by thread 0, read by"):
        _wrong(cuda, source, (1,), (64,), numbers((64,), "float32"))


def test_one_warp_may_run_far_ahead(cuda):
    source = """extern "C" __global__ void wrong(OUT(float) y, OUT(float) order) {
        for (int turn = 0; turn < 4; ++turn) {
            if (threadIdx.x % 32 == 0) {
                order[(int)y[0]] = threadIdx.x / 32;
                y[0] += 1.0f;
            }
            __shfl_xor_sync(0xffffffffu, 0.0f, 1);
        }
    }"""
    seen = set()
    for seed in range(1, 6):
        Function.seed = seed
        y, order = put(np.zeros(1, "float32")), put(np.zeros(16, "float32"))
        _wrong(cuda, source, (1,), (128,), y, order)
        assert sorted(order.tolist()) == [0.0] * 4 + [1.0] * 4 + [2.0] * 4 + [3.0] * 4
        runs = [order[0], *(b for a, b in zip(order, order[1:]) if a != b)]
        assert len(runs) == 4  # each warp all its turns before the next warp begins
        seen.add(tuple(float(r) for r in runs))
    assert len(seen) > 1


@pytest.mark.parametrize("mask", ["0xfffffffeu", "0x0000ffffu", "1u << threadIdx.x"])
def test_masks_that_leave_out_threads_are_found(cuda, mask):
    source = f"""extern "C" __global__ void wrong(OUT(float) y) {{
        y[threadIdx.x] = __shfl_xor_sync({mask}, 1.0f, 1);
    }}"""
    with pytest.raises(CudaError, match="mask"):
        _wrong(cuda, source, (1,), (32,), numbers((32,), "float32"))


def test_a_loop_without_the_step_of_the_grid_is_found(cuda):
    source = """extern "C" __global__ void wrong(OUT(float) y, i64 n, int right) {
        i64 at = first_element();
        if (right) for (; at < n; at += element_step()) y[at] = 1.0f;
        else if (at < n) y[at] = 1.0f;
    }"""
    for grid, right, expected in ((0, 0, 256), (1, 0, 64), (1, 1, 256)):
        Function.grid, y = grid, put(np.zeros(256, "float32"))
        _wrong(cuda, source, (4,), (64,), y, np.int64(256), np.int32(right))
        assert y.sum() == expected


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
