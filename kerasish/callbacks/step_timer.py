"""Times the parts of some training steps; `Profiler` and `TensorBoard` show its results."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kerasish.callbacks.wrapped_step import WrappedStep, layers_of, without
from kerasish.row_formulas import is_any_mapped

if TYPE_CHECKING:
    from kerasish.backends.backend import CompiledStep, Peaks, Timing
    from kerasish.engine.model.model import Model


@dataclass
class StepTimer:
    """Puts itself around the training step of a model while batches are to be timed.

    Args:
        batches: the numbers of the first and the last timed batch, counted from 0.

    Attributes:
        timings: for each timed batch its parts in the order of execution.
        seconds: how long each of these batches took in all.
        plain_seconds: how long one batch took, on average, right after them, without timing; None
            where that was not measured.
        peaks: what the machine does at best; None if that is not known.
    """

    batches: tuple[int, int]
    timings: list[list[Timing]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    plain_seconds: float | None = None
    peaks: Peaks | None = None
    done: int = 0

    def begin(self) -> None:
        """Drop what was timed; a training begins."""
        self.timings, self.seconds, self.done = [], [], 0
        self.plain_seconds = self.peaks = None

    @property
    def over(self) -> bool:
        """Whether all batches have been timed."""
        return self.done > self.batches[1] + 1

    def attach(self, model: Model) -> None:
        """Go around the training step, unless all batches have been timed."""
        program = model.training_program
        run = program.step("train")
        if self.done <= self.batches[1] and not any(map(_is_timed, layers_of(run))):
            timed: Any = _TimedStep(run, self)
            program.replace_step("train", lambda step: timed if step is run else step)

    def detach(self, model: Model) -> None:
        """Restore the training step."""

        def is_own(step: Any) -> bool:
            return _is_timed(step) and step.timer is self

        model.training_program.replace_step("train", lambda step: without(step, is_own))

    def run(self, step: CompiledStep, args: tuple[Any, ...]) -> Any:
        """Do a step, timed if it is its turn."""
        number, self.done = self.done, self.done + 1
        if not self.batches[0] <= number <= self.batches[1]:
            return step(*args)
        start = time.perf_counter()
        result, timings = step.call_timed(*args)
        self.note(timings, time.perf_counter() - start, step)
        return result

    def note(self, timings: list[Timing], seconds: float, step: CompiledStep) -> None:
        """Keep what the timing of a batch has shown, and the time between its parts."""
        rest = max(seconds - sum(t.seconds for t in timings), 0.0)
        between = [
            t._replace(name="Python", layer="", result="", seconds=rest, nbytes=0, flops=0, line="")
            for t in timings[:1]
        ]
        self.timings.append([*timings, *between])
        self.seconds.append(seconds)
        if self.peaks is None and len(self.timings) == self.batches[1] - self.batches[0] + 1:
            self.peaks = step.peaks()

    def run_rows(self, step: CompiledStep, rows: Any, seconds: float, most: int | None) -> int:
        """Do some batches of a run over rows, the one whose turn it is timed.

        Args:
            step: the step that runs.
            rows: the run.
            seconds: no batch starts later than this.
            most: the largest number of batches; None: all that remain.
        """
        first, last = self.batches
        limit = rows.left if most is None else most
        if self.done < first:
            count = rows.run(seconds, min(limit, first - self.done))
        elif self.done <= last:
            timings, total = rows.run_timed()
            self.note(timings, total, step)
            count = 1
        elif self.plain_seconds is None:
            start = time.perf_counter()
            count = rows.run(seconds, min(limit, last - first + 1))
            self.plain_seconds = (time.perf_counter() - start) / count
        else:
            count = rows.run(seconds, most)
        self.done += count
        return int(count)


class _TimedStep(WrappedStep):
    """A compiled training step whose calls a timer may time."""

    def __init__(self, inner: CompiledStep, timer: StepTimer) -> None:
        super().__init__(inner)
        self.timer = timer

    def __call__(self, *args: Any) -> Any:
        return self.timer.run(self.inner, args)

    def over_rows(self, arrays: Any, *args: Any) -> Any:
        """Return the run over rows if single batches of it can be timed; else None."""
        rows = None if is_any_mapped(arrays) else self.inner.over_rows(arrays, *args)
        timed = rows is not None and hasattr(rows, "run_timed")
        return _TimedRows(self, rows) if timed else None


def _is_timed(step: Any) -> bool:
    return isinstance(step, _TimedStep)


class _TimedRows:
    """A run over rows, of which some batches are timed."""

    def __init__(self, step: _TimedStep, rows: Any) -> None:
        self._step, self._rows = step, rows

    @property
    def done(self) -> int:
        """The number of batches done."""
        return int(self._rows.done)

    @property
    def left(self) -> int:
        """The number of batches left."""
        return int(self._rows.left)

    def run(self, seconds: float, most: int | None = None) -> int:
        """Do batches until `seconds` have passed, or `most` are done; return how many."""
        return self._step.timer.run_rows(self._step.inner, self._rows, seconds, most)
