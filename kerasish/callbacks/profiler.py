"""Profiler: where the time of training steps goes, as one HTML page."""

from __future__ import annotations

import html
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasish.callbacks.callback import Callback, Logs
from kerasish.ranks import writes_here

if TYPE_CHECKING:
    from kerasish.backends.backend import CompiledStep, Timing
    from kerasish.typing import PathLike

_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
.step { display: flex; height: 2.2rem; overflow: hidden; border-radius: 4px; margin: 1rem 0; }
.step div { min-width: 1px; border-right: 1px solid #8884; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.2rem 0.6rem; border-bottom: 1px solid #8884; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
"""


class Profiler(Callback):
    """Measures each part of some training steps, and writes a page that shows them.

    On the static engine a part is a record of the compiled step (a fused loop, a product), timed
    in native code; on the eager engine it is an op. The steps compute what they always do. The
    epoch in which steps are measured goes from batch to batch in Python; the others are not slowed
    down.

    Args:
        path: the page to write, ".html": self-contained, without scripts. A file of the same name
            with ".json" has the same as a trace for Chrome's about:tracing and Perfetto.
        batches: the numbers of the first and the last measured batch, counted from the first batch
            of training.

    Attributes:
        timings: for each measured step its parts, `Timing` tuples in the order of execution.
        seconds: how long each of these steps took in all.

    Raises:
        ValueError: `path` does not end in ".html", or `batches` are no range.

    Example:
        >>> import numpy as np, tempfile, kerasish
        >>> from kerasish.callbacks import Profiler
        >>> model = kerasish.Sequential([kerasish.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     profiler = Profiler(f"{folder}/steps.html", batches=(1, 2))
        ...     _ = model.fit(np.ones((64, 3)), np.ones(64), batch_size=16, verbose=0,
        ...                   callbacks=[profiler])
        >>> len(profiler.timings)
        2
    """

    every_batch = False

    def __init__(
        self, path: PathLike = "profile.html", batches: tuple[int, int] = (10, 14)
    ) -> None:
        super().__init__()
        first, last = batches
        if not str(path).endswith(".html"):
            raise ValueError(f"Profiler: the path ends in .html, got {path!r}.")
        if not 0 <= first <= last:
            raise ValueError(
                f"Profiler: batches are (first, last) with 0 <= first <= last, got {batches!r}."
            )
        self.path, self.batches = Path(path), (int(first), int(last))
        self.timings: list[list[Timing]] = []
        self.seconds: list[float] = []
        self._done = 0

    @property
    def needs_weights(self) -> bool:
        """Always False: no weight is read."""
        return False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.timings, self.seconds, self._done = [], [], 0

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        program = self.model.training_program
        run = program.step("train")
        if self._done <= self.batches[1] and not isinstance(run, _TimedStep):
            timed: Any = _TimedStep(run, self)
            program.replace_step("train", lambda step: timed if step is run else step)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self._done > self.batches[1]:
            self._release()

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._release()
        if self.timings and writes_here():
            self.write()

    def _release(self) -> None:
        self.model.training_program.replace_step(
            "train", lambda step: step.inner if isinstance(step, _TimedStep) else step
        )

    def run(self, step: CompiledStep, args: tuple[Any, ...]) -> Any:
        """Do a step, timed if it is its turn."""
        number, self._done = self._done, self._done + 1
        if not self.batches[0] <= number <= self.batches[1]:
            return step(*args)
        start = time.perf_counter()
        result, timings = step.call_timed(*args)
        self.seconds.append(time.perf_counter() - start)
        self.timings.append(timings)
        return result

    # --- results ----------------------------------------------------------------------------------

    def table(self) -> list[tuple[str, str, str, int, float, float]]:
        """Return (name, layer, result, calls, seconds, bytes per second) per kind of part.

        Calls and seconds are those of one step, the median over the measured steps; the longest
        part comes first.
        """
        parts: dict[tuple[str, str, str], list[list[Timing]]] = {}
        for number, timings in enumerate(self.timings):
            for timing in timings:
                known = parts.setdefault(timing[:3], [[] for _ in self.timings])
                known[number].append(timing)
        rows = []
        for (name, layer, result), steps in parts.items():
            seconds = statistics.median(sum(t.seconds for t in step) for step in steps)
            nbytes = statistics.median(sum(t.nbytes for t in step) for step in steps)
            calls = max(map(len, steps))
            rows.append((name, layer, result, calls, seconds, nbytes / seconds if seconds else 0.0))
        return sorted(rows, key=lambda row: -row[4])

    def write(self) -> None:
        """Write the page and the trace."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self._page(), encoding="utf-8")
        self.path.with_suffix(".json").write_text(json.dumps(self._trace()), encoding="utf-8")

    def _page(self) -> str:
        rows = self.table()
        total = statistics.median(self.seconds)
        parts = sum(row[4] for row in rows) or 1.0
        bars = "".join(
            f'<div style="flex:{t.seconds / parts:.6f};background:hsl({_hue(t.layer)} 55% 60%)" '
            f'title="{_escaped(t.name)}, {_escaped(t.layer or "no layer")}: '
            f'{t.seconds * 1e6:.1f} µs"></div>'
            for t in self.timings[-1]
        )
        lines = "".join(
            f"<tr><td>{_escaped(name)}</td><td>{_escaped(layer)}</td><td>{_escaped(result)}</td>"
            f'<td class="n">{calls}</td><td class="n">{seconds * 1e6:,.1f}</td>'
            f'<td class="n">{100 * seconds / total:.1f}</td>'
            f'<td class="n">{rate / 1e9:.1f}</td></tr>'
            for name, layer, result, calls, seconds, rate in rows
        )
        head = "".join(
            f'<th class="n">{c}</th>' if n > 2 else f"<th>{c}</th>"
            for n, c in enumerate(
                ("part", "layer", "result", "calls", "µs per step", "% of the step", "GB/s")
            )
        )
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"<title>Steps of {_escaped(self.model.name)}</title><style>{_STYLE}</style></head>"
            f"<body><h1>Training steps of {_escaped(self.model.name)}</h1>"
            f"<p>{len(self.seconds)} steps were measured. A step took {total * 1e3:.3f} ms "
            f"(median); its parts took {parts * 1e3:.3f} ms. The bar is the last step in the "
            "order of execution, one color per layer.</p>"
            f'<div class="step">{bars}</div><div class="scroll"><table><thead><tr>{head}</tr>'
            f"</thead><tbody>{lines}</tbody></table></div></body></html>"
        )

    def _trace(self) -> dict[str, Any]:
        events, now = [], 0.0
        for number, timings in enumerate(self.timings):
            for t in timings:
                events.append({
                    "name": t.name, "cat": t.layer, "ph": "X", "pid": 1, "tid": 1,
                    "ts": now * 1e6, "dur": t.seconds * 1e6,
                    "args": {"step": number, "layer": t.layer, "result": t.result},
                })  # fmt: skip
                now += t.seconds
        return {"traceEvents": events, "displayTimeUnit": "ns"}


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)


def _hue(layer: str) -> int:
    return sum(map(ord, layer)) * 47 % 360


class _TimedStep:
    """A compiled training step whose calls the profiler may time."""

    def __init__(self, inner: CompiledStep, profiler: Profiler) -> None:
        self.inner, self._profiler = inner, profiler

    def __call__(self, *args: Any) -> Any:
        return self._profiler.run(self.inner, args)

    def over_rows(self, *args: Any) -> None:
        """Return None: each batch is a call, so that it can be timed."""
        return

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "inner":  # not set yet, while being unpickled or copied
            raise AttributeError(name)
        return getattr(self.inner, name)
