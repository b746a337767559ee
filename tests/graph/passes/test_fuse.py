"""Fusing: what becomes one loop, and what must not."""

from __future__ import annotations

import numpy as np
import pytest
from graph_examples import array, batch_moments, mlp_step, normalize

from kerasish import backends, ops
from kerasish.graph.passes import optimize
from kerasish.graph.passes.fuse import fuse_loops
from kerasish.graph.trace import trace


def fused(function, *arguments):
    return fuse_loops(optimize(trace(function, *arguments).graph)).nodes


def test_chain_is_one_loop():
    nodes = fused(lambda x: ops.tanh(ops.exp(x) * 3.0) + 1.0, array(4, 5))
    assert [n.op.name for n in nodes] == ["fused"]
    assert nodes[0].attrs["body"].frame == (4, 5)


def test_softmax_and_normalization_are_one_loop():
    for function in (ops.softmax, normalize):
        nodes = fused(function, array(4, 5))
        assert [n.op.name for n in nodes] == ["fused"]
        assert nodes[0].attrs["body"].split == 1


def test_batch_statistics_need_two_loops_at_least():
    nodes = fused(batch_moments, array(6, 3))
    assert 2 <= len(nodes) <= 4
    assert all(n.op.name == "fused" for n in nodes)


def test_mean_over_places_has_groups():
    (node,) = fused(lambda x: ops.mean(x, (1, 2)), array(2, 3, 4, 5))
    body = node.attrs["body"]
    assert body.split == 3
    assert body.groups == 1


def test_sums_of_rows_and_of_groups_of_rows_share_a_loop():
    """Layer normalization and the mean over time."""
    (node,) = fused(lambda x: ops.mean(normalize(x), 1), array(2, 3, 5))
    body = node.attrs["body"]
    assert (body.split, body.groups) == (2, 1)


def test_product_stays_between_loops():
    step, arguments = mlp_step()
    names = [n.op.name for n in fused(step, *arguments)]
    assert names.count("matmul") == 5
    assert set(names) <= {"matmul", "fused", "transpose", "broadcast_to", "reshape"}


def test_updates_do_not_join_the_sums_they_use():
    step, arguments = mlp_step()
    for node in fused(step, *arguments):
        if node.op.name == "fused":
            inside = [n.op.name for n in node.attrs["body"].graph.nodes]
            assert not ("reduce_sum" in inside and inside[-2:] == ["multiply", "subtract"])


def test_a_value_in_between_is_not_swallowed():
    # exp(x) @ y needs the loop's first half before its second: they cannot be one.
    nodes = fused(lambda x: ops.exp(x) + ops.matmul(ops.exp(x), x), array(3, 3))
    names = [n.op.name for n in nodes]
    assert names.index("matmul") not in (0, len(names) - 1)


def test_a_sum_per_row_that_is_read_along_columns_is_in_a_loop_before():
    """In a square the number per row has the right size for each column, but is another one."""

    def function(x):
        y = x * 2.0
        return y + ops.sum(y, 1)

    x = array(3, 3)
    assert len(fused(function, x)) == 2
    compiled = backends.get("static").compile(function)
    expected = 2 * x + (2 * x).sum(1)
    np.testing.assert_allclose(compiled(x), expected, rtol=1e-6)


def test_what_lies_along_columns_alone_is_not_computed_for_each_row():
    def function(x, b):
        return x * ops.exp(b)

    nodes = fused(function, array(100, 3), array(3, seed=1))
    exps = [n for n in nodes if "exp" in repr(n.attrs.get("body", ""))]
    assert exps[0].attrs["body"].frame in ((3,), (100, 3))


def test_empty_arrays_are_left_alone():
    nodes = fused(lambda x: ops.exp(x), np.zeros((0, 3), "float32"))
    assert [n.op.name for n in nodes] == ["exp"]


TOGETHER = {
    "sums of rows of two sizes": lambda x: (ops.sum(ops.exp(x), -1), ops.sum(ops.exp(x), (1, 2))),
    "the larger rows first": lambda x: (ops.sum(ops.exp(x), (1, 2)), ops.max(ops.exp(x), -1)),
    "rows and all": lambda x: (ops.sum(ops.exp(x), -1), ops.sum(ops.exp(x))),
    "rows and columns": lambda x: (ops.sum(ops.exp(x), -1), ops.sum(ops.exp(x), 0)),
    "columns of two sizes": lambda x: (ops.sum(ops.exp(x), 0), ops.sum(ops.exp(x), (0, 1))),
    "a product read as it is and turned": lambda x: (
        (lambda y: (ops.exp(ops.transpose(y, (1, 0, 2))), ops.tanh(y)))(
            ops.matmul(x, ops.transpose(x, (0, 2, 1)))
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_what_shares_a_loop_keeps_its_numbers(name):
    x = np.random.default_rng(2).normal(size=(3, 4, 5)).astype("float32")
    expected = TOGETHER[name](x)
    result = backends.get("static").compile(TOGETHER[name])(x)
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
