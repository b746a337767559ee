"""Monitor: watches one value of the logs and detects when it improves."""

from __future__ import annotations

import difflib
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kerasish import tree
from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.values import plain
from kerasish.errors import levels_to_user

# For names that no metric of the model claims (a train_step's own logs): the ends of names.
HIGHER = (
    "acc",
    "accuracy",
    "auc",
    "f1",
    "f1_score",
    "fbeta_score",
    "iou",
    "mean_iou",
    "mean_io_u",
    "precision",
    "recall",
    "r2",
    "r2_score",
    "cosine_similarity",
)
LOWER = (
    "loss",
    "mse",
    "mae",
    "rmse",
    "mape",
    "msle",
    "mean_squared_error",
    "mean_absolute_error",
    "root_mean_squared_error",
    "crossentropy",
    "kl_divergence",
)


class Monitor(Callback):
    """Watches the log `monitor`; `mode` "min" or "max" says what is better, "auto" decides.

    Args:
        monitor: a name of the logs, such as "val_loss".
        mode: "auto" decides by the model's metric of that name, or else by the name.
        min_delta: the smallest change that counts as an improvement, >= 0.

    Attributes:
        best: the best value so far, None before the first.
        monitor_op: `operator.lt` or `operator.gt` once known.
    """

    def __init__(
        self, monitor: str = "val_loss", mode: str = "auto", min_delta: float = 0.0
    ) -> None:
        super().__init__()
        if mode not in ("auto", "min", "max"):
            warnings.warn(
                f"{type(self).__name__}: mode must be 'auto', 'min' or 'max', got {mode!r}; "
                f"going on with 'auto'",
                stacklevel=levels_to_user(),
            )
            mode = "auto"
        self.monitor = monitor
        self.mode = mode
        self.min_delta = abs(min_delta)
        self.best: float | None = None
        self.monitor_op = {"min": operator.lt, "max": operator.gt}.get(mode)
        self._warned = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._warned = False

    def get_monitor_value(self, logs: Logs | None) -> float | None:
        """Return the watched value; None, with one warning per run, if the logs lack it.

        Raises:
            ValueError: the value is not a single number, or it is unknown which way is better.
        """
        logs = logs or {}
        if self.monitor_op is None:
            self.monitor_op = self._find_direction(logs)
        if self.monitor not in logs:
            self._tell_missing(logs)
            return None
        value = plain(logs[self.monitor])
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{type(self).__name__}: {self.monitor!r} must be a single number, got {value!r}"
            ) from error

    def _is_improvement(self, value: float, reference: float | None) -> bool:
        """Whether `value` beats `reference` by over min_delta; any value beats None and NaN."""
        if reference is None:
            return True
        if math.isnan(reference):
            return not math.isnan(value)
        assert self.monitor_op is not None
        margin = self.min_delta if self.monitor_op is operator.gt else -self.min_delta
        return bool(self.monitor_op(value - margin, reference))

    def _find_direction(self, logs: Logs) -> Callable[[Any, Any], Any]:
        name = self.monitor.removeprefix("val_")
        result = by_metric(name, getattr(self.model, "metrics", [])) or by_name(name)
        if result is None:
            hint = "" if self.monitor in logs else " " + self._available(logs)
            raise ValueError(
                f"{type(self).__name__}: cannot tell whether {self.monitor!r} should go up or "
                f"down; pass mode='max' or mode='min'.{hint}"
            )
        return result

    def _tell_missing(self, logs: Logs) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{type(self).__name__}: the logs have no {self.monitor!r}, so that this does not "
                f"count. {self._available(logs)}",
                stacklevel=2,
            )

    def _available(self, logs: Logs) -> str:
        names = sorted(logs)
        text = f"Available: {', '.join(names) or 'nothing'}."
        if self.monitor.startswith("val_") and not any(n.startswith("val_") for n in names):
            return text + " Values with val_ need validation data in fit."
        near = difflib.get_close_matches(self.monitor, names, n=1, cutoff=0.4)
        return text + (f" Did you mean {near[0]!r}?" if near else "")


def by_metric(name: str, metrics: Sequence[Any]) -> Callable[[Any, Any], Any] | None:
    """Return `operator.gt` or `lt` by the metric `name`, with or without an output's name."""
    every = list(unfolded(metrics))
    exact = [m for m in every if getattr(m, "name", None) == name]
    ending = [m for m in every if name.endswith(f"_{getattr(m, 'name', None)}")]
    for metric in exact + ending:
        direction = getattr(metric, "direction", None)
        if direction in ("up", "down"):
            return operator.gt if direction == "up" else operator.lt
    return None


def unfolded(metrics: Sequence[Any]) -> Iterable[Any]:
    """Yield the single metrics in lists and in metrics that contain metrics."""
    for metric in tree.flatten(metrics):
        inner = getattr(metric, "metrics", None)
        if inner:
            yield from unfolded(inner)
        else:
            yield metric


def by_name(name: str) -> Callable[[Any, Any], Any] | None:
    """Return `operator.gt` or `lt` by a name such as "out_accuracy"; None if it is not known."""
    for names, result in ((HIGHER, operator.gt), (LOWER, operator.lt)):
        if any(name == known or name.endswith(f"_{known}") for known in names):
            return result
    return None
