"""Compiled loops for the eager engine: when they pay; arrays as rows and columns.

A loop runs on all threads and reads each array once, but a call takes several microseconds of
Python. NumPy computes arrays of fewer than `LEAST` elements, or fewer than `FEW` where NumPy takes
several passes. If loops cannot be compiled, NumPy computes everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kerasish.backends.eager.memory import empty
from kerasish.backends.loops import ArrayLoop, Describe, compile_loop
from kerasish.backends.onednn.native import fork_safe_lock
from kerasish.typing import Array

LEAST = 1 << 14  # elements
FEW = 1 << 10  # elements of ops that NumPy computes in several passes, such as softmax
FLOAT = np.dtype("float32")
_WIDE = 1024  # columns up to which narrow rows are joined
_MOST_GROUPS = 16
_lock = fork_safe_lock(globals(), "_lock")


class CompiledLoop:
    """A loop that is compiled on first use.

    Args:
        describe: what it computes; see `kerasish.backends.loops`.
        segments: whether it runs over segments.
    """

    def __init__(self, describe: Describe, segments: bool = False) -> None:
        self._describe, self._segments = describe, segments
        self._result: list[ArrayLoop | None] = []

    def find(self) -> ArrayLoop | None:
        """Return the compiled loop; None where this machine compiles none."""
        if not self._result:
            with _lock:
                if not self._result:
                    self._result.append(compile_loop(self._describe, self._segments))
        return self._result[0]


def fits(*arrays: Array) -> bool:
    """Return whether loops support these arrays: float32 in C order, and the first one large."""
    return arrays[0].size >= LEAST and _are_plain(arrays)


def fits_fused(*arrays: Array) -> bool:
    """Return whether loops that replace several passes of NumPy support these arrays."""
    return arrays[0].size >= FEW and _are_plain(arrays)


def _are_plain(arrays: Sequence[Array]) -> bool:
    return all(a.dtype is FLOAT or a.dtype == FLOAT for a in arrays) and all(
        a.flags.c_contiguous for a in arrays
    )


def empty_like(x: Array) -> Array:
    """Return a new array of x's shape and dtype."""
    return empty(x.shape, x.dtype)


class Frame(NamedTuple):
    """The division of an array into rows for a loop.

    Attributes:
        rows: the rows of the loop.
        columns: its columns.
        joined: the number of rows of the array per row of the loop.
        groups: runs of the loop's rows that are reduced separately.
    """

    rows: int
    columns: int
    joined: int
    groups: int

    def spread(self, column: Array) -> Array:
        """Return an array with one number per column of the array as one for the loop's columns."""
        if self.joined == 1:
            return np.ascontiguousarray(column)
        result = np.empty((self.joined, column.size), column.dtype)
        result[:] = column.reshape(-1)
        return result

    def parts(self) -> Array:
        """Return an array for the results of a reduction along the columns of each group."""
        return np.empty((self.groups, self.columns), FLOAT)

    def total(self, parts: Array) -> Array:
        """Return the sum of the groups' sums for each column of the array."""
        return np.add.reduce(parts.reshape(self.groups * self.joined, -1), axis=0)


@lru_cache(maxsize=4096)
def frame_of(rows: int, columns: int, joining: bool = True) -> Frame:
    """Return the frame for an array of these rows and columns; it depends only on these.

    Args:
        joining: whether rows may be joined.
    """
    joined = 1
    while joining and rows % (2 * joined) == 0 and 2 * joined * columns <= _WIDE:
        joined *= 2
    left, groups = rows // joined, 1
    while left % (2 * groups) == 0 and groups < _MOST_GROUPS and left // groups >= 16:
        groups *= 2
    return Frame(left, columns * joined, joined, groups)


def run(loop: ArrayLoop, arrays: Sequence[Array], frame: Frame, reducing: bool = False) -> None:
    """Run a loop on arrays in a frame.

    Args:
        loop: the loop.
        arrays: inputs, then outputs.
        frame: the rows and columns.
        reducing: whether columns are reduced, group by group.
    """
    loop(arrays, frame.rows, frame.columns, frame.groups if reducing else 1)
