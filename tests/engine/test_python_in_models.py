"""Models whose Python reads values train on both engines, with the same losses."""

from __future__ import annotations

import numpy as np
import pytest
from python_models import MODELS, Curriculum

import kerasish
from kerasish import callbacks


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
