"""Cheap values that loops compute again: which ones, what is no longer written, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.autodiff import vjp
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import check_order, verify
from kerasish.graph.passes import fuse_epilogues, fuse_loops, optimize, recompute
from kerasish.graph.passes.recompute import recompute_cheap
from kerasish.graph.trace import trace
from kerasish.ops.networks.normalization import standardize_batch

rng = np.random.default_rng(0)
ARGUMENTS = tuple(rng.normal(size=(8, 4, 6)).astype("float32") for _ in range(2))
SIZE = ARGUMENTS[0].size


def over_rows(x):
    return ops.sum(x, (0, 1), keepdims=True)


def narrow(x):
    return ops.cast(x, "bfloat16")


def distance(x):
    """x without its mean, divided by its norm: loops before and after a sum read the former."""
    y = x - over_rows(x) * 0.03125
    return y * ops.rsqrt(over_rows(ops.square(y)))


def of_16_bits(x):
    """The same of 16-bit numbers that a product writes, computed in 32."""
    return distance(ops.cast(ops.matmul(narrow(x), narrow(np.eye(6, dtype="float32"))), "float32"))


def masked(x, g):
    """The gradient of a relu by its mask, which a loop writes with the relu."""
    y = ops.relu(narrow(x) * 2)
    later = ops.matmul(y, narrow(np.eye(6, dtype="float32")))
    return y, later * narrow(g) * ops.cast(ops.greater(y, 0), "bfloat16")


def scaled(function, factor=0.5):
    """What a function gives, then the same by the sum over all rows, which takes another loop."""

    def both(x, g):
        y = function(x, g)
        return y * over_rows(y * factor)

    return both


# function -> how many values of all elements are no longer written
COMPUTED = {
    "a distance": (lambda x, g: distance(x), 1),
    "16 bits in 32": (lambda x, g: of_16_bits(x), 2),
    "a mask": (masked, 1),
    "by a column": (scaled(lambda x, g: x * ops.exp(over_rows(g))), 1),
}
LEFT = {
    "an output": lambda x, g: (lambda y: (y, y * over_rows(y)))(x - ops.mean(g)),
    "an expensive op": scaled(lambda x, g: ops.exp(x)),
    "by a number of its row": scaled(lambda x, g: x - ops.max(g, -1, keepdims=True)),
    "two operands": scaled(lambda x, g: ops.exp(x) * ops.tanh(g)),
    "read by a product": lambda x, g: (
        lambda y: ops.matmul(y * over_rows(y), ops.transpose(y, (0, 2, 1)))
    )(x - ops.mean(g)),
    "read elsewhere": lambda x, g: (lambda y: (y * over_rows(y), y[:, :2] * 3.0))(x - ops.mean(g)),
}


def fused(function):
    """Return the graph with loops, as the pass gets it."""
    return fuse_loops(fuse_epilogues(optimize(trace(function, *ARGUMENTS).graph)))


def written(graph):
    """Return how many values of all elements loops write."""
    loops = [node for node in graph.nodes if node.op.name == "fused"]
    return sum(v.size == SIZE for node in loops for v in node.outputs)


@pytest.mark.parametrize("name", COMPUTED)
def test_cheap_values_are_computed_where_they_are_read(name):
    function, fewer = COMPUTED[name]
    before = fused(function)
    after = check_order(verify(recompute_cheap(before)))
    assert written(before) - written(after) == fewer
    assert recompute_cheap(after) is after
    step = backends.get("static").compile(function)
    results = step(*ARGUMENTS)
    results = results if isinstance(results, tuple) else (results,)
    for want, interpreted, native in zip(
        interpret(before, ARGUMENTS), interpret(after, ARGUMENTS), results, strict=True
    ):
        tolerance = 2e-2 if want.dtype.name == "bfloat16" else 2e-5
        for got in (interpreted, np.asarray(native)):
            np.testing.assert_allclose(
                got.astype("float32"), want.astype("float32"), rtol=tolerance, atol=tolerance
            )


@pytest.mark.parametrize("name", LEFT)
def test_other_values_are_written(name):
    before = fused(LEFT[name])
    assert written(before) >= 1
    assert recompute_cheap(before) is before


@pytest.mark.parametrize(("name", "fewer"), [("an expensive op", 1), ("two operands", 0)])
def test_large_values_may_take_longer(monkeypatch, name, fewer):
    """Two slow ops at most: the second function has `exp` and `tanh`, and reads another operand."""
    before = fused(LEFT[name])
    monkeypatch.setattr(recompute, "LARGE", 4 * SIZE + 1)
    assert recompute_cheap(before) is before
    monkeypatch.setattr(recompute, "LARGE", 4 * SIZE)
    after = check_order(verify(recompute_cheap(before)))
    assert written(before) - written(after) == fewer
    for want, got in zip(interpret(before, ARGUMENTS), interpret(after, ARGUMENTS), strict=True):
        np.testing.assert_array_equal(got, want)


def with_product(function):
    """What a function gives of y, which a product reads too, its product, and x."""

    def both(x, g):
        y = ops.relu(x - over_rows(g))
        later = ops.matmul(y, np.eye(6, dtype="float32") * 3)
        return later, function(y, later, x)

    return both


def read(graph):
    """Return how many values of all elements loops read."""
    loops = [node for node in graph.nodes if node.op.name == "fused"]
    return sum(v.size == SIZE for node in loops for v in node.inputs)


STORED = {
    "a mask": (lambda y, later, x: later * ops.cast(ops.greater(y, 0), "float32") + x, 1),
    "its argument is not read": (lambda y, later, x: later * y, 0),
    "of another row": (lambda y, later, x: y[:1] + later * x, 0),
}


@pytest.mark.parametrize("name", STORED)
def test_stored_values_are_computed_where_their_arguments_are_read(name):
    function, fewer = STORED[name]
    before = fused(with_product(function))
    after = check_order(verify(recompute_cheap(before)))
    assert read(before) - read(after) == fewer
    assert recompute_cheap(after) is after
    for want, got in zip(interpret(before, ARGUMENTS), interpret(after, ARGUMENTS), strict=True):
        np.testing.assert_array_equal(got, want)


def test_stored_values_of_16_bits_are_read():
    """Rounding may turn a number above 0 into 0, so a relu's mask depends on it."""

    def function(x, g):
        y = narrow(ops.relu(x - over_rows(g)))
        later = ops.matmul(y, narrow(np.eye(6, dtype="float32")))
        return later, later * ops.cast(ops.greater(y, 0), "bfloat16") + narrow(x)

    before = fused(function)
    assert read(recompute_cheap(before)) == read(before)


def test_the_gradient_of_gelu_keeps_its_argument_alone(monkeypatch):
    monkeypatch.setattr(recompute, "LARGE", 0)

    def step(x, g):
        y = ops.gelu(x, approximate=False)
        later = ops.matmul(y, ops.ones((6, 6)))
        after = ops.matmul(g * ops.sum(later), ops.ones((6, 6)))
        return later, vjp(lambda x: ops.gelu(x, approximate=False), (x,), [after])[0]

    before = fused(step)
    after = check_order(verify(recompute_cheap(before)))
    assert written(before) - written(after) >= 2
    for want, got in zip(interpret(before, ARGUMENTS), interpret(after, ARGUMENTS), strict=True):
        np.testing.assert_array_equal(got, want)


def test_batch_normalization_writes_its_result_alone():
    """In 16 bits: the cast of the argument, and the result; nothing of their size in between."""
    numbers = [np.ones(6, "float32")] * 4

    def normalized(x, g):
        x = ops.matmul(narrow(x), narrow(np.eye(6, dtype="float32")))
        return standardize_batch(x, *numbers)[0]

    assert written(recompute_cheap(fused(normalized))) == 2
