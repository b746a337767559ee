"""Every op on the static engine: values and gradients as the eager engine gives them."""

from __future__ import annotations

import numpy as np
import pytest
from native_code import WITHOUT_NATIVE_CODE

from kerasish import backends, ops
from kerasish.autodiff import value_and_grad
from kerasish.backends.static.lowering.slow_units import slow_units
from kerasish.ops.op import REGISTRY
from kerasish.tensor import to_numpy

CASES = [
    pytest.param(op, inputs, attrs, id=f"{op.name}-{i}")
    for op in REGISTRY.values()
    for i, (inputs, attrs) in enumerate(op.examples)
]


def arrays_of(inputs):
    rng = np.random.default_rng(0)
    created = []
    for x in inputs:
        x = x(rng) if callable(x) else x
        x = rng.normal(size=x) if isinstance(x, tuple) else np.asarray(x)
        created.append(x.astype("float32") if x.dtype == np.float64 else x)
    return created


def call(op, arrays, attrs):
    return op(list(arrays), **attrs) if op.variadic else op(*arrays, **attrs)


def assert_same(got, expected):
    many = expected if isinstance(expected, tuple) else (expected,)
    result = got if isinstance(got, tuple) else (got,)
    for a, b in zip(result, many, strict=True):
        a, b = to_numpy(a), to_numpy(b)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if b.dtype.kind in "fc" and b.size:
            scale = np.nanmax(np.abs(np.where(np.isfinite(b), b, 0))) + 1e-3
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6 * scale, equal_nan=True)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("op", "inputs", "attrs"), CASES)
def test_value(op, inputs, attrs):
    """The compiled op gives what the op applied at once gives, by native code."""
    arrays = arrays_of(inputs)
    expected = call(op, arrays, attrs)
    step = backends.get("static").compile(lambda *xs: call(op, xs, attrs))
    assert_same(step(*arrays), expected)
    slow = {unit.name for created in step.executables() for unit in slow_units(created.units)}
    assert not slow or op.name in WITHOUT_NATIVE_CODE, (
        f"{op.name}: give it native code, or its reason in tests/shared/native_code.py"
    )


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"), [c for c in CASES if c.values[0].grad is not None]
)
def test_gradient(op, inputs, attrs):
    """The compiled derivative is the derivative taken at once."""
    arrays = arrays_of(inputs)
    chosen = tuple(i for i, a in enumerate(arrays) if a.dtype == np.float32)
    if not chosen:
        return

    def total(*xs):
        results = call(op, xs, attrs)
        many = results if isinstance(results, tuple) else (results,)
        parts = [ops.sum(ops.multiply(r, 1.0)) for r in many if r.dtype == "float32"]
        return sum(parts[1:], parts[0]) if parts else ops.zeros(())

    both = value_and_grad(total, chosen)
    expected = both(*arrays)
    got = backends.get("static").compile(lambda *xs: both(*xs))(*arrays)
    assert_same(got[0], expected[0])
    for a, b in zip(got[1], expected[1], strict=True):
        assert_same(a, b)
