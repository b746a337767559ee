"""Products that add their bias and apply their relu themselves."""

import numpy as np
import pytest

from kerasish import backends, config, ops
from kerasish.backends.static.lowering import convolutions
from kerasish.backends.static.lowering import library as lower_library
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import optimize
from kerasish.graph.passes.fuse import fuse_loops
from kerasish.graph.passes.fuse_epilogues import apart, fuse_epilogues
from kerasish.graph.trace import trace

rng = np.random.default_rng(0)


def array(*shape):
    return rng.normal(size=shape).astype("float32")


X, W, B = array(40, 30), array(30, 50), array(50)
ROWS, SQUARE = array(200, 50), array(50, 50)
IMAGES, KERNEL, BIAS = array(4, 9, 9, 3), array(3, 3, 3, 8), array(8)


def dense(x, w, b):
    return ops.relu(ops.matmul(x, w) + b)


def conv(x, w, b):
    return ops.relu(ops.conv(x, w, padding="same") + b)


def sums(x, w, b):
    """Three products added up, and a residual that is not read later."""
    y = ops.matmul(x, w)
    total = ops.matmul(x, w + 1.0) + y + (ops.matmul(x, w * 2.0) + b)
    return total, ops.relu(total)


CASES = {
    "dense": (dense, (X, W, B), ["product"]),
    "bias first": (lambda x, w, b: ops.relu(b + ops.matmul(x, w)), (X, W, B), ["product"]),
    "bias alone": (lambda x, w, b: ops.matmul(x, w) + b, (X, W, B), ["product"]),
    "relu alone": (lambda x, w, b: ops.relu(ops.matmul(x, w)) + ops.exp(b), (X, W, B), ["product"]),
    "small": (dense, (X[:3, :4], W[:4, :5], B[:5]), ["product"]),
    "rows": (dense, (array(2, 3, 30), W, B), ["product"]),
    "batches": (dense, (array(4, 20, 30), array(4, 30, 16), array(16)), ["product"]),
    "transposed": (lambda x, w, b: dense(x, ops.transpose(w), b), (X, array(50, 30), B), None),
    "conv": (conv, (IMAGES, KERNEL, BIAS), ["product"]),
    "conv bias": (lambda x, w, b: ops.conv(x, w) + b, (IMAGES, KERNEL, BIAS), ["product"]),
    "a bias of its own": (lambda x, w, b: dense(x, w, ops.exp(b)), (X, W, B), []),
    "a column": (lambda x, w, b: ops.matmul(x, w) + x[:, :1], (X, W, B), []),
    "a column, square": (
        lambda x, w, b: ops.matmul(x, w) + b, (SQUARE, array(50, 50), array(50, 1)), []
    ),
    "a row, square": (
        lambda x, w, b: ops.matmul(x, w) + b, (SQUARE, array(50, 50), array(1, 50)), None
    ),
    "a column of each batch": (
        lambda x, w, b: ops.matmul(x, w) + b, (array(3, 20, 30), array(30, 20), array(20, 1)), []
    ),
    "read twice": (
        lambda x, w, b: ops.relu(ops.matmul(x, w)) * ops.sum(ops.matmul(x, w)), (X, W, B), []
    ),
    "both sides": (lambda x, w, b: (lambda y: y + y)(ops.matmul(x, w)), (X, W, B), []),
    "added": (lambda x, w, b: sums(x, w, b)[0], (ROWS, SQUARE, B), ["product", "product"]),
    "added to what is read later": (
        lambda x, w, b: (lambda y: ops.matmul(x, w) + y + ops.exp(ops.matmul(y, w)))(
            ops.matmul(x, w + 1.0)
        ),
        (ROWS, SQUARE, B), [],
    ),
    "added to an argument": (lambda x, w, b: ops.matmul(x, w) + x, (ROWS, SQUARE, B), []),
    "added to a view": (
        lambda x, w, b: (lambda y: ops.matmul(x, w) + ops.reshape(y, (-1, 50)) + ops.sum(y))(
            ops.matmul(ops.reshape(x, (2, 100, 50)), w + 1.0)
        ),
        (ROWS, SQUARE, B), [],
    ),
    "added to what is read later, transposed": (
        lambda x, w, b: (
            lambda y: (lambda t, z: ops.matmul(t, z))(ops.transpose(y), ops.matmul(x, w) + y)
        )(ops.matmul(x, w + 1.0)),
        (ROWS, SQUARE, B), [],
    ),
    "convolutions added": (
        lambda x, w, b: ops.conv(x, w, padding="same") + ops.conv(x, w * 2.0, padding="same") + b,
        (array(8, 40, 40, 16), array(3, 3, 16, 16), array(16)), ["product"],
    ),
    "heads": (
        lambda x, w, b: ops.relu(ops.reshape(ops.matmul(x, w), (4, 50, 5, 10)) + b),
        (array(4, 50, 50), SQUARE, array(5, 10)), ["product"],
    ),
    "not heads": (
        lambda x, w, b: ops.reshape(ops.matmul(x, w), (4, 25, 100)) + b,
        (array(4, 50, 50), SQUARE, array(100)), [],
    ),
    "heads, added": (
        lambda x, w, b: ops.reshape(ops.matmul(x, w), (4, 50, 5, 10)) + b
        + ops.matmul(ops.reshape(x[..., :10], (4, 50, 5, 2)), w[:2, :10]),
        (array(4, 50, 50), SQUARE, array(5, 10)), ["product"],
    ),
    "heads, both split": (
        lambda x, w, b: ops.relu(
            ops.reshape(ops.matmul(x, w), (4, 50, 5, 10))
            + ops.reshape(ops.matmul(x[..., :3], w[:3]), (4, 50, 5, 10))
        ),
        (array(4, 50, 50), SQUARE, array(5, 10)), ["product"],
    ),
    "heads, added to what is read twice": (
        lambda x, w, b: (
            lambda y: ops.reshape(ops.matmul(x, w), (4, 50, 5, 10)) + y * 1.0 + ops.exp(ops.sum(y))
        )(ops.reshape(ops.matmul(x[..., :3], w[:3]), (4, 50, 5, 10))),
        (array(4, 50, 50), SQUARE, array(5, 10)), None,
    ),
    "heads, added to what was read before": (
        lambda x, w, b: (
            lambda y: ops.exp(ops.sum(y) / 1e4)
            + (ops.reshape(ops.matmul(x, w), (4, 50, 5, 10)) + y)
        )(ops.matmul(ops.reshape(x[..., :10], (4, 50, 5, 2)), w[:2, :10])),
        (array(4, 50, 50), SQUARE, array(5, 10)), [],
    ),
    "float64": (dense, (X.astype("float64"), W.astype("float64"), B.astype("float64")), []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_products(name):
    function, arguments, expected = CASES[name]
    graph = optimize(trace(function, *arguments).graph)
    after = verify(fuse_epilogues(graph))
    created = [n for n in after.nodes if n.op.name == "product"]
    if expected is not None:
        assert [n.op.name for n in created] == expected
    want = interpret(graph, arguments)
    for result in (after, verify(drop_products(after)), fuse_loops(after)):
        for a, b in zip(interpret(result, arguments), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    step = backends.get("static").compile(function)
    for _ in range(2):
        np.testing.assert_allclose(step(*arguments), want[0], rtol=1e-4, atol=1e-4)


def test_the_larger_of_two_products_adds():
    def low_rank(x, w, a, b):
        return ops.matmul(ops.matmul(x, a), b) + ops.matmul(x, w)

    arguments = (array(3000, 50), SQUARE, array(50, 4), array(4, 50))
    graph = fuse_epilogues(optimize(trace(low_rank, *arguments).graph))
    (product,) = (n for n in graph.nodes if n.op.name == "product")
    assert product.attrs["what"].leader.inputs[1].shape == (50, 50)
    assert product.attrs["what"].sum
    want = arguments[0] @ arguments[1] + arguments[0] @ arguments[2] @ arguments[3]
    np.testing.assert_allclose(interpret(graph, arguments)[0], want, rtol=1e-4, atol=1e-4)


def drop_products(graph):
    nodes = [
        n for node in graph.nodes for n in (apart(node) if node.op.name == "product" else [node])
    ]
    return graph.replace(nodes=nodes)


def test_nan_and_infinity_pass():
    x = np.array([[np.nan, 1], [np.inf, 1], [-np.inf, 0], [0, -1]], "float32")
    w, b = np.eye(2, 40, dtype="float32"), np.zeros(40, "float32")
    with np.errstate(invalid="ignore"):
        want = np.maximum(x @ w + b, 0)
    for rows in (x, np.tile(x, (200, 1))):
        got = np.asarray(backends.get("static").compile(dense)(rows, w, b))
        np.testing.assert_array_equal(got[:4, 1], want[:, 1])
        assert np.isnan(got[0]).sum() == np.isnan(want[0]).sum()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "last",
    [
        lambda h, w: ops.matmul(h, w) + h,
        lambda h, w: ops.matmul(w, h) + h,
        lambda h, w: ops.matmul(ops.reshape(h, (-1, 256)), w) + h,
        lambda h, w: ops.matmul(ops.transpose(h), w) + h,
    ],
    ids=["left", "right", "reshaped", "transposed"],
)
def test_a_product_is_not_written_over_its_operand(last, threads):
    """A product is added to one of its own operands, which no other op reads."""
    x, v, w = array(256, 256), array(256, 256) / 16, array(256, 256) / 16
    with config.using_threads(threads):
        step = backends.get("static").compile(lambda x, v, w: last(ops.matmul(x, v), w))
        got = np.asarray(step(x, v, w))
    np.testing.assert_allclose(got, np.asarray(last(x @ v, w)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("filters", [8, 16])
def test_a_convolution_is_not_written_over_its_operand(filters):
    x, v, w = array(8, 12, 12, 3), array(3, 3, 3, filters), array(3, 3, filters, filters) / 16

    def residual(x, v, w):
        h = ops.conv(x, v, padding="same")
        return ops.conv(h, w, padding="same") + h

    got = np.asarray(backends.get("static").compile(residual)(x, v, w))
    np.testing.assert_allclose(got, np.asarray(residual(x, v, w)), rtol=1e-3, atol=1e-4)


def test_without_a_library_the_pieces_serve(monkeypatch):
    monkeypatch.setattr(lower_library, "MatmulUnit", _refuse)
    monkeypatch.setattr(convolutions, "ConvolutionUnit", _refuse)
    for function, arguments in ((dense, (array(300, 200), array(200, 90), array(90))),
                                (conv, (array(4, 10, 10, 3), KERNEL, BIAS))):  # fmt: skip
        step = backends.get("static").compile(function)
        want = interpret(trace(function, *arguments).graph, arguments)[0]
        np.testing.assert_allclose(step(*arguments), want, rtol=1e-4, atol=1e-4)


def _refuse(*args):
    raise ValueError("not here")
