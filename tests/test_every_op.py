"""Every op of the registry, by its own examples: new ops are found by themselves."""

from __future__ import annotations

import itertools
import pathlib
import re

import numpy as np
import pytest
from op_examples import arguments, bound, call, results

import kerasish
from kerasish import ops
from kerasish.backends.eager import numpy_kernels
from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec
from kerasish.tensor import Tensor, convert
from kerasish.testing import gradient_check

CASES = [
    pytest.param(op, example, id=f"{name}-{i}")
    for name, op in sorted(REGISTRY.items())
    for i, example in enumerate(op.examples)
]
every_example = pytest.mark.parametrize(("op", "example"), CASES)


def specs(values):
    return [Spec(v.shape, dtypes.name_of(v.dtype)) for v in values]


def answered(op, values, attrs):
    rule = op.shape(*specs(values), **attrs)
    return (rule,) if isinstance(rule, Spec) else tuple(rule)


def test_examples_and_words():
    for name, op in REGISTRY.items():
        assert op.examples, f"{name} has no examples"
        assert op.__doc__, f"{name} has no docstring"
        assert re.match(r".*?[.:]$", op.__doc__.split("\n\n")[0].strip(), re.S), (
            f"{name}: {op.__doc__!r}"
        )
        assert set(op.attr_names).isdisjoint(op.input_names)


@every_example
def test_shape_rule_is_what_the_kernel_gives(op, example):
    values, attrs = bound(op, *arguments(op, example))
    expected = answered(op, values, attrs)
    got = results(op.kernel(np, *values, **attrs))
    assert len(got) == len(expected) == op.outputs
    for spec, array in zip(expected, got):
        assert spec.shape == np.shape(array)
        assert spec.dtype == dtypes.name_of(array.dtype)


def with_unknown(shapes):
    """Yield `shapes` with one size unknown, and with all of them unknown."""
    for i, shape in enumerate(shapes):
        for axis in range(len(shape)):
            changed = list(shapes)
            changed[i] = (*shape[:axis], None, *shape[axis + 1 :])
            yield changed
    yield [(None,) * len(shape) for shape in shapes]


# The last size of these inputs says how many axes an index has: unknown, so is the result's rank.
INDEX_WIDTH = {"read_at": 1, "write_at": 1}


@every_example
def test_shape_rule_answers_for_unknown_sizes(op, example):
    arrays, given = arguments(op, example)
    values, attrs = bound(op, arrays, dict(given))
    concrete = answered(op, values, attrs)
    names = [s.dtype for s in specs(values)]
    _, raw = op.bind((list(arrays),) if op.variadic else arrays, given)
    for shapes in with_unknown([v.shape for v in values]):
        if op.name in INDEX_WIDTH and shapes[INDEX_WIDTH[op.name]][-1] is None:
            continue
        canonical = dict(raw) if op.canonical is None else op.canonical(shapes, dict(raw))
        rule = op.shape(*(Spec(s, n) for s, n in zip(shapes, names)), **canonical)
        for unsure, sure in zip((rule,) if isinstance(rule, Spec) else rule, concrete):
            assert unsure.dtype == sure.dtype
            assert len(unsure.shape) == len(sure.shape), (shapes, unsure, sure)
            for a, b in zip(unsure.shape, sure.shape):
                assert a in (None, b), (shapes, unsure, sure)


def real_parts(found):
    """Return the tensors found, complex ones as their two parts."""
    parts = [
        part
        for t in results(found)
        for part in ((ops.real(t), ops.imag(t)) if t.dtype.startswith("complex") else (t,))
    ]
    return [part for part in parts if part.dtype == "float64"]


STRAIGHT = {"round_mantissa"}  # steps, whose documented gradient is that of the identity
DIFFERENTIABLE = [
    c for c in CASES if c.values[0].grad is not None and c.values[0].name not in STRAIGHT
]


@pytest.mark.parametrize("name", sorted(STRAIGHT))
def test_the_gradient_passes_straight_through(name):
    op = REGISTRY[name]
    x = np.float32([1.03, -7.7, 0.0])
    slope = kerasish.grad(lambda x: ops.sum(op(x, **op.examples[0][1]) * 3.0))(x)
    assert slope.tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize(("op", "example"), DIFFERENTIABLE)
def test_gradient_is_the_finite_difference(op, example):
    arrays, attrs = arguments(op, example, "float64")
    floating = [a for a in arrays if a.dtype.kind == "f"]
    if not floating or attrs.get("dtype", "float64") not in ("float64", "float32"):
        assert all(r.maker is None for r in results(call(op, arrays, attrs)))
        return
    attrs = {**attrs, "dtype": "float64"} if "dtype" in attrs else attrs
    gradient_check(lambda *xs: real_parts(call(op, xs, attrs)), arrays)


@every_example
def test_eager_kernel_is_the_reference(op, example):
    override = numpy_kernels.KERNELS.get(op.name)
    values, attrs = bound(op, *arguments(op, example))
    reference = results(op.kernel(np, *values, **attrs))
    result = results(override(*values, **attrs) if override else call(op, values, attrs))
    for a, b in zip(result, reference, strict=True):
        a = np.asarray(a)
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_every_override_belongs_to_an_op():
    assert set(numpy_kernels.KERNELS) <= set(REGISTRY)


def whole_numbers(op, shape, rng):
    if op.kind == "decomposition":  # some matrices have no inverse
        return np.zeros(shape, int) + np.eye(*shape[-2:], dtype=int)
    return rng.integers(1, 3, shape)


@every_example
def test_dtypes_are_those_of_the_rule(op, example):
    for dtype in ("float16", "bfloat16", "float64", "int32", "uint8", "bool"):
        check_dtype(op, example, dtype)


def check_dtype(op, example, dtype):
    arrays, attrs = arguments(op, example)
    rng = np.random.default_rng(0)
    narrow = [
        whole_numbers(op, a.shape, rng).astype(dtypes.array_dtype(dtype))
        if dtypes.name_of(a.dtype) == "float32" and not dtypes.is_float(dtype)
        else a.astype(dtypes.array_dtype(dtype))
        if dtypes.name_of(a.dtype) == "float32"
        else a
        for a in arrays
    ]
    if not any(dtypes.name_of(a.dtype) == dtype for a in narrow):
        return  # an op of integers only: tested as it is above
    if dtype in ("bool",) and op.name in NO_BOOLS:
        with pytest.raises(TypeError):
            call(op, narrow, attrs)
        return
    values, canonical = bound(op, narrow, attrs)
    expected = answered(op, values, canonical)
    for spec, tensor in zip(expected, results(call(op, narrow, attrs)), strict=True):
        assert tensor.dtype == spec.dtype, dtype
        assert tensor.shape == spec.shape, dtype


# NumPy has no arithmetic for truth values here, and says so.
NO_BOOLS = {"negative", "sign", "subtract"}


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize("name", sorted(n for n, o in REGISTRY.items() if o.kind == "elementwise"))
def test_no_axes_and_no_elements(name, shape):
    op = REGISTRY[name]
    if op.attr_names and op.name != "cast":
        return
    attrs = {"dtype": "float32"} if op.name == "cast" else {}
    inputs = [np.full(shape, 0.5, "float32") for _ in op.input_names]
    assert results(op(*inputs, **attrs))[0].shape == shape


SOURCES = sorted(pathlib.Path(ops.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_kernels_use_what_cupy_has(path):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: extras gpu13 or gpu12")
    used = set(re.findall(r"\bxp\.([a-z_A-Z][\w.]*)", path.read_text()))
    for name in sorted(used):
        result = cupy
        for part in name.split("."):
            assert hasattr(result, part), f"{path.name} uses xp.{name}, which CuPy lacks"
            result = getattr(result, part)


@pytest.mark.parametrize("op", [o for _, o in sorted(REGISTRY.items())], ids=lambda o: o.name)
def test_wrong_calls_name_the_op(op):
    with pytest.raises(TypeError, match="takes|unexpected"):
        op.bind((), {"no_such_argument": 1})
    required = [n for n in op.input_names if n not in op.input_defaults]
    if required:
        with pytest.raises(TypeError, match=required[0]):
            op.bind((), {})


def test_pickled_ops_are_themselves():
    import copy
    import pickle

    for op in REGISTRY.values():
        assert pickle.loads(pickle.dumps(op)) is op
        assert copy.deepcopy(op) is op


def test_broadcasting_errors_name_the_sizes():
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(4,\)"):
        ops.add(np.ones((2, 3)), np.ones(4))
    pairs = itertools.product(["add", "multiply", "where"], [(2,), (3, 2)])
    for _, shape in pairs:
        assert isinstance(convert(np.ones(shape)), Tensor)
    assert kerasish.ops.add(np.ones((2, 1)), np.ones(3)).shape == (2, 3)
