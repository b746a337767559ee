"""LiveMonitor: loss, gradients, activations and weights as running curves while a model trains."""

from __future__ import annotations

import html
import math
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.message import say
from kerasish.callbacks.progress import in_notebook, is_live, number
from kerasish.callbacks.values import plain
from kerasish.ranks import current_sharding

if TYPE_CHECKING:
    from kerasish.engine.training.probing import LayerState, Probe

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 32  # points of a curve that are shown
_KEPT = 512  # points of a curve that are kept; of more, every second one is dropped
_COLUMNS = ("gradient", "activation", "zeros", "weight")


class LiveMonitor(Callback):
    """Shows while a model trains how its losses, gradients, activations and weights run.

    A few times per second or less, a small separate step runs the model forward and back on the
    first rows of the first batch, as in inference, and changes nothing: the training gives the same
    numbers as without. It yields for each layer the norm of the gradient by its weights, the
    deviation of its results, the share of zeros among them and the norm of its weights; losses
    and metrics are those of the training. A terminal shows a line per curve and redraws them, a
    notebook draws curves. Where the output is neither, a block of lines is printed per epoch.

    In a training on several processes only losses and metrics are shown.

    Args:
        seconds: the least time between two checks, > 0.
        rows: rows of the batch that are checked, >= 1.
        share: the most of the training's time that it may take, 0 < share <= 1: after a check that
            took long the next one waits longer.
        verbose: 0 shows nothing; the curves are kept nevertheless.

    Attributes:
        curves: name -> its points: "loss" and the metrics, and "gradient", "activation", "zeros"
            or "weight" followed by "/" and the path of a layer.
        cost: the share of the training's time that the checks have taken so far.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> import numpy as np, kerasish as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
        >>> model.compile("sgd", "mse")
        >>> monitor = keras.callbacks.LiveMonitor(verbose=0)
        >>> _ = model.fit(np.ones((8, 2)), np.ones(8), epochs=3, verbose=0, callbacks=[monitor])
        >>> len(monitor.curves["loss"]) >= 3
        True
        >>> [name.partition("/")[0] for name in monitor.curves if name.endswith("out")]
        ['gradient', 'activation', 'zeros', 'weight']
    """

    every_batch = False
    everywhere = False

    def __init__(
        self, seconds: float = 0.5, rows: int = 32, share: float = 0.02, verbose: int = 1
    ) -> None:
        super().__init__()
        if not seconds > 0:
            raise ValueError(f"LiveMonitor: seconds is a number > 0, got {seconds!r}.")
        if not isinstance(rows, int) or rows < 1:
            raise ValueError(f"LiveMonitor: rows is a number >= 1, got {rows!r}.")
        if not 0 < share <= 1:
            raise ValueError(f"LiveMonitor: share is above 0 and at most 1, got {share!r}.")
        self.seconds, self.rows, self.share, self.verbose = seconds, rows, share, verbose
        self.curves: dict[str, list[float]] = {}
        self._begin()

    def _begin(self) -> None:
        self._probe: Probe | None = None
        self._display: Any = None
        self._drawn = 0  # lines on the terminal that the next view replaces
        self._due, self._spent, self._started = 0.0, 0.0, time.perf_counter()
        self._place = ""

    @property
    def needs_weights(self) -> bool:
        """Always False: the layers are looked at after the first step."""
        return False

    @property
    def cost(self) -> float:
        """The share of the training's time that the checks have taken so far."""
        return self._spent / max(time.perf_counter() - self._started, 1e-9)

    # --- hooks ------------------------------------------------------------------------------------

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.curves = {}
        self._begin()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch
        self._place = self._at(None)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._place = self._at(batch)
        if time.perf_counter() >= self._due:
            self._look(logs or {}, ended=False)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._place = f"{self._at(None)}, end"
        self._look(logs or {}, ended=True)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._probe = None
        self._drawn = 0
        self._display = None

    def _at(self, batch: int | None) -> str:
        epochs, steps = (self.params or {}).get("epochs"), (self.params or {}).get("steps")
        text = f"epoch {self._epoch + 1}" + (f"/{epochs}" if epochs else "")
        if batch is not None:
            text += f", batch {batch + 1}" + (f"/{steps}" if steps else "")
        return text

    # --- checks -----------------------------------------------------------------------------------

    def _look(self, logs: Logs, ended: bool) -> None:
        start = time.perf_counter()
        for name, value in logs.items():
            point = plain(value)
            if isinstance(point, (int, float)):
                self._add(name, float(point))
        for state in self._states():
            for column, value in zip(_COLUMNS, _shown(state)):
                if not math.isnan(value) or column == "activation":
                    self._add(f"{column}/{state.path}", value)
        if self.verbose:
            self._show(ended)
        now = time.perf_counter()
        self._spent += now - start
        self._due = now + max(self.seconds, (now - start) / self.share)

    def _states(self) -> list[LayerState]:
        sharding = current_sharding()
        if sharding is not None and sharding.group.size > 1:
            return []
        if self._probe is None:
            self._probe = self.model.training_program.probe(self.rows)
        return [] if self._probe is None else self._probe()

    def _add(self, name: str, value: float) -> None:
        points = self.curves.setdefault(name, [])
        points.append(value)
        if len(points) > _KEPT:
            del points[1:-1:2]

    # --- views ------------------------------------------------------------------------------------

    def _show(self, ended: bool) -> None:
        if in_notebook():
            self._show_in_notebook()
        elif is_live():
            limit = shutil.get_terminal_size().columns - 1  # a line that wraps would be two
            text = "\n".join(line[:limit] for line in self.text().splitlines())
            back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
            sys.stdout.write(f"{back}{text}\n")
            sys.stdout.flush()
            self._drawn = text.count("\n") + 1
        elif ended:
            say(self.text())

    def _show_in_notebook(self) -> None:
        from IPython.display import HTML, display

        view = HTML(self.html())
        if self._display is None:
            self._display = display(view, display_id=True)
        else:
            self._display.update(view)

    def _tables(self) -> tuple[list[str], list[str]]:
        """Return the names of losses and metrics, and the paths of layers."""
        paths = dict.fromkeys(n.partition("/")[2] for n in self.curves if _is_of_layer(n))
        return [n for n in self.curves if not _is_of_layer(n)], list(paths)

    def text(self) -> str:
        """Return the curves as lines of text, the latest number before each."""
        names, paths = self._tables()
        width = max((len(_name(p)) for p in [*names, *paths]), default=0)
        lines = [self._place]
        for name in names:
            points = self.curves[name]
            lines.append(f"{_name(name):{width}} {number(points[-1]):>10} {sparkline(points)}")
        if paths:
            heads = "".join(f" {c:<{_CELL}}" for c in _COLUMNS)
            lines.append(f"{'':{width}}{heads}".rstrip())
        for path in paths:
            cells = "".join(f" {self._cell(c, path):<{_CELL}}" for c in _COLUMNS)
            lines.append(f"{_name(path):{width}}{cells}".rstrip())
        return "\n".join(lines)

    def _cell(self, column: str, path: str) -> str:
        points = self.curves.get(f"{column}/{path}")
        if not points:
            return ""
        return f"{number(points[-1]):>9} {sparkline(points, _CELL - 10)}"

    def html(self) -> str:
        """Return the curves as an HTML table of drawings, without scripts."""
        names, paths = self._tables()
        parts = [f"<p>{html.escape(self._place)}</p><table>"]
        for name in names:
            drawn = _drawing(self.curves[name])
            parts.append(f"<tr><td>{html.escape(name)}</td><td>{drawn}</td></tr>")
        parts.append("</table><table>")
        if paths:
            parts.append("<tr><th></th>" + "".join(f"<th>{c}</th>" for c in _COLUMNS) + "</tr>")
        for path in paths:
            cells = [_drawing(self.curves.get(f"{column}/{path}", [])) for column in _COLUMNS]
            row = "".join(f"<td>{cell}</td>" for cell in cells)
            parts.append(f"<tr><td>{html.escape(path)}</td>{row}</tr>")
        return "".join([*parts, "</table>"])

    def _release(self) -> None:
        self._probe, self._display, self._drawn = None, None, 0

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_probe": None, "_display": None}


_CELL = 26  # characters of a column


def _shown(state: LayerState) -> tuple[float, float, float, float]:
    return state.gradient, state.deviation, state.zeros, state.weight


def _is_of_layer(name: str) -> bool:
    return name.partition("/")[0] in _COLUMNS and "/" in name


def _name(path: str) -> str:
    return path if len(path) <= 28 else f"…{path[-27:]}"


def sparkline(points: Sequence[float], width: int = _WIDTH) -> str:
    """Return points as a line of bars: the lowest "▁", the highest "█", "!" where not finite.

    Args:
        points: the numbers; of more than `width` the means of equal parts are shown.
        width: the most characters.

    Example:
        >>> sparkline([1, 2, 3, float("nan"), 8])
        '▁▂▃!█'
    """
    points = _thinned(points, width)
    finite = [p for p in points if math.isfinite(p)]
    if not finite:
        return "!" * len(points)
    low, high = min(finite), max(finite)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((p - low) * scale)] if math.isfinite(p) else "!" for p in points)


def _thinned(points: Sequence[float], width: int) -> list[float]:
    count = len(points)
    if count <= width:
        return list(points)
    edges = [i * count // width for i in range(width + 1)]
    return [sum(points[a:b]) / (b - a) for a, b in zip(edges, edges[1:])]


def _drawing(points: Sequence[float]) -> str:
    """Return a curve as SVG, with its latest number."""
    width, height = 140, 28
    if not points:
        return ""
    shown = _thinned(points, width)
    finite = [p for p in shown if math.isfinite(p)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (height - 4) / (high - low) if high > low else 0.0
    step = width / max(len(shown) - 1, 1)
    places = " ".join(
        f"{i * step:.1f},{height - 2 - (p - low) * scale:.1f}"
        for i, p in enumerate(shown)
        if math.isfinite(p)
    )
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{number(points[-1])}">'
        f'<polyline points="{places}" fill="none" stroke="currentColor"/></svg> '
        f"{html.escape(number(points[-1]))}"
    )
