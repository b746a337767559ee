"""ShardedStep: a compiled step that is given whole batches and computes this rank's rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.backends import CompiledStep, RowRun
from kerasish.backends.backend import Timing
from kerasish.engine.data.parts import holds_entries
from kerasish.engine.training.step import batch_size_of
from kerasish.ranks import Group, Sharding
from kerasish.tensor import Tensor, to_numpy, wrap
from kerasish.typing import Array, Structure


class ShardedStep(CompiledStep):
    """A step over the batches of data-parallel training.

    It takes the same arguments as the plain step, of the whole batch, on every rank. The step
    inside gets this rank's rows, and the number of rows of the whole batch as one more argument;
    0 where the batch is not cut.

    Args:
        inner: the compiled step.
        sharding: how batches are cut.
        kind: "train", "test" or "predict"; the results of "predict" are gathered.
    """

    def __init__(self, inner: CompiledStep, sharding: Sharding, kind: str) -> None:
        self.inner, self.sharding, self.kind = inner, sharding, kind

    def __call__(self, *args: Any) -> Structure:
        """Do the step on this rank's rows of a batch."""
        with running(self.sharding.group, self.kind):
            result = self.inner(*self._own(args))
            if self.kind == "predict" and self._cuts(args[0]):
                return self._gathered(result)
            return result

    def call_timed(self, *args: Any) -> tuple[Structure, list[Timing]]:
        """Do the step; return its result and the times of its parts on this rank."""
        with running(self.sharding.group, self.kind):
            return self.inner.call_timed(*self._own(args))

    def _own(self, args: Sequence[Any]) -> list[Any]:
        """Return the arguments of the step inside: this rank's rows of a batch."""
        rows, own = batch_size_of(args[0]), list(args)
        cut = self._cuts(args[0])
        if cut:
            self.sharding.group.progress.check_together()
            self.sharding.group.progress.begun += 1
            start, stop = self.sharding.block(rows)
            own = [tree.map_structure(_cut(start, stop), a) for a in args]
        return own if self.kind == "predict" else [*own, rows if cut else 0]

    def _cuts(self, x: Structure) -> bool:
        """Return whether a batch is cut; one with sparse rows is computed whole by every rank."""
        return self.sharding.cuts(batch_size_of(x)) and not holds_entries(x)

    def _gathered(self, result: Structure) -> Structure:
        group = self.sharding.group
        if group.size == 1:
            return result
        flat = [to_numpy(t) for t in tree.flatten(result)]
        columns = zip(*group.gather(flat))
        return tree.pack_sequence_as(result, [_joined(parts) for parts in columns])

    def over_rows(
        self, arrays: Sequence[Any], pack: Callable[[Any], Any], order: Array, batch_size: int
    ) -> RowRun | None:
        """Return the step as a run over the whole batches of `order`, of which it takes a part."""
        if self.kind == "predict":
            return None
        sharding, cut = self.sharding, self.sharding.cuts(batch_size)
        count = len(order) // batch_size
        start, stop = sharding.block(batch_size) if cut else (0, batch_size)
        batches = np.asarray(order[: count * batch_size]).reshape(count, batch_size)
        own = np.ascontiguousarray(batches[:, start:stop]).reshape(-1)
        rows = batch_size if cut else 0
        run = self.inner.over_rows(arrays, lambda flat: (*pack(flat), rows), own, stop - start)
        # Ranks may differ in what runs natively: then none does.
        if not all(sharding.group.gather(run is not None)) or run is None:
            return None
        return _Together(run, sharding.group, self.kind)

    def note_data(self, data: Any, epoch: int) -> None:
        """Note the epoch, for messages, and check that all ranks do as many steps."""
        group = self.sharding.group
        progress = group.progress
        progress.kind, progress.epoch, progress.step = self.kind, epoch, 0
        counts = group.gather(data.num_batches)
        if len(set(counts)) > 1:
            raise ValueError(
                f"fit: all ranks must do equally many steps, but the data have {counts} batches "
                "per epoch on the ranks in turn. Give every rank the same data: each takes its "
                "own rows of each batch."
            )
        self.inner.note_data(data, epoch)

    def memory_report(self) -> dict[str, int]:
        """Return the memory report of the step inside."""
        return self.inner.memory_report()

    def graphs(self) -> list[tuple[str, Any]]:
        """Return the graphs of the step inside."""
        return self.inner.graphs()


class _Together:
    """A run over rows in which all ranks do equally many batches per call; rank 0 says how many."""

    def __init__(self, run: RowRun, group: Group, kind: str) -> None:
        self._run, self._group, self._kind = run, group, kind
        self.left, self.done = run.left, run.done
        self._seconds_each = 0.0

    def run(self, seconds: float, most: int | None = None) -> int:
        """Do as many batches as rank 0 expects to do in `seconds`, at least one."""
        limit = self.left if most is None else max(1, min(most, self.left))
        planned = int(seconds / self._seconds_each) if self._seconds_each else 1
        count = int(self._group.broadcast(max(1, min(limit, planned))))
        before = time.perf_counter()
        with running(self._group, self._kind):
            done = 0
            while done < count:
                done += self._run.run(_FOREVER, count - done)
            self._group.progress.step += count - 1
        self.left, self.done = self._run.left, self._run.done
        self._seconds_each = max((time.perf_counter() - before) / count, 1e-7)
        return count


_FOREVER = 1e6  # seconds


@contextmanager
def running(group: Group, kind: str) -> Iterator[None]:
    """Note that a step runs, for the watchdog and for error messages."""
    progress = group.progress
    progress.kind, progress.since = kind, time.monotonic()
    yield
    # Not after an error: its message names the step that raised it.
    progress.since = 0.0
    progress.step += 1
    progress.steps += 1


def _cut(start: int, stop: int) -> Callable[[Any], Any]:
    return lambda leaf: leaf if leaf is None else leaf[start:stop]


def _joined(parts: Sequence[Array]) -> Tensor:
    return wrap(np.concatenate(parts) if parts[0].ndim else np.asarray(parts[0]))
