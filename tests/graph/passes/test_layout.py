"""Products that write their results transposed."""

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.backends.static.lowering import library as lower_library
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import optimize
from kerasish.graph.passes.fuse_epilogues import apart
from kerasish.graph.passes.layout import lay_out_products
from kerasish.graph.trace import trace

rng = np.random.default_rng(0)
A, B = rng.normal(size=(2, 3, 5, 7)), rng.normal(size=(2, 3, 7, 4))
A, B = A.astype("float32"), B.astype("float32")


def heads(a, b):
    return ops.reshape(ops.transpose(ops.matmul(a, b), (0, 2, 1, 3)), (2, 5, 12))


CASES = {
    "heads": (heads, 1),
    "an output": (lambda a, b: ops.transpose(ops.matmul(a, b), (2, 1, 0, 3)), 1),
    "all turned round": (lambda a, b: ops.exp(ops.transpose(ops.matmul(a, b), (2, 0, 1, 3))), 1),
    "read by products": (
        lambda a, b: ops.matmul(ops.transpose(ops.matmul(a, b), (0, 2, 1, 3)), b[:, :1, :4]), 0
    ),
    "the last axis moves": (lambda a, b: ops.exp(ops.transpose(ops.matmul(a, b))), 0),
    "read twice": (
        lambda a, b: (lambda y: ops.sum(y) + ops.transpose(y, (0, 2, 1, 3)))(ops.matmul(a, b)), 0
    ),
    "one matrix": (lambda a, b: ops.exp(ops.transpose(ops.matmul(a, b[0, 0]), (0, 2, 1, 3))), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_transposes(name):
    function, count = CASES[name]
    graph = optimize(trace(function, A, B).graph)
    after = verify(lay_out_products(graph))
    assert sum(node.op.name == "product" for node in after.nodes) == count
    before = sum(node.op.name == "transpose" for node in graph.nodes)
    assert sum(node.op.name == "transpose" for node in after.nodes) == before - count
    want = interpret(graph, (A, B))
    nodes = [n for m in after.nodes for n in (apart(m) if m.op.name == "product" else [m])]
    for result in (after, verify(after.replace(nodes=nodes))):
        for x, y in zip(interpret(result, (A, B)), want, strict=True):
            np.testing.assert_array_equal(x, y)
    step = backends.get("static").compile(function)
    np.testing.assert_allclose(step(A, B), want[0], rtol=1e-4, atol=1e-4)


def test_without_a_library_the_transpose_is_carried_out(monkeypatch):
    def refuse(*args):
        raise ValueError("not here")

    monkeypatch.setattr(lower_library, "MatmulUnit", refuse)
    got = backends.get("static").compile(heads)(A, B)
    np.testing.assert_allclose(got, np.asarray(heads(A, B)), rtol=1e-4, atol=1e-4)
