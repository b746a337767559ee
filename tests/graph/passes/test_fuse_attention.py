"""Attention heads as one node: what is combined, what is not, and equal numbers.

The random graphs are in float64, so that an error stands out from rounding.
`KERASISH_FUZZ=2000` runs more.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from kerasish import ops
from kerasish.autodiff import grad
from kerasish.graph.formulas import work_of
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import gather, optimize
from kerasish.graph.passes.fuse_attention import fuse_attention as fuse
from kerasish.graph.trace import trace

COUNT = int(os.environ.get("KERASISH_FUZZ", "20"))
HEADS, TURNED = (0, 2, 1, 3), (0, 2, 3, 1)
rng = np.random.default_rng(0)


def array(*shape, dtype="float32"):
    return rng.normal(size=shape).astype(dtype)


Q, K, V = array(2, 5, 3, 4), array(2, 6, 3, 4), array(2, 6, 3, 7)
MASK = rng.random((2, 1, 5, 6)) < 0.6
ARGUMENTS = (Q, K, V, MASK)


def weights_of(q, k, mask=None, low=-1e9, twice=True):
    logits = ops.matmul(ops.transpose(q, HEADS), ops.transpose(k, TURNED))
    if mask is None:
        return ops.softmax(logits)
    weights = ops.softmax(ops.where(mask, logits, low))
    return ops.where(mask, weights, 0.0) if twice else weights


def attend(q, k, v, mask=None, **options):
    weights = weights_of(q, k, mask, **options)
    return ops.transpose(ops.matmul(weights, ops.transpose(v, HEADS)), HEADS)


def slopes(f, count=3):
    """Return a function that gives f and its gradients by the first arguments."""

    def loss(*arguments):
        y = f(*arguments)
        return ops.sum(y * ops.cast(ops.reshape(ops.arange(y.size) % 7, y.shape), y.dtype))

    return lambda *arguments: (
        f(*arguments), *grad(loss, argnums=tuple(range(count)))(*arguments)
    )  # fmt: skip


def fused(function, *arguments, dtypes=("float32",)):
    """Return the optimized graph before and after the pass, and the nodes it made."""
    graph = optimize(trace(function, *arguments).graph)
    after = verify(fuse(graph, dtypes))
    return graph, after, [n for n in after.nodes if n.op.name.startswith("attention")]


COMBINED = {
    "forward": (lambda q, k, v, m: attend(q, k, v), 1),
    "mask": (attend, 1),
    "mask, logits alone": (lambda *a: attend(*a, low=-np.inf, twice=False), 1),
    "gradient": (lambda q, k, v, m: slopes(attend)(q, k, v), 2),
    "gradient with a mask": (slopes(attend), 2),
    "gradient, logits alone": (slopes(lambda *a: attend(*a, twice=False)), 2),
    "scaled": (slopes(lambda q, k, v, m: attend(q * 0.5, k, v, m)), 2),
    "values that are computed late": (
        slopes(
            lambda q, k, v, m: ops.matmul(weights_of(q, k, m), ops.transpose(ops.tanh(v), HEADS))
        ),
        2,
    ),
    "one axis": (
        lambda q, k, v, m: attend(
            *(ops.reshape(ops.transpose(x, HEADS), (6, -1, 1, x.shape[-1])) for x in (q, k, v))
        ),
        1,
    ),
}
LEFT = {
    "the weights are a result": lambda q, k, v, m: (weights_of(q, k), attend(q, k, v)),
    "the weights are read": lambda q, k, v, m: attend(q, k, v) + ops.mean(weights_of(q, k)),
    "something between": lambda q, k, v, m: ops.matmul(
        weights_of(q, k) * 2.0 + 1.0, ops.transpose(v, HEADS)
    ),
    "few matrices": lambda q, k, v, m: attend(q[:1], k[:1], v[:1]),
    "another axis": lambda q, k, v, m: ops.matmul(
        ops.softmax(ops.matmul(ops.transpose(q, HEADS), ops.transpose(k, TURNED)), axis=-2),
        ops.transpose(v, HEADS),
    ),
    "not by the keys": lambda q, k, v, m: grad(
        lambda q, v: ops.sum(attend(q, k, v) ** 2), argnums=(0, 1)
    )(q, v),
    "one matrix of values": lambda q, k, v, m: ops.matmul(weights_of(q, k), v[0, :, 0]),
    "a mask of rows": lambda q, k, v, m: attend(q, k, v, m[..., :1]),
    "the second mask is another": lambda q, k, v, m: ops.matmul(
        ops.where(m[:1], weights_of(q, k, m, twice=False), 0.0), ops.transpose(v, HEADS)
    ),
    "second weights": lambda q, k, v, m: ops.matmul(
        ops.where(m, weights_of(q, k, m, twice=False), 0.5), ops.transpose(v, HEADS)
    ),
}


@pytest.mark.parametrize("name", COMBINED)
def test_heads_are_combined(name):
    function, count = COMBINED[name]
    graph, after, nodes = fused(function, *ARGUMENTS)
    assert len(nodes) == count
    inside = {(2, 3, 5, 6), (6, 1, 5, 6)}
    assert not any(v.shape in inside for n in after.nodes for v in n.outputs if v.dtype != "bool")
    assert sum(map(work_of, after.nodes)) >= sum(map(work_of, graph.nodes))
    for x, y in zip(interpret(after, ARGUMENTS), interpret(graph, ARGUMENTS), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LEFT)
def test_others_are_left(name):
    _, _, nodes = fused(LEFT[name], *ARGUMENTS)
    assert not nodes


def test_large_heads_and_other_dtypes_are_left(monkeypatch):
    wide = [a.astype("float64") for a in ARGUMENTS[:3]]
    assert not fused(attend, *wide)[2]
    monkeypatch.setitem(fuse.__globals__, "LARGEST", 6 * 7 - 1)
    assert not fused(attend, *ARGUMENTS)[2]


def test_a_node_names_its_shapes_and_equals_itself():
    body = fused(attend, *ARGUMENTS)[2][0].attrs["body"]
    assert repr(body) == "[2, 3, 5, 4] [2, 3, 4, 6]"
    other = fused(attend, *ARGUMENTS)[2][0].attrs["body"]
    assert body == body and body != other and len({body, other}) == 2


def drawn(seed):
    """Return a random function around attention heads, and arguments."""
    pen = np.random.default_rng(seed)
    n, heads, targets, sources, size, values = (int(pen.integers(2, 6)) for _ in range(6))
    shapes = (n, targets, heads, size), (n, sources, heads, size), (n, sources, heads, values)
    arguments = [pen.normal(size=s) for s in shapes]
    for a in arguments:
        if pen.random() < 0.1:
            a.flat[int(pen.integers(a.size))] = pen.choice([np.nan, np.inf, 1e30])
    kind, twice = int(pen.integers(4)), bool(pen.random() < 0.5)
    shape = [(sources,), (n, 1, 1, sources), (n, heads, targets, sources), (targets, sources)][kind]
    arguments.append(pen.random(shape) < 0.7)
    masked, low = bool(pen.random() < 0.6), float(pen.choice([-1e9, -np.inf, 0.0, 1.0]))
    end, gradient = int(pen.integers(4)), bool(pen.random() < 0.7)

    def function(q, k, v, mask):
        y = attend(q * 0.5, k, v, mask if masked else None, low=low, twice=twice)
        if end == 1:
            y = ops.transpose(y, (0, 3, 1, 2))
        if end == 2:
            y = ops.reshape(y, (n, targets, heads * values)) * 2.0
        if end == 3:
            y = ops.matmul(ops.transpose(y, HEADS), ops.ones((values, 2), str(y.dtype)))
        return y

    return slopes(function) if gradient else function, arguments


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_heads():
    count = 0
    for seed in range(COUNT):
        function, arguments = drawn(seed)
        graph, after, nodes = fused(function, *arguments, dtypes=("float64",))
        count += len(nodes)
        with np.errstate(all="ignore"):
            want, got = interpret(graph, arguments), interpret(after, arguments)
            pieces = interpret(verify(gather(after)), arguments)
        for x, y, z in zip(want, got, pieces, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-9, atol=1e-9, err_msg=str(seed))
            np.testing.assert_allclose(z, x, rtol=1e-9, atol=1e-9, err_msg=str(seed))
    assert count >= COUNT
