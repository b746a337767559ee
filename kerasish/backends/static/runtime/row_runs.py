"""Many steps in one native call: batches gathered by index from arrays in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.backends.backend import Timing
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import (
    Program,
    Record,
    RecordError,
    Steps,
    UnmetConditionError,
    aligned,
    condition_record,
    load_runtime,
)
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.runtime.filling import leaves_of
from kerasish.backends.static.runtime.mapped_rows import mapped_kernel
from kerasish.backends.static.strict import records as strict_records
from kerasish.row_formulas import MappedRows, RowFormula
from kerasish.typing import Array

UNSURE = -1  # the number of the condition that all floats of `MappedRows` are finite


class RowGather:
    """Records that copy the rows of the next batch into a program's inputs.

    Args:
        sources: arrays or `MappedRows`, one for each target.
        targets: NumPy views of the program's inputs, the batch axis first.
        threads: the most threads that copy.
    """

    def __init__(self, sources: Sequence[Any], targets: Sequence[Any], threads: int = 1) -> None:
        self.sources, self.threads = list(sources), threads
        self.size = targets[0].shape[0]
        self.records: list[Record] = []
        self._words: list[tuple[Any, int]] = []
        self._memory: list[Any] = []  # of the records
        for source, target in zip(sources, targets):
            if isinstance(source, MappedRows):
                self._add_mapped(source.formula, target)
            else:
                self._add(source, target)

    def _add_mapped(self, formula: RowFormula, target: Array) -> None:
        """Add the records that compute rows, and those that check them."""
        kernel, operands, is_checked = mapped_kernel(formula)
        columns = math.prod(target.shape[1:])
        threads = choose_threads(kernel, self.size, columns, self.threads)
        owner, scratch = aligned(arguments.scratch_size(kernel, columns, 1, threads))
        total = np.zeros(1, np.float64)
        operands = [
            arguments.Operand(0, (1,)), *operands, arguments.Operand(target.ctypes.data, (columns,))
        ]  # fmt: skip
        if is_checked:
            operands.append(arguments.Operand(total.ctypes.data, (0,)))
        block = arguments.pack(
            kernel, operands, table=load_runtime().table, columns=columns, rows=self.size,
            threads=threads, scratch=scratch,
        )  # fmt: skip
        self.records.append(Record(compile_one(kernel), block, "rows of the batch"))
        if is_checked:
            self.records.append(condition_record(UNSURE, total.ctypes.data, np.zeros(1)))
        self._memory += [owner, total]
        self._words.append((block, arguments.operand_word(kernel, 0)))

    def _add(self, source: Array, target: Array) -> None:
        kernel = _gather_kernel(target.dtype.name)
        columns = math.prod(target.shape[1:])
        operands = [
            arguments.Operand(0, (1,)),
            arguments.Operand(source.ctypes.data, (columns,), limit=source.shape[0]),
            arguments.Operand(target.ctypes.data, (columns,)),
        ]
        block = arguments.pack(
            kernel, operands, table=load_runtime().table, columns=columns, rows=self.size,
            threads=choose_threads(kernel, self.size, columns, self.threads),
        )  # fmt: skip
        self.records.append(Record(compile_one(kernel), block, "gather of the batch"))
        self._words.append((block, arguments.operand_word(kernel, 0)))

    def start(self, order: Array) -> None:
        """Start with the first row index in `order` (int64, kept alive by the caller)."""
        for block, word in self._words:
            block[word] = order.ctypes.data

    @property
    def advances(self) -> list[tuple[Any, int, int]]:
        """(block, word, amount): what to add after each step to get the next batch's indices."""
        return [(block, word, 8 * self.size) for block, word in self._words]


def _gather_kernel(dtype: str) -> Kernel:
    k = KernelBuilder()
    index = k.input("int64", level="row")
    rows = k.input(dtype, gather=index)
    k.output(k.op("stop_gradient", rows), dtype)
    return k.build()


class RowSteps:
    """A compiled step over the rows of an epoch; a call processes batches while time allows.

    `before` is called before each call, and `after` after it, with whether a batch was completed.

    Attributes:
        left: the number of whole batches that remain.
        done: the number of batches done.
    """

    def __init__(
        self,
        program: Program,
        gather: RowGather,
        order: Array,
        before: Callable[[], None],
        after: Callable[[bool], None],
        describe: Callable[[list[tuple[Record, float]]], list[Timing]],
        explain: Callable[[RecordError], Exception],
    ) -> None:
        self.order = np.ascontiguousarray(order, np.int64)
        self.left = len(self.order) // gather.size
        self.done = 0
        self._before, self._after, self._describe = before, after, describe
        self._explain = explain
        gathers = gather.records
        if guard_pages.mode():
            self.order = guard_pages.constant(self.order)
            gathers = strict_records.named(gathers)
        gather.start(self.order)
        self._program = Program([*gathers, *program.records])
        self._gather = gather
        self._steps = Steps(self._program, gather.advances)
        self._run = self._program.runtime.run_steps

    def run(self, seconds: float, most: int | None = None) -> int:
        """Process batches for about `seconds`, at least one; return the number done.

        Args:
            seconds: no batch starts later than this.
            most: the largest number of batches, >= 1; None for all that remain.

        Returns:
            The number; less than asked for, and possibly 0, before a batch of `MappedRows` for
            which NumPy may have a warning.

        Raises:
            RecordError: a batch failed; `done` and `left` count those before it.
        """
        self._before()
        start, whole = self._steps.done, False
        try:
            # The native call is here, not in `Steps.run`: it is reached for every batch.
            job = self._steps.begin(self.left if most is None else min(most, self.left), seconds)
            self._steps.finish(self._run(job))
            whole = self._steps.done > start
        except RecordError as error:
            if not isinstance(error, UnmetConditionError) or error.number != UNSURE:
                raise self._explain(error) from None
            whole = self._steps.done > start  # nothing of the next batch has run
        finally:
            count = self._steps.done - start
            self.left -= count
            self.done += count
            self._after(whole)
        return count

    def run_timed(self) -> tuple[list[Timing], float]:
        """Process the next batch; return the time of each part of it, and of all of it."""
        self._before()
        whole = False
        try:
            timed = self._program.run_timed()
            for block, word, amount in self._gather.advances:
                block[word] += amount
            self.left -= 1
            self.done += 1
            whole = True
        finally:
            self._after(whole)
        return self._describe(timed), self._program.seconds

    def go_to(self, batch: int) -> None:
        """Continue at a batch of the epoch, 0 for its first."""
        self._gather.start(self.order[batch * self._gather.size :])
        self.done, self.left = batch, len(self.order) // self._gather.size - batch


def row_gather(
    arrays: Sequence[Array],
    parts: Sequence[Array],
    args: Sequence[Any],
    targets: Sequence[Array],
    threads: int = 1,
) -> RowGather | None:
    """Return the records that copy rows of arrays into a program's inputs; None if impossible.

    Args:
        arrays: all rows.
        parts: the batch of each array.
        args: the arguments of the step, which hold the parts.
        targets: the program's inputs.
        threads: the most threads that copy.
    """
    leaves = [leaf for a in args for leaf in leaves_of(a)]
    sources = [array for leaf in leaves for array, part in zip(arrays, parts) if part is leaf]
    if len(sources) != len(targets) or not can_gather(sources, targets):
        return None
    return RowGather(sources, targets, threads)


def can_gather(sources: Sequence[Any], targets: Sequence[Any]) -> bool:
    """Return whether the native gather supports these arrays without a conversion."""
    return bool(targets) and all(
        _is_readable(s)
        and s.dtype == t.dtype
        and s.shape[1:] == t.shape[1:]
        and math.prod(s.shape) > 0
        for s, t in zip(sources, targets)
    )


def _is_readable(source: Any) -> bool:
    """Return whether a loop can read a source: all its arrays are in C order."""
    arrays = source.formula.inputs() if isinstance(source, MappedRows) else [source]
    return all(isinstance(a, np.ndarray) and a.flags.c_contiguous for a in arrays)
