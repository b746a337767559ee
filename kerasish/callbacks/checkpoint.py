"""ModelCheckpoint: saves the model, or its weights, while it trains."""

from __future__ import annotations

import os
import string
import warnings
from typing import Any

from kerasish.callbacks.callback import Logs
from kerasish.callbacks.message import say
from kerasish.callbacks.monitor import Monitor
from kerasish.callbacks.values import plain


class ModelCheckpoint(Monitor):
    """Saves at each epoch's end, or each `save_freq` batches: all, or only what is better.

    Args:
        filepath: where to; `{epoch}` and `{batch}` (from 1) and the names of the logs are filled
            in as by `str.format`: "best-{epoch:02d}-{val_loss:.2f}.keras".
        monitor: the log that says which is better, with save_best_only.
        verbose: 1 says each file.
        save_best_only: whether to save only if `monitor` got better. Epochs without it in their
            logs save as long as there is nothing to compare with.
        save_weights_only: `model.save_weights` (".weights.h5") instead of `model.save` (".keras").
        mode: "min", "max", or "auto" by the metric.
        save_freq: "epoch", or a number of batches, counted over epochs.
        initial_value_threshold: what the first value has to beat, with save_best_only.

    Raises:
        ValueError: the ending of filepath or save_freq is none of the above.
        KeyError: filepath asks for a log that does not exist.

    Example:
        >>> checkpoint = ModelCheckpoint("best.keras", monitor="loss", save_best_only=True)
        >>> checkpoint.wants_batches("train")
        False
    """

    _state = ("best", "_batches_since", "_epoch")

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
    ) -> None:
        super().__init__(monitor, mode)
        self.filepath = os.fspath(filepath)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_weights_only = save_weights_only
        self.save_freq = checked_frequency(save_freq, "ModelCheckpoint")
        self.best = initial_value_threshold
        self._batches_since = 0
        self._epoch = 0
        self._check_ending()

    def _check_ending(self) -> None:
        endings = (".weights.h5",) if self.save_weights_only else (".keras", ".h5")
        if not self.filepath.endswith(endings):
            raise ValueError(
                f"ModelCheckpoint: with save_weights_only={self.save_weights_only} filepath must "
                f"end in {' or '.join(map(repr, endings))}, got {self.filepath!r}"
            )

    def _idle(self) -> tuple[str, ...]:
        ours = type(self).on_train_batch_end is ModelCheckpoint.on_train_batch_end
        return ("on_train_batch_end",) if ours and self.save_freq == "epoch" else ()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            return
        self._batches_since += 1
        if self._batches_since >= int(self.save_freq):
            self._batches_since = 0
            self._save(self._epoch, batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, None, logs)

    def _save(self, epoch: int, batch: int | None, logs: Logs | None) -> None:
        path = self._format(epoch, batch, logs or {})
        better = self._judge(epoch, path, logs) if self.save_best_only else ""
        if better is None:
            return
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if self.save_weights_only:
            self.model.save_weights(path, overwrite=True)
        else:
            self.model.save(path, overwrite=True)
        if self.verbose > 0:
            say(f"Epoch {epoch + 1}: {better}saved to {path}")

    def _judge(self, epoch: int, path: str, logs: Logs | None) -> str | None:
        """Return what got better, in words, or None if nothing is to be saved."""
        try:
            value = self.get_monitor_value(logs)
        except ValueError as error:
            if self.monitor not in (logs or {}) or self.monitor_op is None:
                raise
            warnings.warn(f"{error}; saving without comparing", stacklevel=2)
            return ""
        if value is None:  # better any file than none, but not in the place of the best
            return "" if self.best is None else None
        old = self.best
        if not self._is_improvement(value, old):
            if self.verbose > 0:
                say(f"Epoch {epoch + 1}: {self.monitor} {value:.5g} is not better than {old:.5g}")
            return None
        self.best = value
        before = "" if old is None else f" (before {old:.5g})"
        return f"{self.monitor} {value:.5g} is the best{before}, "

    def _format(self, epoch: int, batch: int | None, logs: Logs) -> str:
        if not any(field for _, field, _, _ in string.Formatter().parse(self.filepath)):
            return self.filepath
        fields: dict[str, Any] = {name: plain(value) for name, value in logs.items()}
        fields["epoch"] = epoch + 1
        if batch is not None:
            fields["batch"] = batch + 1
        try:
            return self.filepath.format(**fields)
        except KeyError as error:
            raise KeyError(
                f"ModelCheckpoint: filepath {self.filepath!r} asks for {error}, "
                f"but there are: {', '.join(sorted(fields))}"
            ) from error


def checked_frequency(save_freq: Any, who: str) -> str | int:
    """Return "epoch" or a whole number of batches >= 1; anything else is an error."""
    whole = isinstance(save_freq, int) and not isinstance(save_freq, bool) and save_freq >= 1
    if save_freq != "epoch" and not whole:
        raise ValueError(
            f"{who}: save_freq must be 'epoch' or a number of batches >= 1, got {save_freq!r}"
        )
    return save_freq  # type: ignore[no-any-return]
