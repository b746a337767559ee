"""Callbacks that end training: EarlyStopping, TerminateOnNaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.message import say
from kerasish.callbacks.monitor import Monitor
from kerasish.callbacks.state_checks import is_array, is_count, is_number, list_of, maybe
from kerasish.callbacks.values import plain


class EarlyStopping(Monitor):
    """Ends training when `monitor` has not improved for `patience` epochs.

    Args:
        monitor: name of the watched log.
        min_delta: the smallest change that counts as an improvement.
        patience: the number of epochs without improvement, >= 0.
        verbose: 1 prints when it stops and what it restores.
        mode: "min", "max", or "auto" by the metric.
        baseline: a value that an improvement must also beat to reset the patience; None: none.
        restore_best_weights: whether to end with the weights of the best epoch.
        start_from_epoch: the first epoch that is watched.

    Attributes:
        stopped_epoch: the epoch it stopped after, 0 if it did not.
        best, best_epoch, best_weights: the best so far; `best_weights` only if they are restored.

    Example:
        >>> stopping = EarlyStopping("loss", patience=2)
        >>> stopping.wait, stopping.best
        (0, None)
    """

    _state = ("wait", "stopped_epoch", "best", "best_epoch", "best_weights")
    _checks = {
        "wait": is_count, "stopped_epoch": is_count, "best": maybe(is_number),
        "best_epoch": is_count, "best_weights": maybe(list_of(is_array)),
    }  # fmt: skip

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience = patience
        self.verbose = verbose
        self.baseline = baseline
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = start_from_epoch
        self._reset()

    def _reset(self) -> None:
        self.wait = 0
        self.stopped_epoch = 0
        self.best = None
        self.best_epoch = 0
        self.best_weights: list[Any] | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        super().on_train_begin(logs)
        self._reset()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self.get_monitor_value(logs)
        if value is None or epoch < self.start_from_epoch:
            return
        self.wait += 1
        if self._is_improvement(value, self.best):
            self._keep(epoch, value)
        elif self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def _keep(self, epoch: int, value: float) -> None:
        self.best, self.best_epoch = value, epoch
        if self.restore_best_weights:
            # Copies, since the engine continues to write to the buffers of its arrays.
            self.best_weights = [np.array(w) for w in self.model.get_weights()]
        if self.baseline is None or self._is_improvement(value, self.baseline):
            self.wait = 0

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.stopped_epoch > 0 and self.verbose:
            say(
                f"Epoch {self.stopped_epoch + 1}: stopped early, {self.monitor} was best "
                f"({self.best:.5g}) in epoch {self.best_epoch + 1}"
            )
        if self.restore_best_weights and self.best_weights is not None:
            self.model.set_weights(self.best_weights)
            if self.verbose:
                say(f"Restored the weights of epoch {self.best_epoch + 1}")


class TerminateOnNaN(Callback):
    """Ends training when the loss is NaN or infinite.

    The loss in the logs is a running mean, in which a NaN stays until the end of the epoch. So it
    is noticed within a fraction of a second, without a check of each batch.

    Args:
        raise_error: whether to raise a RuntimeError instead of stopping.

    Example:
        >>> import numpy as np
        >>> import kerasish
        >>> model = kerasish.Sequential([kerasish.Input((1,)), kerasish.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> model.layers[0].set_weights([[[np.inf]], [0.0]])
        >>> data = np.ones((4, 1), "float32")
        >>> history = model.fit(data, data, epochs=9, verbose=0, callbacks=[TerminateOnNaN()])
        Batch 0: the loss is inf, training ends
        >>> len(history.epoch) < 9
        True
    """

    every_batch = False

    def __init__(self, raise_error: bool = False) -> None:
        super().__init__()
        self.raise_error = raise_error

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        loss = plain((logs or {}).get("loss"))
        if loss is None or math.isfinite(loss):
            return
        if self.raise_error:
            raise RuntimeError(f"the loss is {loss} at batch {batch}")
        self.model.stop_training = True
        say(f"Batch {batch}: the loss is {loss}, training ends")
