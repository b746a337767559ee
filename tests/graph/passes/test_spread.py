"""Gatherings of divided variables: near their readers, and again for the reverse pass."""

from __future__ import annotations

import numpy as np

import kerasish as keras
from kerasish import ops
from kerasish.autodiff import gradients_of
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import hoist_exchanges, optimize, spread_gathers
from kerasish.graph.trace import trace

SIZE = 4


def traced(layers=3):
    """Return the graph of a step whose kernels are gathered, and arrays for its inputs."""
    segments = [keras.Variable(np.eye(SIZE, dtype="float32").reshape(-1)) for _ in range(layers)]
    variables = [keras.Variable(np.zeros((SIZE, SIZE), "float32")) for _ in segments]

    def step(x):
        for v, segment in zip(variables, segments):
            whole = ops.reshape(ops.all_gather(segment.value, SIZE * SIZE), v.shape)
            x = ops.tanh(x @ v.leaf_of(whole.value))
        gradients = gradients_of(ops.sum(x), variables)
        sums = [ops.all_sum(ops.reshape(g, (-1,))) for g in gradients]
        for segment, total in zip(segments, sums):
            segment.assign(segment.value - ops.tile(total[:SIZE], SIZE))
        return x

    x = np.arange(2 * SIZE, dtype="float32").reshape(2, SIZE) / 10
    graph = trace(step, x).graph
    return graph, [x, *(s.numpy() for s in segments)]


def names(graph):
    return [n.op.name for n in graph.nodes if n.op.communicates or n.op.name == "matmul"]


def test_gathered_again_for_the_reverse_pass():
    graph, arrays = traced()
    after = verify(spread_gathers(graph))
    # The last layer's kernel is read again at once, the first one's has no second reader.
    assert names(after) == [
        *["all_gather", "matmul"] * 3,
        *["matmul", "matmul", "all_sum"],
        *["all_gather again", "matmul", "matmul", "all_sum"],
        *["matmul", "all_sum"],
    ]  # fmt: skip
    for a, b in zip(interpret(graph, arrays), interpret(after, arrays)):
        np.testing.assert_array_equal(a, b)
    assert names(spread_gathers(after)).count("all_gather again") == 1


def test_other_passes_leave_them_there():
    graph, arrays = traced()
    after = verify(hoist_exchanges(optimize(graph)))
    assert names(after).count("all_gather again") == 1
    first = names(after).index("all_gather again")
    assert names(after)[:6] == ["all_gather", "matmul"] * 3 and first > 6
    for a, b in zip(interpret(graph, arrays), interpret(after, arrays)):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_sum_is_cut_when_the_next_one_has_started():
    graph, _ = traced()
    order = list(hoist_exchanges(optimize(graph)).nodes)
    sums = [i for i, n in enumerate(order) if n.op.name == "all_sum"]
    readers = [next(i for i, n in enumerate(order) if order[s].out in n.inputs) for s in sums]
    assert sums[1] < readers[0] < sums[2] < readers[1], (sums, readers)


def test_graphs_without_divided_variables_stay():
    v = keras.Variable(np.ones(3, "float32"))

    def step(x):
        v.assign(ops.all_gather(v.value * 2.0, 3))
        return ops.all_sum(x)

    graph = trace(step, np.ones(3, "float32")).graph
    assert spread_gathers(graph) is graph
