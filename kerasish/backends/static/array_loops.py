"""Compiled loops as functions of arrays, for engines that run one computation at a time.

The contract is that of `kerasish.backends.loops`. A call takes a few microseconds of Python: it
writes addresses and sizes into an argument block and runs the record's function.

Results do not depend on the number of threads. Sums along rows and single elements never do. The
number of threads of a kernel that reduces columns divides the number of its groups, so that threads
share no group.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kerasish.backends.loops import Describe, address_of
from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments, time_steps
from kerasish.backends.static.codegen.arguments import Operand, ScratchLayout
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.typing import Array

_ALIGNMENT = 64
# Nanoseconds of work per thread. Python runs between two loops, so the threads must be woken up.
GRAIN = 20_000.0


class _Memory(threading.local):
    """Scratch memory of a thread, for the loop that it runs."""

    def __init__(self) -> None:
        self.block = np.empty(0, np.uint8)

    def address(self, nbytes: int) -> int:
        if self.block.nbytes < nbytes + _ALIGNMENT:
            self.block = np.empty(nbytes + _ALIGNMENT, np.uint8)
        start = address_of(self.block)
        return -(-start // _ALIGNMENT) * _ALIGNMENT


_memory = _Memory()


def scratch_address(nbytes: int) -> int:
    """Return the address of memory of this thread, for the loop that it runs."""
    return _memory.address(nbytes)


class _Segments(NamedTuple):
    """The argument block and the table of segments of given sizes, without the addresses.

    Attributes:
        pack_words: packs the block.
        pack_rows: packs the table.
        words: of the block.
        rows: of the table.
        places: the positions of the addresses of each operand with elements in a row of the table.
        shared: the positions in the block of the addresses that all segments share.
        width: the number of words of a row.
    """

    pack_words: Callable[..., bytes]
    pack_rows: Callable[..., bytes]
    words: tuple[int, ...]
    rows: tuple[int, ...]
    places: tuple[int, ...]
    shared: tuple[int, ...]
    width: int


class KernelLoop:
    """A kernel as a function of arrays; see `kerasish.backends.loops.ArrayLoop`.

    Args:
        kernel: what is computed.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        plan = plan_loops(kernel)
        self._scratch = ScratchLayout.of(plan)
        self._reduces = bool(plan.column_reductions or plan.all_reductions)
        self._by_column = plan.by_column
        self._count = len(kernel.inputs) + len(kernel.outputs)
        self._template = lru_cache(maxsize=256)(self._words)
        self._segments = lru_cache(maxsize=16)(self._segment_layout)
        function = compile_one(kernel)
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function)

    def __call__(self, arrays: Sequence[Array], rows: int, columns: int, groups: int = 1) -> None:
        """Run the loop; see `ArrayLoop`."""
        self._place([address_of(a) for a in arrays], rows, columns, groups, None)

    def at(
        self, addresses: Sequence[int], rows: int, columns: int, strides: tuple[int, ...]
    ) -> None:
        """Run the loop on operands at given addresses; see `ArrayLoop`."""
        self._place(addresses, rows, columns, 1, strides)

    def _place(
        self, addresses: Sequence[int], rows: int, columns: int, groups: int,
        strides: tuple[int, ...] | None,
    ) -> None:  # fmt: skip
        most = native.get_threads()
        pack, known, places, scratch = self._template(rows, columns, groups, most, strides)
        words = list(known)
        for place, address in zip(places, addresses, strict=True):
            words[place] = address
        if scratch:
            words[arguments.SCRATCH] = scratch_address(scratch)
        self._execute(pack(*words))

    def _execute(self, packed: bytes) -> None:
        status = self._run(ctypes.create_string_buffer(packed, len(packed)))
        if status:
            raise RuntimeError(f"a compiled loop ended with status {status}")

    def _words(
        self, rows: int, columns: int, groups: int, most: int, strides: tuple[int, ...] | None
    ) -> tuple[Callable[..., bytes], tuple[int, ...], list[int], int]:
        """Return the block's packer, its words, the positions of addresses, and scratch bytes."""
        kernel = self._kernel
        threads = self._threads(rows, columns, groups, most)
        operands: list[Operand | int] = [0] * self._count
        if strides is not None:
            operands = [Operand(0, (stride,)) for stride in strides]
        block = arguments.pack(
            kernel, operands, table=load_runtime().table, columns=columns, rows=rows,
            groups=groups, threads=threads, scratch=1,
        )  # fmt: skip
        places = [arguments.operand_word(kernel, number) for number in range(self._count)]
        scratch = self._scratch.size(columns, groups, threads)
        pack = struct.Struct(f"{len(block)}q").pack
        return pack, tuple(block.tolist()), places, scratch

    def _threads(self, rows: int, columns: int, groups: int, most: int) -> int:
        """Return the number of threads; where columns are reduced, they share no group."""
        threads = choose_threads(self._kernel, rows, columns, most, GRAIN)
        if not self._reduces or (
            groups == 1 and self._by_column and self._splits(columns, threads)
        ):
            return threads
        return max(n for n in range(1, threads + 1) if groups % n == 0)

    @staticmethod
    def _splits(columns: int, threads: int) -> bool:
        """Return whether threads divide the columns, and one thread reduces each column."""
        return columns >= threads * arguments.PAD

    def over_segments(
        self, sizes: tuple[int, ...], addresses: Sequence[Sequence[int]], shared: Sequence[int]
    ) -> None:
        """Run the loop on several lists of arrays; see `ArrayLoop`."""
        layout = self._segments(sizes, len(shared), native.get_threads())
        words, rows = list(layout.words), list(layout.rows)
        for place, of_segments in zip(layout.places, addresses, strict=True):
            rows[place :: layout.width] = of_segments
        for place, address in zip(layout.shared, shared, strict=True):
            words[place] = address
        table = ctypes.create_string_buffer(layout.pack_rows(*rows), 8 * len(rows))
        words[arguments.SEGMENTS] = ctypes.addressof(table)
        self._execute(layout.pack_words(*words))

    def _segment_layout(self, sizes: tuple[int, ...], shared: int, most: int) -> _Segments:
        """Return what is the same in all runs over segments of these sizes."""
        kernel = self._kernel
        elements = sum(i.level == "element" for i in kernel.inputs)
        total, width = sum(sizes), self._count
        table = arguments.segment_table(sizes, [[0] * width] * len(sizes))
        threads = choose_threads(kernel, len(sizes), total, most, GRAIN)
        block = arguments.pack(
            kernel, [Operand(0, (0,))] * width, table=load_runtime().table, rows=len(sizes),
            columns=total, threads=threads, segments=1,
        )  # fmt: skip
        return _Segments(
            struct.Struct(f"{block.size}q").pack,
            struct.Struct(f"{table.size}q").pack,
            tuple(block.tolist()),
            tuple(table.reshape(-1).tolist()),
            (*range(2, 2 + elements), *range(2 + elements + shared, 2 + width)),
            tuple(arguments.operand_word(kernel, elements + n) for n in range(shared)),
            2 + width,
        )


def compile_array_loop(describe: Describe, segments: bool = False) -> KernelLoop | None:
    """Return the loop that `describe` describes; None where no loop can be compiled.

    Args:
        describe: calls the methods of the builder that is passed to it.
        segments: whether the loop will run by `over_segments`.
    """
    builder = KernelBuilder(segments=segments)
    describe(builder)
    try:
        return KernelLoop(builder.build())
    except (ImportError, OSError):
        return None


class ArrayTimeSteps:
    """All time steps of a recurrence on arrays; see `kerasish.backends.loops.TimeSteps`.

    Args:
        kernel: what is computed.
    """

    def __init__(self, kernel: time_steps.TimeSteps) -> None:
        self._kernel = kernel
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(compile_one(kernel))

    def __call__(self, arrays: Sequence[Array], sizes: tuple[int, int, int]) -> None:
        """Run the steps; see `TimeSteps`."""
        _, rows, units = sizes
        block = time_steps.pack(
            self._kernel, table=load_runtime().table, sizes=sizes,
            threads=time_steps.choose_threads(self._kernel, sizes, native.get_threads()),
            scratch=scratch_address(time_steps.scratch_size(self._kernel, rows, units)),
            addresses=[address_of(a) for a in arrays],
        )  # fmt: skip
        status = self._run(block.ctypes.data)
        if status:
            raise RuntimeError(f"the time steps of a recurrence ended with status {status}")


def compile_time_steps(cell: str, backward: bool, masked: bool) -> ArrayTimeSteps | None:
    """Return all time steps of a recurrence; None where no loop can be compiled.

    Args:
        cell: "lstm", "gru" or "simple_rnn".
        backward: whether they are those of the gradient.
        masked: whether a mask selects the rows that count.
    """
    try:
        return ArrayTimeSteps(time_steps.TimeSteps(cell, backward, masked=masked))
    except (ImportError, OSError):
        return None
