"""Discretization and CategoryEncoding: learning, engines, configs, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kerasish
from kerasish import layers, registry
from kerasish.layers import CategoryEncoding, Discretization


def test_quantiles_of_batches_are_about_those_of_all():
    x = np.random.default_rng(0).normal(size=5000)
    whole, parts = Discretization(num_bins=5), Discretization(num_bins=5)
    whole.adapt(x)
    parts.adapt(x[i : i + 500] for i in range(0, 5000, 500))
    expected = np.quantile(x, [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(whole.bin_boundaries, expected, atol=0.05)
    np.testing.assert_allclose(parts.bin_boundaries, expected, atol=0.1)
    counts = np.bincount(whole(x).numpy())
    assert counts.min() > 800 and counts.max() < 1200


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
def test_shapes_are_known_before_the_data(mode):
    layer = Discretization(num_bins=6, output_mode=mode)
    shape = {"int": (None, 4), "one_hot": (None, 4, 6)}.get(mode, (None, 6))
    assert layer.compute_output_shape((None, 4)) == shape
    layer.adapt([1.0, 1.0, 1.0, 2.0])  # fewer values than bins
    assert layer(np.ones((3, 4))).shape[1:] == shape[1:]
    assert layer(kerasish.Input((4,))).shape == shape


def test_nan_falls_into_the_last_bin():
    assert Discretization([0.0, 1.0])([np.nan, np.inf, -np.inf]).numpy().tolist() == [2, 2, 0]


def test_configs_hold_what_was_learnt():
    layer = Discretization(num_bins=3, name="bins")
    layer.adapt([1.0, 2.0, 3.0, 4.0])
    text = json.dumps(registry.serialize_keras_object(layer))
    other = registry.deserialize_keras_object(json.loads(text))
    assert other.bin_boundaries == layer.bin_boundaries and other.num_bins == 3
    assert json.dumps(registry.serialize_keras_object(other)) == text
    other.adapt([10.0, 20.0, 30.0])
    assert other.bin_boundaries != layer.bin_boundaries


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
def test_engines_agree(mode):
    layer = Discretization([0.0, 0.5], output_mode=mode)
    encode = CategoryEncoding(4, output_mode="count" if mode == "int" else mode)
    x = np.random.default_rng(1).normal(size=(6, 3)).astype("float32")
    numbers = np.arange(18).reshape(6, 3) % 5
    for one, inputs in ((layer, x), (encode, numbers)):
        result = kerasish.function(lambda x: one(x), backend="static")(inputs)  # noqa: B023
        assert (result.numpy() == one(inputs).numpy()).all()


def test_numbers_outside_the_range_count_nowhere():
    layer = CategoryEncoding(2, output_mode="count")
    assert layer([[0, 2, -1, 1, 1]]).numpy().tolist() == [[1.0, 2.0]]


def test_weights_are_added_up():
    layer = CategoryEncoding(3, output_mode="count")
    result = layer([[0, 1, 0], [2, 2, 2]], count_weights=np.array([[0.5, 2, 0.25], [1, 2, 3]]))
    assert result.numpy().tolist() == [[0.75, 2.0, 0.0], [0.0, 0.0, 6.0]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Discretization(), "either bin_boundaries, or num_bins"),
        (lambda: Discretization([1.0], num_bins=2), "either bin_boundaries, or num_bins"),
        (lambda: Discretization(num_bins=-1), "num_bins is a number >= 0"),
        (lambda: Discretization([2.0, 1.0]), "must ascend"),
        (lambda: Discretization([1.0], output_mode="hot"), "one_hot"),
        (lambda: Discretization([1.0], output_mode="count", sparse=True), "sparse=True"),
        (lambda: Discretization(num_bins=2)([1.0]), "no bin_boundaries yet; call adapt"),
        (lambda: Discretization([1.0]).adapt([1.0]), "bin_boundaries were given"),
        (lambda: CategoryEncoding(), "num_tokens must be given"),
        (lambda: CategoryEncoding(0), "num_tokens is a number >= 1"),
        (lambda: CategoryEncoding(3, output_mode="int"), "output_mode: 'int'"),
        (
            lambda: CategoryEncoding(3)([[1]], count_weights=[[1.0]]),
            "count_weights go with output_mode='count'",
        ),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_bins_in_a_trained_model():
    x = np.linspace(-1, 1, 40, dtype="float32")[:, None]
    bins = Discretization(num_bins=4, output_mode="one_hot")
    bins.adapt(x)
    model = kerasish.Sequential([layers.Input((1,)), bins, layers.Dense(1)])
    model.compile(kerasish.optimizers.Adam(0.1), "mse")
    model.fit(x, np.floor(x * 2), epochs=60, verbose=0)
    assert model.evaluate(x, np.floor(x * 2), verbose=0) < 0.1
