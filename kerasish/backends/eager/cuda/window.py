"""Windows over one to three spatial axes, as arguments of the kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.typing import IntOrTuple

AXES = 3
DIVISOR = np.dtype([("by", "i4"), ("shift", "i4"), ("multiplier", "u4")])
WINDOW = np.dtype(
    [(n, "i4", AXES) for n in ("in", "out", "size", "stride", "before", "apart")]
    + [(f"by_{n}", DIVISOR, AXES) for n in ("in", "out", "size", "stride")]
)


@functools.lru_cache(maxsize=4096)
def divisor(by: int) -> Any:
    """Return the `Divisor` of prelude.cuh for a number: quotients by multiply and shift.

    Args:
        by: 1 <= by < 2**31. 0, of empty arrays, is treated as 1.

    Source: Granlund & Montgomery, Division by invariant integers using multiplication, PLDI 1994.
    """
    by = max(int(by), 1)
    result = np.zeros((), DIVISOR)
    result["by"] = by
    if by > 1:
        power = 31 + (by - 1).bit_length()
        result["multiplier"], result["shift"] = -(-(1 << power) // by), power - 32
    result.flags.writeable = False
    return result


def _filled(numbers: Any, with_: int) -> tuple[int, ...]:
    return (with_,) * (AXES - len(numbers)) + tuple(numbers)


def window(
    sizes: Sequence[int],
    counts: Sequence[int],
    size: Sequence[Any],
    strides: IntOrTuple,
    padding: Sequence[Any],
    dilation: IntOrTuple | None = None,
) -> Any:
    """Return the record of a window; missing axes are first, with size 1.

    Args:
        sizes: the spatial sizes of the data.
        counts: the number of windows along each axis.
        padding: (before, after) for each axis.
    """
    result = np.zeros((), WINDOW)
    result["in"], result["out"] = _filled(sizes, 1), _filled(counts, 1)
    result["size"], result["stride"] = _filled(size, 1), _filled(strides, 1)
    result["before"] = _filled([a for a, _ in padding], 0)
    result["apart"] = _filled(dilation or (1,) * len(size), 1)
    for name in ("in", "out", "size", "stride"):
        for axis in range(AXES):
            result[f"by_{name}"][axis] = divisor(int(result[name][axis]))
    return result  # CuPy passes an array of one element by value


def fits_window(*shapes: Any) -> bool:
    """Return whether kernels support data of these shapes: few axes, sizes that fit 32 bits."""
    small = all(math.prod(s[1:-1]) < 2**31 for s in shapes)
    return small and all(3 <= len(s) <= AXES + 2 for s in shapes)
