"""Indexing like NumPy's, picks and writes at computed places, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerasish
from kerasish import autodiff, ops
from kerasish.errors import ShapeError
from kerasish.ops.basic.indexing import add_along_axis, add_at, add_rows, read_at
from kerasish.testing import gradient_check

SHAPE = (3, 4, 2)
X = np.arange(24.0, dtype="float32").reshape(SHAPE)


def bounds(size):
    ends = st.one_of(st.none(), st.integers(-size - 2, size + 2))
    steps = st.one_of(st.none(), st.sampled_from([-3, -2, -1, 1, 2, 3]))
    return st.builds(slice, ends, ends, steps)


@st.composite
def plain_keys(draw):
    """Draw numbers, slices, None and at most one Ellipsis."""
    parts = []
    for size in SHAPE[: draw(st.integers(0, 3))]:
        parts.append(draw(st.one_of(st.integers(-size, size - 1), bounds(size))))
    if draw(st.booleans()):
        place = draw(st.integers(0, len(parts)))
        # After '...' the parts are for the last axes: keep the numbers within these.
        parts = [*parts[:place], Ellipsis, *(slice(None) for _ in parts[place:])]
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


@st.composite
def array_keys(draw):
    """Draw keys with integer arrays that broadcast, among slices, numbers and None."""
    shape = draw(st.sampled_from([(2,), (1,), (2, 3), ()]))
    parts, arrays = [], 0
    for size in SHAPE:
        choice = draw(st.sampled_from(["array", "column", "slice", "number"]))
        if choice in ("array", "column"):
            created = shape if choice == "array" or not shape else (*shape[:-1], 1)
            values = draw(st.lists(st.integers(-size, size - 1), min_size=6, max_size=6))
            parts.append(np.resize(values, created).astype("int32"))
            arrays += 1
        elif choice == "slice":
            parts.append(draw(bounds(size)))
        else:
            parts.append(draw(st.integers(-size, size - 1)))
    if not arrays:
        parts[0] = np.array([0, -1])
    return (
        tuple(parts[: draw(st.integers(1, 3))])
        if isinstance(parts[0], np.ndarray)
        else tuple(parts)
    )


@given(plain_keys())
def test_slices_numbers_none_and_ellipsis_as_in_numpy(key):
    expected = X[key]
    result = ops.get_item(X, key)
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result, expected)


@given(array_keys())
def test_integer_arrays_as_in_numpy(key):
    expected = X[key]
    result = ops.get_item(X, key)
    assert result.shape == expected.shape, key
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), None, np.array([0, 1])),
        (np.array([0, 1]), slice(None), np.array([1, 0])),
        (np.array([[0], [1]]), np.array([2, 3])),
        (Ellipsis, np.array([1, 0])),
        (np.array([2, 0]), None, Ellipsis, 1),
        (X[:, 0, 0] > 4,),
        (slice(None), np.array([True, False, True, False])),
        (X > 7,),
        (slice(1), X[0] > 2),
        ([0, 2],),
        (np.int64(1), np.uint8(2)),
        (np.array([], "int32"),),
    ],
    ids=str,
)
def test_keys_as_in_numpy(key):
    np.testing.assert_array_equal(ops.get_item(X, key), X[key])


@pytest.mark.parametrize("key", [5, (0, 9), (0, 0, 0, 0), (Ellipsis, Ellipsis), True], ids=str)
def test_wrong_keys_raise(key):
    with pytest.raises(IndexError):
        ops.get_item(X, key)


def test_a_tensor_serves_as_index():
    two = ops.convert_to_tensor(2)
    np.testing.assert_array_equal(ops.convert_to_tensor(X)[two], X[2])
    np.testing.assert_array_equal(
        ops.convert_to_tensor(X)[:, ops.convert_to_tensor([1, 1])], X[:, [1, 1]]
    )
    np.testing.assert_array_equal(ops.convert_to_tensor(X)[ops.convert_to_tensor(X) > 3], X[X > 3])


@pytest.mark.parametrize(
    "key",
    [
        (slice(None, None, -2), 1),
        (np.array([0, 0, 2]),),
        (slice(None), np.array([[1, 1], [0, -1]])),
        (np.array([0, 1]), slice(1, 3), np.array([1, 1])),
        (X > 9,),
        (None, 0, Ellipsis),
    ],
    ids=str,
)
def test_gradients_of_indexing(key):
    gradient_check(lambda x: ops.square(ops.get_item(x, key)), [X / 10])


def test_repeated_rows_add_their_gradients():
    slope = autodiff.grad(lambda x: ops.sum(ops.take(x, [1, 1, -1], axis=0)))(np.zeros((3, 2)))
    np.testing.assert_array_equal(slope, [[0, 0], [2, 2], [1, 1]])


@given(st.data())
def test_add_rows_is_the_transpose_of_take(data):
    axis = data.draw(st.integers(0, 2))
    size = SHAPE[axis]
    count = data.draw(st.integers(0, 6))
    places = np.array(
        data.draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count)), "int32"
    )
    g = np.random.default_rng(0).normal(size=X.take(places, axis).shape)
    added = add_rows(g, places, size, axis).numpy()
    expected = np.zeros(SHAPE)
    for i, place in enumerate(places):
        index = (slice(None),) * axis
        expected[(*index, place)] += g[(*index, i)]
    np.testing.assert_allclose(added, expected, atol=1e-12)


def test_add_along_axis_and_at_are_transposes():
    rng = np.random.default_rng(1)
    places = np.array([[0, 3, 3], [1, 1, -1]])
    g = rng.normal(size=(2, 3))
    x = rng.normal(size=(2, 4))
    left = (ops.take_along_axis(x, places, 1).numpy() * g).sum()
    right = (x * add_along_axis(g, places, (2, 4), 1).numpy()).sum()
    assert left == pytest.approx(right)
    spots = np.array([[0, 1], [1, 3], [0, 1]])
    g = rng.normal(size=3)
    assert (read_at(x, spots).numpy() * g).sum() == pytest.approx(
        (x * add_at(g, spots, (2, 4)).numpy()).sum()
    )


def test_take_along_axis_wants_equal_ranks():
    with pytest.raises(ShapeError, match="as many axes"):
        ops.take_along_axis(X, [0], axis=0)


@pytest.mark.parametrize("how", [None, "add", "max", "min", "mul"])
def test_gradients_of_scatter_update(how):
    places = np.array([[0, 1], [2, 0], [1, 1]])
    x, updates = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]), np.array([2.5, 6.5, -1.5])
    gradient_check(lambda x, u: ops.scatter_update(x, places, u, how), [x, updates])


@pytest.mark.parametrize("zeros", [(), (0,), (2,), (0, 2), (0, 1, 2), (4,), (0, 3)])
def test_gradients_of_scattered_products_with_zeros(zeros):
    """A zero factor has the product of the others as its derivative, and so to second order."""
    places = np.array([[0, 1], [2, 0], [0, 1], [-3, 1], [1, 1], [2, 0]])
    x, updates = np.arange(1.0, 10).reshape(3, 3), np.array([2.5, 6.5, -1.5, 3.0, 0.5, -2.0])
    updates[[i for i in zeros if i]] = 0.0
    if 0 in zeros:
        x[0, 1] = 0.0

    def product(x, u):
        return ops.scatter_update(x, places, u, "mul")

    gradient_check(product, [x, updates])
    slopes = autodiff.grad(lambda x, u: ops.sum(product(x, u) ** 2), argnums=(0, 1))
    gradient_check(lambda x, u: slopes(x, u)[0], [x, updates])
    gradient_check(lambda x, u: slopes(x, u)[1], [x, updates])
    rows = np.array([[0], [2], [0]])
    wide = np.stack([updates[:3], updates[1:4], np.ones(3)])
    gradient_check(lambda x, u: ops.scatter_update(x, rows, u, "mul"), [x, wide])


def test_gradients_of_scattered_products_of_large_and_small_factors():
    """No factor's derivative overflows or vanishes by way of the product of all."""
    slope = autodiff.grad(
        lambda u: ops.sum(ops.scatter_update(np.ones(2, "float32"), [[0], [0], [1]], u, "mul"))
    )
    assert slope(np.array([1e-30, 1e-30, np.inf], "float32")).tolist() == pytest.approx(
        [1e-30, 1e-30, 1.0], rel=1e-6, abs=0
    )


@pytest.mark.parametrize("how", ["add", "max", "min", "mul", None])
def test_one_update_for_all_places_gets_the_sum_of_their_gradients(how):
    places = np.array([[0, 1], [2, 0], [1, 1]])
    x = np.arange(1.0, 10).reshape(3, 3)
    gradient_check(lambda x, u: ops.scatter_update(x, places, u, how), [x, np.array(2.5)])


@pytest.mark.parametrize(("how", "sign"), [("max", 1.0), ("min", -1.0)])
def test_all_that_reach_a_scattered_extreme_share_its_gradient(how, sign):
    """The old value counts as one of them; what lies below gets nothing."""
    places = np.array([[0], [0], [1], [1], [2], [3]])
    weights = np.array([6.0, 8.0, 10.0, 12.0, 14.0])

    def total(x, updates):
        return ops.sum(ops.scatter_update(x, places, updates, how) * weights)

    x = sign * np.array([3.0, 1.0, 5.0, 2.0, 0.0])
    updates = sign * np.array([3.0, 3.0, 4.0, 4.0, 2.0, 2.0])
    by_x, by_updates = autodiff.grad(total, argnums=(0, 1))(x, updates)
    assert by_x.tolist() == [2.0, 0.0, 10.0, 6.0, 14.0]
    assert by_updates.tolist() == [2.0, 2.0, 4.0, 4.0, 0.0, 6.0]


def test_slice_with_computed_start():
    starts = ops.convert_to_tensor([0, 1, 0]) + 0
    np.testing.assert_array_equal(ops.slice(X, starts, (2, 2, 2)), X[:2, 1:3])
    written = ops.slice_update(X, starts, np.zeros((1, 2, 2)))
    assert written.numpy()[0, 1:3].sum() == 0
    assert written.numpy().sum() == X.sum() - X[0, 1:3].sum()


@pytest.mark.parametrize("call", ["slice", "slice_update"])
def test_slice_wants_a_start_for_each_axis(call):
    with pytest.raises(ShapeError, match="start indices"):
        getattr(ops, call)(X, (0,), (1,) if call == "slice" else X)


def test_gradients_of_slices():
    gradient_check(lambda x: ops.slice(x, (1, 0), (2, 2)) ** 2, [X[:, :, 0] / 9])
    gradient_check(
        lambda x, u: ops.slice_update(x, (1, 1), u) ** 2, [X[:, :, 0] / 9, X[:2, :2, 1] / 9]
    )


def test_segments():
    data, ids = np.array([3.0, 1.0, 2.0, 5.0]), np.array([0, 2, 0, 2])
    gradient_check(lambda x: ops.segment_sum(x, ids, 3) ** 2, [data])
    gradient_check(lambda x: ops.segment_max(x, ids, 3)[::2] ** 2, [data])
    assert ops.segment_max(data, ids, 3).numpy().tolist() == [3.0, -np.inf, 5.0]
    with pytest.raises(ShapeError, match="ids must have the shape"):
        ops.segment_sum(data, ids[:2])


def test_segments_out_of_range_count_nowhere():
    data = np.array([3.0, 1.0, 2.0, 5.0, 7.0, 4.0])
    ids = np.array([0, -1, -2, -3, 2, 3])
    assert ops.segment_sum(data, ids, 3).tolist() == [3.0, 0.0, 7.0]
    assert ops.segment_max(data, ids, 3).tolist() == [3.0, -np.inf, 7.0]
    assert ops.segment_prod(data, ids, 3).tolist() == [3.0, 1.0, 7.0]
    slope = autodiff.grad(lambda x: ops.sum(ops.segment_sum(x, ids, 3)))(data)
    assert slope.tolist() == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def test_unknown_reduction_is_named():
    with pytest.raises(ValueError, match="'mean'"):
        ops.scatter_update(X, [[0]], X[:1], "mean")


@pytest.mark.parametrize("start", [-9, -1, 0, 2, 3, 4, 5, 99])
def test_computed_starts_are_held_inside_as_known_ones_are(start):
    x = np.arange(10.0).reshape(5, 2)
    new = np.full((2, 2), -1.0)

    def parts(at):
        return ops.slice(x, (at, 0), (2, 2)), ops.slice_update(x, (at, 0), new)

    for known, computed in zip(parts(start), kerasish.function(parts)(np.int32(start))):
        np.testing.assert_array_equal(known.numpy(), computed.numpy())
    held = min(max(start + 5 if start < 0 else start, 0), 3)  # a negative start counts from the end
    assert parts(start)[0].tolist() == x[held : held + 2].tolist()


@pytest.mark.parametrize("indices", [[0, 2, 0], 3, np.array([-2])])
def test_take_out_of_bounds_is_refused_when_the_model_is_built(indices):
    x = kerasish.Input((4, 1))
    with pytest.raises(IndexError, match=r"take: the index -?\d is out of bounds for axis 2 of"):
        ops.take(x, indices, axis=2)
    assert ops.take(x, indices, axis=0).shape[-2:] == (4, 1)  # the batch's size is not known
    assert ops.take(x, [-1, 0], axis=-1).shape == (None, 4, 2)
