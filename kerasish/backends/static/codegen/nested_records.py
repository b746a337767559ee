"""Records that run lists of other records: one of two lists, or several at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen.driver import (
    Nested,
    Record,
    Stopwatch,
    TimedLists,
    load_runtime,
    table_of,
)
from kerasish.backends.static.codegen.kernel_table import other_table


class Kept(NamedTuple):
    """The data of a record of other records.

    Attributes:
        arrays: the memory that its block points to.
        records: the other records.
        threads: the number of OpenMP threads that their library calls need; None: any.
    """

    arrays: list[Any]
    records: list[Record]
    threads: int | None


def bytes_of_records(records: Iterable[Record]) -> int:
    """Return the bytes of the arguments of records, and of the lists that they run.

    Memory that several programs share, such as the zeros that a record copies, does not count.
    """
    total = 0
    for record in records:
        keep = record.keep
        total += record.block.nbytes
        if isinstance(keep, np.ndarray) and keep.dtype == np.int64:
            total += keep.nbytes
        elif isinstance(keep, Kept):
            total += sum(array.nbytes for array in keep.arrays) + bytes_of_records(keep.records)
        elif isinstance(keep, Lists):
            total += sum(array.nbytes for array in [*keep.arrays, keep.statuses])
            total += sum(map(bytes_of_records, keep.lists))
    return total


def with_nested(records: Iterable[Record]) -> Iterator[Record]:
    """Yield records, and those of the lists that they run at the same time."""
    for record in records:
        yield record
        if isinstance(record.keep, Lists):
            for records in record.keep.lists:
                yield from with_nested(records)


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
    """Return a record that runs one of two lists, depending on memory at run time.

    Args:
        numbers: the address of float32 numbers.
        count: the number of them.
        some: the records that run if a number is not 0.
        none: the records that run if all numbers are 0.
        name: for messages.
    """
    tables = [table_of(some), table_of(none)]
    words = [numbers, count]
    for table in tables:
        words += [table.ctypes.data, len(table)]
    keep = Kept(tables, [*some, *none], _threads_of([*some, *none], name))
    return Record(load_runtime().choose, np.array(words, np.int64), name, keep)


def concurrent_record(lists: Sequence[Sequence[Record]], name: str = "") -> Record:
    """Return a record that runs lists of records at the same time, each on a separate thread.

    Args:
        lists: none reads or writes what another one writes. Each record uses one thread; a list
            that fails ends there, the others run to their ends.
        name: for messages.
    """
    runtime = load_runtime()
    tables = [table_of(records) for records in lists]
    places = np.array([(t.ctypes.data, len(t)) for t in tables], np.int64)
    # Helpers also run lists on the calling thread.
    threads = 1 if other_table() else None
    keep = Lists(lists, [*tables, places], concurrent_record, threads)
    words = [runtime.table, len(tables), places.ctypes.data, keep.statuses.ctypes.data]
    return Record(runtime.concurrent, np.array(words, np.int64), name, keep)


class Lists(Nested):
    """The data of a record of lists that run at the same time.

    Args:
        lists: the records of each list.
        arrays: memory that the record's block points to.
        make: returns a record that runs lists in the same way.
        threads: the number of OpenMP threads that library calls of the lists need, if the calling
            thread keeps the number that a list sets; None: any.

    Attributes:
        statuses: for each list its last status, and the number of the record that failed.
    """

    def __init__(
        self, lists: Sequence[Sequence[Record]], arrays: list[Any],
        make: Callable[[Sequence[Sequence[Record]]], Record], threads: int | None = None,
    ) -> None:  # fmt: skip
        self.lists, self.arrays = [list(records) for records in lists], arrays
        self.make, self.threads = make, threads
        self.statuses = np.zeros((len(self.lists), 2), np.int64)

    def failed(self) -> tuple[Record, int]:
        """Return the first of the records that failed in the last run, and its status."""
        number = int(np.flatnonzero(self.statuses[:, 0])[0])
        status, place = self.statuses[number].tolist()
        return self.lists[number][place], status

    def timed(self) -> TimedLists:
        """Return lists that do the same and measure the time of each record."""
        return _TimedLists(self)


class _TimedLists(TimedLists):
    """The same lists, each run by a record that measures the times of its records."""

    def __init__(self, lists: Lists) -> None:
        self._lists = lists
        self._watches = [Stopwatch(records) for records in lists.lists]
        timed = load_runtime().timed
        self.record = lists.make([[Record(timed, w.job)] for w in self._watches])

    def shares(self, seconds: float) -> list[tuple[Record, float]]:
        """Return the records of all lists with their shares of the time of the last run."""
        pairs = [
            (record, own)
            for records, watch in zip(self._lists.lists, self._watches)
            for record, own in zip(records, watch.seconds())
        ]
        total = sum(own for _, own in pairs) or 1.0
        return [(record, seconds * own / total) for record, own in pairs]

    def failed(self) -> None:
        """Note which records failed."""
        self._lists.statuses[:, 0] = self.record.keep.statuses[:, 0]
        self._lists.statuses[:, 1] = [int(watch.job[5]) for watch in self._watches]
