"""Activations, losses and normalizations: gradients, corners, and errors."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import activations, autodiff, config, ops
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.ops.networks.normalization import standardize_batch
from kerasish.registry import register_keras_serializable
from kerasish.testing import gradient_check

rng = np.random.default_rng(5)
# No element is near a place where one of the functions has a kink: -3, -1, -0.5, 0, 0.5, 1, 3, 6.
X = rng.uniform(0.1, 0.4, (3, 4)) + rng.choice([-4.6, -2.1, -0.9, 0.05, 0.55, 2.2, 6.3], (3, 4))
SMOOTH = [
    "celu", "elu", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu",
    "log_sigmoid", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softplus",
    "softsign", "sparse_plus", "sparse_sigmoid", "squareplus", "tanh", "tanh_shrink", "glu",
    "softmax", "log_softmax", "normalize", "rms_normalization", "layer_normalization", "sparsemax",
]  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_activations(name):
    gradient_check(getattr(ops, name), [X])


@pytest.mark.parametrize("name", ["mish", "exponential", "gelu", "linear"])
def test_gradients_of_the_other_activations(name):
    gradient_check(getattr(activations, name), [X / 3])


@pytest.mark.parametrize("options", [
    {"negative_slope": 0.1}, {"max_value": 2.0}, {"threshold": 0.5, "negative_slope": 0.2},
    {"threshold": 0.5, "max_value": 1.0},
])  # fmt: skip
def test_relu_with_options(options):
    slope = options.get("negative_slope", 0.0)
    top, least = options.get("max_value", np.inf), options.get("threshold", 0.0)
    expected = np.minimum(np.where(least < X, X, slope * (X - least)), top)
    np.testing.assert_allclose(activations.relu(X, **options), expected)
    gradient_check(lambda x: activations.relu(x, **options), [X])


STEEP = "elu selu celu softplus log_sigmoid sigmoid silu softmax log_softmax gelu hard_silu"


@pytest.mark.parametrize("name", STEEP.split())
def test_large_numbers_stay_finite(name):
    x = np.array([-1e4, -90.0, 0.0, 90.0, 1e4], "float32")
    f = getattr(ops, name)
    slope = autodiff.grad(lambda t: ops.sum(f(t) * np.arange(5.0, dtype="float32")))(x)
    assert np.isfinite(f(x)).all()
    assert np.isfinite(slope).all()


def test_gradients_at_kinks():
    at_zero = {"relu": 0.0, "elu": 1.0, "celu": 1.0, "leaky_relu": 1.0, "hard_tanh": 1.0}
    for name, slope in at_zero.items():
        assert autodiff.grad(getattr(ops, name))(0.0).item() == slope, name


def test_softmax_of_large_and_masked_rows():
    x = np.array([[1000.0, 1000.0], [-np.inf, 0.0]], "float32")
    np.testing.assert_allclose(ops.softmax(x), [[0.5, 0.5], [0.0, 1.0]])
    assert ops.softmax(np.zeros((2, 3), "int32")).dtype == "float32"
    with pytest.raises(ShapeError, match="axis"):
        ops.softmax(1.0)


def test_sparsemax_is_the_nearest_distribution():
    y = ops.sparsemax(X).numpy()
    np.testing.assert_allclose(y.sum(-1), 1)
    assert (y >= 0).all()
    shift = X - y
    for row, chosen in zip(shift, y > 0):
        assert np.ptp(row[chosen]) < 1e-12
        assert (row[~chosen] <= row[chosen].min() + 1e-12).all()


# --- losses -----------------------------------------------------------------------------------

P = rng.uniform(0.1, 0.9, (3, 4))
LABELS = np.array([0, 3, 1])
HOT = np.eye(4)[LABELS]


@pytest.mark.parametrize("from_logits", [False, True])
def test_gradients_of_crossentropies(from_logits):
    output = X if from_logits else P
    for f in (
        lambda y: ops.binary_crossentropy(HOT, y, from_logits),
        lambda y: ops.categorical_crossentropy(HOT, y, from_logits),
        lambda y: ops.sparse_categorical_crossentropy(LABELS, y, from_logits),
    ):
        gradient_check(f, [output])


def test_sparse_and_dense_agree():
    for from_logits, y in ((False, P), (True, X)):
        np.testing.assert_allclose(
            ops.sparse_categorical_crossentropy(LABELS, y, from_logits),
            ops.categorical_crossentropy(HOT, y, from_logits),
        )
    np.testing.assert_allclose(
        ops.sparse_categorical_crossentropy(LABELS[:1], P.T[:, :1], axis=0),
        ops.sparse_categorical_crossentropy(LABELS[:1], P[:1]),
    )


def test_crossentropy_of_logits_is_stable():
    logits = np.array([[1000.0, -1000.0]], "float32")
    assert ops.categorical_crossentropy([[0.0, 1.0]], logits, True).item() == 2000.0
    assert ops.binary_crossentropy([[0.0, 1.0]], logits, True).tolist() == [[1000.0, 1000.0]]
    slope = autodiff.grad(lambda x: ops.sum(ops.binary_crossentropy([[0.0, 1.0]], x, True)))
    assert slope(np.zeros((1, 2), "float32")).tolist() == [[0.5, -0.5]]


def test_probabilities_are_held_away_from_the_ends():
    expected = -np.log(np.float32(config.epsilon()))
    result = ops.categorical_crossentropy([[0.0, 1.0]], [[1.0, 0.0]])
    np.testing.assert_allclose(result, [expected], rtol=1e-5)


def test_crossentropy_errors():
    with pytest.raises(ShapeError, match=r"\(2,\) and \(3,\)"):
        ops.binary_crossentropy(np.zeros(2), np.zeros(3))
    with pytest.raises(ShapeError, match="asks for a target of shape"):
        ops.sparse_categorical_crossentropy([1, 2], np.zeros((3, 4)))
    with pytest.raises(ShapeError, match="classes"):
        ops.categorical_crossentropy(1.0, 1.0)
    with pytest.raises(TypeError, match="num_classes"):
        ops.multi_hot([1])
    with pytest.raises(ValueError, match="sparse"):
        ops.one_hot([1], 3, sparse=True)


# --- normalizations and attention -------------------------------------------------------------


def test_gradients_of_normalizations():
    gamma, beta, variance = rng.normal(size=4), rng.normal(size=4), rng.uniform(0.5, 2, 4)
    gradient_check(ops.layer_normalization, [X, gamma, beta])
    gradient_check(ops.rms_normalization, [X, gamma])
    gradient_check(
        lambda x, m, v, o, s: ops.batch_normalization(x, m, v, -1, o, s),
        [X, gamma, variance, beta, gamma],
    )
    gradient_check(lambda x: ops.moments(x, [0]), [X])
    for order in (1, 3):
        gradient_check(lambda x, order=order: ops.normalize(x, order=order), [X])


def test_first_and_second_derivatives_of_a_normalized_batch():
    """The variance holds the mean fixed; a term without a first derivative has the second one."""
    gamma, beta, moving = rng.normal(size=4), rng.normal(size=4), np.ones(4)

    def normalized(x, gamma, beta):
        return standardize_batch(x, gamma, beta, moving, moving)[0]

    def by_x(x, gamma):
        return autodiff.grad(lambda v: ops.sum(normalized(v, gamma, beta) ** 3))(x)

    gradient_check(normalized, [X, gamma, beta])
    gradient_check(by_x, [X, gamma])
    mean, variance = standardize_batch(X, None, None, 0 * moving, 0 * moving, momentum=0.0)[1:]
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, X.var(0), rtol=1e-12)


def test_half_precision_moments_do_not_overflow():
    x = np.full((1000,), 300.0, "float16")
    mean, variance = ops.moments(x, [0])
    assert (mean.item(), variance.item(), mean.dtype) == (300.0, 0.0, "float16")
    assert np.isfinite(ops.layer_normalization(x)).all()


def test_normalization_errors():
    with pytest.raises(ShapeError, match=r"mean must have the shape \(4,\)"):
        ops.batch_normalization(X, np.zeros(3), np.ones(4), -1)
    with pytest.raises(ValueError, match="order"):
        ops.normalize(X, order=0)
    with pytest.raises(TypeError, match="no_such"):
        ops.layer_normalization(X, no_such=1)


def test_gradients_of_attention():
    q, k, v = (rng.normal(size=(1, 3, 2, 2)) for _ in range(3))
    gradient_check(lambda *x: ops.dot_product_attention(*x, is_causal=True), [q, k, v])
    capped = {"attn_logits_soft_cap": 1.5, "scale": 0.7}
    gradient_check(lambda *x: ops.dot_product_attention(*x, **capped), [q, k, v], order=1)


def test_attention_is_the_weighted_mean_of_values():
    q, k, v = (rng.normal(size=(2, 3, 4, 5)) for _ in range(3))
    mask = rng.integers(0, 2, (2, 1, 3, 3)).astype(bool) | np.eye(3, dtype=bool)
    logits = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(5)
    weights = np.exp(np.where(mask, logits, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bnts,bsnh->btnh", weights, v)
    np.testing.assert_allclose(ops.dot_product_attention(q, k, v, mask=mask), expected)


def attention_by_numpy(q, k, v, allowed):
    logits = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(np.where(allowed, logits, -np.inf))
    return np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("sources", [3, 4, 6])
def test_causal_attention_reaches_to_a_target_s_own_place(sources):
    q = rng.normal(size=(2, 4, 2, 5))
    k, v = (rng.normal(size=(2, sources, 2, 5)) for _ in range(2))
    causal = np.tril(np.ones((4, sources), bool))
    result = ops.dot_product_attention(q, k, v, is_causal=True)
    np.testing.assert_allclose(result, attention_by_numpy(q, k, v, causal))


def test_a_mask_and_the_causal_order_both_hold():
    q, k, v = (rng.normal(size=(2, 4, 2, 5)) for _ in range(3))
    mask = np.array([[1, 0, 1, 1], [1, 1, 0, 1]], bool)[:, None, None, :]
    result = ops.dot_product_attention(q, k, v, mask=mask, is_causal=True)
    expected = attention_by_numpy(q, k, v, mask & np.tril(np.ones((4, 4), bool)))
    np.testing.assert_allclose(result, expected)


def test_neighboring_heads_share_the_heads_of_grouped_attention():
    q = rng.normal(size=(2, 4, 6, 5))
    k, v = (rng.normal(size=(2, 3, 2, 5)) for _ in range(2))
    expected = attention_by_numpy(q, np.repeat(k, 3, axis=2), np.repeat(v, 3, axis=2), True)
    np.testing.assert_allclose(ops.dot_product_attention(q, k, v), expected)


def test_attention_errors():
    q = np.zeros((1, 2, 3, 4))
    with pytest.raises(ShapeError, match="multiple"):
        ops.dot_product_attention(q, q[:, :, :2], q[:, :, :2])
    with pytest.raises(ShapeError, match="batch, length, heads, size"):
        ops.dot_product_attention(q[0], q, q)


# --- activations by name --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in SMOOTH if hasattr(activations, n)])
def test_activations_by_name(name):
    f = activations.get(name)
    assert f is getattr(activations, name)
    assert activations.serialize(f) == name
    assert activations.deserialize(name) is f
    np.testing.assert_allclose(
        f(X), getattr(ops, name)(X, approximate=False) if name == "gelu" else getattr(ops, name)(X)
    )


def test_aliases_and_none():
    assert activations.get(None) is activations.linear
    assert activations.get("swish") is activations.silu
    assert activations.serialize(activations.hard_swish) == "hard_silu"
    assert activations.get(np.tanh) is np.tanh


def test_unknown_activation_lists_the_nearest():
    with pytest.raises(UnknownNameError, match="'relu'"):
        activations.get("rellu")
    with pytest.raises(ValueError, match="Expected a activation|Expected an activation"):
        activations.get(3)


def test_registered_activation_makes_the_round_trip():
    @register_keras_serializable(package="tests")
    def doubled(x):
        return x * 2

    config = activations.serialize(doubled)
    assert activations.deserialize(config) is doubled
    assert activations.get("tests>doubled") is doubled


def test_paddings_are_known_in_capitals_too():
    x, kernel = np.ones((1, 5, 2), "float32"), np.ones((3, 2, 2), "float32")
    for small, large in (("valid", "VALID"), ("same", "SAME")):
        result = ops.conv(x, kernel, 2, padding=large)
        np.testing.assert_array_equal(result, ops.conv(x, kernel, 2, padding=small))


@pytest.mark.parametrize("size", [1, 0, -2])
def test_blocks_have_two_pixels_at_least(size):
    for function in (ops.depth_to_space, ops.space_to_depth):
        with pytest.raises(ValueError, match="at least 2"):
            function(np.ones((1, 4, 4, 4), "float32"), size)


@pytest.mark.parametrize("stride", [0, -1, 1.5])
def test_strides_of_sequences_are_whole_and_positive(stride):
    x = np.ones(8, "float32")
    with pytest.raises(ValueError, match="sequence_stride"):
        ops.stft(x, 4, stride, 4)
    with pytest.raises(ValueError, match="sequence_stride"):
        ops.istft((np.ones((3, 3), "float32"),) * 2, 4, stride, 4)


@pytest.mark.parametrize("size", [(0, 3), (3, -1)])
def test_pictures_have_a_height_and_a_width(size):
    with pytest.raises(ValueError, match="positive"):
        ops.image.resize(np.ones((4, 4, 1), "float32"), size)


@pytest.mark.parametrize("shape", [(), (6,), (1, 2, 8)])
def test_affine_maps_have_eight_numbers(shape):
    with pytest.raises(ShapeError, match=r"\(8,\) or \(n, 8\)"):
        ops.image.affine_transform(np.ones((4, 4, 1), "float32"), np.ones(shape, "float32"))


def test_hues_want_floating_pictures():
    with pytest.raises(ValueError, match="floating"):
        ops.image.rgb_to_hsv(np.ones((2, 2, 3), "int32"))


def test_slices_take_arrays_and_want_a_size_an_axis():
    x = np.arange(6).reshape(2, 3)
    assert ops.slice(x, np.array([0, 1]), np.array([2, 2])).tolist() == [[1, 2], [4, 5]]
    with pytest.raises(ShapeError, match="each axis"):
        ops.slice(x, (0, 0), (1, 1, 1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_of_sequences_are_float32_at_least(dtype):
    logits = ops.cast(np.ones((1, 3, 4)), dtype)
    loss = ops.ctc_loss([[1, 2]], logits, [2], [3])
    score = ops.ctc_decode(logits, [3])[1]
    assert (loss.dtype, score.dtype) == ("float32", "float32")


def test_arrays_from_convert_to_numpy_may_be_written_to():
    x = ops.convert_to_tensor([1.0, 2.0])
    array = ops.convert_to_numpy(x)
    array[0] = 5.0
    assert x.tolist() == [1.0, 2.0]


def test_patches_with_three_sizes_are_those_of_volumes():
    x = np.arange(2 * 4 * 4 * 2).reshape(2, 4, 4, 2).astype("float32")
    result = ops.image.extract_patches(x, (2, 2, 2))
    assert result.shape == (1, 2, 2, 16)
    np.testing.assert_array_equal(result, ops.image.extract_patches_3d(x, 2))
    with pytest.raises(TypeError, match="3 sizes"):
        ops.image.extract_patches_3d(x, (2, 2))
    with pytest.raises(ValueError, match="3 strides"):
        ops.image.extract_patches_3d(x, 2, strides=(1, 1))


def test_what_is_not_finite_is_never_among_the_largest():
    rows = np.asarray([[np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0], [-np.inf, 1.0, 2.0]], "float32")
    for k in (1, 2, 3):
        assert ops.in_top_k([0, 0, 0], rows, k).tolist() == [False] * 3
    # Those that equal the target's prediction are not better than it.
    assert ops.in_top_k([0, 1, 2], np.asarray([[1.0, 1.0, 0.0]] * 3, "float32"), 1).tolist() == [
        True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(("dtype", "start"), [("float16", 2048.0), ("bfloat16", 256.0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_the_variance_of_halves_is_about_the_mean_before_it_is_rounded(dtype, start, keepdims):
    x = ops.convert_to_tensor([[start, start + 2]], dtype)  # no half lies between the two
    mean, variance = ops.moments(x, 1, keepdims)
    assert mean.dtype == variance.dtype == dtype
    assert variance.shape == ((1, 1) if keepdims else (1,))
    assert float(ops.sum(variance)) == 1.0
