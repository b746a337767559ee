"""Sizes to which data of varying size is padded: few of them, so that few programs compile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasish.typing import Array

MOST_BUCKETS = 7  # with the short last batch, an epoch has at most 8 shapes


def next_size(size: int, smallest: int = 8) -> int:
    """Return the least of the numbers 2**k and 1.5 * 2**k that is not below `size`.

    Args:
        size: an integer >= 0.
        smallest: the least result, a power of 2.

    Example:
        >>> [next_size(n) for n in (0, 8, 9, 13, 17, 100)]
        [8, 8, 12, 16, 24, 128]
    """
    if size <= smallest:
        return smallest
    power = 1 << (size - 1).bit_length()
    return power // 4 * 3 if size <= power // 4 * 3 else power


def ladder(sizes: Array | Sequence[int], most: int = MOST_BUCKETS) -> list[int]:
    """Return at most `most` increasing bounds, of those `next_size` gives, for some sizes.

    The bounds do not depend on the sizes as long as there are few: other data of the same range is
    padded to the same bounds, and needs no new programs.

    Args:
        sizes: integers >= 0, at least one.
        most: the number of bounds, >= 1.

    Example:
        >>> ladder(range(1, 60))
        [8, 12, 16, 24, 32, 48, 64]
        >>> ladder(range(1, 5000), 4)
        [1536, 3072, 4096, 6144]
    """
    kinds, counts = np.unique(np.asarray(sizes, "int64"), return_counts=True)
    bounds = np.array([next_size(int(size)) for size in kinds])
    if len(np.unique(bounds)) <= most:
        return [int(b) for b in np.unique(bounds)]
    return best_boundaries(np.repeat(bounds, counts), most)


def best_boundaries(lengths: Array | Sequence[int], count: int) -> list[int]:
    """Return at most `count` bounds with the least padding; the last is the greatest length.

    Args:
        lengths: integers >= 0.
        count: the number of bounds, >= 1.

    Example:
        >>> best_boundaries([1, 2, 2, 9, 10], 2)
        [2, 10]
    """
    if count < 1:
        raise ValueError(f"boundaries: expected at least 1 bucket, got {count}.")
    kinds, number = np.unique(np.maximum(np.asarray(lengths, "int64"), 1), return_counts=True)
    if len(kinds) > 2000:  # the search takes quadratic time, so similar lengths are combined
        picked = np.unique(np.linspace(0, len(kinds) - 1, 2000).astype(int))
        sums = np.concatenate([[0], np.cumsum(number)])
        kinds, number = kinds[picked], np.diff(sums[np.concatenate([[0], picked + 1])])
    rows = np.concatenate([[0], np.cumsum(number)])
    # cost[j]: the padded steps of the first j lengths in the buckets so far. A bucket from length
    # i + 1 to length j pads each of its rows to length j.
    cost = np.concatenate([[0], np.full(len(kinds), np.inf)])
    choices = []
    for _ in range(min(count, len(kinds))):
        new, choice = cost.copy(), np.arange(len(cost))
        for j in range(1, len(cost)):
            ways = cost[:j] + kinds[j - 1] * (rows[j] - rows[:j])
            i = int(np.argmin(ways))
            if ways[i] < new[j]:
                new[j], choice[j] = ways[i], i
        cost = new
        choices.append(choice)
    bounds, j = [], len(kinds)
    for choice in reversed(choices):
        if choice[j] != j:
            bounds.append(int(kinds[j - 1]))
            j = int(choice[j])
    return bounds[::-1]
