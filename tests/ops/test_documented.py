"""What Keras and NumPy document of single ops: values, dtypes and errors, on both engines."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from kerasish import KerasTensor, Variable, function, layers, ops

X = np.arange(12.0, dtype="float32").reshape(3, 4)
FAR = 2**62


def both(f, *arrays):
    """Return what f gives at once and in a compiled function; both must be the same."""
    tensors = [ops.convert_to_tensor(a) for a in arrays]
    here, compiled = (np.asarray(g(*tensors)) for g in (f, function(f)))
    np.testing.assert_array_equal(here, compiled)
    assert here.dtype == compiled.dtype
    return here


@pytest.mark.parametrize(("start", "row"), [(FAR, 1), (5, 1), (1, 1), (-1, 1), (-3, 0), (-FAR, 0)])
@pytest.mark.parametrize("dtype", ["int64", None])
def test_slices_are_moved_to_where_they_fit(start, row, dtype):
    def cut(x, places):
        return ops.slice(x, places if dtype else (start, 1), (2, 2))

    def write(x, places):
        return ops.slice_update(x, places if dtype else (start, 1), np.zeros((2, 2)))

    expected = X.copy()
    expected[row : row + 2, 1:3] = 0
    places = np.array([start, 1], dtype or "int64")
    np.testing.assert_array_equal(both(cut, X, places), X[row : row + 2, 1:3])
    np.testing.assert_array_equal(both(write, X, places), expected)


def test_a_slice_from_a_small_integer_dtype_and_up_to_the_end():
    long = np.arange(1000.0)
    result = both(lambda x, s: ops.slice(x, s, (3,)), long, np.array([200], "uint8"))
    assert result.tolist() == [200, 201, 202]
    assert ops.slice(X, (-1, 1), (-1, -1)).tolist() == [[9, 10, 11]]
    assert ops.slice(X, (9, 0), (-1, 4)).shape == (0, 4)


REFUSED = {
    "slice larger than the axis": (ValueError, lambda: ops.slice(X, (0, 0), (4, 4))),
    "slice_update larger than the axis": (
        ValueError, lambda: ops.slice_update(X, (0, 0), np.zeros((4, 4))),
    ),
    "arange of None": (TypeError, lambda: ops.arange(None)),
    "arange of None, with an end": (TypeError, lambda: ops.arange(None, 3)),
    "a mask of another length": (IndexError, lambda: ops.get_item(X, [True, False])),
    "a mask of another length behind a slice": (
        IndexError, lambda: ops.get_item(X, (slice(None), np.array([True, False, True]))),
    ),
    "repeats of another length": (ValueError, lambda: ops.repeat(X, [1, 2], 0)),
    "repeats for the flattened": (ValueError, lambda: ops.repeat(X, [1, 2, 0])),
    "append along no axis": (TypeError, lambda: ops.append(X, X, axis=())),
    "vsplit of a vector": (ValueError, lambda: ops.vsplit(X[0], 2)),
    "vander of a matrix": (ValueError, lambda: ops.vander(X)),
    "tril of a vector": (ValueError, lambda: ops.tril(X[0])),
    "triu of a vector": (ValueError, lambda: ops.triu(X[0])),
    "bincount of floats": (TypeError, lambda: ops.bincount(X[0])),
    "bincount of negative numbers": (ValueError, lambda: ops.bincount([-1, 2])),
    "unique of nothing, to a size": (ValueError, lambda: ops.unique(X[:0], size=3)),
    "segments of a number": (ValueError, lambda: ops.segment_sum(1.0, [0], 2)),
    "subtract of truth values": (TypeError, lambda: ops.subtract(X > 3, X > 4)),
    "ldexp by fractions": (TypeError, lambda: ops.ldexp(X, 0.5)),
    "negative of truth values": (TypeError, lambda: ops.negative(X > 3)),
    "ptp of truth values": (TypeError, lambda: ops.ptp(X > 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    kind, call = REFUSED[name]
    with pytest.raises(kind):
        call()


@pytest.mark.parametrize("op", [ops.subtract, lambda a, b: ops.negative(a)])
def test_a_trace_refuses_arithmetic_of_truth_values_as_numpy_does(op):
    with pytest.raises(TypeError, match="truth values"):
        function(op)(ops.convert_to_tensor(X > 3), ops.convert_to_tensor(X > 4))


GIVEN = {
    "nanmedian of none": (lambda x: ops.nanmedian(x[:0]), np.float32(np.nan)),
    "argsort of all": (lambda x: ops.argsort(-x, axis=None), np.arange(12, dtype="int32")[::-1]),
    "median of none": (lambda x: ops.median(x[:0], axis=0), np.full(4, np.nan, "float32")),
    "quantile of none": (
        lambda x: ops.quantile(x[:0], [0.1, 0.2]), np.full(2, np.nan, "float32"),
    ),
    "pad of a number": (lambda x: ops.pad(x[0, 1], 1), np.float32(1)),
    "crop to nothing": (
        lambda x: ops.image.crop_images(x[..., None], 1, 0, 2, 1), np.zeros((0, 3, 1), "float32"),
    ),
    "slice of a mask": (
        lambda x: ops.get_item(x, (slice(None), [False, True, True, False])), X[:, 1:3],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_given(name):
    call, expected = GIVEN[name]
    result = both(call, X)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype


def test_unique_of_a_size_with_a_fill_value():
    assert ops.unique(np.zeros(0, "int32"), size=2, fill_value=7).tolist() == [7, 7]
    assert ops.unique([3, 1, 1], size=4).tolist() == [1, 3, 1, 1]
    rows = ops.unique([[1, 2], [1, 2]], axis=0, size=2, fill_value=9)
    assert rows.tolist() == [[1, 2], [9, 9]]


IDS = np.array([2, 0, 7, 2, -1, 0], "int32")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "float32"])
def test_segments(dtype):
    x = np.array([1, 0, 5, 3, 4, 1]).astype(dtype)
    rows = {i: x[i == IDS] for i in range(4)}
    total = both(lambda d, i: ops.segment_sum(d, i, 4), x, IDS)
    most = both(lambda d, i: ops.segment_max(d, i, 4), x, IDS)
    least = -np.inf if "float" in dtype else False if dtype == "bool" else np.iinfo(dtype).min
    assert total.dtype == most.dtype == x.dtype
    for i, part in rows.items():
        assert total[i] == (part.any() if dtype == "bool" else part.sum())
        assert most[i] == (part.max() if part.size else least)
    assert ops.segment_sum(x, [0, 0, 1, 1, 2, 2], sorted=True).shape == (3,)
    assert ops.segment_sum(x[:0], np.zeros(0, "int32"), 2).shape == (2,)


def test_products_of_int8_are_added_up_in_int32_where_keras_does():
    a, b = np.full((1, 200), 100, "int8"), np.full((200, 1), 100, "int8")
    einsum = lambda x, y: ops.einsum("ij,jk->ik", x, y)  # noqa: E731
    for product in (ops.matmul, einsum):
        result = both(product, a, b)
        assert result.dtype == "int32" and result.tolist() == [[2_000_000]]
        assert (
            product(KerasTensor((1, 200), "int8"), KerasTensor((200, 1), "int8")).dtype == "int32"
        )
    for product in (ops.dot, lambda x, y: ops.tensordot(x, y, 1)):
        assert both(product, a, b).dtype == "int8"
    assert both(ops.matmul, a > 0, b).dtype == "int8"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("bool", "float16", "float16"), ("int8", "bfloat16", "bfloat16"), ("int8", "uint8", "float32"),
     ("float16", "bfloat16", "float32"), ("float16", "float32", "float32")],
)  # fmt: skip
def test_averages_and_correlations_meet_with_a_python_float(one, other, expected):
    a, b = ops.cast([1, 0, 1], one), ops.cast([1, 1, 1], other)
    assert ops.average(a, weights=b).dtype == expected
    assert ops.correlate(a, b, "full").dtype == expected
    symbols = [KerasTensor((3,), t.dtype) for t in (a, b)]
    assert ops.average(symbols[0], weights=symbols[1]).dtype == expected


FLOATING = "divide arctan2 logaddexp logaddexp2 heaviside hypot nextafter linspace logspace".split()
KEEPING = "add subtract multiply power mod floor_divide maximum minimum fmax fmin fmod".split()


@pytest.mark.parametrize("name", [*FLOATING, *KEEPING])
def test_python_numbers_are_weak_beside_tensors(name):
    function = getattr(ops, name)
    for dtype in ("float16", "bfloat16", "float32"):
        x = ops.cast([1, 2], dtype)
        for other in (2, 2.5):
            assert function(x, other).dtype == function(other, x).dtype == dtype
            assert function(KerasTensor((2,), dtype), other).dtype == dtype
        assert function(x, ops.cast([1, 2], "int8")).dtype == dtype
        assert function(ops.cast([1, 1], "uint32"), x).dtype == dtype
    small = ops.cast([1, 2], "int8")
    assert function(small, 2).dtype == ("int8" if name in KEEPING else "float32")
    assert function(small, 2.5).dtype == function(2.5, small).dtype == "float32"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_nan_lies_behind_all_numbers(dtype):
    odd = [np.nan, 2.0, -np.inf, np.nan, -1.0, 3.0]
    x = np.asarray(ops.cast(np.tile(odd, 30), dtype))
    result = both(lambda t: ops.cast(ops.sort(t), "float32"), x)
    np.testing.assert_array_equal(result, np.sort(np.tile(odd, 30).astype("float32")))
    places = both(ops.argsort, x)
    assert places.tolist() == np.argsort(np.tile(odd, 30), kind="stable").tolist()
    assert both(lambda t: ops.top_k(t, 3)[1], x[:6]).tolist() == [0, 3, 5]
    assert (
        both(lambda t: ops.argmax(t), x).tolist() == both(lambda t: ops.argmin(t), x).tolist() == 0
    )
    assert np.isnan(both(lambda t: ops.cast(ops.median(t), "float32"), x))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8"])
def test_the_least_number_of_a_dtype_is_not_the_largest(dtype):
    x = np.array([0, 1, 0]) if dtype in ("bool", "uint8") else np.array([np.iinfo(dtype).min, 5, 4])
    assert both(lambda t: ops.top_k(t, 3)[1], x.astype(dtype)).tolist()[0] == 1


def test_clip_on_one_side():
    assert ops.clip(X[0], 1, None).tolist() == [1, 1, 2, 3]
    assert ops.clip(X[0], None, 1).tolist() == [0, 1, 1, 1]
    assert ops.clip(X[0], None, None).tolist() == X[0].tolist()


def test_nan_stays_in_sparse_plus():
    result = both(ops.sparse_plus, np.array([np.nan, -np.inf, np.inf, 0.0], "float32"))
    np.testing.assert_array_equal(result, np.array([np.nan, 0, np.inf, 0.25], "float32"))


LOGIC = {operator.and_: np.logical_and, operator.or_: np.logical_or, operator.xor: np.logical_xor}
DTYPES = ["bool", "int8", "int16", "uint32", "float16", "bfloat16", "float32"]


@pytest.mark.parametrize("one", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_variables_and_symbolic_tensors_are_truth_values_under_logic(one, other):
    a, b = np.array([0, 1, 2, 0]), np.array([1, 0, 1, 0])
    x = Variable(ops.cast(a, one), dtype=one)
    y = ops.cast(b, other)
    for word, logic in LOGIC.items():
        for right in (y, Variable(y, dtype=other), KerasTensor((4,), other)):
            result = word(x, right)
            assert result.dtype == "bool"
            if not isinstance(right, KerasTensor):
                assert result.tolist() == logic(a.astype(bool), b).tolist()
        assert word(KerasTensor((4,), one), KerasTensor((4,), other)).dtype == "bool"
    assert (x & True).tolist() == (True & x).tolist() == [False, True, True, False]


def test_tensors_keep_numpys_bits():
    a, b = ops.convert_to_tensor([6, 5]), ops.convert_to_tensor([3, 4])
    assert [(a & b).tolist(), (a | b).tolist(), (a ^ b).tolist()] == [[2, 4], [7, 5], [5, 1]]
    assert (ops.equal(a, 6) | ops.equal(b, 4)).tolist() == [True, True]


def test_discretization_of_an_integer_dtype_reads_the_values_whole():
    layer = layers.Discretization([0.0, 1.0], dtype="int64")
    assert layer(np.array([-0.5, 0.5, 1.0])).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("axis", "shape"), [(-1, (5,)), (0, (5,)), (0, (5, 3)), ((0, 1), (5, 3))])
def test_normalization_may_keep_the_batch_axis(axis, shape):
    layer = layers.Normalization(axis=axis)
    x = np.random.default_rng(3).normal(size=shape).astype("float32")
    layer.adapt(x)
    rest = (1,) if axis == 0 and len(shape) == 2 else ()
    mean = x.mean(axis=rest, keepdims=True) if rest else x
    deviation = x.std(axis=rest, keepdims=True) if rest else np.zeros_like(x)
    np.testing.assert_allclose(
        layer(x), (x - mean) / np.maximum(deviation, 1e-7), rtol=1e-5, atol=1e-5
    )
