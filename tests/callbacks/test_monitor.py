"""Monitor: which way is better, and what is said about names that are not there."""

from __future__ import annotations

import operator
import warnings
from types import SimpleNamespace as Metric

import numpy as np
import pytest

from kerasish.callbacks import EarlyStopping, ModelCheckpoint, ReduceLROnPlateau


def direction(monitor, metrics=(), make_model=None, logs=None):
    stopping = EarlyStopping(monitor)
    stopping.set_model(make_model(metrics=metrics))
    stopping.get_monitor_value(logs if logs is not None else {monitor: 1.0})
    return {operator.gt: "max", operator.lt: "min"}[stopping.monitor_op]


@pytest.mark.parametrize(
    ("monitor", "metrics", "mode"),
    [
        ("loss", (), "min"),
        ("val_loss", (), "min"),
        ("out_loss", (), "min"),
        ("val_accuracy", (), "max"),
        ("acc", (), "max"),
        ("out_auc", (), "max"),
        ("val_f1_score", (), "max"),
        ("mae", (), "min"),
        ("val_kappa", (Metric(name="kappa", direction="up"),), "max"),
        ("out_kappa", (Metric(name="kappa", direction="up"),), "max"),
        ("kappa", (Metric(name="kappa", direction="down"),), "min"),
        ("kappa", (Metric(metrics=[Metric(name="kappa", direction="up")]),), "max"),
        # The metric knows better than its name.
        ("accuracy", (Metric(name="accuracy", direction="down"),), "min"),
    ],
)
def test_auto(monitor, metrics, mode, make_model):
    assert direction(monitor, metrics, make_model) == mode


@pytest.mark.parametrize("metrics", [(), (Metric(name="kappa"),)])
def test_auto_that_cannot_tell(metrics, make_model):
    with pytest.raises(ValueError, match="cannot tell whether 'val_kappa' should go up or down"):
        direction("val_kappa", metrics, make_model)
    with pytest.raises(ValueError, match="Did you mean 'val_kappa'"):
        direction("val_kapa", metrics, make_model, {"val_kappa": 1.0})


@pytest.mark.parametrize(
    "make",
    [
        lambda: EarlyStopping(mode="high"),
        lambda: ReduceLROnPlateau(mode="high"),
        lambda: ModelCheckpoint("a.keras", mode="high"),
    ],
)
def test_unknown_mode_falls_back_to_auto(make):
    with pytest.warns(UserWarning, match="got 'high'; going on with 'auto'"):
        assert make().mode == "auto"


def test_missing_name_is_told_once_a_run(attach):
    stopping = attach(EarlyStopping("val_acuracy", mode="max"))
    logs = {"loss": 1.0, "accuracy": 0.5, "val_accuracy": 0.5}
    expected = "Available: accuracy, loss, val_accuracy. Did you mean 'val_accuracy'"
    with pytest.warns(UserWarning, match=expected):
        stopping.on_epoch_end(0, logs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopping.on_epoch_end(1, logs)
    stopping.on_train_begin()
    with pytest.warns(UserWarning, match=expected):
        stopping.on_epoch_end(0, logs)


def test_missing_validation_is_named(attach):
    with pytest.warns(UserWarning, match="need validation data"):
        attach(EarlyStopping()).on_epoch_end(0, {"loss": 1.0})


@pytest.mark.parametrize("value", [np.ones(3), [1.0, 2.0], "high", None])
def test_value_must_be_one_number(value, attach):
    with pytest.raises(ValueError, match="'loss' must be a single number"):
        attach(EarlyStopping("loss")).on_epoch_end(0, {"loss": value})


@pytest.mark.parametrize("value", [np.float32(0.5), np.array([0.5]), 0.5])
def test_numbers_of_all_kinds(value, attach):
    stopping = attach(EarlyStopping("loss"))
    stopping.on_epoch_end(0, {"loss": value})
    assert stopping.best == 0.5
    assert type(stopping.best) is float


def test_late_numbers(late, attach):
    stopping = attach(EarlyStopping("loss"))
    stopping.on_epoch_end(0, {"loss": late(0.25)})
    assert stopping.best == 0.25


def test_a_number_beats_nan_but_not_the_other_way(attach):
    stopping = attach(EarlyStopping("loss", patience=5))
    for epoch, value in enumerate([float("nan"), 3.0, float("nan"), 2.0]):
        stopping.on_epoch_end(epoch, {"loss": value})
    assert (stopping.best, stopping.best_epoch, stopping.wait) == (2.0, 3, 0)
