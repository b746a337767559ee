"""Generators, iterators and re-iterables of ready-made batches (a torch DataLoader)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from kerasish.callbacks.resume_point import ResumePoint
from kerasish.engine.data.batch import Batch, BatchConversion
from kerasish.engine.data.data import Data
from kerasish.errors import add_note
from kerasish.typing import Structure

_END = object()


def add_place(error: BaseException, place: str) -> None:
    """Add to `error`, whose type stays, where it happened."""
    add_note(error, f"This happened while reading {place}.")


class StreamData(Data):
    """Batches as an iterator gives them, (x,), (x, y) or (x, y, sample_weight).

    A generator is read once from beginning to end, `steps_per_epoch` batches per epoch; without
    `steps_per_epoch` the first epoch reads all of it. Anything that can be iterated again starts
    again each epoch, unless `steps_per_epoch` cuts it: then the next epoch continues from there.

    Args:
        source: the generator, iterator or iterable.
        class_weight: weight of each class in y, or None.
        steps_per_epoch: batches per epoch, or None.
        training: whether errors name `steps_per_epoch` (else `steps`).
    """

    _numbered = False  # what `peek` has read must not be lost, whatever epoch is next

    def __init__(
        self,
        source: Any,
        class_weight: Mapping[Any, Any] | None = None,
        steps_per_epoch: int | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(steps_per_epoch, training)
        self._source = source
        self._to_batch = BatchConversion(class_weight)
        self._once = hasattr(source, "__next__")
        self._iterator: Any = source if self._once else None
        self._given = 0
        self._what = f"the {type(source).__name__}"
        self._length = _length(source)

    def go_to(self, point: ResumePoint) -> None:
        """Read again what was read before, and leave it out."""
        if point.is_start:
            return
        first, epoch, batch, redraw, _ = point
        dropped = 0
        if not self._once and self._steps is None:  # each epoch is a separate pass
            if epoch > first:
                self._drop_held()
                redraw()
        else:
            for number in range(first, epoch):
                with self.epoch(number) as batches:
                    dropped += sum(1 for _ in batches)
        if batch:
            opened = self.epoch(epoch)
            for _ in range(batch):
                next(opened, None)
            self._held = (epoch, batch, opened)
        if dropped + batch:
            warnings.warn(
                f"fit resumes, but {self._what} cannot be positioned: its first "
                f"{dropped + batch} batches were read again and left out. The training continues "
                "exactly if they are the same as before; arrays and a PyDataset have no such need.",
                stacklevel=2,
            )

    def close(self) -> None:
        super().close()
        if not self._once:
            self._iterator = None  # dropped, so that a loader's workers end

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        if not self._once and (self._steps is None or self._iterator is None):
            self._iterator = iter(self._source)
        seen = 0
        while self._steps is None or seen < self._steps:
            data = self._next(epoch, seen)
            if data is _END and seen == 0 and self._begin_again():
                data = self._next(epoch, seen)
            if data is _END:
                break
            seen += 1
            self._given += 1
            if seen > start:
                yield self._to_batch(data, self._place(epoch, seen))
        else:
            return
        self._ended(epoch, seen)

    def _place(self, epoch: int, number: int) -> str:
        return f"batch {number} of epoch {epoch + 1} from {self._what}"

    def _next(self, epoch: int, seen: int) -> Structure:
        try:
            return next(self._iterator, _END)
        except Exception as error:
            add_place(error, self._place(epoch, seen + 1))
            raise

    def _begin_again(self) -> bool:
        """Restart a re-iterable if the epoch before ended exactly at its end."""
        if self._once or self._steps is None or not self._given:
            return False
        self._iterator = iter(self._source)
        return True

    def _ended(self, epoch: int, seen: int) -> None:
        if not self._given:
            raise ValueError(f"x: expected at least one batch from {self._what}, got none.")
        if not self._once:
            self._iterator = None
        if self._steps is None and seen:
            self._length = seen
            return
        self.exhausted = self._once
        self._warn_short(self._what, epoch, seen)


def _length(source: Any) -> int | None:
    """Return len(source), None where it has none or it is unknown."""
    if not hasattr(source, "__len__"):
        return None
    try:
        return len(source)
    except TypeError:  # how a torch DataLoader over a stream and an endless tf.data say so
        return None
