"""The traits of ops: what passes rely on is true of the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.backends.static.codegen.loop_ops import LOOP_OPS
from kerasish.graph.passes import gather
from kerasish.graph.trace import trace
from kerasish.ops.op import REGISTRY, c_function, op
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
    attrs = {"dtype": "float32"} if name == "cast" else REGISTRY[name].examples[0][1]
    zero = np.asarray(REGISTRY[name].kernel(np, np.zeros(3, "float32"), **attrs))
    assert not zero.any()


@pytest.mark.parametrize("name", having("elementwise"))
def test_elementwise(name):
    """Each element of the result is that of only its elements."""
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
    named = {n: o.native for n, o in REGISTRY.items() if isinstance(o.native, str)}
    unknown = [n for n, loop_op in named.items() if loop_op not in LOOP_OPS]
    assert unknown == []


@pytest.mark.parametrize("name", having("reduction"))
def test_reductions_are_named_after_what_they_compute(name):
    x = np.array([[1.0, 3.0, 2.0], [0.0, 5.0, 5.0]], "float32")
    o = REGISTRY[name]
    attrs = {"axis": 1} if o.reduction.startswith("arg") else {"axis": (1,), "keepdims": False}
    expected = getattr(np, o.reduction)(x, axis=1)
    got = o.kernel(np, x, **attrs)
    np.testing.assert_array_equal(got, expected)
    assert o.gives_index == (got.dtype.kind in "iu")


def test_a_trait_that_is_none_is_refused():
    with pytest.raises(TypeError, match="no traits are called"):
        op("elementwise", same, fast=True)(lambda xp, x: x)


@pytest.fixture
def define():
    """Define element-wise ops for one test, as a file of `kerasish.ops` does."""
    before = set(REGISTRY)

    def make(kernel, **traits):
        return op("elementwise", same, promote="float", **traits)(kernel)

    yield make
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def softsign_slope(xp, x, *, scale):
    """x / (scale + |x|)."""
    return x / (scale + xp.abs(x))


def inverse_gudermannian(xp, x):
    """asinh(tan(x))."""
    return xp.arcsinh(xp.tan(x))


def clipped(xp, x, *, low, high):
    """x, held between low and high."""
    return xp.clip(x, low, high)


ASINH, TAN = c_function("asinh"), c_function("tan")
# Kernel, attributes, native code: all that a new op consists of, gradient and examples aside.
NEW = {
    "an attribute": (
        softsign_slope, {"scale": 1.5}, lambda loop, x, scale: x / (loop.op("absolute", x) + scale),
    ),
    "functions of the C library": (
        inverse_gudermannian, {}, lambda loop, x: ASINH(loop, TAN(loop, x)),
    ),
    "comparisons": (
        clipped, {"low": -1.0, "high": 0.75},
        lambda loop, x, low, high: loop.op("select", x > high, high, loop.op("maximum", x, low)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("case", NEW)
def test_a_new_op_is_one_declaration(define, case, dtype):
    """It runs inside a fused native loop: no table of the static engine knows its name."""
    kernel, attrs, native = NEW[case]
    created = define(kernel, native=native)

    def program(x):
        return created(x * 2.0, **attrs) + 1.0

    x = ops.cast(np.linspace(-0.7, 0.7, 40, dtype="float32").reshape(4, 10), dtype)
    graph = gather(trace(program, x).graph)
    assert {n.op.name for n in graph.nodes} <= {"fused", "cast"}
    step = backends.get("static").compile(program)
    tolerance = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 1e-2}[dtype]
    result, expected = (np.asarray(f(x).numpy(), "float64") for f in (step, program))
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
    assert all(call.executable.is_native for call in step._calls())


def test_other_attributes_are_other_native_code(define):
    kernel, _, native = NEW["an attribute"]
    created = define(kernel, native=native)
    x = np.array([-2.0, 1.0], "float32")
    step = backends.get("static").compile(lambda x: created(x, scale=1.0) - created(x, scale=3.0))
    np.testing.assert_allclose(step(x).numpy(), [-2 / 3 + 2 / 5, 1 / 2 - 1 / 4], rtol=1e-6)


def test_native_code_that_no_loop_expresses_leaves_the_kernel(define):
    """An unknown loop op, or C function, is no error of the model: NumPy computes the op."""
    x = np.array([-2.0, 1.0], "float32")
    for native in (lambda loop, x: loop.op("nope", x), c_function("nope")):
        created = define(lambda xp, x: xp.negative(x), native=native, name=f"new_{id(native)}")
        step = backends.get("static").compile(lambda x, created=created: created(x) * 2.0)
        np.testing.assert_array_equal(step(x).numpy(), [4.0, -2.0])
