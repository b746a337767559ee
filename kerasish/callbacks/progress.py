"""Progress of a run: a bar while it runs on a terminal, and a line when it is done."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.values import input_wait_of, plain
from kerasish.reprs import arguments_repr

_LEAST_WIDTH = 4  # columns: a narrower bar says nothing
_LEAST_WAIT, _LEAST_SHARE = 0.1, 0.1  # seconds, and of an epoch: what is shown of its waiting
LINE_BYTES = 199  # fewer than 200 bytes including the end of the line


class Bar:
    """The progress of one task: drawn live on a terminal or in a notebook, and one final line.

    Args:
        label: the task, such as "Epoch 1/10"; "" for none.
        target: number of steps, None if unknown.
        verbose: 1 for the bar and the line, 2 for only the line, 0 for neither.
        unit: what a step is called.
        width: columns of the bar.
        interval: least time between two drawings, in seconds.
    """

    def __init__(
        self,
        label: str,
        target: int | None,
        verbose: int = 1,
        unit: str = "step",
        width: int = 20,
        interval: float = 0.1,
    ) -> None:
        self.label, self.target, self.verbose = label, target, verbose
        self.unit, self.width, self.interval = unit, width, interval
        self.current = 0
        self._start = time.perf_counter()
        self._drawn = -math.inf
        self._live = open_live(self) if verbose == 1 and is_live() else None

    def update(self, current: int, text: Callable[[], str]) -> None:
        """Report that `current` steps are done; `text` is called only if it is drawn."""
        self.current = current
        if self._live is None or not self.verbose:
            return
        now = time.perf_counter()
        if now - self._drawn < self.interval:
            return
        self._drawn = now
        self._live.set_postfix_str(text(), refresh=False)
        if self.target and not in_notebook():
            self._fit(self._live)
        self._live.update(current - self._live.n)

    def _fit(self, live: Any) -> None:
        """Let the bar itself, not the values, give way where a terminal has too few columns."""
        shown = {**live.format_dict, "n": self.current}
        if shown["ncols"]:
            plain = {**shown, "ncols": None, "bar_format": bar_format(True, "")}
            left = shown["ncols"] - len(live.format_meter(**plain)) - 2  # 2: "|" at both ends
            width = min(self.width, left)
            drawn = f"{{bar:{width}}}" if width >= _LEAST_WIDTH else ""
            live.bar_format = bar_format(True, drawn)

    def finish(self, text: str) -> None:
        """Replace the bar by the final line."""
        self.release(leave=False)
        if not self.verbose:
            return
        line = self.line(text)
        print(line if is_live() else shortened(line, LINE_BYTES), flush=True)

    def line(self, text: str) -> str:
        """Return "Epoch 1/10 - 375/375 - 1.2s - 3.2ms/step - loss: 0.1234"."""
        seconds = time.perf_counter() - self._start
        done = f"{self.current}/{self.target or self.current}"
        parts = [self.label, done, readable(seconds)]
        if self.current:
            parts.append(f"{readable(seconds / self.current)}/{self.unit}")
        return " - ".join(part for part in [*parts, text] if part)

    def release(self, leave: bool = True) -> None:
        """Close the live bar, and leave it on the screen or clear it."""
        if self._live is not None:
            self._live.leave = leave
            self._live.close()
            self._live = None


def is_live() -> bool:
    """Whether standard output can be redrawn: a terminal, or a notebook's cell."""
    return bool(getattr(sys.stdout, "isatty", lambda: False)()) or in_notebook()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def open_live(bar: Bar) -> Any:
    """Return a tqdm bar for `bar`: the widget in notebooks."""
    if in_notebook():
        from tqdm.auto import tqdm

        drawn, width = "{bar}", {"dynamic_ncols": True}  # the widget draws it, as wide as the cell
    else:
        from tqdm import tqdm

        drawn, width = f"{{bar:{bar.width}}}", columns()
    return tqdm(
        desc=f"{bar.label} " if bar.label else "",
        total=bar.target,
        unit=bar.unit,
        file=sys.stdout,
        leave=False,
        mininterval=0,
        miniters=1,
        bar_format=bar_format(bool(bar.target), drawn),
        **width,
    )


def bar_format(has_target: bool, drawn: str) -> str:
    """Return tqdm's format of a line: label, bar, steps, times, values.

    Args:
        has_target: whether the number of steps is known; if not, there is no bar.
        drawn: tqdm's format of the bar; "" leaves it out.

    Example:
        >>> bar_format(True, "{bar:9}")
        '{desc}{percentage:3.0f}%|{bar:9}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]'
    """
    if not has_target:
        return "{desc}{n_fmt} [{elapsed}{postfix}]"
    bar = f"|{drawn}|" if drawn else ""
    times = "[{elapsed}<{remaining}{postfix}]"
    return f"{{desc}}{{percentage:3.0f}}%{bar} {{n_fmt}}/{{total_fmt}} {times}"


def columns() -> dict[str, Any]:
    """Return tqdm's arguments for the width: that of the window, or 80 if it is unknown."""
    try:
        known = os.get_terminal_size(sys.stdout.fileno()).columns > 0
    except (OSError, ValueError, AttributeError):
        known = False
    return {"dynamic_ncols": True} if known else {"ncols": 80, "nrows": 24}


def readable(seconds: float) -> str:
    """Return a time in words of about three digits.

    Example:
        >>> [readable(s) for s in (0.00012, 0.0345, 5.21, 75, 7300)]
        ['120us', '34ms', '5.2s', '1m15s', '2h01m']
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f}us"
    if seconds < 0.01:
        return f"{seconds * 1e3:.1f}ms"
    if seconds < 1:
        return f"{seconds * 1e3:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes}m{round(seconds) % 60:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def shortened(line: str, limit: int) -> str:
    """Return `line` without control characters, cut to fewer than `limit` bytes between values."""
    line = "".join(c for c in line if c.isprintable())
    if len(line.encode()) < limit:
        return line
    cut = line.encode()[: limit - 5].decode(errors="ignore")
    return cut.rsplit(" - ", 1)[0] + " ..."


def formatted(logs: Mapping[str, Any]) -> str:
    """Return "loss: 0.1234 - accuracy: 0.9876 - val_loss: 0.2": losses first, validation last.

    Example:
        >>> formatted({"accuracy": 0.75, "val_loss": 2e-5, "loss": 0.5})
        'loss: 0.5000 - accuracy: 0.7500 - val_loss: 2.0000e-05'
    """

    def place(name: str) -> tuple[bool, bool]:
        return name.startswith("val_"), name.removeprefix("val_") != "loss"

    return " - ".join(f"{name}: {number(logs[name])}" for name in sorted(logs, key=place))


def number(value: Any) -> str:
    """Return a value of the logs with four decimals, or in scientific form up to 0.001."""
    value = plain(value)
    if isinstance(value, (np.ndarray, list, tuple)):
        value = np.mean(value).item()
    if value is None or isinstance(value, str):
        return str(value)
    return f"{value:.4f}" if abs(value) > 1e-3 else f"{value:.4e}"


class ProgbarLogger(Callback):
    """Shows the progress of `fit`, `evaluate` and `predict` on standard output.

    On a terminal or in a notebook it draws a bar with the remaining time and running values, and
    replaces it after the epoch by one line. Elsewhere it prints only that line, shorter than 200
    bytes and without control codes. `verbose` of `fit`: 0 nothing, 1 or "auto" as described, 2 only
    the lines everywhere. The line of an epoch of training says how much of its time was spent
    waiting for data, if that is more than 10 % and more than 0.1 s.

    Example:
        >>> import numpy as np
        >>> import kerasish
        >>> model = kerasish.Sequential([kerasish.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.ones((4, 2)), np.ones((4, 1))
        >>> _ = model.fit(x, y, verbose=0, callbacks=[ProgbarLogger()])  # verbose=1: the bar
    """

    everywhere = False

    every_batch = False

    def __init__(self) -> None:
        super().__init__()
        self._in_fit = False
        self._bar: Bar | None = None
        self._steps: int | None = None  # of the bar
        self._counted: int | None = None  # steps of the first epoch, if unknown before

    @property
    def verbose(self) -> int:
        """0, 1 or 2; "auto" is 1."""
        verbose = (self.params or {}).get("verbose", 1)
        return 1 if verbose == "auto" else int(verbose)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._in_fit = True
        self._counted = None

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        epochs = (self.params or {}).get("epochs")
        self._open(f"Epoch {epoch + 1}/{epochs}" if epochs else f"Epoch {epoch + 1}")

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._update(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        waited, total = input_wait_of(self.model)
        shown = waited > max(_LEAST_WAIT, _LEAST_SHARE * total)
        self._finish(logs, f"waiting for data: {waited / total:.0%}" if shown else "")

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._release()

    def on_test_begin(self, logs: Logs | None = None) -> None:
        if not self._in_fit:
            self._open("Evaluate")

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if not self._in_fit:
            self._update(batch, logs)

    def on_test_end(self, logs: Logs | None = None) -> None:
        if not self._in_fit:
            self._finish(logs)

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._open("Predict")

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._update(batch, None)  # the logs are the outputs

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._finish(None)

    def _open(self, label: str) -> None:
        if self._bar is not None:
            self._bar.release()
        steps = (self.params or {}).get("steps") or (self._counted if self._in_fit else None)
        self._steps = steps
        self._bar = Bar(label, steps, self.verbose)

    def _update(self, batch: int, logs: Logs | None) -> None:
        if self._bar is not None:
            # The last execution of several steps is counted as complete.
            done = batch + 1 if self._steps is None else min(batch + 1, self._steps)
            self._bar.update(done, lambda: formatted(logs or {}))

    def _finish(self, logs: Logs | None, note: str = "") -> None:
        if self._bar is not None:
            self._counted = self._bar.current
            self._bar.finish(" - ".join(filter(None, [formatted(logs or {}), note])))
            self._bar = None

    def _release(self) -> None:
        self._in_fit = False
        if self._bar is not None:
            self._bar.release()
            self._bar = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_bar": None, "_in_fit": False}


class Progbar:
    """A progress bar for your own loops, with means of values over the steps so far.

    Args:
        target: number of steps, None if unknown.
        width: columns of the bar.
        verbose: 1 draws a bar on terminals, 2 only prints the line at the end, 0 neither.
        interval: least time between two drawings, in seconds.
        stateful_metrics: names shown as given; all others are averaged over steps.
        stateless_metrics: names averaged over steps; all others are shown as given.
        unit_name: what a step is called.

    Raises:
        ValueError: both stateful_metrics and stateless_metrics are given.

    Example:
        >>> bar = Progbar(3, verbose=2)
        >>> for step in range(3):
        ...     bar.update(step + 1, [("loss", 0.5)])
        3/3 - ... - .../step - loss: 0.5000
    """

    def __init__(
        self,
        target: int | None,
        width: int = 20,
        verbose: int = 1,
        interval: float = 0.05,
        stateful_metrics: Iterable[str] | None = None,
        stateless_metrics: Iterable[str] | None = None,
        unit_name: str = "step",
    ) -> None:
        if stateful_metrics is not None and stateless_metrics is not None:
            raise ValueError("Progbar: give stateful_metrics or stateless_metrics, not both")
        self.target = target
        self.width = width
        self.verbose = verbose
        self.interval = interval
        self.unit_name = unit_name
        self.stateful_metrics = set(stateful_metrics or ())
        self.stateless_metrics = None if stateless_metrics is None else set(stateless_metrics)
        self._sums: dict[str, tuple[float, int]] = {}  # name -> weighted sum, weight
        self._seen = 0
        self._bar: Bar | None = None

    def update(
        self,
        current: int,
        values: Iterable[tuple[str, Any]] | None = None,
        finalize: bool | None = None,
    ) -> None:
        """Show that `current` steps are done.

        Args:
            current: steps done in all.
            values: (name, value of the steps since the last call); in the last call as displayed.
            finalize: whether this is the last call; None: whether `current` has reached `target`.
        """
        if finalize is None:
            finalize = self.target is not None and current >= self.target
        for name, value in values or ():
            self._count(name, float(np.mean(plain(value))), current, finalize)
        self._seen = max(self._seen, current)
        if self._bar is None:
            self._bar = Bar(
                "", self.target, self.verbose, self.unit_name, self.width, self.interval
            )
        self._bar.update(current, self._text)
        if finalize:
            self._bar.target = self.target or current
            self._bar.finish(self._text())
            self._bar = None

    def add(self, n: int, values: Iterable[tuple[str, Any]] | None = None) -> None:
        """Show that `n` more steps are done."""
        self.update(self._seen + n, values)

    def _count(self, name: str, value: float, current: int, last: bool) -> None:
        averaged = (
            name not in self.stateful_metrics
            if self.stateless_metrics is None
            else name in self.stateless_metrics
        )
        if last or not averaged:
            self._sums[name] = (value, 1)
            return
        total, weight = self._sums.get(name, (0.0, 0))
        steps = max(current - self._seen, 1)
        self._sums[name] = (total + value * steps, weight + steps)

    def _text(self) -> str:
        means = {name: total / weight for name, (total, weight) in self._sums.items()}
        return " - ".join(f"{name}: {number(mean)}" for name, mean in means.items())

    __repr__ = arguments_repr
