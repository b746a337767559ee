"""Everyday functions: errors, corners, and what cannot be traced."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import ops

X = np.arange(6.0, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.split(X, 2, 1), "equal sections"),
        (lambda: ops.squeeze(X, 0), "size 2, not 1"),
        (lambda: ops.stack([X, X[0]]), "must be equal"),
        (lambda: ops.moveaxis(X, (0, 1), 0), "2 sources"),
        (lambda: ops.top_k(X, 4), "k=4"),
        (lambda: ops.max(X[:, :0], 1), "empty"),
        (lambda: ops.argmax(X[:0]), "no elements"),
        (lambda: ops.sum(X, 2), "out of range"),
        (lambda: ops.sum(X, (0, 0)), "twice"),
        (lambda: ops.full((2, -1), 0), ">= 0"),
        (lambda: ops.glu(X), "even"),
        (lambda: ops.rearrange(X, "a b -> a"), "same axes"),
        (lambda: ops.rearrange(X, "(a c) b -> a b c"), "does not fit"),
        (lambda: ops.quantile(X, 0.5, method="best"), "method"),
        (lambda: ops.average(X, 0, [1.0]), "weights"),
        (lambda: ops.correlate(X, X), "two vectors"),
        (lambda: ops.correlate([1.0], [1.0], "most"), "mode"),
        (lambda: ops.histogram(X, 0), "bins"),
        (lambda: ops.meshgrid([1], indexing="ab"), "indexing"),
        (lambda: ops.rot90(X, axes=(0, 0)), "differ"),
        (lambda: ops.searchsorted(X, 1.0), "sorted vector"),
        (lambda: ops.select([X > 1], []), "as many"),
        (lambda: ops.argpartition(X, 3), "kth=3"),
        (lambda: ops.fft(X), "pair"),
        (lambda: ops.stft(X, 2, 1, 1), "fft_length"),
        (lambda: ops.stft(X, 2, 1, 2, window="flat"), "window"),
        (lambda: ops.extract_sequences(X, 4, 1), "shorter"),
        (lambda: ops.unfold(X, 2), "channels, height, width"),
        (lambda: ops.depth_to_space(X[None, None], 2), "multiple"),
        (lambda: ops.view_as_complex(X), "size 2"),
        (lambda: ops.image.resize(X[None, ..., None], (2, 2), "best"), "interpolation"),
        (lambda: ops.image.resize(X, (2, 2)), "expected"),
        (lambda: ops.image.crop_images(X[..., None], 1), "two of the three"),
        (lambda: ops.image.rgb_to_grayscale(X[..., None]), "3 channels"),
        (lambda: ops.image.map_coordinates(X, [[0.0]], 1), "coordinates"),
        (lambda: ops.image.map_coordinates(X, [[0.0], [0.0]], 2), "order"),
        (lambda: ops.image.affine_transform(X[..., None], np.zeros(8), fill_mode="x"), "fill_mode"),
        (lambda: ops.image.extract_patches(X[..., None], 3), "exceed"),
    ],
)
def test_errors_say_what_was_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_dtype_of_pictures():
    with pytest.raises(TypeError, match="uint8"):
        ops.image.rgb_to_hsv(np.zeros((2, 2, 3), "uint8"))


def test_reductions_of_nothing():
    nothing = X[:, :0]
    assert ops.sum(nothing).item() == 0.0
    assert ops.prod(nothing).item() == 1.0
    assert ops.max(nothing, 1, initial=3.0).tolist() == [3.0, 3.0]
    assert not ops.any(nothing).item()
    assert ops.all(nothing).item()
    assert ops.sort(nothing, 1).shape == (2, 0)


def test_histogram_counts_everything_inside():
    counts, edges = ops.histogram(np.array([0.0, 0.1, 0.5, 1.0, 2.0]), bins=2, range=(0, 1))
    assert counts.tolist() == [2, 2]
    assert edges.tolist() == [0.0, 0.5, 1.0]
    counts, edges = ops.histogram(np.ones(4, "float32"), bins=2)
    assert counts.tolist() == [0, 4]
    assert edges.tolist() == [0.5, 1.0, 1.5]
    x = np.random.default_rng(0).normal(size=100)
    for ours, theirs in zip(ops.histogram(x, 7), np.histogram(x, 7)):
        np.testing.assert_allclose(ours, theirs)
    for dtype, expected in (("float16", "float16"), ("float64", "float64"), ("int32", "int32")):
        assert ops.histogram(np.arange(4, dtype=dtype), 2)[0].dtype == expected


def test_bincount_of_rows_and_sizes():
    assert ops.bincount([[0, 1], [1, 1]]).tolist() == [[1, 1], [0, 2]]
    assert ops.bincount(np.zeros(0, "int32"), minlength=2).tolist() == [0, 0]
    with pytest.raises(ValueError, match="sparse"):
        ops.bincount([1], sparse=True)


def test_logsumexp_of_infinities():
    assert ops.logsumexp(np.float32([-np.inf, -np.inf])).item() == -np.inf
    assert ops.logsumexp(np.float32([np.inf, 1.0])).item() == np.inf
    assert ops.logsumexp(np.float32([1000.0, 1000.0])).item() == pytest.approx(1000.6931)


def test_istft_undoes_stft():
    x = np.random.default_rng(0).normal(size=(2, 48)).astype("float32")
    for window in ("hann", "hamming", None):
        pair = ops.stft(x, 12, 3, 16, window=window)
        np.testing.assert_allclose(ops.istft(pair, 12, 3, 16, window=window), x, atol=1e-5)


def test_space_to_depth_undoes_depth_to_space():
    for data_format in ("channels_last", "channels_first"):
        x = np.arange(128.0).reshape(1, 4, 4, 8)
        y = ops.depth_to_space(x, 2, data_format)
        np.testing.assert_array_equal(ops.space_to_depth(y, 2, data_format), x)


def test_elastic_transform_is_seeded():
    x = np.random.default_rng(0).uniform(size=(2, 8, 8, 3)).astype("float32")
    a, b, c = (ops.image.elastic_transform(x, 5.0, 2.0, seed=s).numpy() for s in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    np.testing.assert_allclose(ops.image.elastic_transform(x, alpha=0.0, seed=1), x)


def test_gaussian_blur_spreads_a_point():
    point = np.zeros((1, 7, 7, 1), "float32")
    point[0, 3, 3] = 1
    blurred = ops.image.gaussian_blur(point, (5, 3), (1.0, 0.5)).numpy()[0, :, :, 0]
    # Keras's order is (across, down), whatever its manual says.
    across = np.exp(-0.5 * np.arange(-2, 3) ** 2)
    down = np.exp(-2.0 * np.arange(-1, 2) ** 2)
    expected = np.outer(down / down.sum(), across / across.sum())
    np.testing.assert_allclose(blurred[2:5, 1:6], expected, atol=1e-6)


def test_sobel_edges_of_a_ramp():
    ramp = np.broadcast_to(np.arange(5.0)[:, None, None] * 3, (5, 4, 1))
    edges = ops.image.sobel_edges(ramp[None]).numpy()[0, :, :, 0]
    np.testing.assert_allclose(edges[1:-1, :, 0], 24.0)
    np.testing.assert_allclose(edges[..., 1], 0.0, atol=1e-6)


def test_conversions():
    assert isinstance(ops.convert_to_numpy(ops.zeros(2)), np.ndarray)
    assert ops.is_tensor(ops.zeros(2))
    assert not ops.is_tensor(X)
    assert ops.dtype(X) == "float32"
    assert ops.shape(X) == (2, 3)
    with pytest.raises(ValueError, match="sparse"):
        ops.convert_to_tensor(X, sparse=True)


def test_namespaces_hold_the_same_functions():
    assert ops.nn.relu is ops.relu
    assert ops.numpy.sum is ops.sum
    assert ops.numpy.reshape is ops.reshape
    assert callable(ops.image.resize)


def test_sort_without_an_axis_sorts_all():
    assert ops.sort([[3, 1], [2, 0]], axis=None).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("sizes", [(2.0,), (2, 3.0), (2, 2, 1.0)])
def test_matrices_have_whole_sizes(sizes):
    with pytest.raises(TypeError, match="integers"):
        ops.eye(*sizes)


@pytest.mark.parametrize(
    ("value", "shape"), [([[1.0, 2.0], [3.0, 4.0]], (2, 2)), ([], (0,)), (2.0, ()), ([3], (1,))]
)
def test_likes_of_lists_and_numbers_have_their_shape(value, shape):
    for like in (ops.zeros_like, ops.ones_like, ops.empty_like, lambda x: ops.full_like(x, 7)):
        assert like(value).shape == shape
