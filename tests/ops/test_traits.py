"""The traits of ops: what passes rely on holds for the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.backends.static.codegen.description import OPS
from kerasish.graph.passes import gather
from kerasish.graph.trace import trace
from kerasish.ops.op import REGISTRY, op
from kerasish.ops.shapes import broadcast_shapes, same

FLOATS = np.array([0.0, -0.0, 1.5, -2.0, 3.0, np.inf, -np.inf, 1e-40], "float32")
WHOLE = np.array([0, 1, 2, -3, 7, -128, 127], "int8")


def having(trait):
    return [name for name, o in REGISTRY.items() if getattr(o, trait)]


def values(name):
    kind = REGISTRY[name].kind
    if kind == "logic":
        return np.array([True, False])
    return WHOLE if kind == "bits" else FLOATS


def compute(name, *arrays):
    with np.errstate(all="ignore"):
        return np.asarray(REGISTRY[name].kernel(np, *arrays))


@pytest.mark.parametrize("name", having("commutative"))
def test_commutative(name):
    a, b = np.meshgrid(values(name), values(name))
    assert compute(name, a, b).tobytes() == compute(name, b, a).tobytes()


@pytest.mark.parametrize("name", having("keeps_zero"))
def test_keeps_zero(name):
    attrs = {"dtype": "float32"} if name == "cast" else {}
    zero = np.asarray(REGISTRY[name].kernel(np, np.zeros(3, "float32"), **attrs))
    assert not zero.any()


@pytest.mark.parametrize("name", having("elementwise"))
def test_elementwise(name):
    """Each element of the result is that of the elements alone."""
    o = REGISTRY[name]
    for inputs, attrs in o.examples:
        rng = np.random.default_rng(0)
        arrays = [x(rng) if callable(x) else rng.uniform(0.5, 2.0, x) for x in inputs]
        tensors = [ops.convert_to_tensor(np.asarray(a)) for a in arrays]
        whole = o(*tensors, **attrs)
        shape = broadcast_shapes(*(t.shape for t in tensors))
        assert whole.shape == shape
        if not whole.size:
            continue
        place = tuple(s - 1 for s in shape)
        ones = [np.broadcast_to(t.numpy(), shape)[place] for t in tensors]
        alone = o(*(ops.convert_to_tensor(np.asarray(x)) for x in ones), **attrs)
        np.testing.assert_allclose(alone.numpy(), whole.numpy()[place], rtol=1e-6)


def test_native_loop_ops_exist():
    unknown = [n for n, o in REGISTRY.items() if isinstance(o.native, str) and o.native not in OPS]
    assert unknown == []


@pytest.mark.parametrize("name", having("reduction"))
def test_reductions_are_named_after_what_they_compute(name):
    x = np.array([[1.0, 3.0, 2.0], [0.0, 5.0, 5.0]], "float32")
    o = REGISTRY[name]
    attrs = {"axis": 1} if o.reduction.startswith("arg") else {"axis": (1,), "keepdims": False}
    expected = getattr(np, o.reduction)(x, axis=1)
    np.testing.assert_array_equal(o.kernel(np, x, **attrs), expected)


def test_a_trait_that_is_none_is_refused():
    with pytest.raises(TypeError, match="no traits are called"):
        op("elementwise", same, fast=True)(lambda xp, x: x)


def test_an_op_may_compose_its_native_code():
    """One declaration is all that a new element-wise op needs to run inside fused loops."""

    def softsign(xp, x):
        """x / (1 + |x|)."""
        return x / (1 + xp.abs(x))

    made = op(
        "elementwise", same, None, "float", examples=[(((2, 3),), {})],
        native=lambda loop, x: x / (loop.op("absolute", x) + 1.0),
    )(softsign)  # fmt: skip
    try:
        x = np.linspace(-3, 3, 40, dtype="float32").reshape(4, 10)
        graph = gather(trace(lambda x: made(x * 2.0) + 1.0, x).graph)
        assert [n.op.name for n in graph.nodes] == ["fused"]
        step = backends.get("static").compile(lambda x: made(x * 2.0) + 1.0)
        np.testing.assert_allclose(step(x).numpy(), 2 * x / (1 + np.abs(2 * x)) + 1, rtol=1e-6)
        assert all(call.executable.is_native for call in step._made.values())
    finally:
        del REGISTRY["softsign"]
