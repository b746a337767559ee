"""Convolutions of small images as products, against NumPy in float64."""

from __future__ import annotations

import ctypes
import functools
from types import SimpleNamespace

import convolution_reference as reference
import numpy as np
import pytest

from kerasish import config, ops
from kerasish.autodiff import grad
from kerasish.backends import onednn
from kerasish.backends.static.codegen.driver import Program, aligned
from kerasish.backends.static.codegen.kernels import compile_many
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import few_pixels
from kerasish.backends.static.lowering.convolutions import geometry_of
from kerasish.backends.static.lowering.few_pixels import FewPixelsUnit
from kerasish.backends.static.lowering.units import Place, place_of
from kerasish.graph.ir import Node, Value
from kerasish.graph.trace import trace

pytestmark = pytest.mark.skipif(
    bool(onednn.native.available()), reason="oneDNN, which multiplies, cannot be loaded here"
)
rng = np.random.default_rng(0)
CASES = {
    "2x2": ((3, 2, 2, 5), (3, 3, 5, 7), 1, "same", 1),
    "2x2 of one channel": ((3, 2, 2, 1), (3, 3, 1, 1), 1, "same", 1),
    "one pixel": ((4, 1, 1, 3), (3, 3, 3, 2), 1, "same", 1),
    "one sample": ((1, 3, 3, 4), (3, 3, 4, 4), 1, "same", 1),
    "3x2": ((2, 3, 2, 4), (3, 3, 4, 6), 1, "same", 1),
    "steps of two": ((3, 4, 4, 5), (3, 3, 5, 4), 2, "same", 1),
    "steps of two, odd": ((3, 5, 3, 5), (3, 3, 5, 4), 2, "same", 1),
    "steps of three": ((2, 7, 7, 3), (2, 2, 3, 4), 3, "valid", 1),
    "valid": ((3, 4, 3, 5), (3, 2, 5, 4), 1, "valid", 1),
    "dilated": ((2, 3, 3, 4), (3, 3, 4, 5), 1, "same", 2),
    "a line": ((3, 4, 5), (3, 5, 2), 1, "same", 1),
    "a cube": ((2, 2, 2, 2, 3), (3, 3, 3, 3, 4), 1, "same", 1),
}
NAMES = list(CASES)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(few_pixels, "LEAST_FLOPS", 0)
    monkeypatch.setattr(few_pixels, "LEAST_SAMPLES", 1)
    monkeypatch.setattr(few_pixels, "INSIDE", 1.0)
    monkeypatch.setattr(few_pixels, "MOST_PRODUCTS", 1000)
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


def convolve(x, kernel, case):
    _, _, stride, padding, dilation = CASES[case]
    return ops.conv(x, kernel, strides=stride, padding=padding, dilation_rate=dilation)


def numbers(case):
    """Return x, a kernel and the gradient of the output."""
    x, kernel = (rng.standard_normal(shape).astype("float32") for shape in CASES[case][:2])
    y = convolve(*map(ops.convert_to_tensor, (x, kernel)), case)
    return x, kernel, rng.standard_normal(y.shape).astype("float32")


def data_gradient(x, kernel, dy, case):
    return grad(lambda x: ops.sum(convolve(x, kernel, case) * dy))(x)


def kernel_gradient(x, kernel, dy, case):
    return grad(lambda kernel: ops.sum(convolve(x, kernel, case) * dy))(kernel)


def computed(function, *arguments):
    """Return the result, which a second run repeats, and the units of products."""
    step = Static().compile(function)
    arguments = [ops.convert_to_tensor(v) for v in arguments]
    result, again = np.array(step(*arguments)), np.array(step(*arguments))
    np.testing.assert_array_equal(result, again)
    return result, [u for e in step.executables() for u in e.units if isinstance(u, FewPixelsUnit)]


def check(result, want):
    np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("case", NAMES)
def test_convolutions(case):
    x, kernel, _ = numbers(case)
    result, (unit,) = computed(lambda x, kernel: convolve(x, kernel, case), x, kernel)
    check(result, reference.forward(unit.g, x, kernel))


@pytest.mark.parametrize("case", NAMES)
def test_data_gradients(case):
    x, kernel, dy = numbers(case)
    gradient = functools.partial(data_gradient, case=case)
    result, (unit,) = computed(gradient, x, kernel, dy)
    check(result, reference.data_gradient(unit.g, dy, kernel))


@pytest.mark.parametrize("case", NAMES)
def test_kernel_gradients(case):
    x, kernel, dy = numbers(case)
    gradient = functools.partial(kernel_gradient, case=case)
    result, (unit,) = computed(gradient, x, kernel, dy)
    check(result, reference.weights_gradient(unit.g, x, dy))


@pytest.mark.parametrize("case", ["2x2", "steps of two", "valid"])
def test_a_bias_and_a_sum(case):
    x, kernel, dy = numbers(case)
    bias = rng.standard_normal(dy.shape[-1]).astype("float32")
    _, (unit,) = computed(lambda x, k: convolve(x, k, case), x, kernel)
    want = reference.forward(unit.g, x, kernel)
    check(computed(lambda x, k, b: convolve(x, k, case) + b, x, kernel, bias)[0], want + bias)
    check(computed(lambda x, k, d: convolve(x, k, case) + d, x, kernel, dy)[0], want + dy)

    def both(x, k, b, d):
        return ops.relu(convolve(x, k, case) + b + d)

    check(computed(both, x, kernel, bias, dy)[0], np.maximum(want + bias + dy, 0))

    def with_slope(x, k, d, more):
        return data_gradient(x, k, d, case) + more

    gradient, _ = computed(with_slope, x, kernel, dy, x)
    check(gradient, reference.data_gradient(unit.g, dy, kernel) + x)
    square = rng.standard_normal((*kernel.shape[:2], 5, 5)).astype("float32")
    result, _ = computed(lambda x, k: ops.relu(ops.conv(x, k, padding="same") + x), x, square)
    wanted, _ = computed(lambda x, k: ops.conv(x, k, padding="same"), x, square)
    check(result, np.maximum(wanted + x, 0))


def node_of(name, x, kernel, **attrs):
    """Return a node of a convolution, or of a gradient, with given attributes."""
    attrs = {"strides": (1, 1), "dilation": (1, 1), "groups": 1, **attrs}
    shapes = {"x": x, "kernel": kernel, "y": geometry_of(x, kernel, attrs).y_shape}
    names = {
        "convolution": ("x", "kernel", "y"),
        "convolution_data_gradient": ("y", "kernel", "x"),
        "convolution_kernel_gradient": ("x", "y", "kernel"),
    }
    *inputs, out = (Value(shapes[which], "float32") for which in names[name])
    return Node(SimpleNamespace(name=name), inputs, attrs, [out])


def run_alone(unit, arrays):
    """Run a unit; its scratch memory holds NaN."""
    owner, address = aligned(max(unit.scratch, 1))
    ctypes.memset(address, 255, unit.scratch)
    places = {v: place_of(array) for v, array in arrays.items()}
    places["scratch", unit] = Place(address, unit.scratch)
    compile_many(unit.kernels())
    Program(unit.records(places.__getitem__)).run()
    assert owner is not None


WHOLE = {
    "convolution": reference.forward,
    "convolution_data_gradient": reference.data_gradient,
    "convolution_kernel_gradient": reference.weights_gradient,
}


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(
    "attrs",
    [
        {"padding": ((1, 1), (1, 1))},
        {"padding": ((1, 1), (1, 1)), "size": (1, 1)},
        {"padding": ((1, 1), (1, 1)), "strides": (2, 2)},
        {"padding": ((0, 2), (2, 1)), "strides": (2, 1)},
        {"padding": ((4, 0), (0, 4))},
    ],
)
def test_any_padding_sets_or_adds_to_all_of_the_result(attrs, name, added):
    size = attrs.get("size", (4, 4))
    node = node_of(name, (3, *size, 2), (3, 3, 2, 5), **attrs)
    before = Value(node.out.shape, "float32") if added else None
    unit = few_pixels.make_few_pixels(node, None, None, before)
    arrays = {v: rng.standard_normal(v.shape).astype("float32") for v in node.inputs}
    result = arrays[node.out] = np.full(node.out.shape, np.nan, "float32")
    if added:
        result[:] = arrays[before] = rng.standard_normal(node.out.shape)
    want = WHOLE[name](unit.g, *(arrays[v] for v in node.inputs))
    run_alone(unit, arrays)
    check(result, want + arrays[before] if added else want)


@pytest.mark.parametrize("operation", [data_gradient, kernel_gradient])
def test_threads_change_no_bits(operation):
    x = rng.standard_normal((32, 2, 2, 64)).astype("float32")
    kernel = rng.standard_normal((3, 3, 64, 64)).astype("float32")
    results = []
    for threads in (1, 2, 3):
        with config.using_threads(threads):
            COMPILED_PLANS.clear()
            results.append(computed(functools.partial(operation, case="2x2"), x, kernel, x)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_numbers_that_are_not_finite_stay_in_their_windows():
    x, kernel, _ = numbers("3x2")
    for bad in (np.nan, np.inf):
        other = x.copy()
        other[1, 0, 0, 2] = bad
        function = functools.partial(convolve, case="3x2")
        result, want = (computed(function, v, kernel)[0] for v in (other, x))
        finite = np.isfinite(result)
        np.testing.assert_array_equal(result[finite], want[finite])
        assert finite[0].all() and finite[1, 2].all() and not finite[1, :2].any()


@pytest.mark.parametrize(
    ("x", "filters", "stride", "chosen"),
    [
        ((32, 2, 2, 512), 512, 1, True),
        ((16, 3, 3, 512), 512, 1, True),
        ((32, 4, 4, 256), 512, 2, True),
        ((32, 1, 1, 512), 512, 1, True),
        ((8, 2, 2, 512), 512, 1, False),
        ((32, 4, 4, 256), 256, 1, False),
        ((32, 8, 8, 512), 512, 1, False),
        ((32, 2, 2, 64), 64, 1, False),
    ],
)
def test_where_products_are_faster(monkeypatch, x, filters, stride, chosen):
    monkeypatch.undo()
    node = next(
        n
        for n in trace(
            lambda x, k: ops.conv(x, k, strides=stride, padding="same"),
            np.zeros(x, "float32"),
            np.zeros((3, 3, x[-1], filters), "float32"),
        ).graph.nodes
        if n.op.name == "convolution"
    )
    assert (few_pixels.make_few_pixels(node) is not None) == chosen
