"""Values that are computed a second time for late readers: which ones, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.autodiff import grad
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import check_order, verify
from kerasish.graph.passes import fuse_loops, gather, late_readers, optimize, recompute_late
from kerasish.graph.trace import trace
from kerasish.ops.basic.convolution import convolution, convolution_kernel_gradient

rng = np.random.default_rng(0)
X, W = (rng.normal(size=shape).astype("float32") for shape in ((2, 5, 6, 4), (3, 3, 4, 4)))
SAME = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(late_readers, "FAR", 0)
    monkeypatch.setattr(late_readers, "LEAST", 0)


def convolved(x, w):
    return convolution(x, w, **SAME)


def by_kernel(x, dy):
    return convolution_kernel_gradient(x, dy, size=(3, 3), **SAME)


def read_late(value, then):
    """A function of y that a convolution reads at once and, late, a kernel gradient; then others.

    Args:
        value: y -> the value.
        then: (y, the value, a result of the late reader) -> more results.
    """

    def function(x, w):
        y = convolved(x, w)
        z = value(y)
        between = convolved(ops.tanh(convolved(z, w)), w)
        late = by_kernel(z, between)
        return between, late, *then(y, z, ops.sum(late))

    return function


def normalized(y):
    return ops.relu((y - ops.sum(y, (0, 1, 2), keepdims=True)) * 0.5)


def kept(y, z, late):
    return (y * late,)


def third(y, z, late):
    again = by_kernel(z, y * late)
    return again, y * ops.sum(again)


def residual(x, w):
    """Two values; the second is computed from the first, which is computed a second time later."""
    y = convolved(x, w)
    a = normalized(y)
    other = convolved(a, w)
    b = ops.relu(a + other)
    between = convolved(ops.tanh(convolved(b, w)), w)
    late = by_kernel(b, between)
    last = by_kernel(a, between * ops.sum(late))
    return late, last, y * ops.sum(last), other * ops.sum(last)


# function -> how many values are computed a second time
CASES = {
    "a normalized value": (read_late(normalized, kept), 1),
    "three readers": (read_late(normalized, third), 2),
    "its argument is not read later": (read_late(normalized, lambda y, z, s: ()), 0),
    "an expensive op": (read_late(ops.exp, kept), 0),
    "a result": (read_late(normalized, lambda y, z, s: (z, y * s)), 0),
    "a loop reads it later": (read_late(normalized, lambda y, z, s: (z * s, y * s)), 1),
    "a residual": (residual, 1),
}


def fused(function):
    return fuse_loops(optimize(trace(function, X, W).graph))


def loops(graph):
    return [node for node in graph.nodes if node.op.name == "fused"]


@pytest.mark.parametrize("name", CASES)
def test_values_are_computed_in_front_of_late_readers(name):
    function, count = CASES[name]
    before = fused(function)
    after = check_order(verify(recompute_late(before)))
    assert len(loops(after)) - len(loops(before)) == count
    assert (after is before) == (not count) and recompute_late(after) is after
    results = backends.get("static").compile(function)(X, W)
    for want, got, native in zip(
        interpret(before, (X, W)), interpret(after, (X, W)), results, strict=True
    ):
        np.testing.assert_array_equal(got, want)
        largest = np.abs(want).max()
        np.testing.assert_allclose(np.asarray(native), want, rtol=1e-4, atol=1e-5 * largest)


def test_the_loop_is_right_in_front_of_its_reader():
    after = recompute_late(fused(CASES["a normalized value"][0]))
    (reader,) = (i for i, n in enumerate(after.nodes) if n.op is convolution_kernel_gradient)
    made = after.nodes[reader - 1]
    assert made.op.name == "fused" and made.out is after.nodes[reader].inputs[0]


@pytest.mark.parametrize(("far", "least", "count"), [(1, 1, 1), (10**9, 0, 0), (0, 10**9, 0)])
def test_near_readers_and_small_values(monkeypatch, far, least, count):
    monkeypatch.setattr(late_readers, "FAR", far)
    monkeypatch.setattr(late_readers, "LEAST", least)
    before = fused(CASES["a normalized value"][0])
    assert len(loops(recompute_late(before))) - len(loops(before)) == count


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_training_step_has_the_same_bits(monkeypatch, dtype):
    def step(x, w):
        x, w = ops.cast(x, dtype), ops.cast(w, dtype)

        def loss(w):
            for _ in range(3):
                y = convolved(x, w)
                y = y - ops.mean(y, (0, 1, 2), keepdims=True)
                scale = ops.rsqrt(ops.mean(ops.square(y), (0, 1, 2), keepdims=True) + 1e-3)
                y = convolved(ops.relu(y * scale), w)
            return ops.sum(ops.square(ops.cast(y, "float32")))

        return grad(loss)(w)

    graph = trace(step, X, W).graph
    with_copies = len(loops(gather(optimize(graph))))
    results = []
    for far in (0, 10**9):
        monkeypatch.setattr(late_readers, "FAR", far)
        backends.static.engine.COMPILED_PLANS.clear()
        results.append(np.asarray(backends.get("static").compile(step)(X, W), "float32"))
    assert with_copies > len(loops(gather(optimize(graph))))
    np.testing.assert_array_equal(*results)
