"""The places of x in each pooling window, and the windows that contain each place of x.

Both are computed for each spatial axis separately, so a kernel reads three numbers per axis instead
of dividing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

NOWHERE = -(2**30)  # not a place of any window, nor is any sum of it and places of other axes


class WindowSteps(NamedTuple):
    """One spatial axis of a pooling.

    Args:
        targets: the number of targets.
        source: the distance between adjacent sources, in sources of the whole array.
        place: the distance between the places of adjacent sources.
    """

    targets: int
    source: int
    place: int


class Axis(NamedTuple):
    """The sources along one spatial axis.

    Args:
        ranges: int64 of shape (targets, 3): the first source, in sources of the whole array; the
            number of sources; the place of the first one in the window.
        steps: the part that belongs to the structure.
    """

    ranges: Any
    steps: WindowSteps


def _inner(sizes: Sequence[int], axis: int) -> int:
    return math.prod(sizes[axis + 1 :])


def inside_ranges(
    sizes: Sequence[int], counts: Sequence[int], size: Sequence[int], strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> list[Axis]:  # fmt: skip
    """Return, for each axis, the places of x in each window.

    Args:
        sizes, counts: the spatial sizes of x, and the windows along each of its axes.
        size, strides, padding: of the pooling, one for each axis.
    """
    results = []
    for axis, (n, count, w, s, (before, _)) in enumerate(
        zip(sizes, counts, size, strides, padding, strict=True)
    ):
        starts = np.arange(count, dtype=np.int64) * s - before
        first = np.clip(starts, 0, n)
        many = np.maximum(np.minimum(starts + w, n) - first, 0)
        step, place = _inner(sizes, axis), _inner(size, axis)
        ranges = np.stack([first * step, many, (first - starts) * place], axis=1)
        results.append(Axis(ranges, WindowSteps(count, step, place)))
    return results


def cover_ranges(
    sizes: Sequence[int], counts: Sequence[int], size: Sequence[int], strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> list[Axis]:  # fmt: skip
    """Return, for each axis, the windows that contain each place of x, the last one first.

    If windows do not overlap (`are_apart`), each place has one: places outside all windows get a
    window in which they have no place.

    Args:
        sizes, counts, size, strides, padding: see `inside_ranges`.
    """
    results = []
    for axis, (n, count, w, s, (before, _)) in enumerate(
        zip(sizes, counts, size, strides, padding, strict=True)
    ):
        at = np.arange(n, dtype=np.int64) + before
        last = np.minimum(at // s, count - 1)
        first = np.maximum(-((w - 1 - at) // s), 0)
        many = np.maximum(last - first + 1, 0)
        step, place = _inner(counts, axis), _inner(size, axis)
        ranges = np.stack([last * step, many, (at - last * s) * place], axis=1)
        if are_apart(size, strides):
            ranges[many == 0] = (0, 1, NOWHERE)
        results.append(Axis(ranges, WindowSteps(n, -step, s * place)))
    return results


def are_apart(size: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether no two windows overlap."""
    return all(w <= s for w, s in zip(size, strides, strict=True))
