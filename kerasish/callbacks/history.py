"""History: the logs of each epoch, which `fit` returns."""

from __future__ import annotations

from typing import Any

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.curves import plot_curves
from kerasish.callbacks.progress import number
from kerasish.callbacks.state_checks import check_values, dict_of, is_count, list_of
from kerasish.callbacks.values import input_wait_of, plain
from kerasish.tables import html_table
from kerasish.typing import PathLike

_MOST_ROWS = 20  # of the table in notebooks


class History(Callback):
    """Each epoch's logs in lists: `history["loss"][i]` belongs to the i-th epoch run.

    Attributes:
        history: {name: [value of each epoch]}; a later `fit` with the same object appends to it.
        epoch: the epochs of the latest `fit`, from 0.
        input_wait: for each epoch that the latest `fit` has run in this process, the share of its
            time, 0 to 1, in which training waited for the next batch.

    Example:
        >>> history = History()
        >>> history.on_epoch_end(0, {"loss": 0.5})
        >>> history.history
        {'loss': [0.5]}
    """

    def __init__(self) -> None:
        super().__init__()
        self.epoch: list[int] = []
        self.history: dict[str, list[Any]] = {}
        self.input_wait: list[float] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.epoch, self.input_wait = [], []
        if self.model is not None:
            self.model.history = self

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(plain(value))
        waited, total = input_wait_of(self.model)
        self.input_wait.append(waited / total if total else 0.0)

    def plot(
        self, names: str | None = None, path: PathLike | None = None, show: bool | None = None
    ) -> Any:
        """Plot the logs over epochs, training and validation together, with Matplotlib.

        Args:
            names: the logs to plot ("loss", "accuracy" ...); None: all of them.
            path: a file to write.
            show: whether to open a window; None: if no `path` is given.

        Returns:
            Matplotlib's figure.

        Raises:
            ValueError: there is no epoch yet.
            UnknownNameError: the logs have no such name; the message lists the nearest ones.
            ImportError: Matplotlib is not installed (extra `plot`).
        """
        return plot_curves(self.history, names, path, show)

    def __repr__(self) -> str:
        epochs = max(map(len, self.history.values()), default=0)
        last = ", ".join(f"{name}={number(v[-1])}" for name, v in self.history.items() if v)
        return f"<History of {epochs} epochs{': ' if last else ''}{last}>"

    def _repr_html_(self) -> str:
        epochs = max(map(len, self.history.values()), default=0)
        whole = {name: v for name, v in self.history.items() if len(v) == epochs}
        first = max(0, epochs - _MOST_ROWS)
        rows = [
            [str(epoch + 1), *(number(v[epoch]) for v in whole.values())]
            for epoch in range(first, epochs)
        ]
        notes = [f"The last {_MOST_ROWS} of {epochs} epochs; plot() draws all."] if first else []
        for name, v in self.history.items():
            if name not in whole and v:
                notes.append(f"{name}: {number(v[-1])}, the last of {len(v)}")
        titles = ["epoch", *whole]
        return html_table(f"History of {epochs} epochs", titles, rows, notes, numeric=titles)

    def get_state(self) -> dict[str, Any]:
        return {
            "epoch": list(self.epoch),
            "history": {name: list(values) for name, values in self.history.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        checks = {"epoch": list_of(is_count), "history": dict_of(list_of(lambda value: True))}
        check_values("the state of History", state, checks)
        self.epoch = list(state["epoch"])
        self.history = {name: list(values) for name, values in state["history"].items()}
