"""Rows of a batch: the rules of all ops against their kernels, and graphs of blocks of rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from op_examples import arguments, bound

from kerasish import Variable, ops
from kerasish.graph.by_rows import by_rows
from kerasish.graph.interpret import interpret
from kerasish.graph.trace import trace
from kerasish.ops.op import REGISTRY
from kerasish.ops.rows import NotByRows, RowCall, RowPlace
from kerasish.ops.shapes import Spec

RULES = [name for name, op in REGISTRY.items() if op.rows is not None]


def places_of(shape):
    """Yield where two or more rows may be in a value: in an axis, or in a factor of its size."""
    yield None
    for axis, size in enumerate(shape):
        for before, after in itertools.product(range(1, size + 1), repeat=2):
            if size % (before * after) == 0 and size // (before * after) > 1:
                yield RowPlace(axis, before, after), size // (before * after)


def cut(array, place, rows, first, count):
    """Return the array with some of its rows."""
    at = place.axis
    shape = array.shape
    apart = array.reshape((*shape[:at], place.before, rows, place.after, *shape[at + 1 :]))
    part = apart[(slice(None),) * (at + 1) + (slice(first, first + count),)]
    size = place.before * count * place.after
    return part.reshape((*shape[:at], size, *shape[at + 1 :]))


def run(op, arrays, attrs):
    with np.errstate(all="ignore"):
        found = op.kernel(np, *arrays, **attrs)
    return [np.asarray(y) for y in (found if isinstance(found, (tuple, list)) else (found,))]


def rows_of(assigned):
    counts = {own[1] for own in assigned if own is not None}
    return counts.pop() if len(counts) == 1 else None


@pytest.mark.parametrize("name", RULES)
def test_rules_of_ops(name):
    """What a rule allows is true of the kernel, wherever rows lie: one block of rows by itself."""
    op, allowed = REGISTRY[name], 0
    for example in op.examples:
        arrays, attrs = bound(op, *arguments(op, example))
        whole = run(op, arrays, attrs)
        shapes, results = [a.shape for a in arrays], [y.shape for y in whole]
        for assigned in itertools.product(*(list(places_of(s)) for s in shapes)):
            rows = rows_of(assigned)
            if rows is None:
                continue
            places = [own and own[0] for own in assigned]
            call = RowCall(shapes, results, attrs, places, rows, 1)
            try:
                found, few = op.rows(call)
            except NotByRows:
                continue
            allowed += 1
            given = list(arrays)
            for (i, axis), size in call.shrunk.items():
                once = given[i].take([0], axis)
                given[i] = np.broadcast_to(once, shapes[i])
                size *= rows
                assert shapes[i][axis] == size
            expected = run(op, given, attrs)
            for row in range(rows):
                own = list(given)
                for (i, axis), size in call.shrunk.items():
                    own[i] = given[i].take(range(size), axis)
                for i, place in enumerate(places):
                    if place is not None:
                        own[i] = cut(given[i], place, rows, row, 1)
                for y, place, block in zip(expected, found, run(op, own, few), strict=True):
                    np.testing.assert_allclose(block, cut(y, place, rows, row, 1), 1e-5, 1e-6)
    assert allowed or name == "constant_pad", "no example shows the rule"


def graph_of(function, *shapes, dtype="float32"):
    traced = trace(function, *(Spec(shape, dtype) for shape in shapes))
    return traced.graph, traced.arguments, [v.numpy() for v in traced.variables]


W = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")
ROWS = 6
LEFT_ALONE = {
    "a dense layer": lambda x: ops.relu(x @ Variable(W) + 1),
    "rows in the middle": lambda x: ops.transpose(ops.reshape(x @ W, (ROWS, 2, 2)), (1, 0, 2))[1],
    "rows and columns in one axis": lambda x: ops.reshape(
        ops.reshape(x, (-1, 1)) * ops.ones((ROWS * 4, 3)), (ROWS, 12)
    ),
    "a softmax": lambda x: ops.softmax(x, axis=-1),
    "as many zeros as rows": lambda x: ops.concatenate([x, ops.zeros((ROWS, 2))], axis=1),
    "attention": lambda x: ops.softmax(x[:, :, None] @ x[:, None, :]) @ x[:, :, None],
    "a number of the size": lambda x: x / x.shape[0],
    "sorted columns": lambda x: ops.sort(x, axis=1),
    "a constant of equal rows": lambda x: x + np.ones((ROWS, 4), "float32"),
    "a product of as many zeros as rows": lambda x: x + ops.ones((ROWS, 4)) @ W,
    "part of a product of equal rows": lambda x: x[:, :2] + (ops.ones((ROWS, 4)) @ W)[:, 1:3],
    "some of more equal rows": lambda x: x + (ops.ones((2 * ROWS + 1, 4)) @ W)[1 : 2 * ROWS : 2],
    "pairs of equal matrices": lambda x: (
        ops.reshape(x, (ROWS, 2, 2)) + ops.ones((ROWS, 2, 4)) @ ops.ones((ROWS, 4, 2))
    ),
    "equal images": lambda x: (
        ops.reshape(x, (ROWS, 2, 2, 1))
        + ops.conv(ops.ones((ROWS, 2, 2, 1)), np.ones((1, 1, 1, 1), "float32"))
    ),
    "equal indices": lambda x: ops.take_along_axis(x, ops.ones((ROWS, 2), "int32"), axis=1),
    "images": lambda x: ops.max_pool(
        ops.conv(ops.reshape(x, (ROWS, 2, 2, 1)), np.ones((1, 1, 1, 3), "float32")), 2
    ),
}
MIXED = {
    "less the mean": lambda x: x - ops.mean(x, axis=0),
    "a softmax over rows": lambda x: ops.softmax(x, axis=0),
    "sorted rows": lambda x: ops.sort(x, axis=0),
    "running sums": lambda x: ops.cumsum(x, axis=0),
    "the rows in reverse": lambda x: x[::-1],
    "the next row": lambda x: ops.roll(x, 1, axis=0),
    "attention across rows": lambda x: ops.softmax(x @ ops.transpose(x)) @ x,
    "numbered rows": lambda x: x + ops.cast(ops.arange(ROWS), "float32")[:, None],
    "a constant of rows": lambda x: x * np.arange(ROWS, dtype="float32")[:, None],
    "a table of the rows": lambda x: ops.take(x, ops.cast(x[:, 0] > 0, "int32"), axis=0),
    "fewer rows": lambda x: x[:3],
    "one number": lambda x: ops.sum(x),
    "one more row": lambda x: ops.pad(x, ((0, 1), (0, 0))),
    "twice the rows": lambda x: ops.concatenate([x, x], axis=0),
    "another axis": lambda x: ops.transpose(x),
    "rows mixed with columns": lambda x: ops.reshape(x, (4, ROWS)),
    "rows of the weights": lambda x: ops.ones((ROWS, ROWS)) @ x,
    "a product of numbered rows": lambda x: (
        x + (ops.reshape(ops.arange(ROWS * 4.0), (ROWS, 4)) @ W)
    ),
    "part of numbered rows": lambda x: (
        x[:, :1] + ops.reshape(ops.arange(ROWS * 4.0), (-1, 4))[:, 1:2]
    ),
    "indices of the rows": lambda x: ops.take_along_axis(
        x, np.arange(ROWS, dtype="int32")[:, None] % 4, axis=1
    ),
    "images of the rows": lambda x: (
        ops.reshape(x, (ROWS, 2, 2, 1))
        + ops.conv(
            ops.reshape(ops.arange(ROWS * 4.0), (ROWS, 2, 2, 1)), np.ones((1, 1, 1, 1), "float32")
        )
    ),
    "nothing of the rows": lambda x: ops.ones((ROWS, 4)),
    "a loop": lambda x: ops.fori_loop(0, 300, lambda i, s: s + x, x),
    "a norm of all": lambda x: x / ops.norm(x),
}


@pytest.mark.parametrize("block", [1, 2, 5])
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_graphs_of_blocks(name, block):
    graph, count, variables = graph_of(LEFT_ALONE[name], (ROWS, 4))
    found = by_rows(graph, count, block)
    assert found is not None
    x = np.random.default_rng(1).normal(size=(ROWS, 4)).astype("float32")
    (whole,) = interpret(graph, [x, *variables])
    for first in range(ROWS - block + 1):
        (part,) = interpret(found.graph, [x[first : first + block], *variables])
        np.testing.assert_allclose(part, whole[first : first + block], 1e-5, 1e-6)


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_depend_on_others(name):
    graph, count, _ = graph_of(MIXED[name], (ROWS, 4))
    assert by_rows(graph, count, 2) is None


def test_arguments_without_rows():
    graph, count, _ = graph_of(lambda x, y: x + y, (ROWS, 4), (4,))
    assert by_rows(graph, count, 2) is None
    graph, count, _ = graph_of(lambda x: x + 1, ())
    assert by_rows(graph, count, 2) is None
