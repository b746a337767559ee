"""ModelCheckpoint: saves the model or its weights during training."""

from __future__ import annotations

import contextlib
import copy
import os
import string
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from kerasish.callbacks.background import Background
from kerasish.callbacks.callback import Logs
from kerasish.callbacks.message import say
from kerasish.callbacks.monitor import Monitor
from kerasish.callbacks.state_checks import is_count, is_number, is_text, list_of, maybe
from kerasish.callbacks.values import plain
from kerasish.optimizers.division import gathered
from kerasish.ranks import writes_here

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


class ModelCheckpoint(Monitor):
    """Saves after each epoch or every `save_freq` batches, always or only after an improvement.

    Args:
        filepath: the path. `{epoch}` and `{batch}` (from 1) and the names of the logs are replaced
            as by `str.format`: "best-{epoch:02d}-{val_loss:.2f}.keras".
        monitor: the log that is compared with save_best_only.
        verbose: 1 prints a line for each file.
        save_best_only: whether to save only if `monitor` improved. An epoch whose logs lack it
            saves only if no value has been seen before.
        save_weights_only: `model.save_weights` (".weights.h5") instead of `model.save` (".keras").
        mode: "min", "max", or "auto" by the metric.
        save_freq: "epoch", or a number of batches, counted over epochs.
        initial_value_threshold: the value that the first one must beat, with save_best_only;
            None: none.
        keep: the number of files to keep, >= 1; older ones are deleted after a newer one is
            complete. None: all. `kerasish.saving.latest(folder)` finds the latest complete one.
        background: whether a thread writes the file, from a copy of the model, during training.
            At most one file is written at a time; an error is raised at one of the next batches,
            and `fit` ends after the last file is written.

    Raises:
        ValueError: the suffix of filepath, save_freq or keep is invalid.
        KeyError: filepath names a log that does not exist.

    Example:
        >>> checkpoint = ModelCheckpoint("best.keras", monitor="loss", save_best_only=True)
        >>> checkpoint.wants_batches("train")
        False
    """

    everywhere = False
    saves_optimizer = True

    _state = ("best", "_batches_since", "_last_batch", "_epoch", "_kept")
    _checks = {
        "best": maybe(is_number), "_batches_since": is_count, "_last_batch": is_number,
        "_epoch": is_count, "_kept": list_of(is_text),
    }  # fmt: skip

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
        *,
        keep: int | None = None,
        background: bool = False,
    ) -> None:
        super().__init__(monitor, mode)
        self.filepath = os.fspath(filepath)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_weights_only = save_weights_only
        self.save_freq = checked_frequency(save_freq, "ModelCheckpoint")
        self.best = initial_value_threshold
        self._batches_since = 0
        self._last_batch = -1  # of this epoch
        self._epoch = 0
        self.keep, self.background = keep, bool(background)
        self._kept: list[str] = []
        self._thread = Background("kerasish-checkpoint")
        # In the background, batch hooks only check for errors: a few calls per second suffice.
        self.every_batch = self.save_freq != "epoch"
        self._check_ending()
        self._check_keep()

    def _check_ending(self) -> None:
        endings = (".weights.h5",) if self.save_weights_only else (".keras", ".h5")
        if not self.filepath.endswith(endings):
            raise ValueError(
                f"ModelCheckpoint: with save_weights_only={self.save_weights_only} filepath must "
                f"end in {' or '.join(map(repr, endings))}, got {self.filepath!r}"
            )

    def _check_keep(self) -> None:
        keep = self.keep
        if keep is None:
            return
        if not isinstance(keep, int) or keep < 1:
            raise ValueError(
                f"ModelCheckpoint: keep is a number of files >= 1 or None, got {keep!r}"
            )
        if keep > 1 and not self._has_fields():
            raise ValueError(
                f"ModelCheckpoint: keep={keep} needs a filepath that changes, such as "
                f"'model-{{epoch}}.keras', got {self.filepath!r}"
            )

    def _has_fields(self) -> bool:
        return any(field for _, field, _, _ in string.Formatter().parse(self.filepath))

    def _idle(self) -> tuple[str, ...]:
        ours = type(self).on_train_batch_end is ModelCheckpoint.on_train_batch_end
        nothing = self.save_freq == "epoch" and not self.background
        return ("on_train_batch_end",) if ours and nothing else ()

    def wants_batches(self, mode: str) -> bool:
        # A subclass that defines batch hooks needs all batches.
        ours = type(self).on_train_batch_end is ModelCheckpoint.on_train_batch_end
        return super().wants_batches(mode) if ours else self.wants_updates(mode)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        super().on_train_begin(logs)
        if self._has_fields() and writes_here():  # else the next save clears the one name there is
            self.model.remove_partial_saves(self.filepath)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch, self._last_batch = epoch, -1

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self._should_save_on_batch(batch):
            self._save_model(self._epoch, batch, logs)

    # These have Keras's names: subclasses in other packages call them.

    @property
    def _current_epoch(self) -> int:
        return self._epoch

    def _should_save_on_batch(self, batch: int) -> bool:
        """Count the batch; return whether the model must be saved after it."""
        self._thread.check()
        if self.save_freq == "epoch":
            return False
        # With steps_per_execution, one call counts for several batches.
        self._batches_since += batch - self._last_batch
        self._last_batch = batch
        if self._batches_since < int(self.save_freq):
            return False
        self._batches_since = 0
        return True

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            self._save_model(epoch, None, logs)

    def _save_model(self, epoch: int, batch: int | None, logs: Logs | None) -> None:
        path = self._get_file_path(epoch, batch, logs or {})
        better = self._judge(epoch, path, logs) if self.save_best_only else ""
        if better is None:
            return
        if writes_here():
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        outdated = self._keep(path)
        if self.background:
            self._thread.wait()
            with gathered(self.model, "ModelCheckpoint") as writes:
                if writes:
                    self._thread.start(partial(self._write, self._copied(), path, outdated))
        else:
            self._write(self.model, path, outdated)
        if self.verbose > 0 and writes_here():
            done = "is being saved" if self.background else "saved"
            say(f"Epoch {epoch + 1}: {better}{done} to {path}")

    def _keep(self, path: str) -> list[str]:
        """Add `path` to the files; return those that must be deleted."""
        if self.keep is None:
            return []
        known = [p for p in self._kept if p != path]
        self._kept = [*known, path][-self.keep :]
        return [p for p in known if p not in self._kept]

    def _copied(self) -> Model:
        """Return a copy of the model that shares its arrays, which are never written to."""
        try:
            return copy.deepcopy(self.model)
        except Exception as error:
            raise ValueError(
                f"ModelCheckpoint: background=True saves a copy of the model, which cannot be "
                f"copied: {error}"
            ) from error

    def _write(self, model: Model, path: str, outdated: list[str]) -> None:
        if self.save_weights_only:
            model.save_weights(path, overwrite=True)
        else:
            model.save(path, overwrite=True)
        for old in outdated if writes_here() else ():
            with contextlib.suppress(FileNotFoundError):  # deleted by the run before the crash
                os.remove(old)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._thread.wait()

    def _is_working(self) -> bool:
        return self._thread.busy

    def flush_state(self) -> None:
        self._thread.wait()

    def _release(self) -> None:
        self._thread.wait()

    def _judge(self, epoch: int, path: str, logs: Logs | None) -> str | None:
        """Return a text about the improvement, or None if nothing should be saved."""
        try:
            value = self.get_monitor_value(logs)
        except ValueError as error:
            if self.monitor not in (logs or {}) or self.monitor_op is None:
                raise
            warnings.warn(f"{error}; saving without comparing", stacklevel=2)
            return ""
        if value is None:  # save if there is no file yet, but do not replace the best one
            return "" if self.best is None else None
        old = self.best
        if not self._is_improvement(value, old):
            if self.verbose > 0 and writes_here():
                say(f"Epoch {epoch + 1}: {self.monitor} {value:.5g} is not better than {old:.5g}")
            return None
        self.best = value
        before = "" if old is None else f" (before {old:.5g})"
        return f"{self.monitor} {value:.5g} is the best{before}, "

    def _get_file_path(self, epoch: int, batch: int | None, logs: Logs) -> str:
        if not self._has_fields():
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
    """Return `save_freq` if it is "epoch" or an integer >= 1; raise otherwise."""
    whole = isinstance(save_freq, int) and not isinstance(save_freq, bool) and save_freq >= 1
    if save_freq != "epoch" and not whole:
        raise ValueError(
            f"{who}: save_freq must be 'epoch' or a number of batches >= 1, got {save_freq!r}"
        )
    return save_freq
