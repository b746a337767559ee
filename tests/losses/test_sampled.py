"""Candidates and the sampled softmax: distributions, unbiasedness, training."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import autodiff, backends, layers, losses, ops, random
from kerasish.ops.networks.sampling import class_probabilities
from kerasish.tensor import Tensor

OWN = np.array([0.4, 0.3, 0.2, 0.1, 0.0], "float32")


@pytest.mark.parametrize("sampler", ["log_uniform", "uniform", OWN])
def test_with_repetition_the_counts_are_those_expected(sampler):
    drawn = losses.candidates([0, 3], 20_000, 5, sampler, unique=False, seed=1)
    share = np.asarray(class_probabilities(sampler, 5))
    assert share.sum() == pytest.approx(1, abs=1e-6)
    counts = np.bincount(np.asarray(drawn.sampled), minlength=5)
    np.testing.assert_allclose(counts / 20_000, share, atol=0.012)
    np.testing.assert_allclose(drawn.true_expected, share[[0, 3]] * 20_000, rtol=1e-5)
    np.testing.assert_allclose(drawn.sampled_expected, share[drawn.sampled] * 20_000, rtol=1e-5)


def test_zipf():
    share = np.asarray(class_probabilities("log_uniform", 3))
    np.testing.assert_allclose(share, np.log([2, 3 / 2, 4 / 3]) / np.log(4), rtol=1e-6)


@pytest.mark.parametrize("sampler", ["log_uniform", "uniform", OWN])
def test_without_repetition_sums_are_unbiased(sampler):
    """Σ over the drawn of f(c) / expected count has the mean Σ over all of f(c)."""
    value = np.array([1.0, 2.0, -1.0, 4.0, 0.0])
    generator, sums, rounds = random.SeedGenerator(3), [], 3000
    draw = backends.get("static").compile(
        lambda: tuple(losses.candidates([2], 3, 5, sampler, seed=generator))
    )
    for _ in range(rounds):
        sampled, true, expected = (np.asarray(v) for v in draw())
        assert len(set(sampled.tolist())) == 3
        assert ((expected > 0) & (expected <= 1)).all() and 0 < true[0] <= 1
        sums.append((value[sampled] / expected).sum())
    error = np.std(sums) / np.sqrt(rounds)
    assert abs(np.mean(sums) - value.sum()) < 4 * error


def softmax_loss(w, b, y, x):
    return ops.sparse_categorical_crossentropy(y, ops.matmul(x, ops.transpose(w)) + b, True)


def numbers(classes=12, features=4, rows=6):
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(classes, features)), rng.normal(size=classes)
    return w, b, rng.integers(0, classes, rows), rng.normal(size=(rows, features))


def test_with_all_classes_it_is_the_softmax():
    w, b, y, x = numbers()
    expected = np.asarray(softmax_loss(w, b, y, x))
    np.testing.assert_allclose(losses.sampled_softmax(w, b, y, x, 12, seed=1), expected, rtol=1e-5)
    again = losses.sampled_softmax(w, b, y[:, None], x, 12, "uniform", seed=1)
    np.testing.assert_allclose(again, expected, rtol=1e-5)
    plain = losses.sampled_softmax(w, None, y, x, 12, seed=1)
    np.testing.assert_allclose(plain, softmax_loss(w, 0 * b, y, x), rtol=1e-5)


@pytest.mark.parametrize("unique", [True, False])
def test_its_gradient_comes_near_that_of_the_softmax(unique):
    w, b, y, x = (Tensor(v) for v in numbers())
    exact = np.asarray(autodiff.grad(lambda w: softmax_loss(w, b, y, x).sum())(w))
    mean = np.zeros_like(exact)
    for seed in range(200):
        rule = lambda w: losses.sampled_softmax(w, b, y, x, 9, "uniform", unique, seed=seed).sum()  # noqa: B023, E731
        mean += np.asarray(autodiff.grad(rule)(w)) / 200
    assert np.abs(mean - exact).max() < 0.25 * np.abs(exact).max()


class Output(layers.Layer):
    """Scores of all classes; in training the loss of a few."""

    def __init__(self, units, num_sampled):
        super().__init__()
        self.units, self.num_sampled = units, num_sampled
        self.generator = random.SeedGenerator(7)

    def build(self, inputs_shape, labels_shape):
        self.kernel = self.add_weight(shape=(self.units, inputs_shape[-1]), name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")

    def call(self, inputs, labels, training=False):
        if training:
            values = losses.sampled_softmax(
                self.kernel, self.bias, labels, inputs, self.num_sampled, seed=self.generator
            )
            self.add_loss(ops.mean(values))
        return ops.matmul(inputs, ops.transpose(self.kernel)) + self.bias


@pytest.mark.parametrize("eager", [False, True])
def test_a_model_trains_on_a_few_classes_at_a_time(eager):
    kerasish.utils.set_random_seed(2)
    rng = np.random.default_rng(1)
    y = rng.integers(0, 30, 256)
    x = np.eye(30, dtype="float32")[y] + rng.normal(0, 0.1, (256, 30)).astype("float32")
    inputs, labels = layers.Input((30,)), layers.Input((), dtype="int32")
    model = kerasish.Model([inputs, labels], Output(30, 8)(inputs, labels))
    model.compile(kerasish.optimizers.Adam(0.05), run_eagerly=eager)
    history = model.fit([x, y], epochs=10, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]
    assert (model.predict([x, y], verbose=0).argmax(-1) == y).mean() > 0.95


def test_what_does_not_fit():
    w, b, y, x = numbers()
    with pytest.raises(ValueError, match=r"\[1, 12\]"):
        losses.sampled_softmax(w, b, y, x, 13)
    with pytest.raises(ValueError, match="'zipf'"):
        losses.candidates([1], 2, 5, "zipf")
    with pytest.raises(ValueError, match="each of 6 classes"):
        losses.candidates([1], 2, 6, OWN)
    with pytest.raises(ValueError, match="labels"):
        losses.sampled_softmax(w, b, y[:2], x, 3)
