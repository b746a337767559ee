"""Fused loops against NumPy: access, phases, reductions, dtypes, threads, instruction sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

from kerasish.backends.static.codegen import arguments, cost, driver, kernels
from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.description import (
    Kernel,
    KernelBuilder,
    LoopNode,
    Output,
    verify,
)
from kerasish.backends.static.machine import machine_code
from kerasish.errors import UnknownNameError
from kerasish.ops.random import random_bits

_ORDER = ["avx512", "avx2", "sse"]
_HOST = machine_code.host_target("avx512").level
LEVELS = _ORDER[_ORDER.index(_HOST) :] if _HOST in _ORDER else ["generic"]
SHAPES = [(0, 5), (1, 1), (3, 7), (5, 8), (37, 53), (2, 1), (64, 64), (1, 5000), (300, 130)]


@pytest.fixture(params=LEVELS)
def target(request):
    return machine_code.host_target(request.param)


def numbers(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def softmax_kernel():
    k = KernelBuilder()
    x = k.input("float32")
    e = k.op("exp", x - k.op("row_max", x))
    k.output(e / k.op("row_sum", e))
    return k.build()


def softmax(x):
    if not x.size:
        return x
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# --- access --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_operands_of_every_level(run_kernel, target, shape, threads):
    k = KernelBuilder()
    x, r = k.input("float32"), k.input("float32", level="row")
    c, s = k.input("float32", level="column"), k.input("float32", level="scalar")
    k.output(x * r + c - s)
    rows, columns = shape
    x, r, c = numbers(*shape), numbers(rows, seed=1), numbers(columns, seed=2)
    s, y = np.float32([0.5]), np.full(shape, np.nan, np.float32)
    run_kernel(
        k.build(), [x, r, c, s, y], rows=rows, columns=columns, threads=threads, target=target
    )
    np.testing.assert_allclose(y, x * r[:, None] + c - s, rtol=1e-5, atol=1e-6)


def test_column_slices_are_row_strides_and_offsets(run_kernel, target):
    """One LSTM gate pair: z[:, 0:u] and z[:, u:2u] of one matrix."""
    k = KernelBuilder()
    a, b = k.input("float32"), k.input("float32")
    k.output(k.op("sigmoid", a) * k.op("tanh", b))
    z, u = numbers(6, 26), 13
    y = np.zeros((6, u), np.float32)
    at = z.ctypes.data
    operands = [Operand(at, (26,)), Operand(at + 4 * u, (26,)), y]
    run_kernel(k.build(), operands, rows=6, columns=u, target=target)
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-z[:, :u])) * np.tanh(z[:, u:]), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bfloat16"])
def test_transposes_and_outer_sizes(run_kernel, target, dtype):
    """(2, 3, 4, 9) -> axes (2, 0, 1, 3), and -> (3, 2, 9, 4), whose columns are a stride apart."""
    x = np.arange(216).reshape(2, 3, 4, 9) % 100
    x = x.astype(bfloat16 if dtype == "bfloat16" else dtype)
    for axes, strided in (((2, 0, 1, 3), False), ((1, 0, 3, 2), True)):
        k = KernelBuilder(rank=3)
        k.output(k.input(dtype, strided=strided), dtype)
        expected = x.transpose(axes)
        y = np.zeros(expected.shape, x.dtype)
        steps = [s // x.itemsize for s in expected.strides]
        shape = expected.shape
        operands = [
            Operand(x.ctypes.data, tuple(steps[:3]), steps[3]),
            Operand(y.ctypes.data, (shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3])),
        ]
        for threads in (1, 2):
            y[:] = 0
            run_kernel(
                k.build(), operands, sizes=shape[:3], columns=shape[3], threads=threads,
                target=target,
            )  # fmt: skip
            np.testing.assert_array_equal(y, expected)


def test_strided_outputs(run_kernel, target):
    k = KernelBuilder()
    k.output(k.input("float32"), strided=True)
    x, y = numbers(5, 19), np.zeros((19, 5), np.float32)
    operands = [x, Operand(y.ctypes.data, (1,), 5)]
    run_kernel(k.build(), operands, rows=5, columns=19, target=target)
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_gathered_rows(run_kernel, target, index):
    k = KernelBuilder()
    i = k.input(index, level="row")
    x = k.input("uint8", gather=i)
    k.output(k.op("cast", x, dtype="float32") * (1 / 255))
    x = np.random.default_rng(0).integers(0, 255, (10, 21), np.uint8)
    rows = np.array([3, 0, 9, 3, -1], index)
    y = np.zeros((5, 21), np.float32)
    operands = [rows, Operand(x.ctypes.data, (21,), limit=10), y]
    for threads in (1, 2):
        y[:] = 0
        assert run_kernel(k.build(), operands, rows=5, columns=21, threads=threads) == 0
        np.testing.assert_allclose(y, x[rows] / 255, rtol=1e-6)
    rows[1] = 10
    assert run_kernel(k.build(), operands, rows=5, columns=21) == arguments.BAD_INDEX
    rows[1] = -11
    assert run_kernel(k.build(), operands, rows=5, columns=21) == arguments.BAD_INDEX


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("columns", [1, 5, 64, 200])
def test_scattered_rows_add_up(run_kernel, target, threads, columns):
    k = KernelBuilder()
    i, g = k.input("int32", level="row"), k.input("float32")
    k.output(g * 2.0, scatter=i, combine="add")
    rows = np.array([3, 0, 3, 3, 1, 0], np.int32)
    g, y = numbers(6, columns), np.zeros((4, columns), np.float32)
    operands = [rows, g, Operand(y.ctypes.data, (columns,), limit=4)]
    run_kernel(k.build(), operands, rows=6, columns=columns, threads=threads, target=target)
    expected = np.zeros_like(y)
    np.add.at(expected, rows, g * 2)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_softmax(run_kernel, target, shape, threads):
    x, y = numbers(*shape) * 10, np.zeros(shape, np.float32)
    run_kernel(
        softmax_kernel(), [x, y], rows=shape[0], columns=shape[1], threads=threads, target=target
    )
    np.testing.assert_allclose(y, softmax(x), rtol=2e-6, atol=1e-9)


def test_softmax_in_place(run_kernel, target):
    k = KernelBuilder()
    x = k.input("float32")
    e = k.op("exp", x - k.op("row_max", x))
    k.output(e / k.op("row_sum", e), in_place=x)
    x = numbers(4, 33)
    expected = softmax(x)
    run_kernel(k.build(), [x, x], rows=4, columns=33, target=target)
    np.testing.assert_allclose(x, expected, rtol=2e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_layer_norm_forward_and_backward(run_kernel, target, threads):
    rows, columns = 37, 53
    k = KernelBuilder()
    x = k.input("float32")
    gamma, beta = k.input("float32", level="column"), k.input("float32", level="column")
    n = k.op("columns")
    centered = x - k.op("row_sum", x) / n
    scale = k.op("rsqrt", k.op("row_sum", centered * centered) / n + 1e-3)
    k.output(centered * scale * gamma + beta)
    k.output(scale)
    k.output(k.op("row_sum", x) / n)
    x, gamma, beta = numbers(rows, columns), numbers(columns, seed=1), numbers(columns, seed=2)
    y, s, m = np.zeros_like(x), np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    arrays = [x, gamma, beta, y, s, m]
    run_kernel(k.build(), arrays, rows=rows, columns=columns, threads=threads, target=target)
    mean, deviation = x.mean(1, keepdims=True), np.sqrt(x.var(1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(y, (x - mean) / deviation * gamma + beta, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(m, mean[:, 0], rtol=1e-4, atol=1e-6)

    k = KernelBuilder()
    x_, dy = k.input("float32"), k.input("float32")
    gamma_ = k.input("float32", level="column")
    s_, m_ = k.input("float32", level="row"), k.input("float32", level="row")
    normal = (x_ - m_) * s_
    g = dy * gamma_
    n = k.op("columns")
    first, second = k.op("row_sum", g) / n, k.op("row_sum", g * normal) / n
    k.output((g - first - normal * second) * s_)
    k.output(k.op("column_sum", dy * normal))
    k.output(k.op("column_sum", dy))
    dy = numbers(rows, columns, seed=3)
    dx, dgamma, dbeta = np.zeros_like(x), np.zeros_like(gamma), np.zeros_like(beta)
    arrays = [x, dy, gamma, s, m, dx, dgamma, dbeta]
    run_kernel(k.build(), arrays, rows=rows, columns=columns, threads=threads, target=target)
    normal, g = (x - mean) / deviation, dy * gamma
    expected = g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)
    np.testing.assert_allclose(dx, expected / deviation, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(dgamma, (dy * normal).sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dbeta, dy.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(128, 10), (5, 300), (1, 1)])
def test_cross_entropy_with_labels(run_kernel, target, threads, shape):
    """Loss, gradient and bias gradient of softmax cross-entropy in one kernel."""
    k = KernelBuilder()
    z, label = k.input("float32"), k.input("int32", level="row")
    top = k.op("row_max", z)
    e = k.op("exp", z - top)
    total = k.op("row_sum", e)
    loss = k.op("log", total) + top - k.op("pick", z, label)
    hot = k.op("cast", k.op("equal", k.op("column_index"), label), dtype="float32")
    d = (e / total - hot) / k.op("rows")
    k.output(d)
    k.output(k.op("all_sum", loss) / k.op("rows"))
    k.output(k.op("column_sum", d))
    rows, columns = shape
    z = numbers(*shape) * 3
    label = np.random.default_rng(1).integers(0, columns, rows).astype(np.int32)
    d, loss = np.zeros_like(z), np.zeros(1, np.float32)
    bias = np.zeros(columns, np.float32)
    arrays = [z, label, d, loss, bias]
    run_kernel(k.build(), arrays, rows=rows, columns=columns, threads=threads, target=target)
    p = softmax(z.astype(np.float64))
    expected = (p - np.eye(columns)[label]) / rows
    np.testing.assert_allclose(d, expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(bias, expected.sum(0), rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(loss[0], -np.log(p[range(rows), label]).mean(), rtol=1e-5, atol=1e-6)


def test_inputs_are_read_before_they_are_overwritten(run_kernel):
    """Outputs in the place of inputs that other outputs still need, at every level."""
    k = KernelBuilder()
    x = k.input("float32")
    r, label = k.input("float32", level="row"), k.input("int32", level="row")
    c, s = k.input("float32", level="column"), k.input("float32", level="scalar")
    top = k.op("row_max", x)
    k.output(k.op("exp", x - top), in_place=x)
    k.output(r + 1.0, in_place=r)
    k.output(r * 2.0 + top - k.op("pick", x, label))
    k.output(s + 1.0, in_place=s)
    k.output(s * 2.0)
    k.output(c + k.op("column_sum", x) + s, in_place=c)
    x, r, c, s = numbers(3, 9), numbers(3, seed=1), numbers(9, seed=2), numbers(1, seed=3)
    label = np.array([8, 0, 4], np.int32)
    right = [
        np.exp(x - x.max(1, keepdims=True)), r + 1, r * 2 + x.max(1) - x[range(3), label],
        s + 1, s * 2, c + x.sum(0) + s,
    ]  # fmt: skip
    row, one = np.zeros(3, np.float32), np.zeros(1, np.float32)
    arrays = [x, r, label, c, s, x, r, row, s, one, c]
    run_kernel(k.build(), arrays, rows=3, columns=9)
    for got, expected in zip((x, r, row, s, one, c), right, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bfloat16"])
@pytest.mark.parametrize("op", ["row_max", "row_min", "row_sum", "row_argmax", "row_argmin"])
def test_row_reductions(run_kernel, target, op, dtype):
    kind = bfloat16 if dtype == "bfloat16" else dtype
    for rows, columns in [(3, 1), (4, 9), (5, 5000)]:
        k = KernelBuilder()
        out = "int32" if "arg" in op else dtype
        k.output(k.op(op, k.input(dtype)), out)
        x = (numbers(rows, columns) * 20).astype(kind)
        y = np.zeros(rows, "int32" if "arg" in op else kind)
        run_kernel(k.build(), [x, y], rows=rows, columns=columns, target=target)
        expected = getattr(np, op.removeprefix("row_"))(
            x.astype("float64") if "float" in dtype else x, axis=1
        )
        tolerance = {"bfloat16": 1e-2, "float32": 1e-4}.get(dtype, 1e-12)
        np.testing.assert_allclose(y.astype("float64"), expected, rtol=tolerance, atol=1e-4)


def test_maxima_of_nan_and_infinity(run_kernel, target):
    k = KernelBuilder()
    x = k.input("float32")
    for op in ("row_max", "row_min", "row_argmax", "row_argmin"):
        k.output(k.op(op, x))
    x = numbers(6, 21)
    x[0, 4] = x[0, 9] = np.nan
    x[1] = -np.inf
    x[2] = np.inf
    x[3, 20] = np.nan
    x[4] = 1
    x[5, 8], x[5, 3] = np.inf, -np.inf
    outs = [np.zeros(6, d) for d in ("float32", "float32", "int32", "int32")]
    run_kernel(k.build(), [x, *outs], rows=6, columns=21, target=target)
    for function, got in zip((np.max, np.min, np.argmax, np.argmin), outs, strict=True):
        np.testing.assert_array_equal(got, function(x, axis=1))


# --- columns and totals --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*SHAPES, (1000, 3), (257, 400)])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_relu_gradient_with_bias_gradient(run_kernel, target, shape, threads):
    k = KernelBuilder()
    dy, y = k.input("float32"), k.input("float32")
    g = k.op("select", y > 0.0, dy, 0.0)
    k.output(g, in_place=dy)
    k.output(k.op("column_sum", g))
    dy, y = numbers(*shape), numbers(*shape, seed=1)
    expected = np.where(y > 0, dy, 0)
    db = np.full(shape[1], np.nan, np.float32)
    run_kernel(
        k.build(), [dy, y, dy, db], rows=shape[0], columns=shape[1], threads=threads, target=target
    )
    np.testing.assert_array_equal(dy, expected)
    np.testing.assert_allclose(db, expected.sum(0, dtype="float64"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_batch_norm_statistics_and_running_means(run_kernel, target, threads):
    k = KernelBuilder()
    x = k.input("float32")
    moving = k.input("float32", level="column")
    n = k.op("rows")
    mean = k.op("column_sum", x) / n
    variance = k.op("column_sum", x * x) / n - mean * mean
    k.output(mean)
    k.output(k.op("rsqrt", variance + 1e-3))
    k.output(moving * 0.99 + mean * 0.01, in_place=moving)
    x, moving = numbers(999, 19) + 1, numbers(19, seed=1)
    expected = moving * 0.99 + x.mean(0) * 0.01
    mean, scale = np.zeros(19, np.float32), np.zeros(19, np.float32)
    run_kernel(
        k.build(), [x, moving, mean, scale, moving], rows=999, columns=19, threads=threads,
        target=target,
    )  # fmt: skip
    np.testing.assert_allclose(mean, x.mean(0, dtype="float64"), rtol=1e-6)
    np.testing.assert_allclose(scale, 1 / np.sqrt(x.var(0) + 1e-3), rtol=1e-5)
    np.testing.assert_allclose(moving, expected, rtol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 3, 7])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
def test_groups_of_rows(run_kernel, target, groups, threads, op):
    """Pooling over time: (groups, 5, 31) -> (groups, 31)."""
    k = KernelBuilder()
    k.output(k.op(f"column_{op}", k.input("float32")))
    x, y = numbers(groups, 5, 31), np.zeros((groups, 31), np.float32)
    run_kernel(
        k.build(), [x, y], rows=groups * 5, columns=31, groups=groups, threads=threads,
        target=target,
    )  # fmt: skip
    np.testing.assert_allclose(y, getattr(np, op)(x, axis=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize(
    "shape", [(1, 5, 31), (3, 4, 17), (7, 1, 64), (2, 3, 1), (3, 0, 5), (0, 2, 3)]
)
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_rows_and_groups_of_rows_in_one_loop(run_kernel, target, shape, threads, op):
    """Each row less its largest, pooled over the rows of its group; the rows' own sums, too."""
    k = KernelBuilder()
    x = k.input("float32")
    y = x - k.op("row_max", x)
    k.output(y)
    k.output(k.op("row_sum", y))
    pooled = k.op(f"column_{op}", y)
    k.output(pooled)
    k.output(k.op("tanh", pooled) * 2.0)
    groups, height, columns = shape
    x = numbers(*shape)
    expected = x - x.max(2, keepdims=True)
    results = [np.full(s, np.nan, np.float32)
               for s in (shape, shape[:2], (groups, columns), (groups, columns))]  # fmt: skip
    run_kernel(
        k.build(), [x, *results], rows=groups * height, columns=columns, groups=groups,
        threads=threads, target=target,
    )  # fmt: skip
    if op in ("sum", "prod") or height:
        pools = getattr(np, op)(expected, axis=1)
        np.testing.assert_allclose(results[2], pools, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(results[3], 2 * np.tanh(pools), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[0], expected, rtol=1e-6)
    np.testing.assert_allclose(results[1], expected.sum(2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [0, 1, 9, 4097, 1_000_003])
def test_totals_are_exact_enough(run_kernel, target, threads, size):
    k = KernelBuilder()
    x = k.input("float32")
    k.output(k.op("sqrt", k.op("all_sum", x * x)))
    k.output(k.op("all_max", x))
    x = np.abs(numbers(size)) + 0.1
    norm, top = np.zeros(1, np.float32), np.zeros(1, np.float32)
    run_kernel(k.build(), [x, norm, top], columns=size, threads=threads, target=target)
    np.testing.assert_allclose(norm[0], np.sqrt((x.astype("float64") ** 2).sum()), rtol=3e-7)
    assert top[0] == (x.max() if size else -np.inf)


def test_results_repeat_bit_for_bit(run_kernel):
    k = KernelBuilder()
    x = k.input("float32")
    k.output(k.op("column_sum", x))
    x = numbers(3000, 17)
    outs = [np.zeros(17, np.float32) for _ in range(5)]
    for out in outs:
        run_kernel(k.build(), [x, out], rows=3000, columns=17, threads=2)
    assert all((out == outs[0]).all() for out in outs)


# --- segments ------------------------------------------------------------------------------------


def adam_kernel():
    k = KernelBuilder(segments=True)
    p, g, m, v = (k.input("float32") for _ in range(4))
    rate = k.input("float32", level="scalar")
    m2, v2 = m + (g - m) * 0.1, v + (g * g - v) * 0.001
    step = rate * m2 / (k.op("sqrt", v2) + 1e-7)
    for new, old in ((p - step, p), (m2, m), (v2, v)):
        k.output(new, in_place=old)
    return k.build()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_adam_over_many_variables(run_kernel, target, threads):
    sizes = [1, 640, 33, 0, 1000, 7]
    state = [[numbers(n, seed=s) ** (2 if s == 3 else 1) for s in range(4)] for n in sizes]
    rate = np.float32([0.01])
    expected = []
    for p, g, m, v in state:
        m2, v2 = m + (g - m) * np.float32(0.1), v + (g * g - v) * np.float32(0.001)
        expected.append((p - rate * m2 / (np.sqrt(v2) + np.float32(1e-7)), m2, v2))
    rows = [[*(a.ctypes.data for a in s), 0, *(s[i].ctypes.data for i in (0, 2, 3))] for s in state]
    table = arguments.segment_table(sizes, rows)
    run_kernel(
        adam_kernel(), [0, 0, 0, 0, rate, 0, 0, 0], rows=len(sizes), columns=sum(sizes),
        threads=threads, target=target, segments=table.ctypes.data,
    )  # fmt: skip
    for (p, _, m, v), (p2, m2, v2) in zip(state, expected, strict=True):
        np.testing.assert_allclose(p, p2, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(m, m2, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(v, v2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_norms_over_segments(run_kernel, target, threads):
    k = KernelBuilder(segments=True)
    g = k.input("float32")
    k.output(k.op("sqrt", k.op("all_sum", g * g)))
    sizes = [5, 1000, 1, 64]
    arrays = [numbers(n, seed=n) for n in sizes]
    total = np.zeros(1, np.float32)
    table = arguments.segment_table(sizes, [[a.ctypes.data, 0] for a in arrays])
    run_kernel(
        k.build(), [0, total], rows=4, columns=sum(sizes), threads=threads, target=target,
        segments=table.ctypes.data,
    )  # fmt: skip
    np.testing.assert_allclose(total[0], np.linalg.norm(np.concatenate(arrays)), rtol=1e-6)

    k = KernelBuilder(segments=True)
    g = k.input("float32")
    k.output(k.op("sqrt", k.op("row_sum", g * g)))
    norms = np.zeros(4, np.float32)
    run_kernel(
        k.build(), [0, norms], rows=4, columns=sum(sizes), threads=threads, target=target,
        segments=table.ctypes.data,
    )  # fmt: skip
    np.testing.assert_allclose(norms, [np.linalg.norm(a) for a in arrays], rtol=1e-6)


# --- dtypes and random numbers -------------------------------------------------------------------

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint32", "int64"]


def as_numpy(dtype):
    return bfloat16 if dtype == "bfloat16" else np.dtype(dtype)


def cast_kernel(source, to):
    k = KernelBuilder()
    k.output(k.op("cast", k.input(source), dtype=to), to)
    return k.build()


@pytest.mark.parametrize("source", [*DTYPES, "bool"])
def test_casts(run_kernel, target, source):
    every = {to: cast_kernel(source, to) for to in (*DTYPES, "bool")}
    kernels.compile_many([*every.values()], target)  # at once: cheaper than one by one
    for to, kernel in every.items():
        values = np.array([0, 1, 2.5, 100, 3, 0.25, 7, 77, 127, 5, 0, 11])
        if source.startswith(("float", "bf", "int")) and to.startswith(("float", "bf", "int")):
            values[3:6] *= -1
        x = values.astype(as_numpy(source))
        y = np.zeros(12, as_numpy(to))
        run_kernel(kernel, [x, y], columns=12, target=target)
        np.testing.assert_array_equal(y, x.astype(as_numpy(to)), err_msg=to)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_rounds_as_numpy_does(run_kernel, target, dtype):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 20000, np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), rng.normal(size=2000).astype("float32") * 1e-6])
    k = KernelBuilder()
    k.output(k.input("float32"), dtype)
    y = np.zeros(x.size, as_numpy(dtype))
    run_kernel(k.build(), [x, y], columns=x.size, target=target)
    with np.errstate(all="ignore"):
        expected = x.astype(as_numpy(dtype))
    real = ~np.isnan(x)
    np.testing.assert_array_equal(y[real].view(np.uint16), expected[real].view(np.uint16))
    assert np.isnan(y[~real].astype("float32")).all()
    k = KernelBuilder()
    k.output(k.input(dtype), "float32")
    wide = np.zeros(65536, np.float32)
    every = np.arange(65536, dtype=np.uint16).view(as_numpy(dtype))
    run_kernel(k.build(), [every, wide], columns=65536, target=target)
    np.testing.assert_array_equal(wide, every.astype("float32"))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8", "float32", "float64"])
@pytest.mark.parametrize("op", ["floor_divide", "mod"])
def test_division_rounds_down(apply_op, target, op, dtype):
    low = 0 if dtype == "uint8" else -7
    a, b = (m.ravel().astype(dtype) for m in np.meshgrid(np.arange(low, 9), np.arange(low, 6)))
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(a, b)
    np.testing.assert_array_equal(apply_op(op, [a, b], out=dtype, target=target), expected)
    if dtype.startswith("float"):
        a, b = numbers(999, dtype=dtype) * 50, numbers(999, dtype=dtype, seed=1)
        got = apply_op(op, [a, b], out=dtype, target=target)
        np.testing.assert_allclose(got, getattr(np, op)(a, b), rtol=1e-6, atol=1e-6)


def test_the_least_integer_divides_by_minus_one(apply_op):
    a, b = np.array([-(2**31)], np.int32), np.array([-1], np.int32)
    assert apply_op("floor_divide", [a, b], out="int32")[0] == -(2**31)
    assert apply_op("mod", [a, b], out="int32")[0] == 0


INTEGER_OPS = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift, "right_shift": np.right_shift, "power": np.power,
    "maximum": np.maximum, "minimum": np.minimum, "add": np.add, "multiply": np.multiply,
    "subtract": np.subtract,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint8"])
@pytest.mark.parametrize("op", sorted(INTEGER_OPS))
def test_integer_ops(apply_op, op, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 99, 50).astype(dtype), rng.integers(0, 6, 50).astype(dtype)
    if dtype.startswith("int"):
        a = -a if op != "power" else a
    expected = INTEGER_OPS[op](a, b)
    np.testing.assert_array_equal(apply_op(op, [a, b], out=dtype), expected)


QUESTIONS = [
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
    "logical_or", "logical_xor",
]  # fmt: skip


@pytest.mark.parametrize("op", QUESTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_comparisons_and_logic(apply_op, target, op, dtype):
    edge = [0, 1, 2, 3, 0, np.nan if dtype == "float32" else 1]
    a, b = (m.ravel() for m in np.meshgrid(np.array(edge, dtype), np.array(edge, dtype)))
    got = apply_op(op, [a, b], out="bool", target=target)
    np.testing.assert_array_equal(got, getattr(np, op)(a, b))


@pytest.mark.parametrize("op", ["isnan", "isinf", "isfinite", "signbit", "logical_not"])
def test_questions(apply_op, op):
    x = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(apply_op(op, [x], out="bool"), getattr(np, op)(x))


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_maximum_keeps_nan(apply_op, op):
    edge = np.array([0.0, 1, -1, np.inf, -np.inf, np.nan], np.float32)
    a, b = (m.ravel() for m in np.meshgrid(edge, edge))
    np.testing.assert_array_equal(apply_op(op, [a, b]), getattr(np, op)(a, b))


def philox(counters, key):
    """Philox4x32-10 in NumPy: (n, 4) words for n counters."""
    c = [np.array([row[i] for row in counters], np.uint64) for i in range(4)]
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        mask = np.uint64(0xFFFFFFFF)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & mask,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & mask]  # fmt: skip
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack(c, 1).astype(np.uint32)


def test_the_reference_gives_the_published_answers():
    assert [hex(v) for v in philox([(0, 0, 0, 0)], (0, 0))[0]] == [
        "0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"
    ]  # fmt: skip


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_random_bits(run_kernel, target, aligned, threads):
    k = KernelBuilder()
    words = [k.input("uint32", level="scalar") for _ in range(4)]
    bits = k.op("random_bits", *words, aligned=aligned)
    k.output(bits)
    k.output(k.op("uniform", bits))
    rows, columns = (1, 333) if aligned else (9, 37)
    seeds = [np.array([v], np.uint32) for v in (7, 2**32 - 3, 5, 9)]
    y, u = np.zeros((rows, columns), np.uint32), np.zeros((rows, columns), np.float32)
    run_kernel(
        k.build(), [*seeds, y, u], rows=rows, columns=columns, threads=threads, target=target
    )
    expected = philox([(i, 0, 5, 9) for i in range(84)], (7, 2**32 - 3)).ravel()[:333]
    np.testing.assert_array_equal(y.ravel(), expected)
    np.testing.assert_array_equal(u.ravel(), (expected >> 8) * np.float32(2.0**-24))


@pytest.mark.parametrize("shape", [(40,), (3, 5), (6, 8)])
def test_random_bits_are_those_of_the_op(run_kernel, shape):
    """Key (seed, 0) and counter (block, draw, 0), read from the op's state of two words."""
    k = KernelBuilder()
    seed, draw = (k.input("uint32", level="scalar") for _ in range(2))
    zero = k.constant(0, "uint32")
    columns = shape[-1]
    rows = int(np.prod(shape[:-1]))
    aligned = rows == 1 or columns % 4 == 0
    k.output(k.op("random_bits", seed, zero, draw, zero, aligned=aligned))
    state, y = np.array([11, 2**31 + 5], np.uint32), np.zeros(shape, np.uint32)
    at = state.ctypes.data
    run_kernel(k.build(), [at, at + 4, y], rows=rows, columns=columns)
    np.testing.assert_array_equal(y, random_bits.kernel(np, state, shape=shape))


# --- any kernel at all ---------------------------------------------------------------------------

BINARY = ["add", "subtract", "multiply", "maximum", "minimum"]
UNARY = ["tanh", "negative", "absolute", "square", "relu", "sigmoid", "sign"]


@st.composite
def programs(draw):
    """A random DAG as (steps, outputs): steps of (op, ids), ids 0 to 3 are the inputs."""
    steps = []
    for n in range(draw(st.integers(1, 12))):
        ids = st.integers(0, 3 + n)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(BINARY)), (draw(ids), draw(ids))))
        elif draw(st.integers(0, 3)):
            steps.append((draw(st.sampled_from(UNARY)), (draw(ids),)))
        else:
            steps.append((draw(st.sampled_from(["row_sum", "row_max"])), (draw(ids),)))
    count = 4 + len(steps)
    return steps, draw(st.lists(st.integers(4, count - 1), min_size=1, max_size=3, unique=True))


NUMPY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "tanh": np.tanh, "negative": np.negative, "absolute": np.abs,
    "square": np.square, "relu": lambda x: np.maximum(x, 0), "sign": np.sign,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(programs(), st.sampled_from([(1, 1), (3, 7), (5, 40)]), st.integers(1, 2), st.booleans())
def test_random_programs(run_kernel, program, shape, threads, sums):
    steps, chosen = program
    rows, columns = shape
    k = KernelBuilder()
    values = [k.input("float64", level) for level in ("element", "row", "column", "scalar")]
    arrays = [numbers(*shape, dtype="float64") * 0.5, numbers(rows, 1, dtype="float64", seed=1),
              numbers(1, columns, dtype="float64", seed=2),
              numbers(1, 1, dtype="float64", seed=3)]  # fmt: skip
    wide = [True, False, True, False]
    truth = list(arrays)
    for op, ids in steps:
        if op.startswith("row_"):
            ids = ids if wide[ids[0]] else (0,)
            reduce = np.sum if op == "row_sum" else np.max
            full = np.broadcast_to(truth[ids[0]], shape)
            truth.append(np.broadcast_to(reduce(full, axis=1, keepdims=True), (rows, 1)))
            wide.append(False)
        else:
            truth.append(NUMPY[op](*(truth[i] for i in ids)))
            wide.append(any(wide[i] for i in ids))
        values.append(k.op(op, *(values[i] for i in ids)))
    expected = []
    for v in chosen:
        k.output(values[v])
        level = verify(k.build()).level[values[v].number]
        size = {"element": shape, "column": shape, "row": (rows, 1)}.get(level, (1, 1))
        expected.append(np.broadcast_to(truth[v], size))
        if sums and wide[v]:
            k.output(k.op("column_sum", values[v]))
            k.output(k.op("all_max", values[v]))
            expected += [expected[-1].sum(0), expected[-1].max(keepdims=True)]
    results = [np.zeros(e.shape) for e in expected]
    run_kernel(k.build(), [*arrays, *results], rows=rows, columns=columns, threads=threads)
    for right, got in zip(expected, results, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-9, atol=1e-9)


# --- structure -----------------------------------------------------------------------------------


def test_wrong_structures_are_refused():
    k = KernelBuilder()
    x = k.input("float32")
    with pytest.raises(UnknownNameError, match="tanh"):
        k.op("tnah", x)
    with pytest.raises(ValueError, match="cast first"):
        k.op("add", x, k.op("cast", x, dtype="int32"))
    k.output(x - k.op("column_sum", x))
    with pytest.raises(ValueError, match="scalars and columns"):
        k.build()
    with pytest.raises(ValueError, match="earlier"):
        verify(Kernel((), (LoopNode("exp", (3,), "float32"),), (Output(0, "float32"),)))
    with pytest.raises(ValueError, match="operands"):
        arguments.pack(softmax_kernel(), [0], table=0, columns=1)


def test_groups_must_fit_the_rows():
    k = KernelBuilder()
    k.output(k.op("column_sum", k.input("float32")))
    kernel = k.build()
    with pytest.raises(ValueError, match="7 rows cannot be divided into 2 groups"):
        arguments.pack(kernel, [0, 0], table=0, rows=7, columns=1, groups=2)
    with pytest.raises(ValueError, match="cannot be divided"):
        arguments.pack(softmax_kernel(), [0, 0], table=0, rows=6, columns=1, groups=2)


def test_what_follows_all_rows_lies_side_by_side():
    k = KernelBuilder()
    k.output(k.op("column_sum", k.input("float32")), strided=True)
    with pytest.raises(ValueError, match="contiguously"):
        k.build()
    k = KernelBuilder()
    x, b = k.input("float32"), k.input("float32", level="column", strided=True)
    k.output(k.op("column_sum", x) + b)
    with pytest.raises(ValueError, match="contiguously"):
        k.build()


def test_threads_follow_the_work():
    assert cost.choose_threads(softmax_kernel(), 32, 10, 8) == 1
    assert cost.choose_threads(softmax_kernel(), 10_000, 1000, 8) == 8
    assert cost.choose_threads(softmax_kernel(), 10_000, 1000, 1) == 1
    assert cost.estimate(softmax_kernel(), 200, 9) > cost.estimate(softmax_kernel(), 100, 9)


def test_kernels_are_equal_by_structure():
    assert softmax_kernel() == softmax_kernel()
    assert hash(softmax_kernel()) == hash(softmax_kernel())
    assert driver.load_runtime() is driver.load_runtime()
