"""Where every value lies: lifetimes, and one arena shared by values that never live together."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

ALIGNMENT = 64


class Lifetime(NamedTuple):
    """A block of memory that is needed from one step of the program to another, both included."""

    first: int
    last: int
    nbytes: int


class Plan(NamedTuple):
    """Offsets into the arena.

    Attributes:
        offsets: key -> offset in bytes, a multiple of 64.
        nbytes: the arena's size.
        naive: the size with memory of its own for each.
    """

    offsets: dict[object, int]
    nbytes: int
    naive: int


def _round(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


def plan_memory(lifetimes: Mapping[object, Lifetime]) -> Plan:
    """Return offsets such that blocks whose lifetimes meet never overlap.

    Largest first, each at the lowest place that is free throughout its life (best-fit by offset,
    as in Pisarchyk & Lee, "Efficient memory management for deep neural net inference", 2020).
    """
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[object, int] = {}
    top = 0
    order = sorted(lifetimes.items(), key=lambda item: (-item[1].nbytes, item[1].first))
    for key, life in order:
        size = _round(life.nbytes)
        offset = _lowest(placed, life, size)
        bisect.insort(placed, (offset, offset + size, life))
        offsets[key] = offset
        top = max(top, offset + size)
    return Plan(offsets, top, sum(_round(life.nbytes) for life in lifetimes.values()))


def _lowest(placed: Sequence[tuple[int, int, Lifetime]], life: Lifetime, size: int) -> int:
    at = 0
    for start, end, other in placed:
        if other.last < life.first or life.last < other.first:
            continue
        if start - at >= size:
            return at
        at = max(at, end)
    return at
