"""Every kernel of every source: run on the CPU in several orders, compiled for GPUs, run on one."""

from __future__ import annotations

import ast
import functools
import inspect
import pathlib
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_on_cpu import (
    COMPILER,
    DTYPES,
    KERNEL,
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
from kernel_calls import CALLS, UPDATES, update_source
from nvrtc import BY_CUPY, compile_text

import kerasish
from kerasish import ops, optimizers, tree
from kerasish.backends.eager.cuda import (
    KERNELS,
    activation,
    blas,
    embedding,
    kernels,
    norm,
    random,
    softmax,
    update,
)
from kerasish.backends.eager.cuda.window import divisor
from kerasish.ops.op import REGISTRY
from kerasish.ops.random import philox

NAMES = {name: source for source in kernels.SOURCES for name in signatures(kernels.source(source))}


def test_every_kernel_is_run_on_the_cpu():
    declared = sum(kernels.source(s).count("__global__") for s in kernels.SOURCES)
    assert set(CALLS) == {*NAMES, *UPDATES}
    assert declared == len(NAMES), "a name stands in two sources, or the pattern missed one"
    assert {p.stem for p in kernels.FOLDER.glob("*.cu")} == set(kernels.SOURCES)


def test_the_table_names_ops():
    assert set(KERNELS) <= set(REGISTRY)


def _put_as(dtype):
    return lambda values, other=None: put(values, other or dtype_of(dtype))


def _in_orders(cuda, kernel, dtype, orders):
    found = []
    for seed, grid in orders:
        Function.seed, Function.grid = seed, grid
        found.append([np.array(a).tobytes() for a in CALLS[kernel](_put_as(dtype))])
        assert cuda.launches[kernel]
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", sorted(CALLS))
def test_the_order_of_threads_changes_nothing(cuda, kernel, dtype):
    """Warps far ahead of others, and grids so small that loops over the grid turn often."""
    _in_orders(cuda, kernel, dtype, [(0, 0), (1, 1)])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", sorted(CALLS))
def test_twenty_orders_of_threads_change_nothing(cuda, kernel, dtype):
    orders = [(0, 0), *((7919 * k + 1, k % 4) for k in range(20))]
    _in_orders(cuda, kernel, dtype, orders)


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


# Elements: an index of 32 bits does not reach the last ones; the grid's last block does them, the
# first block the first ones, also by packs of 8.
MANY = 2**31 + 8 * kernels.MOST_BLOCKS * kernels.THREADS


def _row(values, count, dtype="float16"):
    """Return zeros that no memory backs, but for the first and the last numbers."""
    made = _sparse(count, dtype)
    made[: len(values)] = made[-len(values) :] = values
    return made


LARGE = {
    "bias_activation": lambda x: activation.bias_activation(x, None, "relu"),
    "bias_activation_gradient": lambda x: activation.bias_activation_gradient(x, x),
    "dropout": lambda x: random.dropout(put(np.array([1, 2], "uint32")), x, 0.0),
    "sgd_update": lambda x: update.update_tensors(
        update_source(optimizers.SGD(0.1)), [[x], [x]], [put(np.float32(0))]
    ),
}


@pytest.mark.parametrize("kernel", LARGE)
def test_all_of_more_than_2_to_the_31_elements(cuda, kernel):
    x = _row([1.0, 2.0, 3.0], MANY)
    cuda.empty = _sparse
    Function.most = 2  # the first block and the last one
    found = [a for a in tree.flatten(LARGE[kernel](x)) if a is not None]
    (y,) = (a for a in found if a.size == MANY)
    assert y[:3].tolist() == [1, 2, 3]
    assert y[-3:].tolist() == [1, 2, 3]


def test_pictures_of_more_than_2_to_the_31_elements(cuda):
    count, side = MANY // 4096, 64
    x = _sparse((count, side, side, 1), "float16")
    x[0, 0, 0, 0] = x[-1, -1, -1, 0] = 5
    cuda.empty = _sparse
    Function.most = 2
    attrs = {"size": (3, 3), "strides": (1, 1), "padding": ((1, 1), (1, 1))}
    y = KERNELS["pool_max"](x, **attrs)
    assert [y[0, 0, 0, 0], y[-1, -1, -1, 0], y[-1, -2, -2, 0]] == [5, 5, 5]


def test_columns_of_more_than_2_to_the_31_elements(cuda):
    x = _sparse((2**26 + 8, 32), "float16")
    x[-1] = np.arange(32)
    Function.most = 2
    rows, columns, chunk, chunks = x.shape[0], 32, 2**19, 129
    parts = _sparse((1, chunks, columns), "float32")
    one = divisor(1)
    sizes = (np.int64(rows), np.int64(columns), one, one, *map(np.int64, (1, chunk, chunks)))
    args = (x, *[kernels.NOTHING] * 3, parts, *sizes, np.int32(0))
    kernels.launch("norm", "column_parts", x.dtype, chunks, (32, 8), *args)
    np.testing.assert_array_equal(parts[0, -1], np.arange(32))


def test_places_beyond_2_to_the_31(cuda):
    places = put(np.array([2**31 + 5, 2**33, -1, 2**31 + 5]))
    order, keys = embedding._sorted(places, np.dtype("float32"))
    assert order.tolist() == [2, 0, 3, 1]
    assert keys.tolist() == [-1, 2**31 + 5, 2**31 + 5, 2**33]


@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 3000, 5000])
def test_sorting_keeps_the_order_of_equals(cuda, count):
    places = np.random.default_rng(0).integers(-1, 9, count)
    order, keys = embedding._sorted(put(places), np.dtype("float32"))
    np.testing.assert_array_equal(order, np.argsort(places, kind="stable"))
    np.testing.assert_array_equal(keys, np.sort(places))


def _divided(numbers, by):
    """Return the quotients that `Divisor` gives for 32-bit numbers, as the kernels compute them."""
    d = divisor(by)
    if by == 1:
        return numbers
    product = numbers.astype("u8") * np.uint64(d["multiplier"])
    return product >> np.uint64(32) >> np.uint64(d["shift"])


@pytest.mark.parametrize("by", [1, 2, 3, 5, 7, 10, 127, 641, 65535, 65537, 2**30 + 1, 2**31 - 1])
def test_quotients_by_multiplication_are_exact(by):
    rng = np.random.default_rng(by)
    edges = np.arange(1, 200, dtype="i8") * by
    numbers = np.concatenate([edges - 1, edges, edges + 1, 2**31 - np.arange(1, 50)])
    numbers = np.concatenate([numbers, rng.integers(0, 2**31, 20000)])
    numbers = numbers[(numbers >= 0) & (numbers < 2**31)].astype("u8")
    np.testing.assert_array_equal(_divided(numbers, by), numbers // np.uint64(by))


# --- nothing at all -------------------------------------------------------------------------------

EMPTY = {
    "softmax": ((0, 4),), "softmax_gradient": ((0, 4), (0, 4)), "layer_norm": ((0, 4),),
    "bias_activation": ((0, 4), (4,)), "bias_activation_gradient": ((0, 4), (0, 4), (4,)),
    "column_sums": ((0, 4),), "column_moments": ((0, 4),), "target_loss": ((0, 4), (0, 4)),
    "batch_norm": ((0, 4), (4,), (4,)), "batch_norm_gradient": ((0, 4), (0, 4), (4,), (4,)),
    "matmul": ((0, 4), (4, 3)), "sigmoid": ((0,),), "softplus": ((0, 3),),
    "matrix_product": ((0, 4), (4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EMPTY)
def test_functions_take_nothing(cuda, name, dtype):
    owners = (softmax, norm, activation, blas, SimpleNamespace(**KERNELS))
    function = next(getattr(owner, name) for owner in owners if hasattr(owner, name))
    found = function(*(put(np.ones(s), dtype_of(dtype)) for s in EMPTY[name]))
    for array in tree.flatten(found):
        rest = np.array(array).astype("float64")
        # Of no rows: sums are 0, means NaN, and there is nothing else.
        assert not rest.size or np.isnan(rest).all() or (rest == 0).all() or name == "batch_norm"


def test_groups_and_lists_of_nothing(cuda):
    x = put(np.ones((0, 5, 4)), "float32")
    assert [a.shape for a in norm.group_norm(x, 2)] == [(0, 5, 4), (0,), (0,)]
    none = put(np.ones((0, 3)), "float32")
    assert update.global_norm([none], 1.0)[0] == 0
    rate = put(np.float32(1))
    sgd = update_source(optimizers.SGD(0.1))
    assert update.update_tensors(sgd, [[none], [none]], [rate])[0][0].shape == (0, 3)
    assert random.dropout(put(np.array([1, 2], "uint32")), none, 0.5).shape == (0, 3)
    pooled = KERNELS["pool_max"](
        put(np.ones((0, 4, 4, 2)), "float32"), size=(2, 2), strides=(2, 2), padding=((0, 0),) * 2
    )
    assert pooled.shape == (0, 2, 2, 2)
    assert not cuda.launches.keys() - {"norm_of_parts"}


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


def test_nvrtc_refuses_what_is_wrong():
    binary, log = compile_text("__global__ void f() { nothing; }", ("-arch=sm_90",))
    assert not binary
    assert "nothing" in log


def _text(source):
    """Return the text of a source, or of what is made of an optimizer's formula."""
    return kernels.source(UPDATES[source]().name if source in UPDATES else source)


EVERY = (*kernels.SOURCES, *UPDATES)


def _check_compiles(source, scalar, architecture, major=0, more=()):
    options = ("--std=c++17", f"-DSCALAR={scalar}", "-DINDEX=32", f"-arch={architecture}", *more)
    binary, log = compile_text(_text(source), options, major)
    assert binary, log
    assert not log, log  # no warning either
    for name in signatures(_text(source)):
        assert name.encode() in binary


@pytest.mark.parametrize("source", EVERY)
def test_every_source_compiles_for_the_oldest_gpu(source):
    _check_compiles(source, "17", "sm_75")


@pytest.mark.slow
@pytest.mark.parametrize("source", EVERY)
def test_every_source_compiles_with_cuda_12(source):
    """NVRTC 12.9 and 13 differ in what they take without options: bare, and with CuPy's."""
    builds = [("17", "sm_75", ()), ("32", "sm_90", BY_CUPY), ("16", "sm_120", ())]
    for scalar, architecture, more in builds if source in kernels.SOURCES else builds[:1]:
        _check_compiles(source, scalar, architecture, 12, more)


@pytest.mark.slow
@pytest.mark.parametrize("source", [*kernels.SOURCES, "adam_update"])
@pytest.mark.parametrize("scalar", sorted(SCALARS))
def test_every_source_compiles_with_cuda_13(source, scalar):
    """test_binaries.py compiles them for each generation of GPUs."""
    for architecture in ("sm_90", "sm_120"):
        _check_compiles(source, scalar, architecture, 13)
    _check_compiles(source, scalar, "sm_90", 13, BY_CUPY)


PACKAGE = pathlib.Path(kerasish.__file__).parent
SCRIPTS = sorted(p for p in PACKAGE.rglob("*.py") if re.search(r"\bxp\.|\bcupy\b", p.read_text()))


def _names(node):
    """Return ["linalg", "svd"] for xp.linalg.svd, cupy.linalg.svd, cupy().linalg.svd; else []."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    node = node.func if isinstance(node, ast.Call) and not node.args else node
    known = isinstance(node, ast.Name) and node.id in ("xp", "cupy")
    return names[::-1] if known or (names[-1:] == ["xp"] and names.pop()) else []


def _lacking(cupy, text):
    """Yield what a script asks of CuPy that it lacks: names, and arguments of functions by name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and _names(node):
            found = cupy
            for name in _names(node):
                if not hasattr(found, name):
                    yield f"{'.'.join(_names(node))}, line {node.lineno}"
                    break
                found = getattr(found, name)
        if isinstance(node, ast.Call) and _names(node.func):
            found = functools.reduce(lambda f, n: getattr(f, n, None), _names(node.func), cupy)
            takes = _parameters(cupy, found)
            for word in node.keywords:
                if takes is not None and word.arg is not None and word.arg not in takes:
                    yield f"{'.'.join(_names(node.func))}({word.arg}=), line {node.lineno}"


def _parameters(cupy, function):
    """Return the names of a function's parameters; None where they cannot be known."""
    if isinstance(function, cupy.ufunc):
        return {"out", "dtype", "casting"}
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    open_ended = any(p.kind is p.VAR_KEYWORD for p in found.values())
    return None if open_ended else set(found)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_cupy_has_what_is_asked_of_it(path):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: extras gpu13 or gpu12")
    assert not list(_lacking(cupy, path.read_text()))


def test_what_cupy_lacks_is_found():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: extras gpu13 or gpu12")
    text = "xp.nothing\ncupy().linalg.none(x)\nxp.max(x, initial=0)\nxp.add(x, y, out=z)\nxp.sum(x)"
    found = ["nothing, line 1", "linalg.none, line 2", "max(initial=), line 3"]
    assert sorted(_lacking(cupy, text)) == sorted(found)


# --- what the sources say -------------------------------------------------------------------------


@pytest.mark.parametrize("source", EVERY)
def test_no_source_adds_floats_in_an_order_of_chance(source):
    assert not re.findall(r"\batomic\w*|\bred\.", _text(source))


# What kernels take as `int`: yes or no, and which one of a few.
FLAGS = {
    "biased", "centered", "has_beta", "has_factor", "has_gamma", "has_past", "has_slot", "kind",
    "logarithm", "masked", "nesterov", "packed", "values", "places", "with_x",
}  # fmt: skip


@pytest.mark.parametrize("source", EVERY)
def test_counts_and_places_have_64_bits(source):
    text = _text(source)
    for name, parameters in KERNEL.findall(text):
        for kind, parameter in (p.rsplit(maxsplit=1) for p in parameters.split(",")):
            assert kind != "int" or parameter in FLAGS, f"{name}: int {parameter}"
    # Products of the grid's and the block's numbers are wide from their first factor on.
    for line in text.splitlines():
        assert not re.search(r"(?<!\(i64\))(?<!\(Index\))\b(blockIdx|gridDim)\.x \*", line), line


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


def test_shared_memory_that_nobody_wrote_and_races_are_found(cuda):
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
