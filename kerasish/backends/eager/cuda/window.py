"""Windows over one to three spatial axes, as the kernels take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.typing import IntOrTuple

AXES = 3
WINDOW = np.dtype([(n, "i4", AXES) for n in ("in", "out", "size", "stride", "before", "apart")])


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
    """Return the record of a window; missing axes come first, of size 1.

    Args:
        sizes: the spatial sizes of the data.
        counts: how many windows there are along each axis.
        padding: (before, after) for each axis.
    """
    result = np.zeros((), WINDOW)
    result["in"], result["out"] = _filled(sizes, 1), _filled(counts, 1)
    result["size"], result["stride"] = _filled(size, 1), _filled(strides, 1)
    result["before"] = _filled([a for a, _ in padding], 0)
    result["apart"] = _filled(dilation or (1,) * len(size), 1)
    return result  # CuPy passes an array of one element by value


def fits_window(*shapes: Any) -> bool:
    """Return whether kernels take data of these shapes: few axes, sizes that 32 bits hold."""
    small = all(math.prod(s[1:-1]) < 2**31 for s in shapes)
    return small and all(3 <= len(s) <= AXES + 2 for s in shapes)
