"""Moving elements: as in NumPy, and shape rules with unknown sizes that agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerasish
from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.ops.basic.movement import (
    concatenate,
    constant_pad,
    reshape,
    strided_slice,
    transpose,
    unslice,
)
from kerasish.ops.shapes import Spec, broadcast_shapes
from kerasish.testing import gradient_check

shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)


def numbers(shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def hidden(draw, shape):
    """Return `shape` with some sizes unknown."""
    return tuple(None if draw(st.booleans()) else s for s in shape)


def agrees(spec, shape):
    return len(spec.shape) == len(shape) and all(a in (None, b) for a, b in zip(spec.shape, shape))


@given(st.data())
def test_reshape(data):
    shape = data.draw(shapes)
    x = numbers(shape)
    sizes = list(data.draw(st.permutations(shape)))
    if x.size and sizes and data.draw(st.booleans()):
        sizes[data.draw(st.integers(0, len(sizes) - 1))] = -1
    expected = x.reshape(sizes)
    np.testing.assert_array_equal(ops.reshape(x, sizes), expected)
    unsure = hidden(data.draw, shape)
    attrs = reshape.canonical([unsure], {"newshape": sizes})
    assert agrees(reshape.shape(Spec(unsure, "float32"), **attrs), expected.shape)


@pytest.mark.parametrize(("shape", "new"), [((2, 3), (4,)), ((2, 3), (4, -1)), ((2, 3), (-1, -1))])
def test_reshape_errors(shape, new):
    with pytest.raises(ShapeError, match="reshape"):
        ops.reshape(np.zeros(shape), new)


@given(st.data())
def test_transpose(data):
    shape = data.draw(shapes)
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    x = numbers(shape)
    np.testing.assert_array_equal(ops.transpose(x, order), x.transpose(order))
    np.testing.assert_array_equal(ops.transpose(x), x.T)
    unsure = hidden(data.draw, shape)
    attrs = transpose.canonical([unsure], {"axes": order})
    assert transpose.shape(Spec(unsure, "float32"), **attrs).shape == tuple(
        unsure[a] for a in order
    )


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2)])
def test_transpose_wants_an_order(axes):
    with pytest.raises(ShapeError):
        ops.transpose(np.zeros((2, 3)), axes)


@given(st.data())
def test_concatenate(data):
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    widths = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    parts = []
    for width in widths:
        sizes = list(shape)
        sizes[axis] = width
        parts.append(numbers(sizes))
    expected = np.concatenate(parts, axis)
    np.testing.assert_array_equal(ops.concatenate(parts, axis), expected)
    unsure = [hidden(data.draw, p.shape) for p in parts]
    attrs = concatenate.canonical(unsure, {"axis": axis})
    rule = concatenate.shape(*(Spec(s, "float32") for s in unsure), **attrs)
    assert agrees(rule, expected.shape)


def test_concatenate_errors():
    with pytest.raises(ShapeError, match="rank"):
        ops.concatenate([np.zeros((1, 2)), np.zeros(2)])
    with pytest.raises(ShapeError, match="axis 1"):
        ops.concatenate([np.zeros((1, 2)), np.zeros((1, 3))], 0)
    with pytest.raises(ShapeError, match="at least one"):
        ops.concatenate([])


def test_concatenate_promotes():
    assert ops.concatenate([np.zeros(1, "float16"), np.zeros(1, "int32")]).dtype == "float16"
    assert ops.concatenate([[1], [2.5]]).numpy().tolist() == [1.0, 2.5]


@given(st.data())
def test_broadcast_shapes(data):
    full = data.draw(st.lists(st.integers(1, 4), max_size=4).map(tuple))
    cut = [
        tuple(
            1 if data.draw(st.booleans()) else s
            for s in full[data.draw(st.integers(0, len(full))) :]
        )
        for _ in range(3)
    ]
    expected = np.broadcast_shapes(*cut)
    assert broadcast_shapes(*cut) == expected
    unsure = [hidden(data.draw, s) for s in cut]
    result = broadcast_shapes(*unsure)
    assert agrees(Spec(result, "float32"), expected) or any(
        # A size that is not known may turn out to be 1.
        a != b and any(None in s for s in unsure)
        for a, b in zip(result, expected)
    )


@given(st.data())
def test_broadcasting_as_in_numpy(data):
    full = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple))
    a = numbers(tuple(1 if data.draw(st.booleans()) else s for s in full))
    b = numbers(full[data.draw(st.integers(0, len(full) - 1)) :])
    np.testing.assert_array_equal(ops.add(a, b), a + b)
    np.testing.assert_array_equal(ops.broadcast_to(b, full), np.broadcast_to(b, full))


@pytest.mark.parametrize("backend", ["eager", "static"])
def test_a_shape_of_a_symbolic_tensor_is_no_shape_of_numbers(backend):
    """Its None would be read as whatever size the next op has: one engine gave numbers."""
    kerasish.config.set_backend(backend)
    x = kerasish.Input((1,))
    spread = ops.broadcast_to(ops.mean(x, 0), ops.shape(x))
    for y in (spread, kerasish.layers.Subtract()([spread, x])):
        assert y.shape == (None, 1)
        with pytest.raises(ShapeError, match=r"broadcast_to: the shape \(None, 1\) has None"):
            kerasish.Model(x, y).predict(np.ones((6, 1), "float32"), verbose=0)
    rest = kerasish.Model(x, ops.mean(x, 0) + ops.zeros_like(x))
    assert rest.predict(np.ones((6, 1), "float32"), verbose=0).tolist() == [[1.0]] * 6


def test_broadcast_to_errors():
    with pytest.raises(ShapeError, match="does not broadcast"):
        ops.broadcast_to(np.zeros((2, 3)), (2, 1))


@given(st.data())
def test_slices_and_their_transposes(data):
    shape = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple))
    x = numbers(shape)
    ends = st.one_of(st.none(), st.integers(-7, 7))
    steps = st.sampled_from([None, 1, 2, -1, -2])
    cuts = tuple(slice(data.draw(ends), data.draw(ends), data.draw(steps)) for _ in shape)
    result = strided_slice(x, cuts)
    np.testing.assert_array_equal(result, x[cuts])
    attrs = strided_slice.canonical([shape], {"slices": cuts})
    back = np.zeros(shape, "float32")
    back[cuts] = result.numpy()
    np.testing.assert_array_equal(unslice(result, shape, attrs["slices"]), back)


@given(st.data())
def test_pad(data):
    shape = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple))
    width = tuple((data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in shape)
    x = numbers(shape)
    np.testing.assert_array_equal(
        ops.pad(x, width, constant_values=2.5), np.pad(x, width, constant_values=2.5)
    )
    unsure = hidden(data.draw, shape)
    attrs = constant_pad.canonical([unsure], {"pad_width": width, "value": 0.0})
    assert agrees(constant_pad.shape(Spec(unsure, "float32"), **attrs), np.pad(x, width).shape)


@pytest.mark.parametrize("mode", ["reflect", "symmetric", "edge", "wrap"])
def test_pad_modes(mode):
    x = numbers((4, 3))
    width = ((1, 2), (2, 0))
    np.testing.assert_array_equal(ops.pad(x, width, mode), np.pad(x, width, mode))
    gradient_check(lambda x: ops.pad(x, width, mode) ** 2, [x])


def test_pad_errors():
    with pytest.raises(ShapeError, match="pad"):
        ops.pad(np.zeros((2, 2)), ((1, 1), (1, 1), (1, 1)))
    with pytest.raises(ValueError, match="constant_values"):
        ops.pad(np.zeros(2), 1, "reflect", 3.0)
