"""SwapEMAWeights in real trainings, on both engines."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish as keras

X = np.linspace(-1, 1, 24, dtype="float32").reshape(12, 2)
Y = X @ np.array([[2.0], [-1.0]], "float32")


class Look(keras.callbacks.Callback):
    """Notes the kernel at each moment."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def note(self, moment):
        self.seen.setdefault(moment, []).append(self.model.layers[0].kernel.numpy().copy())

    def on_epoch_begin(self, epoch, logs=None):
        self.note("epoch begin")

    def on_epoch_end(self, epoch, logs=None):
        self.note("epoch end")

    def on_test_begin(self, logs=None):
        self.note("test")

    def on_test_end(self, logs=None):
        self.note("after test")


def make(use_ema=True, policy=None, eager=False):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, dtype=policy)])
    optimizer = keras.optimizers.SGD(0.1, use_ema=use_ema, ema_momentum=0.9)
    model.compile(optimizer, "mse", run_eagerly=eager)
    return model


def train(callbacks, **options):
    model = make(**options)
    model.fit(
        X, Y, epochs=3, batch_size=4, shuffle=False, verbose=0, validation_data=(X, Y),
        callbacks=callbacks,
    )  # fmt: skip
    return model


def by_hand():
    """The kernel after each epoch, and its average, without the callback."""
    model = make()
    kernel = model.layers[0].kernel
    kernels, averages = [], []
    average = np.zeros_like(kernel.numpy())
    for _ in range(3):
        for i in range(0, 12, 4):
            model.train_on_batch(X[i : i + 4], Y[i : i + 4])
            now = kernel.numpy()
            first = not kernels and i == 0
            average = now.copy() if first else 0.9 * average + 0.1 * now
        kernels.append(kernel.numpy().copy())
        averages.append(average)
    return kernels, averages


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("on_epoch", [False, True])
def test_averages_are_in_the_model_where_they_should_be(eager, on_epoch):
    look = Look()
    model = train([keras.callbacks.SwapEMAWeights(on_epoch), look], eager=eager)
    kernels, averages = by_hand()
    close = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(look.seen["test"], averages, **close)
    np.testing.assert_allclose(look.seen["after test"], kernels, **close)
    np.testing.assert_allclose(look.seen["epoch end"], averages if on_epoch else kernels, **close)
    np.testing.assert_allclose(look.seen["epoch begin"][1:], kernels[:-1], **close)
    np.testing.assert_allclose(model.layers[0].kernel.numpy(), averages[-1], **close)
    assert not np.allclose(kernels[-1], averages[-1], atol=1e-3)


def test_evaluate_and_predict_use_the_averages():
    model = make()
    model.fit(X, Y, epochs=2, verbose=0)
    swap = keras.callbacks.SwapEMAWeights()
    model.train_on_batch(X, Y)
    raw = model.predict(X, verbose=0)
    averaged = model.predict(X, verbose=0, callbacks=[swap])
    assert not np.allclose(raw, averaged, atol=1e-4)
    np.testing.assert_array_equal(model.predict(X, verbose=0), raw)
    loss = model.evaluate(X, Y, verbose=0, callbacks=[swap])
    np.testing.assert_allclose(loss, np.mean((averaged - Y) ** 2), rtol=1e-5)


def test_an_error_while_averages_are_in_gives_the_weights_back():
    class Fail(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            raise RuntimeError("on purpose")

    model = make()
    model.fit(X, Y, verbose=0)
    model.train_on_batch(X, Y)
    before = model.layers[0].kernel.numpy().copy()
    with pytest.raises(RuntimeError, match="on purpose"):
        model.evaluate(X, Y, verbose=0, callbacks=[keras.callbacks.SwapEMAWeights(), Fail()])
    np.testing.assert_array_equal(model.layers[0].kernel.numpy(), before)


def test_state_says_whether_the_averages_are_in():
    model = make()
    model.fit(X, Y, verbose=0)
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    swap.set_model(model)
    swap.on_epoch_end(0)
    assert swap.get_state() == {"averages_swapped": True}
    model.optimizer.averages_swapped = False  # as in a fresh process
    swap.set_state({"averages_swapped": True})
    swap.on_epoch_begin(1)
    assert swap.get_state() == {"averages_swapped": False}


def test_an_optimizer_without_averages_is_told_of_at_once():
    with pytest.raises(ValueError, match="SGD keeps no averages; .* use_ema=True"):
        train([keras.callbacks.SwapEMAWeights()], use_ema=False)


def test_loss_scaling_is_looked_through():
    model = make()
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, use_ema=True))
    model.compile(scaled, "mse")
    swap = keras.callbacks.SwapEMAWeights()
    model.fit(X, Y, verbose=0, validation_data=(X, Y), callbacks=[swap])
    assert swap.get_state() == {"averages_swapped": False}
