"""Entries: into memory and on a stream that the caller gives, so that a CUDA graph captures them.

The stand-in for CuPy refuses allocations, copies and waiting while a stream captures, and does what
was captured each time its graph is launched.
"""

from __future__ import annotations

import ctypes
import functools

import cuda_on_cpu
import numpy as np
import pytest
import stand_in_cupy as stand_in
from cuda_on_cpu import TOLERANCES, dtype_of, wide
from kernel_calls import CALLS, some, update_source

from kerasish import optimizers
from kerasish.backends.eager.cuda import blas, cublaslt, entry, kernels, random, softmax, update
from kerasish.backends.eager.cuda.entry import ENTRIES, Blank, Entry, Needs
from kerasish.backends.eager.cuda.fused_functions import WHOLES
from kerasish.errors import DeviceMemoryError, ShapeError


class _Library:
    """The stand-in for cuBLASLt, whose products a stream can capture, descriptions as they are."""

    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        return getattr(self.library, name)

    def cublasLtMatmul(self, handle, description, *rest):  # noqa: N802 - cuBLASLt's name
        copy = ctypes.create_string_buffer(ctypes.string_at(description, 32), 32)
        kept = ctypes.cast(copy, ctypes.c_void_p)
        call = functools.partial(self.library.cublasLtMatmul, handle, kept, *rest)
        return stand_in._do(lambda: self._checked(call, copy)) or 0

    @staticmethod
    def _checked(call, copy):
        assert call() == 0
        return 0


@pytest.fixture(scope="module")
def library(cublaslt_on_cpu):
    return _Library(cublaslt_on_cpu)


@pytest.fixture
def cupy(monkeypatch, library):
    monkeypatch.setattr(blas, "library", lambda version: library)
    cublaslt._plan.cache_clear()
    with stand_in.installed(monkeypatch) as module:
        yield module
    stand_in._Capture.work = None


def _room(shape, dtype):
    """Return memory "on the device", aligned as CuPy's is, of bytes that no kernel has written."""
    return stand_in.ndarray(np.asarray(cuda_on_cpu.poisoned(shape, dtype)))


def _put_as(dtype):
    def put(values, other=None):
        values = np.asarray(values)
        room = _room(values.shape, other or dtype_of(dtype))
        room._a[...] = values
        return room

    return put


def _poison(arrays):
    for array in arrays:
        array._a.reshape(-1).view("uint8")[...] = 255


def _bits(arrays):
    return [np.array(a._a).tobytes() for a in arrays]


def _captured(cupy, function, args, attrs):
    """Return what the call gives twice when its graph is launched, and what it needs."""
    needs = entry.plan(function, *args, **attrs)
    outs = [_room(shape, dtype_of(dtype)) for shape, dtype in needs.results]
    workspace = _room(needs.workspace, "uint8")
    stream = cupy.cuda.Stream(non_blocking=True)
    given = {"out": outs, "workspace": workspace, "stream": stream}
    with stream:
        stream.begin_capture()
        entry.call(function, args, attrs, **given)
        graph = stream.end_capture()
    found = []
    for _ in range(2):
        _poison([*outs, workspace])
        graph.launch()
        found.append(_bits(outs))
    assert found[0] == found[1]
    return outs, needs


# --- every entry that the examples of kernels call ------------------------------------------------


def _calls(monkeypatch, kernel, put):
    """Return the calls of entries that a kernel's example makes, but not those within others."""
    made, depth = [], [0]

    def spy(self, *args, **attrs):
        if not depth[0]:
            made.append((self, args, attrs))
        depth[0] += 1
        try:
            return self.function(*args, **attrs)
        finally:
            depth[0] -= 1

    with monkeypatch.context() as patch:
        patch.setattr(Entry, "__call__", spy)
        CALLS[kernel](put)
    return made


_seen: set[str] = set()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", sorted(CALLS))
def test_graphs_capture_every_kernel(cupy, monkeypatch, kernel, dtype):
    found = _calls(monkeypatch, kernel, _put_as(dtype))
    assert found
    for one, args, attrs in found:
        expected = entry.flat(one.function(*args, **attrs))
        outs, needs = _captured(cupy, one, args, attrs)
        for a, b, (shape, name) in zip(outs, expected, needs.results):
            assert (b.shape, b.dtype.name) == (shape, name)
            size = max(1.0, np.abs(wide(b._a)).max(initial=0))
            tolerance = 4 * TOLERANCES[dtype if name != "uint32" else "float32"] * size
            np.testing.assert_allclose(wide(a._a), wide(b._a), rtol=0, atol=tolerance)


def test_graphs_were_made_of_every_entry(cupy, monkeypatch):
    called = {
        one.__name__
        for kernel in CALLS
        for one, _, _ in _calls(monkeypatch, kernel, _put_as("float32"))
    }
    # Products have tests of their own below; two functions go through `bias_activation` alone.
    apart = {"matmul", "matrix_product", "affine", "kernel_gradient", "multiply"}
    apart |= {"multiply_and_sum", "sigmoid", "softplus", "column_sums", "add_along_axis"}
    ours = {n for n, e in ENTRIES.items() if "cudnn" not in e.function.__module__}
    assert called | apart == ours, "cuDNN's have their tests in test_cudnn"


PRODUCTS = {
    "matmul": [((3, 5), (5, 7)), ((2, 3, 5), (5, 4)), ((4, 3, 5), (4, 5, 2)), ((5,), (5, 3)),
               ((2, 4, 5), (5,)), ((3,), (3,)), ((2, 1, 2, 3), (5, 3, 1)), ((3, 0), (0, 2))],
    "matrix_product": [((3, 5), (5, 7))],
    "affine": [((6, 5), (5, 8), (8,))],
    "kernel_gradient": [((6, 5), (6, 8))],
    "sigmoid": [((3, 5),)],
    "softplus": [((3, 5),)],
    "column_sums": [((300, 5),), ((0, 5),)],
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "shapes"), [(n, s) for n in PRODUCTS for s in PRODUCTS[n]])
def test_graphs_capture_products(cupy, name, shapes, dtype):
    put = _put_as(dtype)
    args = [put(some(*s, seed=i)) for i, s in enumerate(shapes)]
    args += ["relu"] if name == "affine" else []
    expected = entry.flat(ENTRIES[name](*args))
    outs, _ = _captured(cupy, ENTRIES[name], args, {})
    for a, b in zip(outs, expected):
        assert a.shape == b.shape
        size = max(1.0, np.abs(wide(b._a)).max(initial=0))
        atol = 4 * TOLERANCES[dtype] * size
        np.testing.assert_allclose(wide(a._a), wide(b._a), rtol=0, atol=atol)


def test_graphs_capture_rows_added_along_an_axis(cupy):
    put = _put_as("float32")
    args = [put(some(2, 5, 4)), put(np.arange(40).reshape(2, 5, 4) % 3, "int32")]
    attrs = {"shape": (2, 3, 4), "axis": 1}
    expected = ENTRIES["add_along_axis"](*args, **attrs)
    outs, _ = _captured(cupy, ENTRIES["add_along_axis"], args, attrs)
    np.testing.assert_array_equal(outs[0]._a, expected._a)


WHOLE_CALLS = {
    "affine": ([(4, 3), (3, 5), (5,)], {}),
    "einsum_affine": ([(), (2, 3, 5), (5, 2, 4), (2, 4)], {}),
    "softmax": ([(4, 3)], {}),
    "log_softmax": ([(4, 3)], {}),
    "gelu": ([(4, 3)], {}),
    "silu": ([(4, 3)], {}),
    "categorical_crossentropy": ([(4, 3), (4, 3)], {"from_logits": True}),
    "sparse_categorical_crossentropy": ([(), (4, 3)], {"from_logits": True}),
    "group_normalization": ([(2, 3, 8)], {"groups": 2, "gamma": (8,), "beta": (8,)}),
    "layer_normalization": ([(4, 3), (3,), (3,)], {}),
    "rms_normalization": ([(4, 3), (3,)], {}),
    "moments": ([(4, 3)], {"axes": (0,)}),
    "standardize": ([(4, 3), (3,), (3,), (3,), (3,)], {}),
    "dropout": ([(), (4, 3)], {"rate": 0.5}),
    "norm_factor": ([], {"limit": 1.0}),
}


@pytest.mark.parametrize("function", WHOLES, ids=lambda f: f.__name__)
def test_graphs_capture_what_kernels_compute_whole(cupy, function):
    name, put = function.__name__, _put_as("float32")
    if name not in WHOLE_CALLS:
        pytest.skip(f"{name} is cuDNN's, which the stand-in does not capture")
    shapes, attrs = WHOLE_CALLS[name]
    args = [put(abs(some(*s, seed=i))) if s else None for i, s in enumerate(shapes)]
    attrs = {k: put(some(*v)) if k in ("gamma", "beta") else v for k, v in attrs.items()}
    if name == "dropout":
        args[0] = put(np.array([1, 2]), "uint32")
    elif name == "sparse_categorical_crossentropy":
        args[0] = put(np.array([0, 1, 2, 0]), "int32")
    elif name == "einsum_affine":
        args[0] = "abc,cde->abde"
    elif name == "norm_factor":
        args = [[put(some(5)), put(some(2, 3))]]
    op, inputs, attrs = WHOLES[function](*args, **attrs)
    kernel = functools.partial(op.kernel, cupy)
    values = [t.value for t in inputs]
    expected = entry.flat(kernel(*values, **attrs))
    outs, _ = _captured(cupy, kernel, values, attrs)
    for a, b in zip(outs, expected, strict=True):
        np.testing.assert_allclose(a._a, b._a, rtol=1e-6, atol=1e-6)


# --- what changes from one launch of a graph to the next ------------------------------------------


def test_a_graph_draws_a_new_mask_when_the_state_moves_on(cupy):
    put = _put_as("float32")
    state, x = put(np.array([3, 7]), "uint32"), put(np.ones(500))
    outs, graph = [_room(500, "float32")], None
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        random.dropout(state, x, 0.5, out=outs, workspace=_fresh_workspace(), stream=stream)
        graph = stream.end_capture()
    masks = []
    for draw in (7, 8, 7):
        state._a[1] = draw
        graph.launch()
        masks.append(outs[0]._a.tobytes())
        assert masks[-1] == random.dropout(state, x, 0.5)._a.tobytes()
    assert masks[0] == masks[2] != masks[1]


def _fresh_workspace():
    work, stand_in._Capture.work = stand_in._Capture.work, None
    made = _room(1 << 16, "uint8")
    stand_in._Capture.work = work
    return made


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_a_graph_makes_a_step_in_place_with_each_launch(cupy, rule):
    put = _put_as("float32")
    lists = [[put(abs(some(*s, seed=k))) for s in ((3,), (9000,))] for k in range(4)]
    values, _, first, second = lists
    rate, steps = put(np.array(0.1), "float32"), put(np.array(0), "int32")
    slots = first + second if rule == "adam" else first
    optimizer = optimizers.Adam(0.1) if rule == "adam" else optimizers.SGD(0.1, 0.9)
    source, out = update_source(optimizer), values + slots
    elements = lists if rule == "adam" else lists[:3]
    function, args = update.update_tensors, (source, elements, [rate, steps][: len(elements) - 2])
    started = [a._a.copy() for a in out]
    stream = cupy.cuda.Stream(non_blocking=True)
    expected = []
    for count, step_rate in enumerate((0.1, 0.05, 0.2)):
        rate._a[...], steps._a[...] = step_rate, count
        made = entry.flat(function(*args))
        expected.append(_bits(made))
        for a, b in zip(out, made):
            a._a[...] = b._a
    for a, b in zip(out, started):
        a._a[...] = b
    with stream:
        stream.begin_capture()
        function(*args, out=out, workspace=_fresh_workspace())
        graph = stream.end_capture()
    for count, step_rate in enumerate((0.1, 0.05, 0.2)):
        rate._a[...], steps._a[...] = step_rate, count
        graph.launch()
        assert _bits(out) == expected[count]


# --- what is refused ------------------------------------------------------------------------------


def test_shapes_and_dtypes_are_enough_to_plan():
    needs = softmax.softmax.plan(Blank((64, 10), "float32"))
    assert needs == Needs((((64, 10), "float32"),), 0)
    loss = softmax.class_loss.plan(Blank((6,), "int64"), Blank((6, 10), "float16"))
    assert loss.results == (((6,), "float16"), ((6,), "float32"))
    assert loss.workspace == 24  # the classes as int32
    product = blas.matmul.plan(Blank((6, 5), "bfloat16"), Blank((5, 3), "bfloat16"))
    assert product == Needs((((6, 3), "bfloat16"),), cublaslt.MOST_WORKSPACE)


def test_what_cupy_does_has_no_plan():
    assert blas.matmul.plan(Blank((2, 2), "float64"), Blank((2, 2), "float64")) is None
    x = Blank((3, 4), "int32")
    assert ENTRIES["pool_max"].plan(x, size=(1,), strides=(1,), padding=((0, 0),)) is None
    assert ENTRIES["take_rows"].plan(Blank((3, 4), "float32"), Blank((2,), "int32"), axis=1) is None


def test_large_sequences_need_the_workspace_of_one_step(cupy):
    def needs(steps):
        shapes = [(steps, 5, 48), (12, 48), (5, 12), (5, 12)]
        return ENTRIES["lstm"].plan(*(Blank(s, "bfloat16") for s in shapes))

    assert needs(3).workspace == needs(300).workspace
    assert needs(300).results[0] == ((300, 5, 12), "bfloat16")


def test_a_workspace_that_is_too_small_is_refused(cupy):
    x = _put_as("float32")(some(300, 24))
    needs = ENTRIES["column_sums"].plan(x)
    ENTRIES["column_sums"](x, workspace=_room(needs.workspace, "uint8"))
    with pytest.raises(DeviceMemoryError, match=f"of {needs.workspace - 1} bytes is too small"):
        ENTRIES["column_sums"](x, workspace=_room(needs.workspace - 1, "uint8"))
    with pytest.raises(ShapeError, match="multiple of 256"):
        ENTRIES["column_sums"](x, workspace=_room(needs.workspace + 16, "uint8")[16:])
    assert entry._here.frame is None


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (lambda: _room((3, 4), "float16"), r"out\[0\]: float32\[3, 4\] .* got float16\[3, 4\]"),
        (lambda: _room((3, 5), "float32"), r"got float32\[3, 5\]"),
        (lambda: _room((3, 8), "float32")[:, ::2], "got .* with gaps"),
        (list, "0 arrays given, and there are more"),
        (lambda: [_room((3, 4), "float32"), _room(1, "float32")], "1 arrays expected, got 2"),
    ],
)
def test_memory_that_does_not_fit_the_results_is_refused(cupy, out, message):
    with pytest.raises(ShapeError, match=message):
        softmax.softmax(_put_as("float32")(some(3, 4)), out=out())
    assert entry._here.frame is None


def test_the_stand_in_refuses_what_cannot_be_captured(cupy):
    x, stream = _put_as("float32")(some(3, 4)), cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(stand_in.CaptureError, match="an allocation of 48 bytes"):
            softmax.softmax(x)
        with pytest.raises(stand_in.CaptureError, match="a copy to the host"):
            x.get()
        with pytest.raises(stand_in.CaptureError, match="a copy from the host"):
            cupy.asarray(np.ones(3))
        with pytest.raises(stand_in.CaptureError, match="waiting"):
            stream.synchronize()
        stream.end_capture()
    assert kernels.planning() is False
