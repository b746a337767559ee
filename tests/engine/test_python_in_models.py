"""Models whose Python reads values train on both engines, with the same losses."""

from __future__ import annotations

import numpy as np
import pytest
from python_models import MODELS, Curriculum

import kerasish
from kerasish import callbacks, layers, ops


def _data(rows=44, seed=3):
    x = np.random.default_rng(seed).normal(size=(rows, 3)).astype("float32")
    return x, np.sin(x.sum(1, keepdims=True)).astype("float32")


def _train(cls, eagerly, epochs=4):
    kerasish.utils.set_random_seed(7)
    model = cls()
    model.compile(kerasish.optimizers.Adam(0.02), "mse", metrics=["mae"], run_eagerly=eagerly)
    x, y = _data()
    extra = []
    if cls is Curriculum:
        harder = lambda epoch, logs: setattr(model, "hard", epoch >= 2)  # noqa: E731
        extra = [callbacks.LambdaCallback(on_epoch_begin=harder)]
    history = model.fit(
        x, y, batch_size=8, epochs=epochs, verbose=0, callbacks=extra, validation_data=_data(9, 4)
    )
    return model, history.history, model.predict(x[:5], verbose=0)


@pytest.mark.filterwarnings("ignore:.*op by op")
@pytest.mark.parametrize("cls", MODELS)
def test_both_engines_train_alike(cls):
    model, eager, predicted = _train(cls, True)
    other, static, also = _train(cls, False)
    for name in eager:
        np.testing.assert_allclose(static[name], eager[name], rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(also, predicted, rtol=1e-4, atol=1e-5)
    assert int(model.optimizer.iterations) == int(other.optimizer.iterations) == 24
    assert eager["loss"][-1] < eager["loss"][0]


class Halving(layers.Layer):
    """Code of the user's that changes its own weight in the forward call of a step."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], 2), initializer="ones", name="kernel")

    def call(self, x, training=False):
        if training:
            self.kernel.assign(self.kernel * 0.5)
        return ops.matmul(x, self.kernel)


@pytest.mark.parametrize("built", [True, False])
def test_slots_begin_with_the_weights_before_the_step(built):
    """ScheduleFreeAdamW keeps a copy of each weight, which the first forward call changes."""
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    results = []
    for name in ("eager", "static"):
        kerasish.config.set_backend(name)
        model = kerasish.Sequential([Halving()])
        if built:
            model.build((None, 3))
        model.compile(kerasish.optimizers.ScheduleFreeAdamW(0.1), "mse")
        model.train_on_batch(x, np.zeros((4, 2), "float32"))
        results.append([v.numpy() for v in (*model.variables, *model.optimizer.variables)])
    for eager, static in zip(*results, strict=True):
        np.testing.assert_allclose(eager, static, rtol=1e-5, atol=1e-7)
