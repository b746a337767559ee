"""Each rule of the algebra, by the ops that are left."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import ops
from kerasish.graph.passes import drop_dead, fold_constants, optimize, share_common
from kerasish.graph.passes.simplify import simplify_algebra
from kerasish.graph.trace import trace

X = np.ones((2, 3), "float32")


def names(function, *arguments, run=optimize):
    return [n.op.name for n in run(trace(function, *arguments).graph).nodes]


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x * 1.0, []),
        (lambda x: x + 0.0, []),
        (lambda x: x - 0.0, []),
        (lambda x: x / 1.0, []),
        (lambda x: x**1.0, []),
        (lambda x: x**2.0, ["square"]),
        (lambda x: x**0.5, ["sqrt"]),
        (lambda x: x / 4.0, ["multiply"]),
        (lambda x: x / 3.0, ["divide"]),
        (lambda x: (x * 2.0) * 3.0, ["multiply"]),
        (lambda x: ops.negative(ops.negative(x)), []),
        (lambda x: ops.transpose(ops.transpose(x)), []),
        (lambda x: ops.reshape(ops.reshape(x, (3, 2)), (6,)), ["reshape"]),
        (lambda x: ops.reshape(x, (2, 3)), []),
        (lambda x: ops.cast(ops.cast(x, "float64"), "float32"), []),
        (lambda x: ops.broadcast_to(x, (2, 3)), []),
        (lambda x: ops.broadcast_to(x[:1], (4, 3)) * 2.0,
         ["strided_slice", "multiply", "broadcast_to"]),
        (lambda x: x[:], []),
        (lambda x: ops.prod(x[:, None], 1), []),
        (lambda x: ops.all((x > 0)[:, None], 1), ["greater"]),
        (lambda x: ops.any(x[:, None], 1), ["reshape", "reduce_any"]),
        # These would change NaN or Inf.
        (lambda x: x * 0.0, ["multiply"]),
        (lambda x: x - x, ["subtract"]),
        (lambda x: x / x, ["divide"]),
    ],
)  # fmt: skip
def test_rule(function, left):
    assert names(function, X) == left


def test_sum_of_repeated_numbers_is_a_product():
    assert "reduce_sum" not in names(lambda x: ops.sum(ops.broadcast_to(x, (4, 2, 3)), 0), X)


def test_shared_expressions_stand_once():
    assert names(lambda x: ops.exp(x) + ops.exp(x), X, run=share_common) == ["exp", "add"]


def test_attributes_of_other_types_are_not_shared():
    kept = names(lambda x: (ops.cast(x, "int32"), ops.cast(x, "int64")), X, run=share_common)
    assert kept == ["cast", "cast"]


def test_constants_fold_but_do_not_spread():
    graph = fold_constants(trace(lambda x: x + ops.exp(ops.zeros(())), X).graph)
    assert [n.op.name for n in drop_dead(graph).nodes] == ["add"]
    graph = fold_constants(trace(lambda x: x + ops.zeros((2, 3)), X).graph)
    assert "fill" in [n.op.name for n in graph.nodes]


def test_dead_nodes_go_inputs_stay():
    def function(x, y):
        ops.exp(y)
        return x * 3.0

    graph = drop_dead(trace(function, X, X).graph)
    assert [n.op.name for n in graph.nodes] == ["multiply"]
    assert len(graph.inputs) == 2


def test_negative_zero_and_nan_survive():
    values = np.array([[-0.0, np.nan, np.inf]], "float32")
    graph = simplify_algebra(trace(lambda x: (x * 2.0) * 0.5, values).graph)
    assert len(graph.nodes) >= 1
