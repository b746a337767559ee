"""Several batches of a data source at once: trained on natively, in one call.

A step that is called for each batch costs Python's time for each batch. Where batches are rows of
arrays in memory in an order, as those of a shuffled `Dataset` of arrays, the engine gathers them
itself. Other batches of one shape that a source may read ahead are copied into one block of rows,
over which the engine runs as over arrays in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.backends import CompiledStep, RowRun
from kerasish.callbacks import Resume
from kerasish.engine.data.batch import Batch
from kerasish.engine.data.data import MOST_AHEAD, BatchesAhead, Data, Epoch
from kerasish.engine.diagnostics import BatchCheck
from kerasish.engine.training.evaluation import logs_of
from kerasish.engine.training.program import TrainingProgram
from kerasish.engine.training.updates import SECONDS_BETWEEN_UPDATES, Updates
from kerasish.ranks import current_sharding, from_writer
from kerasish.row_formulas import MappedRows, first_rows, is_any_mapped

MOST_BATCHES = MOST_AHEAD
# Of a batch: to copy a larger one twice takes longer than Python's part of a call.
MOST_BYTES = 2**19
# Reading a batch for a larger share of a step ends a block, so that a thread of the source reads
# while the engine computes. In shorter steps the calls would cost more than is gained.
_SLOW_SHARE = 0.25
_SLOW_STEP = 5e-4  # seconds
_MOST_UNSURE = 3  # in an epoch
_ROUNDS = 16  # blocks for which a native run is prepared at once


class Block:
    """The memory for some batches that are like a first one: a ring of places.

    Args:
        batch: the first one: (x, y, sample_weight) of arrays.
    """

    def __init__(self, batch: Batch) -> None:
        self._structure = batch
        leaves = _leaves(batch)
        self.usable = all(
            type(a) is np.ndarray and a.ndim and a.dtype.kind in "fiub" for a in leaves
        )
        self.rows = len(leaves[0]) if self.usable else 0
        size = sum(a.nbytes for a in leaves) if self.usable else 0
        self.most = MOST_BATCHES
        self.usable = self.usable and size <= MOST_BYTES and self.rows > 0
        if not self.usable:
            return
        self._kinds = [(a.shape, a.dtype) for a in leaves]
        self.arrays = [np.empty((self.most * self.rows, *a.shape[1:]), a.dtype) for a in leaves]
        self.order = np.tile(np.arange(self.most * self.rows, dtype=np.int64), _ROUNDS)

    def fits(self, batch: Batch) -> bool:
        """Return whether a batch has the structure, shapes and dtypes of the first one."""
        leaves = _leaves(batch)
        return (
            len(leaves) == len(self._kinds)
            and all(
                type(a) is np.ndarray and (a.shape, a.dtype) == k
                for a, k in zip(leaves, self._kinds)
            )
            and _alike(batch, self._structure)
        )

    def put(self, batch: Batch, place: int) -> None:
        """Copy a batch to a place; at once, since batches that are kept take fresh memory."""
        start = place * self.rows
        for array, leaf in zip(self.arrays, _leaves(batch)):
            array[start : start + self.rows] = leaf

    def batch(self, place: int) -> Batch:
        """Return the batch at a place."""
        start = place * self.rows
        return self.pack([a[start : start + self.rows] for a in self.arrays])

    def pack(self, flat: Any) -> Batch:
        """Return (x, y, sample_weight) of the parts of arrays."""
        rest = iter(flat)
        leaves = [None if a is None else next(rest) for a in tree.flatten(self._structure)]
        return tree.pack_sequence_as(self._structure, leaves)


def _leaves(batch: Batch) -> list[Any]:
    flat = batch if _is_flat(batch) else tree.flatten(batch)
    return [a for a in flat if a is not None]


def _is_flat(batch: Batch) -> bool:
    return all(part is None or type(part) is np.ndarray for part in batch)


def _alike(a: Batch, b: Batch) -> bool:
    if _is_flat(a) and _is_flat(b):
        return [x is None for x in a] == [x is None for x in b]
    try:
        tree.assert_same_structure(a, b)
    except ValueError:
        return False
    return [x is None for x in tree.flatten(a)] == [x is None for x in tree.flatten(b)]


def _checkable(ahead: BatchesAhead) -> Batch:
    """Return all rows as a batch whose y and sample weights can be checked, but not x.

    Rows of x that are mapped are 0.
    """
    parts = [first_rows(a, ahead.batch_size) for a in ahead.arrays]
    of_x = {id(leaf) for leaf in tree.flatten(ahead.pack(parts)[0])}
    rows = list(ahead.arrays)
    for place, (array, part) in enumerate(zip(ahead.arrays, parts)):
        if isinstance(array, MappedRows):
            every = len(array)
            rows[place] = array.like(every) if id(part) in of_x else array.take(np.arange(every))
    return ahead.pack(rows)


class BlockRun:
    """The batches of an epoch, run natively: rows in memory are read in place, others from blocks.

    Args:
        program: what is trained.
        run: its compiled step.
        data: the source of the batches.
        batches: the epoch, opened.
        place: (number of the epoch, number of the next batch, whether the callbacks were called for
            the one before).
        updates: which batches the callbacks are called for.
        batch_end: called with (number of the batch, logs) where `updates` says so.
        resume: saves states, or None.
        check: raises an error for a batch that cannot be trained on, or None.
        block: that of the epoch before, whose memory is used again, or None.

    Attributes:
        last: the number of the last batch done.
        shown: whether the callbacks were called for it.
    """

    def __init__(
        self,
        program: TrainingProgram,
        run: CompiledStep,
        data: Data,
        batches: Epoch,
        place: tuple[int, int, bool],
        updates: Updates,
        batch_end: Callable[..., None],
        resume: Resume | None,
        check: BatchCheck | None,
        block: Block | None = None,
    ) -> None:
        self._program, self._run, self._data, self._batches = program, run, data, batches
        self._epoch, first, self.shown = place
        self.last = first - 1
        self._updates, self._batch_end = updates, batch_end
        self._resume, self._check, self.block = resume, check, block
        self._begun = False  # whether the block is that of the kind of this epoch's batches
        self._place = 0  # the next one in the block
        self._steps: RowRun | None = None  # over the block, from that place on
        self._over = False  # whether the next batch, if there is one, is of another kind
        self._error: Exception | None = None  # raised by the batch after those of the block
        self._ranks = current_sharding() is not None  # they read equally many batches at once
        self._most = MOST_AHEAD  # of the next block
        self._asks = True  # whether the data is asked for rows in memory
        self._checked: list[Any] = []  # the formulas of the mapped rows that passed the check
        self._unsure = 0  # batches of mapped rows for which NumPy may have a warning
        self._step = 0.0  # seconds of one, in the last block

    def run(self) -> None:
        """Train on batches as long as they are alike; the others are left in the epoch."""
        if self._updates.every or not self._run.reads_blocks:
            return
        by_rows, more = False, True
        while more and not self._program.model.stop_training:
            ahead, read = self._ahead(), self._batches.has_pushed_back
            if ahead is not None and not read and self._run_rows(ahead):
                by_rows = True
            elif by_rows and self._asks or ahead is not None and read:
                more = self._run_single()
            else:
                more = self._data.reads_ahead > 0 and self._run_block()

    def _run_single(self) -> bool:
        """Run a batch before, between or behind those of rows; return whether there was one."""
        batch = next(self._batches, None)
        if batch is not None:
            if self._check is not None:
                self._check(*batch)
            self._run(*batch)
            self._did(1)
            self._save_after(1)
        return batch is not None

    def _did(self, count: int) -> None:
        self.last += count
        self.shown = self._updates.due(self.last)
        if self.shown:
            self._batch_end(self.last, logs_of(self._program, None))
            self._steps = None  # it may have changed what the step depends on

    def _save_after(self, count: int) -> None:
        if self._resume is not None and self._resume.due(count) and not self._over:
            self._resume.save(self._epoch, self.last + 1)

    # --- rows of arrays in memory -----------------------------------------------------------------

    def _ahead(self) -> BatchesAhead | None:
        """Return the next batches where they are rows in memory that all pass the check."""
        ahead, check = self._data.batches_ahead() if self._asks else None, self._check
        if ahead is None:
            return None
        # Ranks do equally many batches at once: none may end before the others.
        if is_any_mapped(ahead.arrays) and (self._ranks or check is not None and check.reads_x):
            self._asks = False
            return None
        formulas = [a.formula.key() for a in ahead.arrays if isinstance(a, MappedRows)]
        if check is not None and (not formulas or formulas != self._checked):
            try:
                check(*_checkable(ahead))
            except ValueError:
                return None  # the row may be one that is never taken: batches are checked
            self._checked = formulas
        return ahead

    def _run_rows(self, ahead: BatchesAhead) -> bool:
        """Run batches of rows; return whether the engine can do so."""
        steps, resume = self._run.over_rows(*ahead), self._resume
        if steps is None:
            self._asks = not is_any_mapped(ahead.arrays)
            return False
        while steps.left and not self._program.model.stop_training:
            limits = (SECONDS_BETWEEN_UPDATES, None) if resume is None else resume.ahead()
            done = steps.run(*limits)
            if done:
                self._data.leave_out(done)
                self._did(done)
                self._save_after(done)
            else:  # the function is called for this batch
                self._unsure += 1
                self._asks = self._unsure < _MOST_UNSURE
                self._run_single()
            if is_any_mapped(ahead.arrays):
                break  # what the function reads from outside may have changed
        return True

    # --- blocks -----------------------------------------------------------------------------------

    def _run_block(self) -> bool:
        """Run the next batches in a block; return whether others like them may follow."""
        resume = self._resume
        # Ranks read equally many batches: those that the rank that counts them reads.
        most = None if resume is None else from_writer(lambda: resume.ahead()[1])
        count, block = self._fill(most), self.block
        if count and block is not None:
            self._run_filled(block, count)
        if self._error is not None:
            raise self._error
        return not self._over

    def _run_filled(self, block: Block, count: int) -> None:
        """Run the batches that were put into the block."""
        if self._steps is None:
            order = block.order[self._place * block.rows :]
            self._steps = self._run.over_rows(block.arrays, block.pack, order, block.rows)
        steps, first = self._steps, self._place
        self._place = (first + count) % block.most
        if steps is None:  # this step is called for each batch
            self._over = True
            for number in range(first, first + count):
                self._run(*block.batch(number % block.most))
            self.last, self.shown = self.last + count, False
            return
        done, start = 0, time.perf_counter()
        while done < count:  # all of them: the place in the data is behind the block
            more = steps.run(SECONDS_BETWEEN_UPDATES, count - done)
            done += more
            self._did(more)
        self._step = (time.perf_counter() - start) / count
        if steps.left < block.most:
            self._steps = None
        self._save_after(count)

    def _fill(self, most: int | None) -> int:
        """Put the next batches that are alike into the block; return how many there are."""
        count, known = 0, self._data.num_batches
        # What follows the last batch is done after training on it.
        left = math.inf if known is None else known - 1 - self.last
        limit = min(left, self._most, self._data.reads_ahead, math.inf if most is None else most)
        slow = False
        while count < limit and not slow:
            try:
                waited = self._batches.waited
                batch = next(self._batches, None)
                slow = self._is_slow(self._batches.waited - waited)
                if batch is not None and self._check is not None:
                    self._check(*batch)
            except Exception as error:  # noqa: BLE001 (raised after the batches before it)
                self._error, batch = error, None
            if batch is None:
                break
            block = self.block
            if block is None or not self._begun and not (block.usable and block.fits(batch)):
                block = self.block = Block(batch)
            self._begun = True
            if not block.usable or not block.fits(batch):
                self._batches.push_back(batch)
                break
            block.put(batch, (self._place + count) % block.most)
            count += 1
        if not self._ranks:
            self._most = 1 if slow else min(2 * self._most, MOST_AHEAD)
        self._over = not count or count < limit and not slow or self._error is not None
        return count

    def _is_slow(self, seconds: float) -> bool:
        """Return whether a batch took so long to read that those before it are to be run."""
        return not self._ranks and seconds > _SLOW_SHARE * self._step > _SLOW_SHARE * _SLOW_STEP
