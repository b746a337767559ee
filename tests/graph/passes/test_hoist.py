"""Sums over ranks are started as soon as their inputs are there, in the order of the program."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import ops
from kerasish.graph import passes
from kerasish.graph.ir import GraphError, check_order
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


def test_a_move_that_another_node_reads_keeps_its_place():
    """The sum waits for the product, and the product for the slice that is summed, too."""

    def step(x):
        part = ops.exp(x)[:, :3]
        product = ops.matmul(ops.transpose(x), part)
        flat = [ops.reshape(a, (-1,)) for a in (part, product)]
        return ops.all_sum(ops.concatenate(flat))

    after = check_order(hoist_exchanges(trace(step, X).graph))
    assert names(after).index("matmul") > names(after).index("strided_slice")


def test_a_step_is_not_compiled_from_nodes_out_of_order(monkeypatch):
    graph = trace(lambda x: ops.cos(ops.exp(x)), X).graph
    monkeypatch.setattr(passes, "FUSION_PASSES", (lambda g: g.replace(nodes=g.nodes[::-1]),))
    with pytest.raises(GraphError, match="cos.* before it is computed"):
        passes.gather(graph)
    with pytest.raises(GraphError, match="an output is never computed"):
        check_order(graph.replace(nodes=graph.nodes[:1]))


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


def summed(graph):
    """Return the names of the ops whose results are summed, in order."""
    makers = graph.makers()
    return [makers[n.inputs[0]].op.name for n in graph.nodes if n.op.communicates]


def test_sums_keep_their_order_where_loops_are_fused():
    """`exp` and `sin` are one loop, written where `sin` stands: `matmul` moves behind it."""

    def step(x):
        a = ops.exp(x)
        first = ops.all_sum(ops.matmul(a, ops.ones((4, 4))))
        second = ops.all_sum(ops.transpose(x))
        return first, second, ops.sin(a)

    graph = trace(step, X).graph
    assert summed(graph) == ["matmul", "transpose"]
    assert summed(passes.gather(passes.optimize(graph))) == ["matmul", "transpose"]


def test_a_loop_is_not_fused_across_the_order_of_sums():
    """What reads the second sum may not be one loop with what the first sum reads."""

    def step(x):
        other = ops.sin(x)
        first = ops.all_sum(ops.exp(x) * other)
        second = ops.all_sum(ops.tan(ops.reshape(x, (4, 3))))
        return first, ops.reshape(second, (3, 4)) * other

    graph = passes.gather(passes.optimize(trace(step, X).graph))
    assert [n.op.name for n in graph.nodes].count("all_sum") == 2
    check_order(graph)


def test_a_pass_that_changes_the_order_of_sums_is_an_error(monkeypatch):
    graph = trace(lambda x: (ops.all_sum(x), ops.all_sum(-x)), X).graph
    sums = [n for n in graph.nodes if n.op.communicates]
    others = [n for n in graph.nodes if not n.op.communicates]

    def turn(g):
        return g.replace(nodes=[*others, *sums[::-1]])

    monkeypatch.setattr(passes, "FUSION_PASSES", (turn,))
    with pytest.raises(GraphError, match="order in which ranks communicate"):
        passes.gather(graph)


def test_equal_sums_are_all_computed():
    """A rank with one row may find equal sums where another does not."""
    graph = trace(lambda x: (ops.all_sum(x), ops.all_sum(x)), X).graph
    assert names(passes.optimize(graph)) == ["all_sum", "all_sum"]


def test_a_graph_without_sums_stays():
    graph = trace(lambda x: ops.exp(x), X).graph
    assert hoist_exchanges(graph) is graph


def test_constants_are_not_summed_at_compile_time():
    graph = trace(lambda x: x + ops.all_sum(np.arange(4, dtype="float32")), X).graph
    assert "all_sum" in names(fold_constants(graph))


def test_a_product_that_is_sent_is_computed_first():
    """The gradient of a kernel comes before that of the layer's input, which takes its time."""

    def step(x):
        delta = ops.exp(x)
        back = ops.matmul(delta, np.ones((4, 4), "float32"))
        kernel = ops.matmul(ops.transpose(x), delta)
        return ops.tanh(back), ops.all_sum(ops.reshape(kernel, (-1,)))

    before = trace(step, X).graph
    after = check_order(hoist_exchanges(before))
    assert names(before) == ["exp", "matmul", "transpose", "matmul", "tanh", "reshape", "all_sum"]
    assert names(after) == ["exp", "transpose", "matmul", "reshape", "all_sum", "matmul", "tanh"]
    assert hoist_exchanges(after) is after


@pytest.mark.parametrize("shown", [False, True])
def test_a_product_that_others_need_keeps_its_place(shown):
    def step(x):
        delta = ops.exp(x)
        other = ops.sin(delta)
        product = ops.matmul(ops.transpose(x), delta)
        total = ops.all_sum(product)
        return other, total, product if shown else ops.tanh(product)

    after = check_order(hoist_exchanges(trace(step, X).graph))
    assert names(after)[:5] == ["exp", "sin", "transpose", "matmul", "all_sum"]


def test_a_product_does_not_wait_for_the_sum_before_its_own():
    """Its inputs are no longer needed then: later, they would take memory for nothing."""

    def step(x):
        early = ops.matmul(ops.transpose(x), x)
        late = ops.tan(ops.sin(ops.exp(x)))
        return ops.all_sum(late), ops.all_sum(early)

    after = check_order(hoist_exchanges(trace(step, X).graph))
    assert names(after)[:2] == ["transpose", "matmul"]
    assert names(after)[-2:] == ["all_sum", "all_sum"]
