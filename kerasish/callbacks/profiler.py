"""Profiler: where the time of training steps goes, as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kerasish.callbacks import timeline
from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.step_timer import StepTimer
from kerasish.ranks import writes_here

if TYPE_CHECKING:
    from kerasish.backends.backend import Peaks, Timing
    from kerasish.typing import PathLike


class Profiler(Callback):
    """Measures each part of some training steps, and writes a page that shows them.

    On the static engine a part is a record of the compiled step (a fused loop, a product), timed
    in native code; on the eager engine it is an op. Each part has its layer, the line of the
    user's code that computes it or makes its layer, its time, floating-point operations and bytes,
    and on the static engine its share of the machine's peak: the least time that a product with
    as many operations, or a copy of as many bytes, takes here, divided by the time of the part.
    The peaks are measured once, in about a second, and kept on disk. What remains of the time of a
    step is the part "Python": the call of a compiled step, or what happens between ops.

    The steps compute what they always do. On the static engine only the measured steps are done
    one by one; elsewhere their whole epoch runs batch by batch in Python.

    Args:
        path: the page to write, ".html": self-contained, without scripts. A file of the same name
            with ".json" has the same as a trace for Chrome's about:tracing and Perfetto.
        batches: the numbers of the first and the last measured batch, counted from the first batch
            of training.

    Attributes:
        timings: for each measured step its parts, `Timing` tuples in the order of execution.
        seconds: how long each of these steps took in all.
        plain_seconds: how long a step took, on average, right after them without being measured;
            None where that is not known.
        peaks: the machine's `Peaks`, operations and bytes per second; None if they are not known.

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
        self._timer = StepTimer(self.batches)
        self._lines: dict[str, str] = {}

    @property
    def timings(self) -> list[list[Timing]]:
        """For each measured step its parts, in the order of execution."""
        return [[timeline.placed(t, self._lines) for t in step] for step in self._timer.timings]

    @property
    def seconds(self) -> list[float]:
        """How long each of the measured steps took in all."""
        return self._timer.seconds

    @property
    def plain_seconds(self) -> float | None:
        """How long a step took, on average, without being measured."""
        return self._timer.plain_seconds

    @property
    def peaks(self) -> Peaks | None:
        """What the machine does at best."""
        return self._timer.peaks

    @property
    def needs_weights(self) -> bool:
        """Always False: no weight is read."""
        return False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._timer.begin()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._timer.attach(self.model)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self._timer.over:
            self._timer.detach(self.model)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._timer.detach(self.model)
        self._lines = timeline.lines_of(self.model)
        if self._timer.timings and writes_here():
            self.write()

    # --- results ----------------------------------------------------------------------------------

    def table(self) -> list[timeline.Part]:
        """Return the parts of a step: all records of one name, layer and result together.

        A part is a tuple (name, layer, result, calls, seconds, bytes per second, line, operations,
        bytes, share of the peak). Numbers are those of one step, the median over the measured
        steps; the longest part is first.
        """
        return timeline.parts_of(self.timings, self.peaks)

    def write(self) -> None:
        """Write the page and the trace."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        timings = self.timings
        text = timeline.page(self.model.name, self._timer, timings)
        self.path.write_text(text, encoding="utf-8")
        trace = json.dumps(timeline.trace(timings))
        self.path.with_suffix(".json").write_text(trace, encoding="utf-8")
