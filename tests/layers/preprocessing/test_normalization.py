"""Normalization: learning in batches, large means, and compiled steps that see what is learnt."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.layers import Normalization

DATA = np.random.default_rng(0).normal(3.0, 2.0, (50, 4, 3))


@pytest.mark.parametrize("axis", [-1, None, (1, 2), 1])
def test_batches_are_as_good_as_all_at_once(axis):
    whole, parts = Normalization(axis=axis), Normalization(axis=axis)
    whole.adapt(DATA)
    parts.adapt((DATA[i : i + 7], None) for i in range(0, 50, 7))
    kept = () if axis is None else tuple(a % 3 for a in np.atleast_1d(axis))
    axes = tuple(i for i in range(3) if i not in kept)
    for layer in (whole, parts):
        np.testing.assert_allclose(np.squeeze(layer.mean), DATA.mean(axes), rtol=1e-5)
        np.testing.assert_allclose(np.squeeze(layer.variance), DATA.var(axes), rtol=1e-5)
    np.testing.assert_allclose(whole(DATA).numpy(), parts(DATA).numpy(), rtol=1e-4, atol=1e-5)


def test_large_means_leave_the_variance_alone():
    x = 1e9 + np.array([[-1.0], [1.0]] * 8)
    layer = Normalization()
    layer.adapt(iter([x[:4], x[4:]]))
    assert float(layer.variance.numpy().ravel()[0]) == pytest.approx(1.0)


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_compiled_step_sees_what_is_learnt_later(eagerly):
    layer = Normalization()
    model = kerasish.Sequential([layers.Input((2,)), layer])
    model.compile(run_eagerly=eagerly)
    x = np.array([[1.0, 2.0], [3.0, 6.0]], "float32")
    for scale in (1.0, 10.0):
        layer.adapt(x * scale)
        result = model.predict(x * scale, verbose=0)
        np.testing.assert_allclose(result, [[-1, -1], [1, 1]], rtol=1e-5)


def test_scales_of_channels_stand_where_the_channels_do():
    pictures = np.random.RandomState(0).rand(2, 3, 4, 5).astype("float32")
    scale, offset = [1.0, 2.0, 4.0], [0.0, -1.0, 1.0]
    last = layers.Rescaling(scale, offset)(np.moveaxis(pictures, 1, -1)).numpy()
    kerasish.config.set_image_data_format("channels_first")
    try:
        first = layers.Rescaling(scale, offset)(pictures).numpy()
        rows = layers.Rescaling(scale, offset)(np.ones((2, 3))).numpy()
    finally:
        kerasish.config.set_image_data_format("channels_last")
    np.testing.assert_array_equal(np.moveaxis(first, 1, -1), last)
    assert rows.tolist() == [[1.0, 1.0, 5.0]] * 2


def test_moments_that_were_given():
    layer = Normalization(mean=[1.0, 2.0], variance=[4.0, 9.0])
    assert layer([[3.0, 5.0]]).numpy().tolist() == [[1.0, 1.0]]
    assert Normalization(mean=1.0, variance=4.0, invert=True)([[1.0]]).numpy().tolist() == [[3.0]]
    with pytest.raises(ValueError, match="nothing to adapt"):
        layer.adapt([[1.0, 2.0]])
    with pytest.raises(ValueError, match="no data"):
        Normalization().adapt(iter([]))
