"""Training steps written for Keras on PyTorch or JAX: they run, or say what to write instead."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers

X = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


def trained(kind, **options):
    kerasish.utils.set_random_seed(0)
    inputs = kerasish.Input((3,))
    model = kind(inputs, layers.Dense(1)(inputs))
    model.compile(kerasish.optimizers.SGD(0.1), "mse", **options)
    losses = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
    return losses, model.get_weights()


class Backward(kerasish.Model):
    """PyTorch's way, as the message of `zero_grad` advises it."""

    def train_step(self, data):
        x, y = data
        for v in self.trainable_weights:
            v.grad = None
        loss = self.compute_loss(x, y, self(x, training=True))
        loss.backward()
        with kerasish.no_gradient():
            gradients = [v.grad for v in self.trainable_weights]
            self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": loss}


class Taped(kerasish.Model):
    """As the message about JAX's steps advises it."""

    def train_step(self, data):
        x, y = data
        with kerasish.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": loss}


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("kind", [Backward, Taped])
def test_what_the_messages_advise_trains(kind, eagerly):
    _, weights = trained(kind, run_eagerly=eagerly)
    _, expected = trained(kerasish.Model, run_eagerly=eagerly)
    for a, b in zip(weights, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_step_for_pytorch_says_what_to_write(eagerly):
    class Torch(kerasish.Model):
        def train_step(self, data):
            x, y = data
            self.zero_grad()
            loss = self.compute_loss(x, y, self(x, training=True))
            loss.backward()
            return {"loss": loss}

    with pytest.raises(AttributeError, match=r"zero_grad is not supported: .*v\.grad = None") as e:
        trained(Torch, run_eagerly=eagerly)
    for part in ("loss.backward()", "self.optimizer.apply(", "kerasish.no_gradient()"):
        assert part in str(e.value)


@pytest.mark.parametrize("name", ["train_step", "test_step", "predict_step"])
@pytest.mark.parametrize("eagerly", [False, True])
def test_a_step_for_jax_says_what_to_write(name, eagerly):
    def step(self, state, data):
        return {}, state

    kind = type("Jax", (kerasish.Model,), {name: step})
    inputs = kerasish.Input((3,))
    model = kind(inputs, layers.Dense(1)(inputs), name="two")
    model.compile("sgd", "mse", run_eagerly=eagerly)
    before = model.get_weights()
    call = {"train_step": model.fit, "test_step": model.evaluate, "predict_step": model.predict}
    arguments = (X,) if name == "predict_step" else (X, Y)
    match = rf'Jax "two": {name}\(state, data\) takes the state, .*Write {name}\(self, data\)'
    with pytest.raises(TypeError, match=match):
        call[name](*arguments, verbose=0)
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_further_arguments_with_defaults_are_no_state():
    class More(Taped):
        def train_step(self, data, scale=1.0, *, extra=None):
            return super().train_step(data)

    assert np.isfinite(trained(More)[0]).all()
