"""The memory plan: one arena, shared by values whose lifetimes do not overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kerasish.typing import Array

ALIGNMENT = 64


class Lifetime(NamedTuple):
    """A block of memory that is needed from one step of the program to another, inclusive."""

    first: int
    last: int
    nbytes: int


class Plan(NamedTuple):
    """Offsets into the arena.

    Attributes:
        offsets: key -> offset in bytes, a multiple of 64.
        nbytes: the size of the arena in bytes.
        naive: the size in bytes without sharing.
    """

    offsets: dict[object, int]
    nbytes: int
    naive: int


def round_up(nbytes: int) -> int:
    """Return the bytes that a block takes in an arena."""
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


def plan_memory(lifetimes: Mapping[object, Lifetime]) -> Plan:
    """Return offsets such that blocks with overlapping lifetimes do not overlap in memory.

    Largest first, each at the lowest offset that is free during its whole lifetime (best fit,
    as in Pisarchyk & Lee, "Efficient memory management for deep neural net inference", 2020).
    """
    offsets: dict[object, int] = {}
    top, count = 0, len(lifetimes)
    placed = np.empty((4, count), np.int64)  # start, end, first, last: columns in order of start
    order = sorted(lifetimes.items(), key=lambda item: (-item[1].nbytes, item[1].first))
    for i, (key, life) in enumerate(order):
        size = round_up(life.nbytes)
        offset = _lowest(placed[:, :i], life, size)
        at = int(placed[0, :i].searchsorted(offset))
        placed[:, at + 1 : i + 1] = placed[:, at:i]
        placed[:, at] = offset, offset + size, life.first, life.last
        offsets[key] = offset
        top = max(top, offset + size)
    return Plan(offsets, top, sum(round_up(life.nbytes) for life in lifetimes.values()))


def _lowest(placed: Array, life: Lifetime, size: int) -> int:
    """Return the lowest offset at which `size` bytes are free during a whole lifetime."""
    start, end, first, last = placed
    near = ((last >= life.first) & (first <= life.last)).nonzero()[0]
    if not near.size:
        return 0
    taken = np.maximum.accumulate(end[near])  # up to where all is taken, from left to right
    free = start[near]
    free[1:] -= taken[:-1]
    gaps = (free >= size).nonzero()[0]
    if not gaps.size:
        return int(taken[-1])
    return int(taken[gaps[0] - 1]) if gaps[0] else 0
