"""BackupAndRestore: Keras's interface to `Resume`, with Keras's arguments and files."""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any

from kerasish.callbacks.checkpoint import checked_frequency
from kerasish.callbacks.resume import Resume
from kerasish.errors import ResumeError
from kerasish.ranks import divides_slots, from_writer, writes_here

if TYPE_CHECKING:
    from kerasish.callbacks.callback import Callback
    from kerasish.engine.data.data import Data


RECORD = "training_metadata.json"
WEIGHTS = "latest.weights.h5"
RESERVE = ".bkp"


class BackupAndRestore(Resume):
    """Saves the state of the training; the next `fit` continues exactly there, as with `Resume`.

    In addition to the training states, the folder contains Keras's files: the weights in
    "latest.weights.h5", the position in "training_metadata.json". A folder that Keras itself wrote
    is resumed at the beginning of the epoch that it names.

    Args:
        backup_dir: the folder, for this run only; created if missing.
        save_freq: "epoch", or a number of batches.
        double_checkpoint: whether to keep Keras's two files of the previous backup, too, as
            "….bkp". Two training states are always kept.
        delete_checkpoint: whether to delete the backup when training ends well.

    Raises:
        ValueError: backup_dir is empty, save_freq is invalid, or all states are damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     callback = BackupAndRestore(folder, save_freq=100)
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        if not backup_dir:
            raise ValueError("BackupAndRestore: backup_dir must name a folder, got ''")
        self.save_freq = checked_frequency(save_freq, "BackupAndRestore")
        every = None if isinstance(self.save_freq, str) else self.save_freq
        super().__init__(backup_dir, every, seconds=None, background=False)
        self.backup_dir = self.directory
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint

    def begin(self, calls: Callback, data: Data, seed: int, epoch: int) -> tuple[int, int]:
        """Take the callbacks; return the (epoch, batch) to start at."""
        if self._past is None:
            if divides_slots() and from_writer(lambda: os.path.exists(self._path(RECORD))):
                raise ResumeError(
                    f"BackupAndRestore: the backup in {self.backup_dir!r} is Keras's, which only "
                    "rank 0 reads, but the optimizer's slots are divided among the ranks "
                    "(shard_optimizer=True). Call model.load_weights() on all ranks before fit(), "
                    "and name another folder."
                )
            epoch = from_writer(lambda: self._epoch_of_keras(epoch))
        return super().begin(calls, data, seed, epoch)

    def _epoch_of_keras(self, epoch: int) -> int:
        return self._load_of_keras() if os.path.exists(self._path(RECORD)) else epoch

    def _load_of_keras(self) -> int:
        """Load a backup that Keras wrote; return its epoch."""
        path = self._path(RECORD)
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
            epoch, batch = int(record["epoch"]), int(record["batch"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"BackupAndRestore: {path!r} is not a record of a backup ({error!r}); "
                "delete the folder to start over"
            ) from error
        self.model.load_weights(self._path(WEIGHTS))
        warnings.warn(
            f"BackupAndRestore: the backup in {self.backup_dir!r} is Keras's, which keeps only "
            f"weights and place. Training continues at epoch {epoch + 1}"
            f"{', its first batches are done again' if batch else ''}.",
            stacklevel=4,
        )
        return epoch

    def _write(self, state: dict[str, Any]) -> None:
        super()._write(state)
        record = self._path(RECORD)
        if self.double_checkpoint:
            for path in (self._path(WEIGHTS), record):
                if os.path.exists(path):
                    os.replace(path, path + RESERVE)
        self.model.save_weights(self._path(WEIGHTS), overwrite=True)
        with open(record + ".new", "w", encoding="utf-8") as file:
            json.dump({"epoch": state["epoch"], "batch": state["batch"]}, file)
        os.replace(record + ".new", record)

    def close(self) -> None:
        """Delete the backup, unless it should be kept or covers more epochs than `fit` runs."""
        if not self.delete_checkpoint or self._holds_more() or not writes_here():
            return
        for name in (RECORD, WEIGHTS):
            for ending in ("", RESERVE, ".new"):
                if os.path.exists(self._path(name + ending)):
                    os.remove(self._path(name + ending))
        self._folder.remove()

    def _path(self, name: str) -> str:
        return os.path.join(self.backup_dir, name)
