"""The decisions of Keras 3.15.1 on random series, recorded once, are ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kerasish.callbacks import EarlyStopping, ModelCheckpoint, ReduceLROnPlateau

FACTS = json.loads(
    (Path(__file__).parents[1] / "data" / "callback_decisions.json").read_text("utf-8")
)


def logs_of(value):
    """None in a series is an epoch whose logs lack the watched value."""
    return {"y": 0.0} if value is None else {"x": value}


def numbered(name):
    return [pytest.param(fact, id=str(i)) for i, fact in enumerate(FACTS[name])]


@pytest.mark.filterwarnings("ignore:.*have no 'x'")
@pytest.mark.parametrize("fact", numbered("early_stopping"))
def test_early_stopping(fact, model):
    stopping = EarlyStopping("x", **fact["args"])
    stopping.set_model(model)
    stopping.on_train_begin()
    waits, stop = [], None
    for epoch, value in enumerate(fact["series"]):
        model.weight[...] = epoch + 1  # in place, as an engine trains
        stopping.on_epoch_end(epoch, logs_of(value))
        waits.append(stopping.wait)
        if model.stop_training:
            stop = epoch
            break
    stopping.on_train_end()
    assert (waits, stop) == (fact["waits"], fact["stop"])
    assert (stopping.best, stopping.best_epoch) == (fact["best"], fact["best_epoch"])
    assert stopping.stopped_epoch == fact["stopped_epoch"]
    assert model.weight == fact["weight"]


@pytest.mark.filterwarnings("ignore:.*have no 'x'")
@pytest.mark.parametrize("fact", numbered("reduce_lr_on_plateau"))
def test_reduce_lr_on_plateau(fact, model):
    plateau = ReduceLROnPlateau("x", **fact["args"])
    plateau.set_model(model)
    plateau.on_train_begin()
    rates, waits, cooldowns, logged = [], [], [], []
    for epoch, value in enumerate(fact["series"]):
        logs = logs_of(value)
        plateau.on_epoch_end(epoch, logs)
        rates.append(model.optimizer.rate)
        waits.append(plateau.wait)
        cooldowns.append(plateau.cooldown_counter)
        logged.append(logs["learning_rate"])
    assert waits == fact["waits"]
    assert cooldowns == fact["cooldowns"]
    np.testing.assert_allclose(rates, fact["rates"], rtol=1e-6)
    np.testing.assert_allclose(logged, fact["logged"], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*have no 'x'")
@pytest.mark.parametrize("fact", numbered("model_checkpoint"))
def test_model_checkpoint(fact, model, tmp_path):
    by_epoch = fact["args"]["save_freq"] == "epoch"
    name = "{epoch:02d}.keras" if by_epoch else "{epoch:02d}-{batch}.keras"
    checkpoint = ModelCheckpoint(tmp_path / name, "x", **fact["args"])
    checkpoint.set_model(model)
    checkpoint.on_train_begin()
    for i, value in enumerate(fact["series"]):
        epoch, batch = (i, 0) if by_epoch else divmod(i, 4)  # epochs of four batches
        if batch == 0:
            checkpoint.on_epoch_begin(epoch)
        checkpoint.on_train_batch_end(batch, {"x": 5.0} if by_epoch else logs_of(value))
        if by_epoch or batch == 3:
            checkpoint.on_epoch_end(epoch, logs_of(value))
    assert model.saved == fact["saved"]
    assert checkpoint.best == fact["best"]
    assert {p.name for p in tmp_path.iterdir()} == set(fact["saved"])
