"""Callbacks that set the learning rate: LearningRateScheduler, ReduceLROnPlateau."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.message import say
from kerasish.callbacks.monitor import Monitor
from kerasish.callbacks.state_checks import is_count, is_number, maybe
from kerasish.callbacks.values import get_rate, plain, rated, rates, set_rate
from kerasish.tracebacks import keyword_hint

if TYPE_CHECKING:
    from kerasish.optimizers.optimizer import Optimizer


class LearningRateScheduler(Callback):
    """Sets the learning rate at each epoch's start: rate = schedule(epoch, rate).

    Args:
        schedule: a function of the epoch (from 0) and the current rate, or only of the epoch.
        verbose: 1 prints the rate at each epoch.

    Raises:
        ValueError: the schedule returned something other than a number.
        TypeError: the optimizer has its own learning-rate schedule.

    Example:
        >>> halving = LearningRateScheduler(lambda epoch, rate: rate * 0.5)
        >>> halving.schedule(0, 0.1)
        0.05
    """

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        super().__init__()
        self.schedule = schedule
        self.verbose = verbose

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        for _, optimizer in rated(self.model.optimizer):
            self._set(optimizer, epoch)

    def _set(self, optimizer: Optimizer, epoch: int) -> None:
        old = get_rate(optimizer)
        given = self.schedule(epoch, old) if takes_two(self.schedule) else self.schedule(epoch)
        rate = plain(given)
        if not isinstance(rate, numbers.Real) or isinstance(rate, bool):
            raise ValueError(
                f"LearningRateScheduler: the schedule must give a float, got {given!r} "
                f"for epoch {epoch}"
            )
        set_rate(optimizer, float(rate), "LearningRateScheduler")
        if self.verbose > 0:
            say(f"Epoch {epoch + 1}: learning rate set to {float(rate):.6g}")

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs.update(rates(self.model.optimizer))


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether `function` can be called with two positional arguments."""
    try:
        inspect.signature(function).bind(0, 0.0)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature: (epoch, rate) is the documented form
        return True
    return True


class ReduceLROnPlateau(Monitor):
    """Multiplies the learning rate by `factor` when `monitor` has stopped improving.

    Args:
        monitor: name of the watched log.
        factor: new rate / old rate, below 1.
        patience: the number of epochs without improvement before the rate is reduced.
        verbose: 1 prints each change.
        mode: "min", "max", or "auto" by the metric.
        min_delta: the smallest change that counts as an improvement.
        cooldown: the number of epochs after a change that are not counted.
        min_lr: the lower bound of the rate.
        **kwargs: accepted for older programs, without effect.

    Raises:
        ValueError: factor is 1 or more.
        TypeError: during training, if the optimizer has its own learning-rate schedule.

    Example:
        >>> plateau = ReduceLROnPlateau("val_loss", factor=0.2, patience=5)
        >>> plateau.in_cooldown()
        False
    """

    _state = ("best", "wait", "cooldown_counter")
    _checks = {"best": maybe(is_number), "wait": is_count, "cooldown_counter": is_count}

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 0.0001,
        cooldown: int = 0,
        min_lr: float = 0.0,
        **kwargs: Any,
    ) -> None:
        hint = keyword_hint(ReduceLROnPlateau.__init__, kwargs)
        if hint:
            raise TypeError(f"ReduceLROnPlateau: unexpected argument(s) {sorted(kwargs)}.{hint}")
        super().__init__(monitor, mode, min_delta)
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, got {factor}")
        self.factor = factor
        self.patience = patience
        self.verbose = verbose
        self.cooldown = cooldown
        self.min_lr = min_lr
        self._reset()

    def _reset(self) -> None:
        self.best = None
        self.wait = 0
        self.cooldown_counter = 0

    def in_cooldown(self) -> bool:
        """Whether epochs are not counted because the rate was changed recently."""
        return self.cooldown_counter > 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        super().on_train_begin(logs)
        self._reset()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self.get_monitor_value(logs)
        if logs is not None:
            logs.update(rates(self.model.optimizer))
        if value is None:
            return
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self._is_improvement(value, self.best):
            self.best = value
            self.wait = 0
        elif not self.in_cooldown():
            self.wait += 1
            if self.wait >= self.patience:
                self._reduce(epoch)

    def _reduce(self, epoch: int) -> None:
        changed = [self._reduce_one(one, epoch) for _, one in rated(self.model.optimizer)]
        if any(changed):
            self.cooldown_counter = self.cooldown
            self.wait = 0

    def _reduce_one(self, optimizer: Optimizer, epoch: int) -> bool:
        """Reduce the optimizer's rate if it is above `min_lr`; return whether it was."""
        old = get_rate(optimizer)
        # The rate is a float32: after it is set to min_lr, it must not count as above that.
        if old <= self.min_lr or math.isclose(old, self.min_lr, rel_tol=1e-6):
            return False
        rate = max(old * self.factor, self.min_lr)
        set_rate(optimizer, rate, "ReduceLROnPlateau")
        if self.verbose > 0:
            say(f"Epoch {epoch + 1}: {self.monitor} rests, learning rate {old:.6g} -> {rate:.6g}")
        return True
