"""History: lists of plain numbers."""

from __future__ import annotations

import json

import numpy as np

from kerasish.callbacks import History


def test_values_become_plain_numbers(attach, model, late):
    history = attach(History())
    assert model.history is history
    history.on_epoch_end(0, {"loss": late(0.5), "a": np.float32(0.25), "b": np.array([2.0])})
    history.on_epoch_end(1, {"loss": 0.25, "val_loss": 1})
    assert history.epoch == [0, 1]
    assert history.history == {"loss": [0.5, 0.25], "a": [0.25], "b": [2.0], "val_loss": [1]}
    assert json.loads(json.dumps(history.get_state()))["epoch"] == [0, 1]


def test_second_fit_goes_on(attach):
    history = attach(History())
    history.on_epoch_end(0, {"loss": 0.5})
    history.on_train_begin()
    history.on_epoch_end(1, {"loss": 0.25})
    assert (history.epoch, history.history) == ([1], {"loss": [0.5, 0.25]})
