"""Products of a few terms that loops compute: which ones are expanded, and their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import gather, optimize, thin_products
from kerasish.graph.passes.thin_products import expand_thin_products
from kerasish.graph.trace import trace

rng = np.random.default_rng(0)


def array(*shape):
    return rng.normal(size=shape).astype("float32")


X, W, B = array(4, 16, 96), array(96, 160), array(160)
LOW, HIGH = array(96, 3), array(3, 160)
ARGUMENTS = (X, W, B, LOW, HIGH)


def low_rank(x, low, high):
    return ops.matmul(ops.matmul(x, low), high)


def adapted(x, w, b, low, high):
    return ops.matmul(x, w) + b + low_rank(x, low, high)


EXPANDED = {
    "gelu": lambda *a: ops.gelu(adapted(*a), approximate=False),
    "a factor": lambda x, w, b, low, high: ops.exp(
        ops.matmul(x, w) + low_rank(x, low, high) * 0.25
    ),
    "first": lambda x, w, b, low, high: ops.tanh(low_rank(x, low, high) + ops.matmul(x, w)),
    "two readers": lambda *a: (lambda y: ops.tanh(y) * ops.sigmoid(y))(adapted(*a)),
    "transposed": lambda x, w, b, low, high: ops.tanh(
        adapted(x, w, b, low, ops.transpose(ops.transpose(high) + 1.0))
    ),
    "a matrix": lambda x, *a: ops.tanh(adapted(ops.reshape(x, (64, 96)), *a)),
}
LEFT = {
    "an output": adapted,
    "a product reads it": lambda *a: ops.matmul(adapted(*a), ops.transpose(a[1])),
    "a reduction reads it": lambda *a: ops.sum(adapted(*a), -1),
    "a reader and an output": lambda *a: (lambda y: (ops.exp(y), y))(adapted(*a)),
    "read twice": lambda x, w, b, low, high: (lambda y: ops.exp(ops.matmul(x, w) + y) * ops.sum(y))(
        low_rank(x, low, high)
    ),
    "no large product": lambda x, w, b, low, high: ops.exp(low_rank(x, low, high) + b),
    "two thin products": lambda x, w, b, low, high: ops.exp(
        low_rank(x, low, high) + ops.matmul(x[..., :4], w[:4])
    ),
    "added to a product": lambda x, w, b, low, high: ops.exp(
        ops.matmul(x, w) + low_rank(x, low, high) + ops.matmul(x, w + 1.0)
    ),
    "float64": lambda *a: ops.exp(adapted(*(ops.cast(v, "float64") for v in a))),
    "a row of terms": lambda x, w, b, low, high: ops.exp(
        ops.matmul(x, w) + ops.matmul(ops.matmul(x, low[:, :1]), high[:1])
    ),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(thin_products, "SMALLEST", 1)
    monkeypatch.setattr(thin_products, "WORTH", 0.0)


@pytest.mark.parametrize("name", [*EXPANDED, *LEFT])
def test_thin_products(name):
    function = EXPANDED.get(name) or LEFT[name]
    graph = optimize(trace(function, *ARGUMENTS).graph)
    after = verify(expand_thin_products(graph))
    if name in LEFT:
        assert after is graph
    else:
        rows = [n for n in after.nodes if n.op.name == "multiply" and n.inputs[0].shape[-1] == 1]
        assert len(rows) == LOW.shape[1]
        assert expand_thin_products(after) is after
    want = interpret(graph, ARGUMENTS)
    for result in (after, verify(gather(graph))):
        for a, b in zip(interpret(result, ARGUMENTS), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-4)
    if name in EXPANDED:
        step = backends.get("static").compile(function)
        for _ in range(2):
            np.testing.assert_allclose(step(*ARGUMENTS), want[0], rtol=1e-4, atol=2e-4)


def test_terms_are_computed_in_the_loop_that_reads_them():
    graph = gather(optimize(trace(EXPANDED["gelu"], *ARGUMENTS).graph))
    loops = [n for n in graph.nodes if n.op.name == "fused"]
    assert len(loops) == 1
    names = [n.op.name for n in loops[0].attrs["body"].graph.nodes]
    assert names.count("add") >= LOW.shape[1]
    (product,) = (n for n in graph.nodes if n.op.name == "product")
    assert product.attrs["what"].bias
    assert not product.attrs["what"].sum


def test_small_results_stay_products(monkeypatch):
    monkeypatch.setattr(thin_products, "SMALLEST", 64 * 160 + 1)
    graph = optimize(trace(EXPANDED["gelu"], *ARGUMENTS).graph)
    assert expand_thin_products(graph) is graph
