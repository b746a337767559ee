"""Several batches of a data source at once: copied side by side, then trained on natively.

A step that is called for each batch costs Python's time for each batch. Batches of one shape that a
source may read ahead are copied into one block of rows, over which the engine runs as over arrays
in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.backends import CompiledStep
from kerasish.callbacks import Resume
from kerasish.engine.data.batch import Batch
from kerasish.engine.data.data import Data, Epoch
from kerasish.engine.training.evaluation import logs_of
from kerasish.engine.training.program import TrainingProgram
from kerasish.engine.training.updates import SECONDS_BETWEEN_UPDATES, Updates
from kerasish.ranks import from_writer

MOST_BATCHES = 8
MOST_BYTES = 2**23  # of a block; with larger batches Python's time does not matter


class Block:
    """The memory for some batches that are like a first one.

    Args:
        batch: the first one: (x, y, sample_weight) of arrays.
    """

    def __init__(self, batch: Batch) -> None:
        self._structure = batch
        leaves = [leaf for leaf in tree.flatten(batch) if leaf is not None]
        self.usable = all(
            type(a) is np.ndarray and a.ndim and a.dtype.kind in "fiub" for a in leaves
        )
        self.rows = len(leaves[0]) if self.usable else 0
        size = sum(a.nbytes for a in leaves) if self.usable else 0
        self.most = min(MOST_BATCHES, MOST_BYTES // max(size, 1))
        self.usable = self.usable and self.most > 1 and self.rows > 0
        if not self.usable:
            return
        self._kinds = [(a.shape, a.dtype) for a in leaves]
        self.arrays = [np.empty((self.most * self.rows, *a.shape[1:]), a.dtype) for a in leaves]
        self.order = np.arange(self.most * self.rows, dtype=np.int64)

    def fits(self, batch: Batch) -> bool:
        """Return whether a batch has the structure, shapes and dtypes of the first one."""
        leaves = [leaf for leaf in tree.flatten(batch) if leaf is not None]
        return (
            len(leaves) == len(self._kinds)
            and all(
                type(a) is np.ndarray and (a.shape, a.dtype) == k
                for a, k in zip(leaves, self._kinds)
            )
            and _alike(batch, self._structure)
        )

    def fill(self, group: list[Batch]) -> None:
        """Copy batches into the block."""
        columns = zip(*([a for a in tree.flatten(b) if a is not None] for b in group))
        for array, parts in zip(self.arrays, columns):
            np.concatenate(parts, out=array[: len(group) * self.rows])

    def pack(self, flat: Any) -> Batch:
        """Return (x, y, sample_weight) of the parts of arrays."""
        rest = iter(flat)
        leaves = [None if a is None else next(rest) for a in tree.flatten(self._structure)]
        return tree.pack_sequence_as(self._structure, leaves)


def _alike(a: Batch, b: Batch) -> bool:
    try:
        tree.assert_same_structure(a, b)
    except ValueError:
        return False
    return [x is None for x in tree.flatten(a)] == [x is None for x in tree.flatten(b)]


def run_blocks(
    program: TrainingProgram,
    run: CompiledStep,
    data: Data,
    batches: Epoch,
    place: tuple[int, int, bool],
    updates: Updates,
    batch_end: Callable[..., None],
    resume: Resume | None,
    check: Callable[[Any, Any, Any], None] | None,
) -> tuple[int, bool]:
    """Train on the batches of an epoch in blocks, as long as they are alike.

    What does not fit into a block is left in `batches`.

    Args:
        program: what is trained.
        run: its compiled step.
        data: where the batches come from.
        batches: the epoch, opened.
        place: (number of the epoch, number of the next batch, whether the callbacks were called for
            the one before).
        updates: which batches the callbacks are called for.
        batch_end: called with (number of the batch, logs) where `updates` says so.
        resume: saves states, or None.
        check: raises an error for a batch that cannot be trained on, or None.

    Returns:
        The number of the last batch done, and whether the callbacks were called for it.
    """
    epoch, first, shown = place
    last = first - 1
    if not data.reads_ahead or updates.every or not run.reads_blocks:
        return last, shown
    block: Block | None = None
    while not program.model.stop_training:
        # Ranks read equally many batches: those that the rank that counts them reads.
        most = None if resume is None else from_writer(lambda: resume.ahead()[1])
        group, stopped, block = _group(batches, block, most, check)
        if block is None or not group:
            break
        block.fill(group)
        order = block.order[: len(group) * block.rows]
        steps = run.over_rows(block.arrays, block.pack, order, block.rows)
        if steps is None:  # this step is called for each batch
            for batch in group:
                run(*batch)
            last, shown = last + len(group), False
            break
        while steps.left:  # all of them: the place in the data is behind the block
            last += steps.run(SECONDS_BETWEEN_UPDATES)
            shown = updates.due(last)
            if shown:
                batch_end(last, logs_of(program, None))
        if resume is not None and resume.due(len(group)) and not stopped:
            resume.save(epoch, last + 1)
        if stopped:
            break
    return last, shown


def _group(
    batches: Epoch,
    block: Block | None,
    most: int | None,
    check: Callable[[Any, Any, Any], None] | None,
) -> tuple[list[Batch], bool, Block | None]:
    """Return (the next batches, whether the last one of their kind was met, their block)."""
    group: list[Batch] = []
    while block is None or len(group) < min(block.most, most or block.most):
        batch = next(batches, None)
        if batch is None:
            return group, True, block
        if block is None:
            block = Block(batch)
        if not block.usable or not block.fits(batch):
            batches.push_back(batch)
            return group, True, block if block.usable else None
        if check is not None:
            check(*batch)
        group.append(batch)
    return group, False, block
