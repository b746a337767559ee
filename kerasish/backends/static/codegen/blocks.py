"""The native loop over the blocks of a batch: each thread takes blocks until none remains.

Each thread has a separate program and memory, a lane. For a block it copies the rows of the inputs
into its memory, runs its program, and copies the rows of the results out. The last block is also a
full block: its first rows may belong to the previous block, and their results are not copied.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.driver import Record, load_runtime, table_of
from kerasish.backends.static.codegen.driver_code import WALK
from kerasish.backends.static.codegen.kernels import KernelText, compile_one
from kerasish.backends.static.machine.assembly import words_of

LANE = 6  # words of a lane: records, their number, addresses of its ports, status, record, block
_STATUS = 3
# Words: 0 the table, 1 lanes, 2 their number, 3 the next block, 4 the block to stop before, 5 rows
# of a block, 6 rows of the batch, 7 the number of ports that are inputs, 8 the number of ports, 9
# the addresses of the arrays of all rows, one per port, 10 bytes of their rows, 11 memmove.
_WORDS = (
    "ptr table", "ptr lanes", "i64 count", "address next.at", "i64 stop", "i64 block", "i64 rows",
    "i64 inputs", "i64 ports", "ptr arrays", "ptr sizes", "ptr memmove",
)  # fmt: skip


def _copies(name: str, ports: tuple[str, str], after: str, rows: tuple[str, str]) -> str:
    """Return the loop that copies rows between the arrays of all rows and the lane's memory.

    Args:
        name: of its first block: "in" copies into the lane, "out" out of it.
        ports: the first one, and the one to stop before.
        after: the block that follows.
        rows: the first one in the arrays and in the lane; the lane's block is copied to its end.
    """
    ends = ("lane", "array") if name == "in" else ("array", "lane")
    to, source = (f"%{name}.{end}" for end in ends)
    return f"""{name}:
  %{name}.rows = sub i64 %block, {rows[1]}
  br label %{name}.head
{name}.head:
  %{name}.p = phi i64 [ {ports[0]}, %{name} ], [ %{name}.next, %{name}.body ]
  %{name}.more = icmp slt i64 %{name}.p, {ports[1]}
  br i1 %{name}.more, label %{name}.body, label %{after}
{name}.body:
  %{name}.array.at = getelementptr i64, ptr %arrays, i64 %{name}.p
  %{name}.size.at = getelementptr i64, ptr %sizes, i64 %{name}.p
  %{name}.lane.at = getelementptr i64, ptr %own, i64 %{name}.p
  %{name}.array.base = load ptr, ptr %{name}.array.at, align 8
  %{name}.size = load i64, ptr %{name}.size.at, align 8
  %{name}.lane.base = load ptr, ptr %{name}.lane.at, align 8
  %{name}.array.start = mul i64 {rows[0]}, %{name}.size
  %{name}.lane.start = mul i64 {rows[1]}, %{name}.size
  %{name}.array = getelementptr i8, ptr %{name}.array.base, i64 %{name}.array.start
  %{name}.lane = getelementptr i8, ptr %{name}.lane.base, i64 %{name}.lane.start
  %{name}.bytes = mul i64 %{name}.rows, %{name}.size
  %{name}.unused = call ptr %memmove(ptr {to}, ptr {source}, i64 %{name}.bytes)
  %{name}.next = add i64 %{name}.p, 1
  br label %{name}.head"""


_BLOCKS = KernelText(
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
{_copies("in", ("0", "%inputs"), "run", ("%first", "0"))}
run:
  %status32 = call i32 @SYMBOL.walk(ptr %records, i64 %records.count, ptr %failed)
  %fine = icmp eq i32 %status32, 0
  br i1 %fine, label %out, label %bad
{_copies("out", ("%inputs", "%ports"), "take", ("%wanted", "%known"))}
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
    """A program with separate memory, as an argument of the native loop.

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
    """Run blocks of a batch, each lane on a separate thread.

    Args:
        lanes: at least one.
        blocks: the first one to run, and the one to stop before.
        block: rows of a block, at most `rows`.
        rows: of the batch.
        arrays: the inputs and the results, C-ordered, with all rows.

    Returns:
        The number of the lane that failed, of its record, and the status, for the first block that
        failed; None if all blocks are done.
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
