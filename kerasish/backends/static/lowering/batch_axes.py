"""The axes of a batch of matrices, joined where their strides allow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Batch(NamedTuple):
    """The axes of a batch, at most two.

    Attributes:
        sizes: of the axes.
        strides: of a, b and out along them.
    """

    sizes: tuple[int, int]
    strides: tuple[tuple[int, int], ...]


def batch_of(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Batch | None:
    """Return a batch with adjacent axes joined; None if more than two axes are left.

    Args:
        sizes: of the axes.
        strides: of each operand along them.
    """
    joined: list[tuple[int, tuple[int, ...]]] = []
    for size, *steps in zip(sizes, *strides, strict=True):
        if size == 1:
            continue
        if joined and all(old == new * size for old, new in zip(joined[-1][1], steps)):
            joined[-1] = joined[-1][0] * size, tuple(steps)
        else:
            joined.append((size, tuple(steps)))
    if len(joined) > 2:
        return None
    joined = [(1, (0,) * len(strides))] * (2 - len(joined)) + joined
    (first, outer), (second, inner) = joined
    return Batch((first, second), tuple(zip(outer, inner)))
