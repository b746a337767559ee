"""BackupAndRestore: a run that was cut off goes on where its last backup stands."""

from __future__ import annotations

import json
import os
import re
import warnings
from typing import Any

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.checkpoint import checked_frequency

RECORD = "training_metadata.json"
WEIGHTS = re.compile(r"backup-\d+\.weights\.h5")


class BackupAndRestore(Callback):
    """Saves the weights and the place in training; the next `fit` begins there.

    At each moment, also after `kill -9`, the folder holds one whole backup: the weights go to a
    new file, then the record that names it replaces the old one in one step, then the old weights
    go. At the start of `fit` the weights are loaded and `model._initial_epoch` and
    `model._initial_batch` say where the loop has to begin.

    Args:
        backup_dir: the folder, for this run alone; made if missing.
        save_freq: "epoch", or a number of batches.
        double_checkpoint: whether to keep the backup before the last as well, as a reserve.
        delete_checkpoint: whether to delete the backup when training ends well.

    Raises:
        ValueError: backup_dir is empty, save_freq is none of the above, or the backup is damaged.
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        if not backup_dir:
            raise ValueError("BackupAndRestore: backup_dir must name a folder, got ''")
        self.backup_dir = os.fspath(backup_dir)
        self.save_freq = checked_frequency(save_freq, "BackupAndRestore")
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self._epoch = 0
        self._batches_since = 0
        self._backups: list[dict[str, Any]] = []  # latest first

    def _idle(self) -> tuple[str, ...]:
        ours = type(self).on_train_batch_end is BackupAndRestore.on_train_batch_end
        return ("on_train_batch_end",) if ours and self.save_freq == "epoch" else ()

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._batches_since = 0
        self._backups = self._read()
        if self._backups:
            place = self._load()
            self._epoch = place["epoch"]
            self.model._initial_epoch = place["epoch"]
            self.model._initial_batch = place["batch"]

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            return
        self._batches_since += 1
        if self._batches_since >= int(self.save_freq):
            self._batches_since = 0
            self._save(self._epoch, batch + 1)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch + 1, 0)

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.delete_checkpoint and self._backups:
            os.remove(self._path(RECORD))
            self._backups = []
            self._sweep()
            if not os.listdir(self.backup_dir):
                os.rmdir(self.backup_dir)

    def _save(self, epoch: int, batch: int) -> None:
        os.makedirs(self.backup_dir, exist_ok=True)
        number = self._backups[0]["number"] + 1 if self._backups else 0
        name = f"backup-{number}.weights.h5"
        self.model.save_weights(self._path(name), overwrite=True)
        flush_to_disk(self._path(name))
        backup = {"epoch": epoch, "batch": batch, "number": number, "weights": name}
        kept = [backup, *self._backups][: 2 if self.double_checkpoint else 1]
        replace_json(self._path(RECORD), {**backup, "previous": kept[1:]})
        self._backups = kept
        self._sweep()

    def _load(self) -> dict[str, Any]:
        """Load the latest backup that can be loaded and return its place."""
        failures = []
        for i, backup in enumerate(self._backups):
            try:
                self.model.load_weights(self._path(backup["weights"]))
            except (OSError, ValueError, KeyError) as error:
                failures.append(error)
                continue
            if failures:
                warnings.warn(
                    f"BackupAndRestore: the latest backup in {self.backup_dir!r} is damaged "
                    f"({failures[0]}); took the one before",
                    stacklevel=2,
                )
            self._backups = self._backups[i:]
            return backup
        raise ValueError(
            f"BackupAndRestore: cannot load the backup in {self.backup_dir!r}: {failures[0]}; "
            f"delete the folder to start anew"
        ) from failures[0]

    def _read(self) -> list[dict[str, Any]]:
        """Return the backups that the record names, latest first."""
        path = self._path(RECORD)
        if not os.path.exists(path):
            return []
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
            previous = record.pop("previous")
            return [
                {
                    "epoch": int(backup["epoch"]),
                    "batch": int(backup["batch"]),
                    "number": int(backup["number"]),
                    "weights": os.path.basename(backup["weights"]),
                }
                for backup in [record, *previous]
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"BackupAndRestore: {path!r} is not a record of a backup ({error!r}); "
                f"delete the folder to start anew"
            ) from error

    def _sweep(self) -> None:
        """Delete the weights that no record names: replaced ones, those of a save cut off."""
        named = {backup["weights"] for backup in self._backups}
        for name in os.listdir(self.backup_dir):
            if WEIGHTS.fullmatch(name) and name not in named:
                os.remove(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.backup_dir, name)


def replace_json(path: str, record: dict[str, Any]) -> None:
    """Write `record` to `path` so that at each moment the old file or the new one is there."""
    written = path + ".new"
    with open(written, "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(written, path)


def flush_to_disk(path: str) -> None:
    """Make sure that the bytes of `path` survive a loss of power."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
