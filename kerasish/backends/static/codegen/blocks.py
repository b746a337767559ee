"""The native loop over the blocks of a batch: each thread takes blocks until none is left.

A thread has a program and memory of its own, a lane. For a block it copies the rows of the inputs
into its memory, runs its program, and copies the rows of the results out. The last block is a whole
one, too: its first rows may be rows of the block before, whose results it leaves alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.driver import Record, load_runtime, table_of
from kerasish.backends.static.codegen.driver_code import WALK
from kerasish.backends.static.codegen.kernels import Text, compile_one
from kerasish.backends.static.machine.assembly import words_of

LANE = 6  # words of a lane: records, their number, addresses of its ports, status, record, block
_STATUS = 3
# Words: 0 the table, 1 lanes, 2 how many, 3 the next block, 4 the block to stop before, 5 rows of a
# block, 6 rows of the batch, 7 how many ports are inputs, 8 how many ports there are, 9 the
# addresses of the arrays of all rows, a port each, 10 bytes of their rows, 11 memmove.
_WORDS = (
    "ptr table", "ptr lanes", "i64 count", "address next.at", "i64 stop", "i64 block", "i64 rows",
    "i64 inputs", "i64 ports", "ptr arrays", "ptr sizes", "ptr memmove",
)  # fmt: skip
_BLOCKS = Text(
    WALK
    + f"""
define internal void @SYMBOL.lane(ptr %args, i64 %t, i64 %n) #0 {{
entry:
{words_of("args", *_WORDS)}
  %place = mul i64 %t, {LANE}
  %lane = getelementptr i64, ptr %lanes, i64 %place
  %count.at = getelementptr i64, ptr %lane, i64 1
  %own.at = getelementptr i64, ptr %lane, i64 2
  %status.at = getelementptr i64, ptr %lane, i64 {_STATUS}
  %failed = getelementptr i64, ptr %lane, i64 4
  %block.at = getelementptr i64, ptr %lane, i64 5
  %records = load ptr, ptr %lane, align 8
  %records.count = load i64, ptr %count.at, align 8
  %own = load ptr, ptr %own.at, align 8
  %last = sub i64 %rows, %block
  br label %take
take:
  %b = atomicrmw add ptr %next.at, i64 1 monotonic
  %more = icmp slt i64 %b, %stop
  br i1 %more, label %begin, label %exit
begin:
  %wanted = mul i64 %b, %block
  %late = icmp sgt i64 %wanted, %last
  %first = select i1 %late, i64 %last, i64 %wanted
  %known = sub i64 %wanted, %first
  br label %in
in:
  %p = phi i64 [ 0, %begin ], [ %p.next, %read ]
  %p.more = icmp slt i64 %p, %inputs
  br i1 %p.more, label %read, label %run
read:
  %p.array.at = getelementptr i64, ptr %arrays, i64 %p
  %p.size.at = getelementptr i64, ptr %sizes, i64 %p
  %p.own.at = getelementptr i64, ptr %own, i64 %p
  %p.array = load ptr, ptr %p.array.at, align 8
  %p.size = load i64, ptr %p.size.at, align 8
  %p.own = load ptr, ptr %p.own.at, align 8
  %p.start = mul i64 %first, %p.size
  %p.from = getelementptr i8, ptr %p.array, i64 %p.start
  %p.bytes = mul i64 %block, %p.size
  %p.unused = call ptr %memmove(ptr %p.own, ptr %p.from, i64 %p.bytes)
  %p.next = add i64 %p, 1
  br label %in
run:
  %status32 = call i32 @SYMBOL.walk(ptr %records, i64 %records.count, ptr %failed)
  %fine = icmp eq i32 %status32, 0
  br i1 %fine, label %out, label %bad
out:
  %q = phi i64 [ %inputs, %run ], [ %q.next, %write ]
  %q.more = icmp slt i64 %q, %ports
  br i1 %q.more, label %write, label %take
write:
  %q.array.at = getelementptr i64, ptr %arrays, i64 %q
  %q.size.at = getelementptr i64, ptr %sizes, i64 %q
  %q.own.at = getelementptr i64, ptr %own, i64 %q
  %q.array = load ptr, ptr %q.array.at, align 8
  %q.size = load i64, ptr %q.size.at, align 8
  %q.own = load ptr, ptr %q.own.at, align 8
  %q.start = mul i64 %wanted, %q.size
  %q.to = getelementptr i8, ptr %q.array, i64 %q.start
  %q.known = mul i64 %known, %q.size
  %q.from = getelementptr i8, ptr %q.own, i64 %q.known
  %q.rows = sub i64 %block, %known
  %q.bytes = mul i64 %q.rows, %q.size
  %q.unused = call ptr %memmove(ptr %q.to, ptr %q.from, i64 %q.bytes)
  %q.next = add i64 %q, 1
  br label %out
bad:
  %status = sext i32 %status32 to i64
  store i64 %status, ptr %status.at, align 8
  store i64 %b, ptr %block.at, align 8
  %none = atomicrmw add ptr %next.at, i64 %stop monotonic
  br label %exit
exit:
  ret void
}}
define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words_of("args", *_WORDS)}
  %parallel = load ptr, ptr %table, align 8
  call void %parallel(ptr @SYMBOL.lane, ptr %args, i64 %count)
  ret i32 0
}}"""
)


@functools.cache
def _function() -> Any:
    runtime = load_runtime()
    return type(runtime.run_steps)(compile_one(_BLOCKS))


class Lane:
    """A program with memory of its own, as the native loop takes it.

    Args:
        records: of the program.
        ports: the addresses of its inputs, then of its results.

    Attributes:
        words: see the module.
    """

    def __init__(self, records: Sequence[Record], ports: Sequence[int]) -> None:
        self._records, self._table = list(records), table_of(records)
        self._ports = np.array(ports, np.int64)
        words = [self._table.ctypes.data, len(self._table), self._ports.ctypes.data, 0, 0, 0]
        self.words = np.array(words, np.int64)


def run_blocks(
    lanes: Sequence[Lane], blocks: tuple[int, int], block: int, rows: int,
    arrays: tuple[Sequence[Any], Sequence[Any]],
) -> tuple[int, int, int] | None:  # fmt: skip
    """Run blocks of a batch, each lane on a thread of its own.

    Args:
        lanes: at least one.
        blocks: the first one to run, and the one to stop before.
        block: rows of a block, at most `rows`.
        rows: of the batch.
        arrays: the inputs and the results, C-ordered, with all rows.

    Returns:
        The number of the lane that failed, of its record, and the status: of the first block that
        did; None if all is done.
    """
    runtime = load_runtime()
    inputs, results = arrays
    both = [*inputs, *results]
    words = np.concatenate([lane.words for lane in lanes])
    ports = np.array([[a.ctypes.data for a in both], [a.nbytes // rows for a in both]], np.int64)
    count = len(both)
    job = np.array(
        [runtime.table, words.ctypes.data, len(lanes), *blocks, block, rows, len(inputs), count,
         ports.ctypes.data, ports.ctypes.data + 8 * count, runtime.memmove],
        np.int64,
    )  # fmt: skip
    _function()(job.ctypes.data)
    failed = [
        (own[5], number, own[4], own[_STATUS])
        for number, own in enumerate(words.reshape(-1, LANE).tolist())
        if own[_STATUS]
    ]
    if not failed:
        return None
    _, number, record, status = min(failed)
    return number, record, status
