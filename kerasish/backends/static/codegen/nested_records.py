"""Records that run lists of other records: one of two lists, or several at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen.driver import Record, load_runtime, table_of


class Kept(NamedTuple):
    """What a record of other records keeps.

    Attributes:
        arrays: the memory that its block points to.
        records: the other records.
        threads: the number of OpenMP threads that their library calls need; None: any.
    """

    arrays: list[Any]
    records: list[Record]
    threads: int | None


def _threads_of(records: Sequence[Record], name: str) -> int | None:
    """Return the number of threads that records need for their library calls.

    Raises:
        ValueError: they need different numbers.
    """
    numbers = (getattr(record.keep, "threads", None) for record in records)
    needed = {int(threads) for threads in numbers if threads is not None}
    if len(needed) > 1:
        raise ValueError(f"{name}: records that run together need {sorted(needed)} threads.")
    return needed.pop() if needed else None


def choice_record(
    numbers: int, count: int, some: Sequence[Record], none: Sequence[Record], name: str = ""
) -> Record:
    """Return a record that runs some records or others, by what lies in memory at that time.

    Args:
        numbers: the address of float32 numbers.
        count: how many.
        some: what runs if a number is not 0.
        none: what runs if all of them are 0.
        name: for messages.
    """
    tables = [table_of(some), table_of(none)]
    words = [numbers, count]
    for table in tables:
        words += [table.ctypes.data, len(table)]
    keep = Kept(tables, [*some, *none], _threads_of([*some, *none], name))
    return Record(load_runtime().choose, np.array(words, np.int64), name, keep)


def concurrent_record(lists: Sequence[Sequence[Record]], name: str = "") -> Record:
    """Return a record that runs lists of records at the same time, each on a thread of its own.

    Args:
        lists: none reads or writes what another one writes. Each record uses one thread; a list
            that fails ends there, the others run to their ends.
        name: for messages.
    """
    runtime = load_runtime()
    tables = [table_of(records) for records in lists]
    places = np.array([(t.ctypes.data, len(t)) for t in tables], np.int64)
    statuses = np.zeros(len(tables), np.int64)
    words = [runtime.table, len(tables), places.ctypes.data, statuses.ctypes.data]
    keep = Kept([*tables, places, statuses], [r for records in lists for r in records], None)
    return Record(runtime.concurrent, np.array(words, np.int64), name, keep)
