"""Attention layers: arguments, shapes, axes; their numbers are compared in test_as_keras."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from kerasish import initializers, layers


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype("float32")


@pytest.mark.parametrize("name", ["num_heads", "key_dim", "value_dim", "sliding_window"])
@pytest.mark.parametrize("size", [0, -2, 1.5])
def test_sizes_are_whole_and_positive(name, size):
    with pytest.raises(ValueError, match=f"argument `{name}`"):
        layers.MultiHeadAttention(**{"num_heads": 2, "key_dim": 3, name: size})


def test_other_arguments():
    with pytest.raises(ValueError, match="output_shape"):
        layers.MultiHeadAttention(2, 3, output_shape=8.0)
    with pytest.raises(ValueError, match="multiple of num_key_value_heads"):
        layers.GroupQueryAttention(3, 4, 3)
    for make in (
        lambda **o: layers.MultiHeadAttention(2, 3, **o),
        lambda **o: layers.GroupQueryAttention(3, 4, 2, **o),
    ):
        with pytest.raises(ValueError, match="no dropout"):
            make(flash_attention=True, dropout=0.1)
        x = normal(2, 4, 6)
        with pytest.raises(ValueError, match="scores"):
            make(flash_attention=True)(x, x, return_attention_scores=True)
        plain, flash = make(), make(flash_attention=True)
        plain(x, x), flash(x, x)
        flash.set_weights(plain.get_weights())
        np.testing.assert_array_equal(flash(x, x), plain(x, x))


@pytest.mark.parametrize("shapes", [
    ((7, 4, 8), (7, 2, 8), None), ((7, 4, 8), (7, 2, 8), (7, 2, 3)),
    ((7, 4, 2, 3, 8), (7, 1, 1, 5, 8), (7, 1, 1, 5, 2)),
])  # fmt: skip
@pytest.mark.parametrize("output", [None, (3, 2)])
def test_shapes_of_several_arguments(shapes, output):
    inputs = [None if s is None else normal(*s) for s in shapes]
    layer = layers.MultiHeadAttention(2, 2, value_dim=2, output_shape=output)
    result = layer(*inputs).shape
    assert layer.compute_output_shape(*shapes) == result
    names = ("query_shape", "value_shape", "key_shape")
    named = {k: s for k, s in zip(names, shapes) if s is not None}
    again = layers.MultiHeadAttention(2, 2, value_dim=2, output_shape=output)
    assert again.compute_output_shape(**named) == result


def test_axes_may_be_counted_from_the_end():
    x = normal(2, 3, 5, 4)
    first, last = (layers.MultiHeadAttention(2, 4, attention_axes=a) for a in (2, -2))
    first(x, x), last(x, x)
    last.set_weights(first.get_weights())
    for a, b in zip(*(m(x, x, return_attention_scores=True) for m in (first, last))):
        np.testing.assert_array_equal(a, b)


def test_heads_that_share_keys_are_heads_with_equal_keys():
    """Grouped attention is plain attention whose key and value heads are copies."""
    grouped, plain = layers.GroupQueryAttention(3, 4, 2), layers.MultiHeadAttention(4, 3)
    x, y = normal(2, 4, 6), normal(2, 5, 6)
    grouped(x, y), plain(x, y)
    values = [
        np.repeat(w, 2, axis=-2) if v.path.split("/")[-2] in ("key", "value") else w
        for v, w in zip(grouped.weights, grouped.get_weights())
    ]
    plain.set_weights(values)
    np.testing.assert_allclose(grouped(x, y), plain(x, y), atol=1e-6)


@pytest.mark.parametrize("make", [
    lambda: layers.MultiHeadAttention(2, 3), lambda: layers.GroupQueryAttention(3, 4, 2),
])  # fmt: skip
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_masks_are_used_and_passed_on_without_a_word(make, named, symbolic):
    x = layers.Input((3,), dtype="int32") if symbolic else np.array([[1, 2, 0]])
    query = layers.Embedding(4, 6, mask_zero=True)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = make()(query=query, value=query) if named else make()(query, query)
    assert y._keras_mask is query._keras_mask is not None


@pytest.mark.parametrize("name", ["MultiHeadAttention", "GroupQueryAttention"])
def test_projections_count_all_axes_of_heads_as_outputs(name):
    sizes = {"num_heads": 8, "key_dim": 16} if name[0] == "M" else {
        "num_query_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
    }  # fmt: skip
    layer = getattr(layers, name)(**sizes, kernel_initializer="lecun_normal")
    layer.build((None, 5, 64), (None, 5, 64))
    spreads = {v.path.split("/")[-2]: v.numpy().std() for v in layer.weights if v.name == "kernel"}
    into, out = 64**-0.5, (8 * 16) ** -0.5
    expected = {"query": into, "key": into, "value": into, "attention_output": out}
    assert spreads == pytest.approx(expected, rel=0.05)


def test_initializers_with_axes_of_their_own_keep_them():
    own = initializers.VarianceScaling(1.0, input_axes=[1, 2], output_axes=[0], seed=3)
    layer = layers.EinsumDense("abc,cde->abde", (None, 4, 30), kernel_initializer=own)
    layer.build((None, 7, 20))
    assert layer.kernel.numpy().std() == pytest.approx((4 * 30) ** -0.5, rel=0.05)
    assert layer.kernel_initializer is own
    plain = layers.EinsumDense("ab,bc->ac", 30, kernel_initializer="he_normal")
    plain.build((None, 200))
    assert plain.kernel.numpy().std() == pytest.approx((2 / 200) ** 0.5, rel=0.05)
    assert plain.get_config()["kernel_initializer"]["config"]["input_axes"] is None
