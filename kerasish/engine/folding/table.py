"""The kinds of calls that a folded function has made so far, and the classes of their values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.ops import dtypes
from kerasish.tensor import Tensor


class ValueClass(NamedTuple):
    """What the rows of one buffer are: the shape of one value, and its dtype."""

    shape: tuple[int, ...]
    dtype: str


class FoldedCall(NamedTuple):
    """A kind of call: one layer, or one op, on values of certain classes.

    Attributes:
        name: what errors call it.
        function: tensors with the rows along axis 0 -> results likewise.
        inputs: the class of each argument.
        outputs: the class of each result.
        structure: the results' structure with None for each leaf.
    """

    name: str
    function: Callable[[Sequence[Tensor]], list[Tensor]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    structure: Any


class FoldedTable:
    """All kinds of calls and classes of values, by number; they only become more."""

    def __init__(self) -> None:
        self.classes: list[ValueClass] = []
        self.calls: list[FoldedCall] = []
        self.root: tuple[Any, tuple[int, ...]] | None = None  # the result: structure, classes
        self.capacities: list[tuple[int, ...]] = []  # the sizes of packed arrays met so far
        self.lock = threading.RLock()
        self._class_numbers: dict[ValueClass, int] = {}
        self._call_numbers: dict[Any, int] = {}

    def class_of(self, shape: Sequence[int], dtype: str) -> int:
        """Return the number of a class of values."""
        key = ValueClass(tuple(shape), dtype)
        number = self._class_numbers.get(key)
        if number is None:
            with self.lock:
                number = self._class_numbers.get(key)
                if number is None:  # known to other threads when it is in the list
                    number = len(self.classes)
                    self.classes.append(key)
                    self._class_numbers[key] = number
        return number

    def find(self, key: Any) -> int | None:
        """Return the number of a kind of call, None for a new one."""
        return self._call_numbers.get(key)

    def add(self, key: Any, make: Callable[[], FoldedCall]) -> int:
        """Return the number of a kind of call; `make` returns a new one."""
        with self.lock:
            number = self._call_numbers.get(key)
            if number is None:
                call = make()
                number = self._call_numbers.get(key)  # making a call may have made the same
                if number is None:
                    number = len(self.calls)
                    self.calls.append(call)
                    self._call_numbers[key] = number
            return number

    def array_dtype(self, number: int) -> np.dtype[Any]:
        """Return the NumPy dtype of a class."""
        return dtypes.array_dtype(self.classes[number].dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # the calls belong to the very layers of this process

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]

    def __deepcopy__(self, memo: dict[int, Any]) -> FoldedTable:
        return FoldedTable()
