"""The moves between the products of attention: heads before steps, steps before heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import compact, empty
from kerasish.backends.eager.cuda.kernels import (
    NOTHING,
    check,
    launch_elements,
    packed,
)
from kerasish.backends.eager.cuda.window import divisor

SOURCE = "heads"


def heads_first(arrays: Sequence[Any], scale: float = 1.0) -> list[Any]:
    """Return each array with heads before steps, in C order; the first one times `scale`.

    Args:
        arrays: of one dtype, one or three of them: the query; the key, which has the query's size
            of a head; the value, which has the key's steps.
        scale: rounded to the dtype, like a Python number that is combined with an array.

    Shape: (n, steps, heads, size) -> (n, heads, steps, size).
    """
    return _swapped("heads_first", arrays, scale, steps=1)


def steps_first(arrays: Sequence[Any], scale: float = 1.0) -> list[Any]:
    """Return each array with steps before heads; the inverse of `heads_first` without `scale`.

    Shape: (n, heads, steps, size) -> (n, steps, heads, size).
    """
    return _swapped("steps_first", arrays, scale, steps=2)


def _swapped(kernel: str, arrays: Sequence[Any], scale: float, steps: int) -> list[Any]:
    """Launch a kernel; `steps` is the axis of steps in its inputs."""
    check(kernel, *arrays)
    given = [compact(x) for x in arrays]
    results = [empty((x.shape[0], x.shape[2], x.shape[1], x.shape[3]), x.dtype) for x in given]
    dtype, last = given[0].dtype, given[-1]
    together = min(packed(x.shape[3], x, y) for x, y in zip(given, results))
    width = 16 // dtype.itemsize if together else 1
    counts = [x.size // width for x in given]
    absent = 3 - len(given)
    divisors = (
        given[0].shape[3 - steps], given[0].shape[steps], last.shape[steps],
        given[0].shape[3] // width, last.shape[3] // width,
    )  # fmt: skip
    args = (
        *given, *[NOTHING] * absent, *results, *[NOTHING] * absent,
        *(np.int64(n) for n in (*counts, *[0] * absent)), *map(divisor, divisors),
        np.float32(np.asarray(scale, dtype)), together,
    )  # fmt: skip
    launch_elements(SOURCE, kernel, dtype, max(counts), *args)
    return results
