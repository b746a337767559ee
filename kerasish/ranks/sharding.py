"""Sharding: how a batch is cut into shards, and which of them this process computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar, cast

from kerasish.changes import note_change
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
        shard_optimizer: whether each rank keeps only the optimizer's slots of its segments.
        divided: says by its path whether a rank keeps only a segment of a variable, and of its
            slots; None: every rank has all variables whole.

    Raises:
        ValueError: the shards cannot be divided among the ranks.
    """

    group: Group
    shards: int
    shard_optimizer: bool = False
    divided: Callable[[str], bool] | None = None
    _agreed: set[tuple[Any, ...]] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        if self.shards < 1 or self.shards % self.group.size:
            raise ValueError(
                f"Sharding: expected a multiple of the {self.group.size} ranks, got {self.shards} "
                "shards."
            )

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

    @property
    def divides(self) -> bool:
        """Whether each rank keeps a part of the optimizer's slots."""
        return (self.shard_optimizer or self.divided is not None) and self.group.size > 1

    def cuts(self, rows: int) -> bool:
        """Return whether a batch is cut; one of fewer rows than shards is computed by all ranks."""
        return self.shards > 1 and rows >= self.shards

    def agree(self, what: str, facts: tuple[Any, ...]) -> None:
        """Check that all ranks have the same facts; each is compared once.

        Args:
            what: what the facts describe, for the message.
            facts: hashable; the same number of calls with the same facts on every rank.

        Raises:
            ValueError: they differ; the message names the first difference.
        """
        if self.group.size == 1 or (what, facts) in self._agreed:
            return
        self._agreed.add((what, facts))
        every = self.group.gather(facts)
        for rank, other in enumerate(every):
            if other != every[0]:
                pairs = zip_longest(every[0], other)
                number, (a, b) = next((i, p) for i, p in enumerate(pairs) if p[0] != p[1])
                raise ValueError(
                    f"fit: the ranks' models differ: {what} {number} is {a} on rank 0 and {b} on "
                    f"rank {rank}. All ranks make and compile the same model."
                )

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


def divides_slots() -> bool:
    """Return whether the ranks divide the optimizer's slots: files of them need all ranks."""
    sharding = _Current.sharding
    return sharding is not None and sharding.divides


def from_writer(function: Callable[[], T]) -> T:
    """Return what `function` gives on the rank that writes files, on every rank.

    The content of files may differ between machines, or between two reads: one rank reads.
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
    note_change()
