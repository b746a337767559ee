"""Callbacks that pass the logs on: CSVLogger to a file, LambdaCallback to functions."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from kerasish.callbacks.callback import HOOKS, Callback, Logs
from kerasish.callbacks.state_checks import check_values, is_count, is_text, list_of, maybe
from kerasish.callbacks.values import plain
from kerasish.errors import UnknownNameError


class CSVLogger(Callback):
    """Writes a row per epoch: epoch, then the logs in alphabetical order, then the val_ logs.

    The columns are those of the first epoch, or of the file that is appended to; a missing value is
    NA. If the first epoch did not validate, empty columns are reserved for val_.

    Args:
        filename: the file; replaced after the first epoch, unless `append`.
        separator: one character.
        append: whether to append to an existing file.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.csv")
        >>> logger = CSVLogger(path)
        >>> logger.on_train_begin()
        >>> logger.on_epoch_end(0, {"loss": 0.5, "val_loss": 0.75})
        >>> logger.on_train_end()
        >>> print(path.read_text().strip())
        epoch,loss,val_loss
        0,0.5,0.75
    """

    everywhere = False

    def __init__(
        self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False
    ) -> None:
        super().__init__()
        self.filename = os.fspath(filename)
        self.sep = separator
        self.append = append
        self.keys: list[str] | None = None
        self._file: TextIO | None = None
        self._start: int | None = None  # byte at which the next row goes; None is the end
        self._warned = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._release()
        # Opened now, so that a wrong path shows before hours of work; emptied with the first row,
        # so that a run that ends before it leaves the old file.
        self._file = open(self.filename, "a+", newline="", encoding="utf-8")  # noqa: SIM115
        self._warned = False
        self.keys = self._read_header() if self.append else None
        self._start = None if self.append else 0

    def _read_header(self) -> list[str] | None:
        assert self._file is not None
        self._file.seek(0)
        header = next(csv.reader(self._file, delimiter=self.sep), None)
        return header[1:] if header and header[0] == "epoch" else None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = logs or {}
        if self._file is None:
            raise RuntimeError(f"CSVLogger: {self.filename!r} is not open; call on_train_begin")
        if self._start is not None:
            self._file.truncate(self._start)
            self._start = None
        writer = csv.writer(self._file, delimiter=self.sep)
        if self.keys is None:
            self.keys = columns(logs)
            if os.fstat(self._file.fileno()).st_size == 0:
                writer.writerow(["epoch", *self.keys])
        writer.writerow([epoch, *(cell(logs[k]) if k in logs else "NA" for k in self.keys)])
        self._file.flush()
        self._warn_of_missing(logs)

    def _warn_of_missing(self, logs: Logs) -> None:
        missing = sorted(set(logs) - set(self.keys or ()))
        if missing and not self._warned:
            self._warned = True
            warnings.warn(
                f"CSVLogger: {self.filename!r} has no columns for {', '.join(missing)}, "
                f"which appeared after its header was written",
                stacklevel=2,
            )

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._release()

    def get_state(self) -> dict[str, Any]:
        """Return the columns and the length of the file in bytes."""
        size = os.path.getsize(self.filename) if os.path.exists(self.filename) else 0
        return {"keys": self.keys, "position": size if self._start is None else self._start}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at `position`: later rows, of epochs that run again, are dropped."""
        check_values(
            "the state of CSVLogger", state,
            {"keys": maybe(list_of(is_text)), "position": is_count},
        )  # fmt: skip
        size = os.path.getsize(self.filename) if os.path.exists(self.filename) else 0
        if size < state["position"]:
            raise ValueError(
                f"CSVLogger: {self.filename!r} has {size} bytes, but had {state['position']} "
                f"when the state was taken"
            )
        self.keys = state["keys"] and list(state["keys"])
        self._start = state["position"]

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_file": None}


def columns(logs: Logs) -> list[str]:
    """Return the sorted names of `logs`, followed by val_ names if it has none."""
    names = sorted(logs)
    if any(name.startswith("val_") for name in names):
        return names
    return names + [f"val_{name}" for name in names]


def cell(value: object) -> Any:
    """Return the text of `value` in the file: lists as "[1, 2]" in quotes."""
    value = plain(value)
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return f'"[{", ".join(map(str, value))}]"'
    return value


class LambdaCallback(Callback):
    """Calls the given functions at the hooks of the same names.

    Args:
        on_epoch_begin, on_epoch_end: functions of (epoch, logs); None: nothing.
        on_train_begin, on_train_end: functions of (logs); None: nothing.
        on_train_batch_begin, on_train_batch_end: functions of (batch, logs); None: nothing.
        **kwargs: functions for the other hooks (`on_test_begin=...`); other names become
            attributes.

    Raises:
        UnknownNameError: a name starts with "on_" but is not that of a hook.

    Example:
        >>> printer = LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["loss"]))
        >>> printer.on_epoch_end(0, {"loss": 0.5})
        0 0.5
    """

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        given = {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
            **kwargs,
        }
        for name, value in given.items():
            if name.startswith("on_") and name not in HOOKS:
                raise UnknownNameError.of("hook of LambdaCallback", name, HOOKS)
            # A hook that is not given stays that of the class, so no batches are needed for it.
            if value is not None or name not in HOOKS:
                setattr(self, name, value)
