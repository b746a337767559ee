"""What the normalizations do beyond their everyday numbers."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops

LIMITS = {"rmin": 0.5, "rmax": 1.5, "dmax": 0.25}


def wide(shape, start=0.0):
    return (3 * np.sin(start + 0.9 * np.arange(np.prod(shape))) + 1).reshape(shape).astype("f4")


def renormalized(x, gamma, beta, at, width, limits, epsilon):
    """Return (y, mean, stddev) of Ioffe's algorithm 1 in NumPy."""
    mean, stddev = x.mean(0), np.sqrt(x.var(0) + epsilon)
    r = np.clip(stddev / width, limits.get("rmin", 0), limits.get("rmax", np.inf))
    d = np.clip((mean - at) / width, -limits.get("dmax", np.inf), limits.get("dmax", np.inf))
    return ((x - mean) / stddev * r + d) * gamma + beta, mean, stddev


@pytest.mark.parametrize("limits", [{}, LIMITS])
@pytest.mark.parametrize("scaled", [True, False])
def test_renorm_ties_batches_to_the_running_moments(limits, scaled):
    layer = layers.BatchNormalization(
        momentum=0.7, renorm=True, renorm_momentum=0.6, renorm_clipping=limits,
        moving_mean_initializer="ones", scale=scaled, center=scaled,
        moving_variance_initializer=kerasish.initializers.Constant(4.0),
    )  # fmt: skip
    x = wide((6, 3))
    layer.build(x.shape)
    gamma, beta = (layer.gamma, layer.beta) if scaled else (np.ones(3), np.zeros(3))
    if scaled:
        layer.gamma.assign([1.0, 2.0, -0.5])
        layer.beta.assign([0.0, 1.0, 3.0])
        gamma, beta = gamma.numpy(), beta.numpy()
    expected, mean, stddev = renormalized(x, gamma, beta, 1.0, 2.0, limits, 1e-3)
    np.testing.assert_allclose(layer(x, training=True).numpy(), expected, atol=1e-5)
    moved = {v.name: v.numpy() for v in layer.non_trainable_weights}
    assert list(moved) == [
        "moving_mean", "moving_variance", "moving_stddev", "renorm_mean", "renorm_stddev",
    ]  # fmt: skip
    np.testing.assert_allclose(moved["moving_mean"], 0.7 + 0.3 * mean, atol=1e-5)
    np.testing.assert_allclose(moved["moving_stddev"], 1.4 + 0.3 * stddev, atol=1e-5)
    np.testing.assert_allclose(
        moved["moving_variance"], moved["moving_stddev"] ** 2 - 1e-3, atol=1e-5
    )
    np.testing.assert_allclose(moved["renorm_mean"], 0.6 + 0.4 * mean, atol=1e-5)
    np.testing.assert_allclose(moved["renorm_stddev"], 1.2 + 0.4 * stddev, atol=1e-5)


def test_renorm_trains_alike_on_both_engines_and_is_plain_at_inference():
    def trained(eagerly):
        kerasish.utils.set_random_seed(5)
        model = kerasish.Sequential(
            [layers.Input((3,)), layers.BatchNormalization(renorm=True), layers.Dense(1)]
        )
        model.compile("sgd", "mse", run_eagerly=eagerly)
        model.fit(wide((12, 3)), wide((12, 1), 2.0), epochs=3, batch_size=4, verbose=0)
        return model

    model, other = trained(True), trained(False)
    for a, b in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_allclose(a, b, atol=1e-5)
    layer = model.layers[0]
    plain = layers.BatchNormalization()
    plain.build((None, 3))
    plain.set_weights([v.numpy() for v in layer.weights[:4]])
    np.testing.assert_array_equal(plain(wide((2, 3))).numpy(), layer(wide((2, 3))).numpy())
    again = layers.BatchNormalization.from_config(layer.get_config())
    assert again.renorm and again.renorm_momentum == 0.99


@pytest.mark.parametrize("clipping", [{"max": 1.0}, {"rmin": 2.0, "rmax": 1.0}, {"dmax": -0.1}])
def test_renorm_refuses_wrong_limits(clipping):
    with pytest.raises(ValueError, match=r"BatchNormalization .*renorm_clipping"):
        layers.BatchNormalization(renorm=True, renorm_clipping=clipping)


def test_rms_scaling_leaves_the_mean_on():
    x = wide((2, 5))
    expected = x / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    layer = layers.LayerNormalization(rms_scaling=True)
    np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-5)
    result = ops.layer_normalization(x, None, 5.0, rms_scaling=True, epsilon=1e-3)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)
    assert [v.name for v in layer.weights] == ["gamma"]


def test_groups_normalize_what_overflows_half_numbers():
    layer = layers.GroupNormalization(groups=2, dtype="mixed_float16")
    y = layer(np.array([[9e4, -9e4, 2e5, 4e5]], "float32"))
    assert y.dtype == "float16"
    np.testing.assert_allclose(y.numpy(), [[1, -1, -1, 1]], atol=1e-2)
    assert layer(layers.Input((4,))).dtype == "float16"
