"""Speculation: a step whose Python reads numbers is compiled once for each path that it takes.

Each compiled path assumes the answers that Python got when the path was traced, and checks them
while it runs, before it changes a variable. If an answer differs, the path for that answer runs
instead: it is looked up in the tree of answers, or traced.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kerasish import config
from kerasish.backends.backend import Timing
from kerasish.backends.onednn import native
from kerasish.backends.static.codegen.driver import UnmetConditionError
from kerasish.backends.static.lowering.compiled_plan import UndecidedUpdateError
from kerasish.backends.static.runtime.row_runs import RowSteps
from kerasish.errors import NumberAskedError
from kerasish.typing import Array, Structure
from kerasish.watched import Guards

if TYPE_CHECKING:
    from kerasish.backends.static.engine import CompiledCall

MOST_PATHS = 16  # compiled for one signature; each takes as long to compile as a step
MOST_MISSES = 8  # consecutive calls that no path fits, after which no path is tried


class OtherPath(Exception):  # noqa: N818 (a signal, not an error)
    """A compiled path is wrong for this data; holds the answers up to the first that differs."""

    def __init__(self, answers: Sequence[Array]) -> None:
        super().__init__()
        self.answers = answers


class PathMaker(Protocol):
    """The interface of a step that `Paths` needs."""

    name: str

    def path(self, args: Sequence[Any], given: Sequence[Array]) -> CompiledCall:
        """Return the step compiled for data with these answers to Python."""

    def by_op(self, args: Sequence[Any]) -> Structure:
        """Run the step op by op."""


class Paths:
    """The compiled paths of one signature of a step.

    Args:
        step: creates the paths.
        args: the arguments of the first call.
        first: the path for them; None: the step cannot be compiled.
        reason: why it cannot.

    Attributes:
        calls: the paths.
        threads: the number of threads that they are compiled for.
    """

    def __init__(
        self, step: PathMaker, args: Sequence[Any], first: CompiledCall | None, reason: str = ""
    ) -> None:
        self._step = step
        self.calls: tuple[CompiledCall, ...] = () if first is None else (first,)
        self._latest = first
        self._misses = 0
        self._full = False
        self.threads = native.get_threads()
        if first is None:
            self._give_up(reason)

    @property
    def guards(self) -> Guards:
        """The Python values of the path that is tried first."""
        return Guards(()) if self._latest is None else self._latest.guards

    def __call__(self, args: tuple[Any, ...], known: OtherPath | None = None) -> Structure:
        """Run the path that is valid for the arguments; without one, run op by op.

        Args:
            args: the arguments.
            known: the exception that shows that the latest path is wrong for them, if any.
        """
        return self._run(args, lambda call: (call(args), None), known)[0]

    def call_timed(self, args: tuple[Any, ...]) -> tuple[Structure, list[Timing]]:
        """Run; return the result, and the time of each record; no times for what runs op by op."""
        result, timings = self._run(args, lambda call: call.call_timed(args))
        return result, timings or []

    def call_reading(self, args: tuple[Any, ...]) -> tuple[Structure, Any]:
        """Run; return the result, and the variables read with their previous values, or None."""
        return self._run(args, lambda call: call.call_reading(args))

    def _run(
        self,
        args: tuple[Any, ...],
        run: Callable[[CompiledCall], tuple[Structure, Any]],
        known: OtherPath | None = None,
    ) -> tuple[Structure, Any]:
        call, tried = self._latest, []
        if known is not None and call is not None:
            tried.append(call)
            call = self._path_for(known.answers, args, tried)
        while call is not None:
            try:
                result = run(call)
                self._latest, self._misses = call, 0
                return result
            except OtherPath as other:
                tried.append(call)
                call = self._path_for(other.answers, args, tried)
        if self.calls:
            self._misses += 1
            if self._misses >= MOST_MISSES:
                self._give_up(
                    "the numbers that Python asks for differ from call to call" + _lines(tried)
                )
        return self._step.by_op(args), None

    def _path_for(
        self, answers: Sequence[Array], args: Sequence[Any], tried: Sequence[CompiledCall]
    ) -> CompiledCall | None:
        """Return a path that starts with these answers, a new one if there is none; or None.

        The result is also None if all such paths were tried: if two paths round differently, each
        may refer the call to the other one.
        """
        fitting = [c for c in reversed(self.calls) if _begins(c, answers)]
        for call in fitting:
            if call not in tried and call.guards.stale() is None:
                return call
        if any(call in tried for call in fitting) or self._full:
            return None
        if len(self.calls) >= MOST_PATHS:
            self._full = True
            self._warn(
                f"{MOST_PATHS} paths are compiled; data that needs another one runs op by op"
                + _lines(tried)
            )
            return None
        if config.is_explaining_compiles():
            line = tried[-1].conditions[len(answers) - 1].line
            print(
                f"kerasish: compiling {self._step.name}: path {len(self.calls) + 1}, since Python"
                f"{line} gets {_shown(answers[-1])}",
                file=sys.stderr,
            )
        try:
            call = self._step.path(args, answers)
        except (NumberAskedError, UndecidedUpdateError):
            return None
        if _begins(call, answers):
            self.calls = (*(c for c in self.calls if c.guards.stale() is None), call)
            return call
        return None

    def _give_up(self, reason: str) -> None:
        self._warn(f"runs op by op from now on: {reason}")
        self.calls, self._latest = (), None

    def _warn(self, text: str) -> None:
        warnings.warn(f"{self._step.name}: {text}", RuntimeWarning, stacklevel=2)

    def over_rows(
        self,
        arrays: Sequence[Array],
        pack: Callable[[Any], Any],
        order: Array,
        batch_size: int,
    ) -> SpeculativeRows | None:
        """Return the step as a run over whole batches of rows; None if it is not native."""
        rows = SpeculativeRows(self, arrays, pack, order, batch_size)
        return rows if rows.steps() is not None else None

    @property
    def latest(self) -> CompiledCall | None:
        """The path that is tried first; None: the step runs op by op."""
        return self._latest


class SpeculativeRows:
    """A step with several paths over the rows of an epoch.

    Attributes:
        left: the number of whole batches that remain.
        done: the number of batches done.
    """

    def __init__(
        self,
        paths: Paths,
        arrays: Sequence[Array],
        pack: Callable[[Any], Any],
        order: Array,
        batch_size: int,
    ) -> None:
        self._paths, self._arrays, self._pack = paths, arrays, pack
        self._order = np.ascontiguousarray(order, np.int64)
        self._size = batch_size
        self._steps: dict[int, tuple[CompiledCall, RowSteps | None]] = {}
        self.done, self.left = 0, len(order) // batch_size

    def steps(self) -> RowSteps | None:
        """Return the native run of the path that is tried first; None if it has none."""
        call = self._paths.latest
        if call is None:
            return None
        known = self._steps.get(id(call))
        if known is None:
            parts = [a[: self._size] for a in self._arrays]
            rows = call.over_rows(self._arrays, parts, self._pack(parts), self._order)
            known = self._steps[id(call)] = call, rows
        return known[1]

    def run(self, seconds: float, most: int | None = None) -> int:
        """Process batches for about `seconds`, at least one; return the number done.

        Args:
            seconds: no batch starts later than this.
            most: the largest number of batches, >= 1; None for all that remain.
        """
        end = time.monotonic() + seconds
        start = self.done
        last = start + (self.left if most is None else min(most, self.left))
        while self.done < last and (self.done == start or time.monotonic() < end):
            other: OtherPath | None = None
            steps = self.steps()
            if steps is not None:
                steps.go_to(self.done)
                try:
                    steps.run(max(end - time.monotonic(), 0.0), last - self.done)
                    self._advance(steps.done)
                    continue
                except UnmetConditionError as error:
                    self._advance(steps.done)
                    call = self._paths.latest
                    other = None if call is None else call.other_path(error)
            rows = self._order[self.done * self._size : (self.done + 1) * self._size]
            self._paths(tuple(self._pack([a[rows] for a in self._arrays])), other)
            self._advance(self.done + 1)
        return self.done - start

    def _advance(self, done: int) -> None:
        self.left -= done - self.done
        self.done = done


def _begins(call: CompiledCall, answers: Sequence[Array]) -> bool:
    """Return whether a path assumes these answers, in this order."""
    pairs = zip(call.conditions, answers)
    enough = len(call.conditions) >= len(answers)
    return enough and all(
        c.answer.dtype == a.dtype and c.answer.tobytes() == a.tobytes() for c, a in pairs
    )


def _lines(calls: Sequence[CompiledCall]) -> str:
    """Return "; asked at file:line, ..." for all questions of several paths."""
    lines = dict.fromkeys(c.line.removeprefix(" at ") for call in calls for c in call.conditions)
    return "; asked at " + ", ".join(lines) if lines else ""


def _shown(answer: Array) -> str:
    return str(answer.item()) if answer.size == 1 else np.array2string(answer, threshold=4)
