"""Each rule of the algebra, by the ops that are left."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import ops
from kerasish.graph.interpret import interpret
from kerasish.graph.passes import drop_dead, fold_constants, optimize, share_common
from kerasish.graph.passes.simplify import simplify_algebra
from kerasish.graph.trace import trace
from kerasish.ops import dtypes

X = np.ones((2, 3), "float32")


def names(function, *arguments, run=optimize):
    return [n.op.name for n in run(trace(function, *arguments).graph).nodes]


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x * 1.0, []),
        (lambda x: x + -0.0, []),
        (lambda x: x + 0.0, ["add"]),
        (lambda x: x - 0.0, []),
        (lambda x: x / 1.0, []),
        (lambda x: x**1.0, []),
        (lambda x: x**2.0, ["square"]),
        (lambda x: x**0.5, ["add", "sqrt", "equal", "select"]),
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


def test_a_long_range_is_computed_once():
    """No loop writes a range: NumPy would compute it in each step."""
    x = np.zeros(5000, "int32")
    graph = fold_constants(trace(lambda x: x + ops.arange(5000), x).graph)
    assert [node.op.name for node in graph.nodes] == ["add"]


def test_dead_nodes_go_inputs_stay():
    def function(x, y):
        ops.exp(y)
        return x * 3.0

    graph = drop_dead(trace(function, X, X).graph)
    assert [n.op.name for n in graph.nodes] == ["multiply"]
    assert len(graph.inputs) == 2


SPECIAL = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-45, 1e-39, 1e-30, 1e20, 1e30, 3e38]
REWRITTEN = {
    "add zero": lambda x: x + 0.0,
    "add negative zero": lambda x: x + -0.0,
    "zero plus": lambda x: 0.0 + x,
    "subtract zero": lambda x: x - 0.0,
    "subtract negative zero": lambda x: x - -0.0,
    "times one": lambda x: x * 1.0,
    "times zero": lambda x: x * 0.0,
    "itself away": lambda x: x - x,
    "by itself": lambda x: x / x,
    "negated twice": lambda x: ops.negative(ops.negative(x)),
    "to the power of 1": lambda x: x**1.0,
    "to the power of 2": lambda x: x**2.0,
    "to the power of 1/2": lambda x: x**0.5,
    "to the power of -1": lambda x: x**-1.0,
    "to the power of 0": lambda x: x**0.0,
    **{f"by {d}": lambda x, d=d: x / d for d in (1.0, 2.0, 0.5, -4.0, 2.0**-130, 2.0**127, 0.0)},
    **{
        f"times {c} times {d}": lambda x, c=c, d=d: (x * c) * d
        for c in (2.0, 0.5, -0.0, 1e30, 1e-30, np.inf, -1.0)
        for d in (0.5, 4.0, 0.0, 1e30, 1e-30, np.inf, 1.0)
    },
    "sum of repeats": lambda x: ops.sum(ops.broadcast_to(x[:, None], (x.shape[0], 7)), -1),
    "sum of none": lambda x: ops.sum(ops.broadcast_to(x[:, None], (x.shape[0], 0)), -1),
    "cast there and back": lambda x: ops.cast(ops.cast(x, "float64"), "float32"),
}  # fmt: skip


def smallest(dtype):
    return float(np.nextafter(*np.asarray([0, 1], dtypes.array_dtype(dtype))))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", REWRITTEN)
def test_special_numbers_survive(name, dtype):
    """NaN, Inf, the sign of zero, overflow and underflow are those of the graph as written."""
    with np.errstate(over="ignore"):
        values = np.asarray(SPECIAL).astype(dtypes.array_dtype(dtype))
    graph = trace(REWRITTEN[name], values).graph
    with np.errstate(all="ignore"):
        expected, result = (
            np.asarray(interpret(g, [values])[0]).astype("float64")
            for g in (graph, simplify_algebra(fold_constants(graph)))
        )
    rounding = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(result, expected, rtol=rounding, atol=2 * smallest(dtype))
    if not name.startswith("sum"):  # the sum of negative zeros has either sign
        assert np.signbit(result).tolist() == np.signbit(expected).tolist()


def test_scalings_are_chained_where_neither_can_overflow_alone():
    def count(c, d):
        graph = trace(lambda x: (x * c) * d, np.ones(3, "float32")).graph
        return len(drop_dead(simplify_algebra(fold_constants(graph))).nodes)

    assert count(0.5, 0.25) == count(2.0, 3.0) == count(1.0, 1e-3) == 1
    assert count(1e30, 1e-30) == count(0.5, 2.0) == count(1e30, 1e30) == count(1e-30, 1e-30) == 2


ALMOST = {
    "numbers that begin with 1": lambda x: x * np.asarray([1.0, 2.0, 3.0, 4.0], "float32"),
    "numbers that begin with 0": lambda x: x + np.asarray([0.0, 2.0, 3.0, 4.0], "float32"),
    "less numbers that begin with 0": lambda x: x - np.asarray([0.0, 2.0, 3.0, 4.0], "float32"),
    "powers that begin with 2": lambda x: x ** np.asarray([2.0, 3.0, 1.0, 2.0], "float32"),
    "divisors that begin with 2": lambda x: x / np.asarray([2.0, 4.0, 3.0, 1.0], "float32"),
    "reshaped numbers": lambda x: x * ops.reshape(np.float32([[1], [2], [3]]), (3, 1)),
    "repeated numbers": lambda x: x * ops.broadcast_to(np.float32([[1], [2], [3]]), (2, 3, 4)),
    "zero less": lambda x: 0.0 - x,
    "one by": lambda x: 1.0 / x,
    "zero with more axes": lambda x: x + np.full((1, 1, 1, 1), -0.0, "float32"),
    "less zero with more axes": lambda x: x - np.zeros((1, 1, 1, 1), "float32"),
    "times one with more axes": lambda x: x * np.ones((1, 1, 1, 1), "float32"),
    "by one with more axes": lambda x: x / np.ones((1, 1, 1, 1), "float32"),
    "one with more axes": lambda x: np.ones((1, 1, 1, 1), "float32") * x,
    "zeros of more rows": lambda x: x[:1] + np.zeros((5, 1, 1), "float32"),
    "turned twice": lambda x: ops.transpose(ops.transpose(x, (1, 2, 0)), (1, 2, 0)),
    "turned three ways": lambda x: ops.transpose(ops.transpose(x, (2, 0, 1)), (0, 2, 1)),
    "turned, equal sizes": lambda x: ops.transpose(x[:, :, :3], (0, 2, 1)),
    "turned, sizes of one": lambda x: ops.transpose(x[:1], (1, 0, 2)),
    "turned round": lambda x: x[::-1],
    "turned round at last": lambda x: x[:, :, ::-1],
    "without fractions": lambda x: ops.cast(ops.cast(x * 3.7, "int32"), "float32"),
    "less precise": lambda x: ops.cast(ops.cast(x, "float16"), "float32"),
    "sum of repeats in front": lambda x: ops.sum(ops.broadcast_to(x, (5, 2, 3, 4)), 0),
    "sum of repeats and more": lambda x: ops.sum(ops.broadcast_to(x, (5, 2, 3, 4)), (0, 1)),
    "sum of some repeats": lambda x: ops.sum(ops.broadcast_to(x[:, :1, None], (2, 5, 3, 4)), 1),
    "sum of repeats that stay": lambda x: ops.sum(
        ops.broadcast_to(x[:, None, :1], (2, 5, 6, 4)), 1, keepdims=True
    ),
    "sum of two kinds of repeats": lambda x: ops.sum(
        ops.broadcast_to(x[:, None, :1], (2, 5, 6, 4)), (1, 2)
    ),
    "repeated, then added to": lambda x: ops.broadcast_to(x[:, :1], (2, 3, 4)) + x,
    "two repeated": lambda x: (
        ops.broadcast_to(x[:1, :, :1], (1, 3, 4)) * ops.broadcast_to(x[:1, :1], (1, 3, 4))
    ),
    "repeated twice": lambda x: ops.broadcast_to(
        ops.broadcast_to(x[:1, :, :1], (1, 3, 4)), (2, 3, 4)
    ),
    "two numbers of equal bytes": lambda x: (
        ops.cast(x > 0, "int32") * np.int32(1065353216) + ops.cast(x * np.float32(1.0), "int32")
    ),
    "sums along two axes": lambda x: ops.sum(x[:, :, :3], 1) + ops.sum(x[:, :, :3], 2),
    "rows 0 and 1": lambda x: x[0] * 2.0 + x[1],
}  # fmt: skip


@pytest.mark.parametrize("name", ALMOST)
def test_what_looks_like_a_rule_keeps_its_numbers(name):
    """Close to what a rule rewrites: the numbers are those of the graph as written."""
    x = np.random.default_rng(3).uniform(0.5, 2.5, (2, 3, 4)).astype("float32")
    graph = trace(ALMOST[name], x).graph
    expected = np.asarray(interpret(graph, [x])[0])
    for created in (simplify_algebra(graph), share_common(graph), optimize(graph)):
        result = np.asarray(interpret(created, [x])[0])
        assert result.shape == expected.shape and result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-6)
