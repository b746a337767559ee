"""The distinct rows among indices, in native code, for sparse updates of embeddings.

A record `unique_rows(dtype)` writes, for n indices into a table of `limit` rows,

- `unique`: the distinct indices in the order in which they first appear (int32, of length n),
- `slot`: for each index its position in `unique` (int32, n),
- the number of distinct rows, into every word of `counts`: the rows word of the next records.

So a sparse update is: unique_rows; fill (count, d) with zeros; add the gradient's rows at `slot`
(`Output(scatter=..., combine="add")`); the optimizer's kernel with `gather=unique` inputs and
`scatter=unique` outputs, whose number of rows is only known then:

    block = unique_rows_block(..., counts=[(update_block, arguments.ROWS), ...])

`marks` is an int32 array of `limit` words that are -1 before and after. In between, it maps rows to
positions in `unique`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.kernels import KernelText
from kerasish.backends.static.machine.assembly import words_of

_SOURCE = """define i32 @SYMBOL(ptr %args) #0 {{
entry:
{loads}
  br label %head
head:
  %r = phi i64 [ 0, %entry ], [ %r.next, %next ]
  %count = phi i64 [ 0, %entry ], [ %count.next, %next ]
  %more = icmp slt i64 %r, %n
  br i1 %more, label %body, label %clear
body:
  %at = getelementptr {type}, ptr %indices, i64 %r
  %raw = load {type}, ptr %at, align 4
  {widen}
  %below = icmp slt i64 %wide, 0
  %moved = add i64 %wide, %limit
  %i = select i1 %below, i64 %moved, i64 %wide
  %good = icmp ult i64 %i, %limit
  br i1 %good, label %look, label %clear
look:
  %mark.at = getelementptr i32, ptr %marks, i64 %i
  %mark = load i32, ptr %mark.at, align 4
  %slot.at = getelementptr i32, ptr %slots, i64 %r
  %new = icmp slt i32 %mark, 0
  br i1 %new, label %add, label %old
add:
  %count32 = trunc i64 %count to i32
  %i32 = trunc i64 %i to i32
  store i32 %count32, ptr %mark.at, align 4
  %unique.at = getelementptr i32, ptr %unique, i64 %count
  store i32 %i32, ptr %unique.at, align 4
  store i32 %count32, ptr %slot.at, align 4
  %larger = add i64 %count, 1
  br label %next
old:
  store i32 %mark, ptr %slot.at, align 4
  br label %next
next:
  %count.next = phi i64 [ %larger, %add ], [ %count, %old ]
  %r.next = add i64 %r, 1
  br label %head
clear:
  %status = phi i32 [ 0, %head ], [ 2, %body ]
  br label %clear.head
clear.head:
  %u = phi i64 [ 0, %clear ], [ %u.next, %clear.body ]
  %u.more = icmp slt i64 %u, %count
  br i1 %u.more, label %clear.body, label %tell
clear.body:
  %u.at = getelementptr i32, ptr %unique, i64 %u
  %row = load i32, ptr %u.at, align 4
  %row.wide = sext i32 %row to i64
  %row.at = getelementptr i32, ptr %marks, i64 %row.wide
  store i32 -1, ptr %row.at, align 4
  %u.next = add i64 %u, 1
  br label %clear.head
tell:
  %k = phi i64 [ 0, %clear.head ], [ %k.next, %tell.body ]
  %k.more = icmp slt i64 %k, %words
  br i1 %k.more, label %tell.body, label %exit
tell.body:
  %to.at = getelementptr i64, ptr %counts, i64 %k
  %to = load ptr, ptr %to.at, align 8
  store i64 %count, ptr %to, align 8
  %k.next = add i64 %k, 1
  br label %tell
exit:
  ret i32 %status
}}"""


def unique_rows(dtype: str) -> KernelText:
    """The record's function, not yet compiled.

    Args:
        dtype: of the indices: "int32" or "int64".
    """
    kind = {"int32": "i32", "int64": "i64"}[dtype]
    widen = "%wide = sext i32 %raw to i64" if dtype == "int32" else "%wide = add i64 %raw, 0"
    loads = words_of(
        "args", "ptr indices", "i64 n", "i64 limit", "ptr marks", "ptr unique", "ptr slots",
        "ptr counts", "i64 words",
    )  # fmt: skip
    return KernelText(_SOURCE.format(type=kind, widen=widen, loads=loads))


def unique_rows_block(
    *,
    indices: int,
    count: int,
    limit: int,
    marks: int,
    unique: int,
    slots: int,
    counts: Sequence[tuple[Any, int]] = (),
) -> tuple[Any, Any]:
    """Return the argument block and the table that it points to; the caller keeps both alive.

    Args:
        indices: address of `count` indices in [-limit, limit). marks, unique, slots: addresses, see
            the module. counts: (block, word) pairs to write the number of distinct rows to.
    """
    table = np.array([block.ctypes.data + 8 * word for block, word in counts], dtype=np.int64)
    words = [indices, count, limit, marks, unique, slots, table.ctypes.data, len(table)]
    return np.array(words, dtype=np.int64), table
