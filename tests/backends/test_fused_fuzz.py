"""Random groups of element-wise ops and sums of every kind: fused loops against the interpreter.

Frames of up to four axes, some of size 1; operands that vary along any of them; reductions along
rows, columns, groups of rows and everything, whose results meet the frame again. Every dtype,
NaN and infinities, one to three threads. `KERASISH_FUZZ=2000` runs more.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from kerasish import backends, config, ops
from kerasish.backends.static.codegen import cost
from kerasish.graph.interpret import interpret
from kerasish.graph.passes import optimize
from kerasish.graph.passes.fuse import fuse_loops
from kerasish.graph.trace import trace
from kerasish.ops import dtypes

COUNT = int(os.environ.get("KERASISH_FUZZ", "60"))
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")
# Relative and absolute: sums are added up in another order, halves round at other places.
TOLERANCES = {"float32": 2e-4, "float64": 1e-9, "float16": 2e-2, "bfloat16": 1e-1}
SUMS = ("sum", "max", "min", "mean", "prod")
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 17, 33)


def computation(seed, dtype):
    """Return (function, arguments): a random net of values along one frame."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    frame = tuple(int(rng.choice(SIZES)) for _ in range(rank))
    shapes = [frame] + [
        tuple(s if rng.random() < 0.6 else 1 for s in frame)[int(rng.integers(0, rank)) :]
        for _ in range(rng.integers(0, 3))
    ]
    arrays = [_numbers(rng, shape, dtype) for shape in shapes]
    recipe = [
        tuple(int(n) for n in rng.integers(0, 1000, size=5)) for _ in range(rng.integers(3, 12))
    ]
    kept = rng.random(len(recipe)) < 0.5

    def function(*inputs):
        values, results = list(inputs), []
        for (kind, a, b, axis, keep), chosen in zip(recipe, kept, strict=True):
            x, y = values[-1 - a % min(4, len(values))], values[b % len(values)]
            # What is compared is exact, so that a last bit does not decide.
            exact = inputs[axis % len(inputs)]
            value = _apply(kind % 10, x, y, exact, axis, bool(keep % 2), frame)
            if value.shape == () or len(value.shape) == len(frame):
                values.append(value)
            if chosen:
                results.append(value)
        return (*results, value)

    return function, arrays


def _numbers(rng, shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtypes.is_float(dtype):
        x = rng.normal(size=shape)
        if rng.random() < 0.15:
            x[rng.random(shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
        return x.astype(dtypes.array_dtype(dtype))
    return rng.integers(0, 5, shape).astype(dtype)


def _apply(kind, x, y, exact, axis, keep, frame):
    floats = dtypes.is_float(str(x.dtype))
    if kind < 3:
        f = (ops.add, ops.multiply, ops.maximum)[kind]
        return f(x, y) if str(x.dtype) == "bool" else ops.clip(f(x, y), -3, 3)
    if kind == 3:
        return ops.where(ops.greater(exact, ops.zeros_like(exact)), x, y)
    if kind == 4:
        return ops.tanh(x) if floats else ops.minimum(x, y)
    if kind == 5:
        return ops.exp(ops.minimum(x, 1.0)) if floats else ops.equal(x, y)
    if len(x.shape) != len(frame):
        return ops.add(x, y)
    rank = len(frame)
    first, last = sorted((axis % rank, axis // 7 % rank))
    sums = ("all", "any", "sum") if str(x.dtype) == "bool" else SUMS
    reduce = getattr(ops, sums[axis % (len(sums) if kind == 9 else 2)])
    result = reduce(x, tuple(range(first, last + 1)), keepdims=keep)
    return ops.tanh(result) if floats else ops.minimum(result, 3)


@pytest.fixture(name="many_threads")
def _many_threads(monkeypatch):
    """As many threads as are set, however little there is to do."""
    monkeypatch.setattr(cost, "GRAIN", 1e-6)
    return config.using_threads


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_groups(seed, many_threads):
    dtype = DTYPES[seed % len(DTYPES)] if seed % 2 else "float32"
    function, arrays = computation(seed, dtype)
    with np.errstate(all="ignore"):
        expected = interpret(trace(function, *arrays).graph, arrays)
    for threads in (1, 2, 3)[: 1 + seed % 3]:
        with many_threads(threads):
            got = backends.get("static").compile(function)(*arrays)
        for a, b in zip(got, expected, strict=True):
            _compare(a, np.asarray(b))


def _compare(got, expected):
    assert got.shape == expected.shape
    assert got.dtype == str(expected.dtype)
    tolerance = TOLERANCES.get(got.dtype, 0)
    a, b = got.numpy(), expected
    if tolerance:
        a, b = a.astype("float64"), b.astype("float64")
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_the_random_groups_hold_every_kind_of_sum():
    """Rows with groups of rows, rows with columns, all with something: else nothing is shown."""
    seen = set()
    for seed in range(120):
        function, arrays = computation(seed, "float32")
        for node in fuse_loops(optimize(trace(function, *arrays).graph)).nodes:
            if node.op.name == "fused":
                seen.add(_kinds(node.attrs["body"]))
    assert {
        frozenset(["row"]), frozenset(["column"]), frozenset(["all"]), frozenset(["group"]),
        frozenset(["row", "group"]), frozenset(["row", "column"]), frozenset(["row", "all"]),
    } <= seen  # fmt: skip


def _kinds(body):
    kinds = set()
    for node in body.graph.nodes:
        if node.op.reduction and not node.op.reduction.startswith("arg"):
            real = [i for i in node.attrs["axis"] if body.frame[i] != 1]
            if body.split is not None and min(real) >= body.split > 0:
                kinds.add("row")
            elif len(real) == sum(s != 1 for s in body.frame):
                kinds.add("all")
            else:
                kinds.add("group" if body.groups else "column")
    return frozenset(kinds)


@pytest.mark.parametrize(
    "operand", [(2, 1, 4, 5), (1, 3, 4, 5), (3, 1, 5), (1, 3, 1, 1), (2, 1, 1, 1)]
)
@pytest.mark.parametrize("rows_too", [False, True])
def test_groups_whose_axes_cannot_be_joined(operand, rows_too, many_threads):
    """Six groups over two axes, along which an operand varies differently."""

    def function(x, b):
        y = ops.tanh(x + b)
        if rows_too:
            y = ops.softmax(y, -1)
        return ops.sum(y, 2), ops.max(y, 2, keepdims=True)

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("float32") for s in ((2, 3, 4, 5), operand)]
    for threads in (1, 2, 3):
        with many_threads(threads):
            got = backends.get("static").compile(function)(*arrays)
        for a, b in zip(got, function(*arrays), strict=True):
            _compare(a, b.numpy())
