"""What noise does to its inputs: which elements change together, and what their moments are."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import config, layers

RATE = 0.3


@pytest.fixture
def normal():
    return np.random.default_rng(0).normal(size=(400, 500)).astype("float32")


def test_alpha_dropout_keeps_mean_and_variance(normal):
    result = layers.AlphaDropout(RATE, seed=1)(normal, training=True).numpy()
    assert result.mean() == pytest.approx(0.0, abs=0.02)
    assert result.var() == pytest.approx(1.0, abs=0.02)


def test_alpha_dropout_gives_one_number_for_all_that_it_drops(normal):
    result = layers.AlphaDropout(RATE, seed=1)(normal, training=True).numpy()
    numbers, counts = np.unique(result, return_counts=True)
    assert counts.max() / result.size == pytest.approx(RATE, abs=0.01)
    # selu(-inf), moved and scaled like the rest.
    limit = -1.0507009873554805 * 1.6732632423543772
    factor = ((1 - RATE) * (1 + RATE * limit**2)) ** -0.5
    dropped = numbers[counts.argmax()]
    assert dropped == pytest.approx(factor * limit * (1 - RATE), rel=1e-5)
    kept = result != dropped
    np.testing.assert_allclose(
        result[kept], factor * (normal[kept] - limit * RATE), rtol=1e-4, atol=1e-5
    )


def test_the_noise_shape_of_alpha_dropout_drops_together(normal):
    result = layers.AlphaDropout(RATE, noise_shape=(None, 1), seed=1)(normal, training=True).numpy()
    constant = np.ptp(result, axis=1) == 0
    assert constant.mean() == pytest.approx(RATE, abs=0.1)


SPATIAL = [
    (layers.SpatialDropout1D, (20, 5, 30), {}),
    (layers.SpatialDropout2D, (20, 5, 4, 30), {}),
    (layers.SpatialDropout2D, (20, 30, 5, 4), {"data_format": "channels_first"}),
    (layers.SpatialDropout3D, (20, 5, 4, 3, 30), {}),
    (layers.SpatialDropout3D, (20, 30, 5, 4, 3), {"data_format": "channels_first"}),
]


@pytest.mark.parametrize(("layer", "shape", "options"), SPATIAL)
def test_spatial_dropout_drops_whole_channels(layer, shape, options):
    result = layer(RATE, seed=1, **options)(np.ones(shape, "float32"), training=True).numpy()
    channels = result if options else np.moveaxis(result, -1, 1)
    channels = channels.reshape(20, 30, -1)
    first = channels[:, :, 0]
    np.testing.assert_array_equal(channels, np.broadcast_to(first[:, :, None], channels.shape))
    np.testing.assert_allclose(np.unique(first), [0, 1 / (1 - RATE)], rtol=1e-6)
    # Each channel of each example by itself.
    assert (first == 0).mean() == pytest.approx(RATE, abs=0.06)
    assert np.ptp(first, axis=0).min() > 0 and np.ptp(first, axis=1).min() > 0


@pytest.mark.parametrize("layer", [layers.SpatialDropout2D, layers.SpatialDropout3D])
def test_spatial_dropout_takes_the_process_s_data_format(layer):
    before = config.image_data_format()
    config.set_image_data_format("channels_first")
    try:
        assert layer(RATE).data_format == "channels_first"
        assert layer(RATE, "channels_last").data_format == "channels_last"
    finally:
        config.set_image_data_format(before)
    assert layer(RATE).data_format == before
    with pytest.raises(ValueError, match="data_format must be .*'channels_middle'"):
        layer(RATE, "channels_middle")


def test_gaussian_noise_has_the_moments_asked_for(normal):
    added = layers.GaussianNoise(0.5, seed=1)(normal, training=True).numpy() - normal
    assert added.mean() == pytest.approx(0.0, abs=0.01)
    assert added.std() == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(added.ravel(), normal.ravel())[0, 1] == pytest.approx(0.0, abs=0.01)
    factors = layers.GaussianDropout(RATE, seed=1)(np.ones_like(normal), training=True).numpy()
    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    assert factors.var() == pytest.approx(RATE / (1 - RATE), abs=0.02)
