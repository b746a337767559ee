"""The argument block of a record: int64 words that a kernel's code reads at run time.

| words | meaning |
|---|---|
| 0 | address of the table (the parallel loop, the C library) |
| 1 | threads |
| 2, 3, 4 | rows R, columns C, groups |
| 5 | address of the scratch memory (64-byte aligned) |
| 6 | status: 0, or 2 after an index out of range |
| 7 | address of the segments |
| 8 .. 8 + rank - 1 | the outer sizes (their product is R) |
| then, for every input and output | address, `rank` strides, column stride, limit |

Strides count elements. A stride may be 0 (the operand does not vary along that size).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.codegen.plan import LoopPlan, plan_loops
from kerasish.typing import Array

if TYPE_CHECKING:
    from typing_extensions import Self

TABLE, THREADS, ROWS, COLUMNS, GROUPS, SCRATCH, STATUS, SEGMENTS, SIZES = range(9)
PAD = 64  # columns of scratch rows are padded to a multiple of this
BAD_INDEX = 2


class Operand(NamedTuple):
    """The memory of an input or output.

    Args:
        address: of its first element.
        strides: elements between neighbors along each outer size; None: `columns` for element
            operands, 1 for row operands, 0 otherwise (rank 1 only).
        column_stride: elements between columns (used only where the structure has `strided`).
        limit: the number of rows of the array of a gather or scatter.
    """

    address: int
    strides: tuple[int, ...] | None = None
    column_stride: int = 1
    limit: int = 0


def words_per_operand(rank: int) -> int:
    return rank + 3


def operand_word(kernel: Kernel, number: int) -> int:
    """The first word of operand `number` (inputs, then outputs)."""
    return SIZES + kernel.rank + number * words_per_operand(kernel.rank)


def padded(columns: int) -> int:
    return -(-columns // PAD) * PAD


class ScratchLayout(NamedTuple):
    """The layout of a kernel's scratch memory; offsets are computed from the sizes at run time.

    In this order: per slot and column reduction one row, per thread and full reduction 64 bytes,
    per thread and kept value one row; a row is 8 * padded(columns) bytes. Slots: max(threads,
    groups) where columns are walked, threads + groups where rows are.
    """

    columns: int
    totals: int
    rows: int
    by_column: bool

    @classmethod
    def of(cls, plan: LoopPlan) -> Self:
        return cls(
            len(plan.column_reductions), len(plan.all_reductions), len(plan.spills), plan.by_column
        )

    def size(self, columns: int, groups: int, threads: int) -> int:
        """Bytes of scratch memory."""
        row = 8 * padded(columns)
        slots = max(threads, groups) if self.by_column else threads + groups
        return slots * self.columns * row + threads * (self.totals * 64 + self.rows * row)


def scratch_size(kernel: Kernel, columns: int, groups: int = 1, threads: int = 1) -> int:
    """Bytes of scratch memory that a record of this kernel needs: 64-byte aligned, any content."""
    return ScratchLayout.of(plan_loops(kernel)).size(columns, groups, threads)


def pack(
    kernel: Kernel,
    operands: Sequence[Operand | int],
    *,
    table: int,
    columns: int,
    rows: int = 1,
    sizes: Sequence[int] | None = None,
    groups: int = 1,
    threads: int = 1,
    scratch: int = 0,
    segments: int = 0,
) -> Array:
    """Return the argument block as an int64 array; the caller keeps it alive with the record.

    Args:
        operands: one for each input, then each output; a bare address takes the default strides.
        rows: R; or `sizes`: the outer sizes, whose product is R.
        groups: the number of equal runs of rows with separate column reductions. Their results,
            and values computed from them, are written group by group, `columns` numbers apart.
        columns: C (with segments: the total number of elements; rows: the number of segments).
        threads: the number of threads that run it, from `choose_threads`.
        scratch: address of `scratch_size` bytes. segments: address of a `segment_table`.

    Raises:
        ValueError: the number of operands or sizes differs from the kernel's; scratch memory is
            needed and not given; the rows cannot be divided into equal groups.
    """
    expected = len(kernel.inputs) + len(kernel.outputs)
    if len(operands) != expected:
        raise ValueError(f"pack: the kernel has {expected} operands, got {len(operands)}")
    outer = (rows,) if sizes is None else tuple(sizes)
    if len(outer) != kernel.rank:
        raise ValueError(f"pack: the kernel has {kernel.rank} outer sizes, got {outer}")
    plan = plan_loops(kernel)
    if groups > 1 and (math.prod(outer) % groups or not plan.column_reductions):
        raise ValueError(f"pack: {math.prod(outer)} rows cannot be divided into {groups} groups")
    needed = scratch_size(kernel, columns, groups, threads)
    if needed and not scratch:
        raise ValueError(f"pack: the kernel needs {needed} bytes of scratch memory, got none")
    words = [table, threads, math.prod(outer), columns, groups, scratch, 0, segments, *outer]
    for number, operand in enumerate(operands):
        if not isinstance(operand, Operand):
            operand = Operand(int(operand))
        strides = operand.strides
        if strides is None:
            strides = _default_strides(plan, number, columns)
        if len(strides) != kernel.rank:
            raise ValueError(f"pack: operand {number} needs {kernel.rank} strides, got {strides}")
        words += [operand.address, *strides, operand.column_stride, operand.limit]
    return np.array(words, dtype=np.int64)


def _default_strides(plan: LoopPlan, number: int, columns: int) -> tuple[int, ...]:
    kernel = plan.kernel
    if number < plan.base:
        level = kernel.inputs[number].level
    else:
        output = kernel.outputs[number - plan.base]
        level = plan.levels.level[output.value]
        if level == "column" and not plan.after(output.value):
            level = "element"
        elif level == "column":
            return (columns,)
    if kernel.rank > 1 and level in ("element", "row"):
        raise ValueError(f"pack: operand {number} needs its {kernel.rank} strides")
    first = {"element": columns, "row": 1}.get(level, 0)
    return (first,) + (0,) * (kernel.rank - 1)


def segment_table(sizes: Sequence[int], addresses: Sequence[Sequence[int]]) -> Array:
    """Return the table of a kernel with segments: rows [start, size, address of every operand].

    Args:
        sizes: elements of each segment.
        addresses: for each segment the address of every input, then every output (0 for operands
            that are not element operands).
    """
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else []
    rows = [[s, n, *a] for s, n, a in zip(starts, sizes, addresses, strict=True)]
    width = 2 + (len(addresses[0]) if len(addresses) else 0)
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
