"""Halves in float32: which values stay halves, and that results are at least as exact."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import ops
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes.drop import drop_dead
from kerasish.graph.passes.widen import widen_halves
from kerasish.graph.trace import trace
from kerasish.ops import dtypes


def numbers(*shape, dtype="float32", seed=0):
    x = np.random.default_rng(seed).normal(size=shape)
    return x.astype(dtypes.array_dtype(dtype))


def widened(function, *arguments, halves=("bfloat16", "float16")):
    graph = trace(function, *arguments).graph
    return graph, verify(drop_dead(widen_halves(graph, halves)))


def dense(x, w, b):
    x, w, b = (ops.cast(v, "bfloat16") for v in (x, w, b))
    return ops.cast(ops.relu(ops.matmul(x, w) + b), "float32")


def test_casts_between_dissolve():
    """A layer of the policy mixed_bfloat16 becomes that of float32."""
    arguments = numbers(4, 3), numbers(3, 5), numbers(5)
    _, graph = widened(dense, *arguments)
    assert [n.op.name for n in graph.nodes] == ["matmul", "add", "relu"]
    (got,) = interpret(graph, arguments)
    exact = np.maximum(arguments[0] @ arguments[1] + arguments[2], 0)
    np.testing.assert_allclose(got, exact, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_come_in_and_go_out(dtype):
    def function(x, w):
        y = ops.matmul(x, w)
        return y, ops.tanh(y), ops.max(y, 1), ops.argmax(y, 1), y > 0, x

    arguments = numbers(4, 3, dtype=dtype), numbers(3, 5, dtype=dtype)
    before, graph = widened(function, *arguments)
    assert [v.spec for v in graph.outputs] == [v.spec for v in before.outputs]
    inner = [n for n in graph.nodes if n.op.name != "cast"]
    assert not [v for n in inner for v in (*n.inputs, *n.outputs) if v.dtype == dtype]
    for a, b in zip(interpret(before, arguments), interpret(graph, arguments), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype("float32"), b.astype("float32"), rtol=0.02, atol=0.02)


def test_every_cast_keeps_its_meaning():
    def function(x, i):
        half = ops.cast(i, "bfloat16")
        back = ops.cast(half * 2, "int32")
        return back, ops.cast(ops.cast(x, "float16"), "float64"), ops.cast(half, "float16")

    arguments = numbers(3, dtype="float64"), np.arange(3, dtype="int32")
    before, graph = widened(function, *arguments)
    for a, b in zip(interpret(before, arguments), interpret(graph, arguments), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-3)


def test_what_depends_on_the_bits_stays_a_half():
    def function(x):
        return ops.nextafter(x * 2, np.array(9, x.dtype)) + 1

    x = numbers(3, dtype="bfloat16")
    before, graph = widened(function, x)
    (node,) = (n for n in graph.nodes if n.op.name == "nextafter")
    assert {v.dtype for v in (*node.inputs, *node.outputs)} == {"bfloat16"}
    np.testing.assert_array_equal(*(interpret(g, [x])[0] for g in (before, graph)))


def test_branches_get_halves():
    def function(x):
        return ops.cond(ops.sum(x) > 0, lambda: x * 2, lambda: x - 1) * 3

    x = numbers(3, dtype="bfloat16")
    before, graph = widened(function, x)
    np.testing.assert_array_equal(*(interpret(g, [x])[0] for g in (before, graph)))


def test_only_the_dtypes_asked_for():
    def function(x, y):
        return x * 2, y * 2

    arguments = numbers(3, dtype="bfloat16"), numbers(3, dtype="float16")
    before, graph = widened(function, *arguments, halves=("float16",))
    kinds = [[v.dtype for v in n.inputs] for n in graph.nodes if n.op.name == "multiply"]
    assert kinds == [["bfloat16"] * 2, ["float32"] * 2]
    assert widen_halves(before, ()) is before


def test_graphs_without_halves_are_left_alone():
    graph = trace(lambda x: ops.tanh(x), numbers(3)).graph
    assert widen_halves(graph) is graph
