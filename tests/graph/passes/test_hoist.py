"""Sums over ranks are started as soon as their inputs are there, in the order of the program."""

from __future__ import annotations

import numpy as np

from kerasish import ops
from kerasish.graph.passes import fold_constants, hoist_exchanges
from kerasish.graph.trace import trace

X = np.ones((3, 4), "float32")


def names(graph):
    return [node.op.name for node in graph.nodes]


def test_a_sum_moves_up_to_its_input_with_what_feeds_it():
    def step(x):
        first = ops.exp(x)
        second = ops.sin(first)
        flat = ops.all_sum(ops.reshape(first, (-1,)))
        return second, ops.cos(flat)

    before = trace(step, X).graph
    after = hoist_exchanges(before)
    assert names(before) == ["exp", "sin", "reshape", "all_sum", "cos"]
    assert names(after) == ["exp", "reshape", "all_sum", "sin", "cos"]
    assert hoist_exchanges(after) is after


def test_sums_keep_their_order():
    """The second sum could start first: ranks must agree on one order."""

    def step(x):
        early, late = ops.exp(x), ops.sin(ops.cos(x))
        a, b = ops.all_sum(late), ops.all_sum(early)
        return a, b, ops.tan(early)

    after = hoist_exchanges(trace(step, X).graph)
    assert names(after) == ["exp", "cos", "sin", "all_sum", "all_sum", "tan"]
    sums = [node for node in after.nodes if node.op.communicates]
    makers = after.makers()
    assert [makers[n.inputs[0]].op.name for n in sums] == ["sin", "exp"]


def test_a_graph_without_sums_stays():
    graph = trace(lambda x: ops.exp(x), X).graph
    assert hoist_exchanges(graph) is graph


def test_constants_are_not_summed_at_compile_time():
    graph = trace(lambda x: x + ops.all_sum(np.arange(4, dtype="float32")), X).graph
    assert "all_sum" in names(fold_constants(graph))
