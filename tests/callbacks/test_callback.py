"""Callback: the hooks, what it wants of the engine, copies."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from package_values import package_values

from kerasish import callbacks
from kerasish.callbacks import Callback, CallbackList, CSVLogger, LambdaCallback, ModelCheckpoint
from kerasish.callbacks.callback import HOOKS


class OldName(Callback):
    def on_batch_end(self, batch, logs=None):
        self.seen = batch


class Content(Callback):
    every_batch = False

    def on_train_batch_end(self, batch, logs=None): ...


class NoSuper(Callback):
    def __init__(self):
        self.mine = 1


def test_model_and_params():
    callback = NoSuper()
    assert callback.model is None
    assert callback.params is None
    callback.set_model("model")
    callback.set_params({"epochs": 3})
    assert callback.model == "model"
    assert callback.params == {"epochs": 3}


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_does_nothing(hook):
    args = (0, {}) if "batch" in hook or "epoch" in hook else ({},)
    assert getattr(Callback(), hook)(*args) is None


def test_old_name_of_batch_hook():
    callback = OldName()
    callback.on_train_batch_end(7)
    assert callback.seen == 7


@pytest.mark.parametrize(
    ("callback", "batches", "updates"),
    [
        (Callback(), set(), set()),
        (OldName(), {"train"}, {"train"}),
        (Content(), set(), {"train"}),
        (callbacks.ProgbarLogger(), set(), {"train", "test", "predict"}),
        (callbacks.TerminateOnNaN(), set(), {"train"}),
        (callbacks.EarlyStopping(), set(), set()),
        (ModelCheckpoint("a.keras"), set(), set()),
        (ModelCheckpoint("a.keras", save_freq=5), {"train"}, {"train"}),
        (ModelCheckpoint("a.keras", background=True), set(), {"train"}),
        (callbacks.Resume("r", every=1), set(), set()),
        (callbacks.BackupAndRestore("b"), set(), set()),
        (callbacks.BackupAndRestore("b", save_freq=5), set(), set()),
        (LambdaCallback(on_epoch_end=print), set(), set()),
        (LambdaCallback(on_test_batch_end=print), {"test"}, {"test"}),
        (CallbackList([Callback(), Content()]), set(), {"train"}),
        (CallbackList([OldName(), Content()]), {"train"}, {"train"}),
    ],
)
def test_who_wants_batches(callback, batches, updates):
    modes = ("train", "test", "predict")
    assert {mode for mode in modes if callback.wants_batches(mode)} == batches
    assert {mode for mode in modes if callback.wants_updates(mode)} == updates


def test_a_subclass_of_checkpoint_that_looks_at_batches_gets_them():
    class Looking(ModelCheckpoint):
        def on_train_batch_end(self, batch, logs=None): ...

    assert Looking("a.keras").wants_batches("train")


# Arguments of the callbacks that cannot be made without; a new one that can needs no line here.
ARGUMENTS = {
    "BackupAndRestore": ("b",), "CSVLogger": ("log.csv",), "LambdaCallback": (print,),
    "LearningRateScheduler": (abs,), "ModelCheckpoint": ("a.keras",), "Resume": ("c",),
    "TensorBoard": ("logs",),
}  # fmt: skip


def made():
    public = {n: c for n, c in package_values(callbacks).items() if isinstance(c, type)}
    names = sorted(public.keys() - {"Callback", "CallbackList"})
    return [public[name](*ARGUMENTS.get(name, ())) for name in names]


def test_every_callback_is_in_the_tests_of_copies():
    assert {"EarlyStopping", *ARGUMENTS} <= {type(c).__name__ for c in made()}


@pytest.mark.parametrize("callback", made(), ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_a_copy_has_the_settings_but_no_model(callback, duplicate):
    callback.set_model(object())  # what cannot be pickled in a model must not matter
    twin = duplicate(callback)
    assert twin.model is None
    assert callback.model is not None
    assert {k: v for k, v in vars(twin).items() if k != "_model"} == {
        k: v for k, v in vars(callback).items() if k != "_model"
    }


def test_copy_of_an_open_logger(tmp_path, attach):
    logger = attach(CSVLogger(tmp_path / "log.csv"))
    twin = copy.deepcopy(logger)
    assert twin._file is None
    logger.on_train_end()


@pytest.mark.parametrize("callback", made(), ids=lambda c: type(c).__name__)
def test_state_returns_to_a_new_object(callback, attach, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = callback.get_state()
    twin = copy.deepcopy(callback)
    twin.set_state(state)
    assert twin.get_state() == state


def test_foreign_state_is_refused():
    with pytest.raises(ValueError, match=r"expected a state with .*'wait'.*got \['x'\]"):
        callbacks.EarlyStopping().set_state({"x": 1})


def test_early_stopping_goes_on_from_its_state(model, make_model, attach):
    def run(stopping, series, first=0):
        for epoch, value in enumerate(series, first):
            stopping.model.weight[...] = epoch
            stopping.on_epoch_end(epoch, {"loss": value})

    series = [0.5, 0.3, 0.4, 0.4, 0.4]
    whole = attach(callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True))
    run(whole, series)
    first = attach(whole.__class__("loss", patience=3, restore_best_weights=True), make_model())
    run(first, series[:3])
    second = attach(whole.__class__("loss", patience=3, restore_best_weights=True), make_model())
    second.set_state(first.get_state())
    run(second, series[3:], 3)
    assert (second.wait, second.best, second.stopped_epoch) == (3, 0.3, 4)
    assert second.get_state().keys() == whole.get_state().keys()
    assert whole.stopped_epoch == second.stopped_epoch
    np.testing.assert_array_equal(second.best_weights[0], whole.best_weights[0])
