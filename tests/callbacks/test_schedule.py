"""LearningRateScheduler and ReduceLROnPlateau: setting rates."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish.callbacks import LearningRateScheduler, ReduceLROnPlateau


class Decay:
    """Takes the place of a LearningRateSchedule object."""

    def __call__(self, step):
        return 0.1 * 0.5**step


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (lambda epoch, rate: rate * 0.5, [0.25, 0.125]),
        (lambda epoch: 0.5 ** (epoch + 3), [0.125, 0.0625]),
        (lambda epoch, rate=None: 1.0 if rate else 2.0, [1.0, 1.0]),
        (lambda *args: np.float32(len(args)), [2.0, 2.0]),
        (lambda epoch: np.array(0.5), [0.5, 0.5]),
        (lambda epoch: 1, [1.0, 1.0]),
    ],
)
def test_scheduler(schedule, rates, attach, model):
    scheduler = attach(LearningRateScheduler(schedule))
    for epoch, rate in enumerate(rates):
        logs = {}
        scheduler.on_epoch_begin(epoch)
        assert model.optimizer.rate == rate
        scheduler.on_epoch_end(epoch, logs)
        assert logs == {"learning_rate": rate}


@pytest.mark.parametrize("wrong", ["0.1", None, [0.1], np.ones(2), True])
def test_scheduler_must_give_a_number(wrong, attach, model):
    scheduler = attach(LearningRateScheduler(lambda epoch: wrong))
    with pytest.raises(ValueError, match="must give a float"):
        scheduler.on_epoch_begin(0)
    assert model.optimizer.rate == 0.5


def test_an_error_inside_the_schedule_is_the_users(attach):
    with pytest.raises(TypeError, match="unsupported operand"):
        attach(LearningRateScheduler(lambda epoch, rate: rate + "")).on_epoch_begin(0)


def test_messages(attach, capsys):
    attach(LearningRateScheduler(lambda epoch: 0.25, verbose=1)).on_epoch_begin(1)
    plateau = attach(ReduceLROnPlateau("loss", patience=1, verbose=1))
    for epoch in range(2):
        plateau.on_epoch_end(epoch, {"loss": 1.0})
    assert capsys.readouterr().out == (
        "Epoch 2: learning rate set to 0.25\nEpoch 2: loss rests, learning rate 0.25 -> 0.025\n"
    )


def test_a_schedule_object_cannot_be_set(make_model, attach):
    model = make_model(rate=Decay())
    with pytest.raises(TypeError, match="follows a Decay; give the optimizer a number"):
        attach(LearningRateScheduler(lambda epoch: 0.1), model).on_epoch_begin(0)
    plateau = attach(ReduceLROnPlateau("loss", patience=0), model)
    logs = {"loss": 1.0}
    plateau.on_epoch_end(0, logs)
    assert logs["learning_rate"] == 0.1 * 0.5**3
    with pytest.raises(TypeError, match="ReduceLROnPlateau: cannot set"):
        plateau.on_epoch_end(1, {"loss": 1.0})


def test_without_an_optimizer(model, attach):
    model.optimizer = None
    with pytest.raises(ValueError, match="compile the model first"):
        attach(LearningRateScheduler(abs)).on_epoch_begin(0)


def test_factor_must_be_below_one():
    with pytest.raises(ValueError, match=r"factor must be below 1, got 1\.0"):
        ReduceLROnPlateau(factor=1.0)


def test_old_keywords_are_taken():
    assert ReduceLROnPlateau(epsilon=1.0).min_delta == 0.0001
