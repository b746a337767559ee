"""Data sources with a place: the contract, and what `fit` makes of such a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from kerasish import tree
from kerasish.callbacks.resume_point import ResumePoint
from kerasish.callbacks.state_checks import WRONG_KINDS
from kerasish.engine.data.batch import Batch, BatchConversion, to_batch
from kerasish.engine.data.data import MOST_AHEAD, BatchesAhead, Data
from kerasish.engine.data.rows import RowsAhead
from kerasish.engine.data.streams import add_place
from kerasish.errors import ResumeError
from kerasish.row_formulas import MappedRows, first_rows
from kerasish.typing import Structure


class PlacedIterator(Protocol):
    """The elements of one pass, and a place among them that can be saved and restored."""

    def __next__(self) -> Any:
        """Return the next element."""

    def state(self) -> dict[str, Any]:
        """Return the place after the elements that were given: a tree of plain values, arrays."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a place that an equal iterator returned, in this process or another one.

        Raises:
            ValueError: the state is not of such an iterator.
        """

    def close(self) -> None:
        """End threads and release files."""


class DataSource:
    """A source for `fit` with a place: passes over batches that can be restored.

    `kerasish.data.Dataset` is one. Pass number n gives the same batches each time.
    """

    def open_pass(self, number: int) -> PlacedIterator:
        """Return an iterator over the batches of a pass, NumPy arrays.

        Args:
            number: of the pass, from 0; the order may be a function of it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `open_pass`.")

    def batches_per_pass(self) -> int | None:
        """Return the number of batches, None where it is unknown."""
        return None

    @property
    def endless(self) -> bool:
        """Whether a pass has no end."""
        return False

    def facts(self) -> dict[str, str]:
        """Return what distinguishes these data from others, for a training that is resumed."""
        return {"data": type(self).__name__}

    def source_state(self) -> Any:
        """Return what all passes depend on and no argument says: seeds that were drawn."""
        return None

    def restore_source(self, state: Any) -> None:
        """Take what `source_state` returned."""


class SourceData(Data):
    """The batches of a `DataSource`.

    Each epoch is a pass. With `steps_per_epoch` a training epoch continues where the one before
    stopped, as in Keras; a new pass begins where the last one ended with an epoch. An evaluation
    always begins at the start of pass 0.

    Args:
        source: the source.
        class_weight: weight of each class in y, or None.
        steps_per_epoch: batches per epoch, or None.
        training: whether errors name `steps_per_epoch` (else `steps`).
    """

    reads_ahead = MOST_AHEAD

    def __init__(
        self,
        source: DataSource,
        class_weight: Mapping[Any, Any] | None = None,
        steps_per_epoch: int | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(steps_per_epoch, training)
        self._source, self._class_weight = source, class_weight
        self._convert = BatchConversion(class_weight)
        self._what = f"the {type(source).__name__}"
        if source.endless and steps_per_epoch is None:
            raise ValueError(
                f"{self._steps_name}: expected a number, got None, while {self._what} has no end "
                "(repeat() without a number). Give the number, or leave out repeat(): fit() "
                "begins a new pass for each epoch by itself."
            )
        self._length = source.batches_per_pass()
        self._goes_on = training and steps_per_epoch is not None
        self._numbered = not self._goes_on
        self._iterator: PlacedIterator | None = None
        self._pass, self._next_pass = 0, 0  # of the iterator, and of the next if epochs continue
        self._before: dict[str, Any] | None = None  # the place before what `peek` has read
        self._seen = 0  # batches of the epoch that were read or left out
        self._start = 0  # batches at its beginning that the training does not want

    def facts(self) -> dict[str, str]:
        epoch = "" if self._steps is None else f", {self._steps} per epoch"
        return {**self._source.facts(), "batches": f"{self._source.batches_per_pass()}{epoch}"}

    def state(self) -> dict[str, Any] | None:
        """Return the place after the batches that the training took."""
        opened = None if self._open is None else self._open()
        ahead = self._held is not None or opened is not None and opened.has_pushed_back
        return self._before if ahead else self._place()

    def _place(self) -> dict[str, Any]:
        return {
            "pass": self._pass,
            "next": self._next_pass,
            "place": None if self._iterator is None else self._iterator.state(),
            "source": self._source.source_state(),
        }

    def go_to(self, point: ResumePoint) -> None:
        _, epoch, batch, _, state = point
        self._drop_held()
        self._close_iterator()
        try:
            if state is None:
                raise ValueError(f"it has no place of {self._what}")
            self._source.restore_source(state["source"])
            self._pass, self._next_pass = int(state["pass"]), int(state["next"])
            if state["place"] is not None and (batch or self._goes_on):
                self._iterator = self._source.open_pass(self._pass)
                self._iterator.restore(state["place"])
        except WRONG_KINDS as error:
            self._close_iterator()
            raise ResumeError(
                f"fit cannot continue in the middle of {self._what}, since the saved state does "
                f"not fit it ({type(error).__name__}: {error}). Train as before, or name another "
                "folder."
            ) from error
        if batch:
            self._before, self._seen, self._start = state, batch, 0
            self._held = (epoch, batch, self._watched(self._rest(epoch)))

    def batches_ahead(self) -> BatchesAhead | None:
        plain = self._class_weight is None and self._seen >= self._start
        iterator: Any = self._iterator
        if not plain or not hasattr(iterator, "rows_ahead"):
            return None
        ahead: RowsAhead | None = iterator.rows_ahead()
        if ahead is None or not ahead.size:
            return None
        if self._steps is not None:
            ahead = ahead.first(self._steps - self._seen)
        if len(ahead.order) < ahead.size:
            return None
        columns = ahead.columns
        arrays = tree.flatten(columns)

        def pack(parts: Sequence[Any]) -> Batch:
            return to_batch(tree.pack_sequence_as(columns, list(parts)), f"a batch of {self._what}")

        if any(a.dtype.kind not in "fiub" for a in arrays):
            return None
        parts = [first_rows(a, ahead.size) for a in arrays]
        leaves = [leaf for leaf in tree.flatten(pack(parts)) if leaf is not None]
        for place, (leaf, part) in enumerate(zip(leaves, parts)):
            if leaf is not part:  # the batches are of other dtypes
                if not isinstance(arrays[place], MappedRows) or leaf.dtype.kind != "f":
                    return None
                arrays[place] = arrays[place].astype(leaf.dtype)
        return BatchesAhead(arrays, pack, ahead.order, ahead.size)

    def leave_out(self, count: int) -> None:
        iterator: Any = self._iterator
        self._seen += iterator.skip(count)

    def close(self) -> None:
        super().close()
        self._close_iterator()

    def _close_iterator(self) -> None:
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            iterator.close()

    def _begin(self, number: int) -> None:
        self._close_iterator()
        self._pass, self._next_pass = number, number + 1
        self._iterator = self._source.open_pass(number)

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        if not self._goes_on:
            self._begin(epoch)
        elif self._iterator is None:
            self._begin(self._next_pass)
        self._before, self._seen, self._start = self._place(), 0, start
        return self._rest(epoch, start)

    def _rest(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch that are left, from batch `start` on."""
        iterator = self._iterator
        try:
            yield from self._of_epoch(epoch, start)
        finally:
            if not self._goes_on and self._iterator is iterator:
                self._close_iterator()

    def _of_epoch(self, epoch: int, start: int) -> Iterator[Batch]:
        while self._steps is None or self._seen < self._steps:
            element = self._next(epoch, self._seen)
            if element is None:
                break
            self._seen += 1
            if self._seen > start:
                yield self._to_batch(element[0], epoch, self._seen)
        else:
            return
        self._close_iterator()
        if not self._seen:
            raise ValueError(f"x: expected at least one batch from {self._what}, got none.")
        if self._steps is None:
            self._length = self._seen
        else:
            self._warn_short(self._what, epoch, self._seen)

    def _next(self, epoch: int, seen: int) -> tuple[Any] | None:
        """Return a tuple of the next element, None at the end of the data."""
        for _ in range(2):
            if self._iterator is None:
                return None
            try:
                return (next(self._iterator),)
            except StopIteration:
                if seen or not self._goes_on:
                    return None
                self._begin(self._next_pass)  # the epoch before has ended with the pass
            except Exception as error:
                add_place(error, f"batch {seen + 1} of epoch {epoch + 1} from {self._what}")
                raise
        return None

    def _to_batch(self, element: Structure, epoch: int, number: int) -> Batch:
        place = f"batch {number} of epoch {epoch + 1} from {self._what}"
        batch = self._convert(element, place)
        if all(a is None or type(a) is np.ndarray and a.ndim for a in batch):
            return batch
        for part, leaf in zip(("x", "y", "sample_weight"), batch):
            if any(a is not None and not a.ndim for a in tree.flatten(leaf)):
                raise ValueError(
                    f"{place}: expected batches, whose first axis counts rows, got {part} without "
                    "axes: the elements are single samples. Call .batch(32)."
                )
        return batch
