"""What a weight file of any format holds: groups of arrays, read one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kerasish.typing import Array


class Entry:
    """An array in a file: its shape and dtype are known, its numbers are read when asked for."""

    def __init__(
        self, where: str, shape: tuple[int, ...], dtype: str, read: Callable[[], Any]
    ) -> None:
        self.where, self.shape, self.dtype, self.read = where, shape, dtype, read


class PartArrays(Mapping[str, Any]):
    """The arrays that belong to one part of a model; a mapping that layers can load from."""

    def __init__(self, name: str | None, entries: dict[str, Entry]) -> None:
        self.name, self.entries = name, entries

    def __getitem__(self, key: str) -> Array:
        return self.entries[key].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


Groups = dict[str, PartArrays]

# Elements that a model may have in addition to those in its file: omitted parts are small.
SLACK = 2**22


def elements_in(groups: Groups) -> int:
    """Return the number of elements of all arrays."""
    return sum(math.prod(e.shape) for g in groups.values() for e in g.entries.values())


def as_dtype(array: Array, dtype: str) -> Array:
    """Return the array in the dtype called `dtype` ("bfloat16" too).

    Raises:
        ValueError: integers are expected, and a number is not one of that dtype.
    """
    array = np.asarray(array)
    if dtype == "bfloat16":
        import ml_dtypes

        return array.astype(ml_dtypes.bfloat16)
    if dtype == array.dtype.name:
        return array
    with np.errstate(invalid="ignore"):
        result = array.astype(dtype, copy=False)
    if result.dtype.kind in "iub" and not (result == array).all():
        raise ValueError(f"holds {array.dtype} numbers that are no {dtype}")
    return result
