"""Callbacks are accepted by their methods: objects of other packages, with any part of them."""

from __future__ import annotations

import types

import numpy as np
import pytest

import kerasish as keras

X = np.ones((8, 2), "float32")
Y = np.ones((8, 1), "float32")


def trained(callbacks, **kwargs):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model, model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=callbacks, **kwargs)


class Full:
    """All that Keras calls, without a base class."""

    def __init__(self):
        self.calls = []

    def set_model(self, model):
        self.model = model

    def set_params(self, params):
        self.params = params

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *args: self.calls.append(name)


def test_an_object_with_all_methods_gets_each_call():
    full = Full()
    model, _ = trained([full], validation_split=0.5)
    assert full.model is model
    assert full.params["epochs"] == 2
    assert full.calls[0] == "on_train_begin" and full.calls[-1] == "on_train_end"
    assert full.calls.count("on_epoch_end") == 2
    assert full.calls.count("on_train_batch_end") == 2
    assert full.calls.count("on_test_batch_end") == 2


def test_one_method_is_enough():
    seen = []
    report = types.SimpleNamespace(on_epoch_end=lambda epoch, logs=None: seen.append(logs["loss"]))
    _, history = trained([report])
    assert seen == history.history["loss"]


def test_it_can_end_the_training():
    class Stop:
        def set_model(self, model):
            self.model = model

        def on_train_batch_end(self, batch, logs):
            self.model.stop_training = True

    _, history = trained([Stop()])
    assert len(history.epoch) == 1


def test_old_names_of_batch_hooks_are_called():
    seen = []
    trained([types.SimpleNamespace(on_batch_end=lambda batch, logs: seen.append(batch))])
    assert seen == [0, 1, 0, 1]


def test_without_batch_hooks_no_call_per_batch_is_needed():
    class Base:
        def on_train_batch_end(self, batch, logs=None): ...

        def on_epoch_end(self, epoch, logs=None): ...

    Base.__module__ = "keras.src.callbacks.callback"
    Base.on_train_batch_end.__module__ = Base.__module__
    Base.on_train_batch_end.__qualname__ = "Callback.on_train_batch_end"

    class Mine(Base):
        def on_epoch_end(self, epoch, logs=None): ...

    class Batches(Base):
        def on_train_batch_end(self, batch, logs=None): ...

    assert not keras.callbacks.CallbackList([Mine()]).wants_batches("train")
    assert keras.callbacks.CallbackList([Batches()]).wants_batches("train")


def test_the_object_says_whether_it_needs_every_batch():
    report = types.SimpleNamespace(on_train_batch_end=lambda batch, logs: None, every_batch=False)
    assert not keras.callbacks.CallbackList([report]).wants_batches("train")


@pytest.mark.parametrize("wrong", [3, "on_epoch_end", object()])
def test_other_objects_are_refused(wrong):
    with pytest.raises(TypeError, match=r"methods such as on_epoch_end.*give it the methods"):
        trained([wrong])


def test_a_class_is_refused():
    class Report:
        def on_epoch_end(self, epoch, logs): ...

    with pytest.raises(TypeError, match=r"got the class Report; write Report\(\)"):
        trained([Report])


def test_an_error_names_the_class_of_the_user():
    class Bad:
        def on_epoch_end(self, epoch, logs):
            raise KeyError("no")

    with pytest.raises(KeyError) as caught:
        trained([Bad()])
    notes = getattr(caught.value, "__notes__", ["raised in Bad.on_epoch_end"])  # Python 3.11
    assert "raised in Bad.on_epoch_end" in notes
