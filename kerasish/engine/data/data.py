"""What `fit`, `evaluate` and `predict` see of any data: numbered epochs of batches."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.callbacks.resume_point import ResumePoint
from kerasish.engine.data.batch import Batch
from kerasish.overriding import Closing

MOST_AHEAD = 8  # batches that are read one after the other before they are trained on


class Epoch(Closing, Iterator[Batch]):
    """The batches of one epoch; `close` (or leaving a `with`) ends the threads that read them.

    Attributes:
        waited: the seconds that were spent in `next`, those for `Data.peek` aside.
    """

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._pushed_back: list[Batch] = []
        self.waited = 0.0

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Batch:
        if self._pushed_back:
            return self._pushed_back.pop()
        start = time.perf_counter()
        try:
            return next(self._batches)
        finally:
            self.waited += time.perf_counter() - start

    def push_back(self, batch: Batch) -> None:
        """Make `batch` the next one again."""
        self._pushed_back.append(batch)

    @property
    def has_pushed_back(self) -> bool:
        """Whether a batch was pushed back and not read again."""
        return bool(self._pushed_back)

    def close(self) -> None:
        """Stop reading. Closing twice does no harm."""
        self._pushed_back.clear()
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


class BatchesAhead(NamedTuple):
    """Batches of rows of arrays in memory.

    Attributes:
        arrays: arrays, or `MappedRows` of such.
        pack: list of rows of each -> (x, y, sample_weight).
        order: the numbers of the rows in turn, int64.
        batch_size: rows per batch, at most `len(order)`.
    """

    arrays: list[Any]
    pack: Callable[[Sequence[Any]], Batch]
    order: Any
    batch_size: int


class Data(Closing):
    """Numbered epochs of (x, y, sample_weight) batches.

    Attributes:
        num_samples: rows in all, None where unknown.
        num_batches: batches per epoch, None where unknown (it becomes known after one epoch).
        batch_size: rows per batch, None where the source decides.
        in_memory: whether `arrays`, `pack` and `order` exist (plain arrays only).
        reads_ahead: how many batches may be read before the ones before them are trained on.
        exhausted: set when a generator is exhausted: later epochs have no batches, training stops.
    """

    num_samples: int | None = None
    batch_size: int | None = None
    _length: int | None = None  # batches that the source has in a pass, None where unknown
    in_memory = False
    reads_ahead = 0
    exhausted = False
    _numbered = True  # whether the batches depend on the number of the epoch

    def __init__(self, steps_per_epoch: int | None = None, training: bool = True) -> None:
        self._steps = steps_per_epoch
        self._steps_name = "steps_per_epoch" if training else "steps"
        self._held: tuple[int, int, Epoch] | None = None  # epoch, batches left out, opened
        # Weak: reading threads know this object, which must not keep a dropped epoch alive.
        self._open: weakref.ref[Epoch] | None = None
        self._warned = False

    @property
    def num_batches(self) -> int | None:
        return self._at_most_steps(self._length)

    def _at_most_steps(self, batches: int | None) -> int | None:
        """Return the batches per epoch for the number that the source has, None where unknown."""
        if self._steps is None or batches is None:
            return self._steps or batches
        return min(self._steps, batches)

    def epoch(self, epoch: int = 0, start: int = 0) -> Epoch:
        """Return the batches of an epoch, from batch `start` on.

        Args:
            epoch: number of the epoch, from 0; the order of the rows is a function of it.
            start: batches to leave out at the beginning: where an interrupted epoch continues.
        """
        held, self._held = self._held, None
        if held is not None:
            number, skipped, opened = held
            if not self._numbered or (number, skipped) == (epoch, start):
                for _ in range(skipped, start):
                    next(opened, None)
                return opened
            opened.close()
        return self._watched(self._batches(epoch, start))

    def _watched(self, batches: Iterator[Batch]) -> Epoch:
        opened = Epoch(batches)
        self._open = weakref.ref(opened)
        return opened

    def _drop_held(self) -> None:
        """Drop what `peek` has opened."""
        held, self._held = self._held, None
        if held is not None:
            held[2].close()

    def peek(self, epoch: int = 0) -> Batch:
        """Return the first batch of an epoch; `epoch(epoch)` gives it again.

        Raises:
            ValueError: there is no batch.
        """
        batches = self.epoch(epoch)
        try:
            first = next(batches)
        except StopIteration:
            raise ValueError("x: expected at least one batch of data, got none.") from None
        batches.waited = 0.0
        batches.push_back(first)
        self._held = (epoch, 0, batches)
        return first

    def batches_ahead(self) -> BatchesAhead | None:
        """Return the next batches of the open epoch where they are rows of arrays in memory.

        They may be used in place of reading them, if `leave_out` follows. There may be fewer than
        the epoch has left. None where they must be read.
        """
        return None

    def leave_out(self, count: int) -> None:
        """Continue after `count` of the batches that `batches_ahead` has returned."""

    def state(self) -> dict[str, Any] | None:
        """Return the place after the batches that were taken, for `go_to`.

        None where the numbers of the epoch and of the batch are enough.
        """
        return None

    def go_to(self, point: ResumePoint) -> None:
        """Make `epoch(point.epoch, point.batch)` give what it would give, had all before been read.

        Nothing to do where each batch is a function of its number.

        Args:
            point: where the training continues.
        """

    def facts(self) -> dict[str, str]:
        """Return what distinguishes these data from others, for a training that is resumed."""
        return {"data": f"{type(self).__name__}, {self.num_batches} batches per epoch"}

    def close(self) -> None:
        """Stop whatever still reads: threads, iterators."""
        opened = None if self._open is None else self._open()
        if opened is not None:
            opened.close()
        self._held = self._open = None

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        raise NotImplementedError(f"{type(self).__name__} must define `_batches`.")

    def _window(self, epoch: int, batches: int) -> tuple[int, int, int]:
        """Return (pass over the data, first batch, end) of an epoch over `batches` batches.

        With fewer steps than batches an epoch continues where the last one stopped, as in Keras.
        """
        if self._steps is None or self._steps >= batches:
            return epoch, 0, batches
        parts = -(-batches // self._steps)
        whole, part = divmod(epoch, parts)
        first = part * self._steps
        return whole, first, min(first + self._steps, batches)

    def _warn_short(self, what: str, epoch: int, seen: int) -> None:
        if self._warned:
            return
        self._warned = True
        end = "training stops" if self.exhausted else "the epoch ends there"
        limit = "" if self._steps is None else f" of {self._steps_name}={self._steps}"
        warnings.warn(
            f"{what} ran out of data in epoch {epoch + 1} after {seen} batches{limit}: {end}. "
            f"Let it give more batches (a generator: `while True:`), or lower {self._steps_name} "
            "or epochs.",
            stacklevel=2,
        )


def random_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """Return a permutation of 0 .. count - 1 that depends only on (seed, epoch), int64.

    The bits are Philox4x64-10's with `seed` as key; each epoch owns 2**64 counters.

    Example:
        >>> bool((random_order(9, 1, 2) == random_order(9, 1, 2)).all())
        True
    """
    key = seed % 2**64
    bits = np.random.Philox(key=key, counter=np.array([0, epoch, 0, 0], np.uint64))
    return np.random.Generator(bits).permutation(count).astype(np.int64, copy=False)
