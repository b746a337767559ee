"""Models whose training step uses their layers, and never the model itself."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops

SIZE = 3


class Game(kerasish.Model):
    """Two networks with an optimizer each."""

    def __init__(self, build: bool = True) -> None:
        super().__init__()
        self.generator = kerasish.Sequential([layers.Dense(4)])
        self.critic = kerasish.Sequential([layers.Dense(1)])
        if build:
            self.generator.build((None, SIZE))
            self.critic.build((None, 4))

    def compile(self, one, two):
        super().compile()
        self.one, self.two = one, two

    def train_step(self, data):
        images = data[0] if isinstance(data, tuple) else data
        with kerasish.GradientTape() as tape:
            score = ops.mean(self.critic(self.generator(images[:, :SIZE])) - self.critic(images))
        weights = self.critic.trainable_variables
        self.two.apply(tape.gradient(score, weights), weights)
        with kerasish.GradientTape() as tape:
            loss = -ops.mean(self.critic(self.generator(images[:, :SIZE])))
        weights = self.generator.trainable_variables
        self.one.apply(tape.gradient(loss, weights), weights)
        return {"score": score, "loss": loss}


class WithCall(Game):
    """Its call takes other inputs than those in training, as a generator does."""

    def call(self, noise):
        return self.generator(noise)


@pytest.mark.parametrize("kind", [Game, WithCall])
def test_both_networks_are_trained(engine, kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 4)).astype("float32")
    model = kind()
    model.compile(kerasish.optimizers.SGD(0.1), kerasish.optimizers.SGD(0.01))
    before = [part.get_weights() for part in (model.generator, model.critic)]
    history = model.fit(x, batch_size=32, epochs=1, shuffle=False, verbose=0)

    (generator, _), (critic, _) = before
    image = x[:, :SIZE] @ generator
    critic = critic - 0.01 * (image.mean(0) - x.mean(0))[:, None]
    np.testing.assert_allclose(model.critic.get_weights()[0], critic, rtol=1e-5, atol=1e-6)
    gradient = -x[:, :SIZE].mean(0)[:, None] * critic[:, 0]
    after = generator - 0.1 * gradient
    np.testing.assert_allclose(model.generator.get_weights()[0], after, rtol=1e-5, atol=1e-6)
    assert sorted(history.history) == ["loss", "score"]
    if kind is WithCall:
        assert model.predict(x[:, :SIZE], verbose=0).shape == (32, 4)


def test_layers_that_are_not_built_need_the_call(engine):
    model = Game(build=False)
    model.compile("sgd", "sgd")
    with pytest.raises(NotImplementedError, match="call"):
        model.fit(np.ones((4, 4), "float32"), verbose=0)
