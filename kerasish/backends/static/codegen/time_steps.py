"""All time steps of a recurrence in one function: products and cells, forward and backward.

Each thread computes some rows of the batch over all time steps, so threads do not synchronize in
between. The recurrent kernel is packed once per call, so that its strips are read sequentially. The
order of the terms of a sum does not depend on the number of rows and threads, and so the bits do
not either. The code of the loops is in `step_loops`.

Argument block (int64 words): 0 table, 1 threads (0: one, and the scratch memory holds the packed
kernel of an earlier call), 2 steps, 3 rows, 4 units, 5 scratch memory (`scratch_size` bytes), then
the addresses of arrays in C order (`TimeSteps.names`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen.step_loops import (
    GATES,
    WIDEST,
    make_loops,
    tile_rows,
)
from kerasish.backends.static.machine.assembly import Target, words_of
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.typing import Array

FORWARD = {
    "lstm": ("x", "recurrent", "h", "c", "states", "cells", "gates"),
    "gru": ("x", "recurrent", "bias", "h", "states", "gates"),
    "simple_rnn": ("x", "recurrent", "h", "states"),
}
BACKWARD = {
    "lstm": ("g_states", "g_cells", "recurrent", "c", "cells", "gates", "dx", "dh", "dc"),
    "gru": ("g_states", "recurrent", "h", "states", "gates", "dx", "ds", "dh"),
    "simple_rnn": ("g_states", "recurrent", "states", "dx", "dh"),
}
ARRIVING = ("g_states", "g_cells")
# FLOPs per thread, about 12 microseconds: a second thread takes several microseconds to wake up.
GRAIN = 1e6
THREADS, STEPS = 1, 2  # words


class TimeSteps(NamedTuple):
    """The structure of the loop; sizes are arguments.

    Attributes:
        cell: "lstm", "gru" or "simple_rnn".
        backward: whether it computes the gradients.
        given: the time steps at which gradients by states and by cells arrive: "every", "last" (the
            array is that of the last time step), "none". Only an LSTM has cells.
        masked: whether a mask (steps, rows), the last array, selects the rows that count.
    """

    cell: str = "lstm"
    backward: bool = False
    given: tuple[str, str] = ("every", "every")
    masked: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays, in the order of their addresses."""
        names = (BACKWARD if self.backward else FORWARD)[self.cell]
        none = {n for n, steps in zip(ARRIVING, self.given, strict=True) if steps == "none"}
        mask = ("mask",) if self.masked else ()
        return (*(name for name in names if name not in none), *mask)


def scratch_size(kernel: TimeSteps, rows: int, units: int) -> int:
    """Return the bytes of scratch memory."""
    padded, gates = -(-units // WIDEST) * WIDEST, GATES[kernel.cell]
    return 4 * padded * (gates * units + rows * (1 if kernel.backward else gates)) + 64


def choose_threads(kernel: TimeSteps, sizes: tuple[int, int, int], limit: int) -> int:
    """Return the number of threads, up to `limit`: each has whole tiles of rows, and enough work.

    Args:
        kernel: the structure.
        sizes: steps, rows, units.
        limit: the most threads.
    """
    steps, rows, units = sizes
    flops = 2.0 * steps * rows * units * GATES[kernel.cell] * units
    tiles = -(-rows // tile_rows(host_target()))
    return max(1, min(limit, tiles, int(flops / GRAIN)))


def pack(
    kernel: TimeSteps, *, table: int, threads: int, sizes: tuple[int, int, int], scratch: int,
    addresses: Sequence[int],
) -> Array:  # fmt: skip
    """Return the argument block.

    Args:
        sizes: steps, rows, units.
        addresses: of the arrays `kernel.names`.
    """
    if len(addresses) != len(kernel.names):
        raise ValueError(f"pack: expected {len(kernel.names)} addresses, got {len(addresses)}")
    return np.array([table, threads, *sizes, scratch, *addresses], np.int64)


def generate(kernel: TimeSteps, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    options = (kernel.cell, kernel.backward, kernel.masked, kernel.names, kernel.given, target)
    packing, working = make_loops(*options), make_loops(*options)
    parts = []
    for name, body in (("pack", packing.pack()), ("worker", working.work())):
        head = f"define internal void @{symbol}.{name}(ptr %args, i64 %t, i64 %n) #0"
        parts.append(f"{head} {{\n{body}\n}}")
    entry = _ENTRY.replace("WORDS", words_of("args", "ptr table", "i64 threads"))
    text = "\n".join([*parts, entry.replace("SYMBOL", symbol)])
    return text, packing.w.declared | working.w.declared


_ENTRY = """define i32 @SYMBOL(ptr %args) #0 {
entry:
WORDS
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %parallel, label %alone
parallel:
  %run = load ptr, ptr %table, align 8
  call void %run(ptr @SYMBOL.pack, ptr %args, i64 %threads)
  call void %run(ptr @SYMBOL.worker, ptr %args, i64 %threads)
  ret i32 0
alone:
  %packs = icmp ne i64 %threads, 0
  br i1 %packs, label %pack, label %work
pack:
  call void @SYMBOL.pack(ptr %args, i64 0, i64 1)
  br label %work
work:
  call void @SYMBOL.worker(ptr %args, i64 0, i64 1)
  ret i32 0
}"""
