"""EarlyStopping's and TerminateOnNaN's words; the decisions themselves are in test_decisions."""

from __future__ import annotations

import math

import pytest

from kerasish.callbacks import EarlyStopping, TerminateOnNaN


def test_messages(attach, model, capsys):
    stopping = attach(EarlyStopping("loss", patience=1, verbose=1, restore_best_weights=True))
    for epoch, loss in enumerate([0.5, 0.25, 0.75]):
        model.weight[...] = epoch
        stopping.on_epoch_end(epoch, {"loss": loss})
    stopping.on_train_end()
    assert capsys.readouterr().out == (
        "Epoch 3: stopped early, loss was best (0.25) in epoch 2\nRestored the weights of epoch 2\n"
    )
    assert model.weight == 1


def test_second_fit_starts_again(attach, model):
    stopping = attach(EarlyStopping("loss", restore_best_weights=True))
    stopping.on_epoch_end(0, {"loss": 0.5})
    stopping.on_epoch_end(1, {"loss": 0.5})
    assert model.stop_training
    stopping.on_train_begin()
    assert (stopping.wait, stopping.best, stopping.best_weights) == (0, None, None)
    assert stopping.stopped_epoch == 0


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_terminate(loss, attach, model, capsys):
    callback = attach(TerminateOnNaN())
    callback.on_train_batch_end(0, {"loss": 1.0})
    callback.on_train_batch_end(1, {"accuracy": math.nan})
    assert not model.stop_training
    callback.on_train_batch_end(2, {"loss": loss})
    assert model.stop_training
    assert capsys.readouterr().out == f"Batch 2: the loss is {loss}, training ends\n"


def test_terminate_with_an_error(attach, late):
    callback = attach(TerminateOnNaN(raise_error=True))
    with pytest.raises(RuntimeError, match="the loss is nan at batch 3"):
        callback.on_train_batch_end(3, {"loss": late(math.nan)})
