"""Sharding: how a batch is cut into shards, and which of them this process computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from kerasish.ranks.group import Group

T = TypeVar("T")


def bounds(rows: int, shards: int, number: int) -> int:
    """Return the first row of shard `number`; shards differ by one row at most.

    Args:
        rows: of the batch, >= 0.
        shards: into how many it is cut, >= 1.
        number: 0 .. shards; `shards` gives the end of the last one.

    Example:
        >>> [bounds(128, 3, i) for i in range(4)]
        [0, 43, 86, 128]
    """
    return -(-rows * number // shards)


@dataclass(frozen=True, eq=False)
class Sharding:
    """Data-parallel training: `shards` shares of each batch, spread over the ranks of a group.

    Args:
        group: the processes.
        shards: a multiple of the group's size.
        shard_optimizer: whether each rank keeps a share of the optimizer's slots alone.
    """

    group: Group
    shards: int
    shard_optimizer: bool = False

    @property
    def count(self) -> int:
        """How many shards each rank computes."""
        return self.shards // self.group.size

    @property
    def first(self) -> int:
        """The first shard of this rank; the others follow it."""
        return self.group.rank * self.count

    @property
    def exact(self) -> bool:
        """Whether the order of all sums is that of any other number of ranks with these shards."""
        return self.count & (self.count - 1) == 0

    def cuts(self, rows: int) -> bool:
        """Return whether a batch is cut; one of fewer rows than shards is computed by all ranks."""
        return self.shards > 1 and rows >= self.shards

    def block(self, rows: int) -> tuple[int, int]:
        """Return (first row, end) of this rank's rows of a batch."""
        first = bounds(rows, self.shards, self.first)
        return first, bounds(rows, self.shards, self.first + self.count)

    def parts(self, rows: int) -> list[tuple[int, int]]:
        """Return (first row, end) of this rank's shards, counted from the start of its block."""
        start = bounds(rows, self.shards, self.first)
        edges = [bounds(rows, self.shards, self.first + i) - start for i in range(self.count + 1)]
        return list(zip(edges, edges[1:]))


def writes_here() -> bool:
    """Return whether this process writes files: rank 0 does, and every process by itself."""
    sharding = _Current.sharding
    return sharding is None or sharding.group.rank == 0


def from_writer(function: Callable[[], T]) -> T:
    """Return what `function` gives on the rank that writes files, on every rank.

    What lies in files may differ between machines, or between two looks at it: one rank looks.
    """
    sharding = _Current.sharding
    if sharding is None or sharding.group.size == 1:
        return function()
    value = function() if sharding.group.rank == 0 else None
    return cast("T", sharding.group.broadcast(value))


class _Current:
    sharding: Sharding | None = None


def current_sharding() -> Sharding | None:
    """Return how batches are cut; None: they are not."""
    return _Current.sharding


def set_sharding(sharding: Sharding | None) -> None:
    """Cut the batches of all training, evaluation and prediction from now on; None: do not."""
    _Current.sharding = sharding
