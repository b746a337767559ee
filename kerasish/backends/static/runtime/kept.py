"""Weights that a program keeps in the layout of its products between runs.

oneDNN multiplies by weights in a special layout; it would copy weights in a plain layout in every
call. A unit reorders them once, and again after the variable has been written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kerasish.backends.static.lowering.units import Place, Unit, aligned_array, place_of
from kerasish.backends.static.machine import guard_pages
from kerasish.graph.ir import Value
from kerasish.ops import dtypes
from kerasish.tensor import Variable
from kerasish.typing import Array


class InputBuffer:
    """Memory that a program reads, and the number of times it was written."""

    __slots__ = ("array", "writes")

    def __init__(self, array: Array) -> None:
        self.array, self.writes = array, 0


class VariableBuffer:
    """The memory of a variable that compiled steps use: its address never changes."""

    __slots__ = ("array", "is_zero", "writes")

    def __init__(self, variable: Variable) -> None:
        self.array = aligned_array(variable.shape, variable.stored_dtype)
        self.is_zero, self.writes = not guard_pages.mode(), 0


class KeptWeights:
    """The memory of a program's kept weights.

    Args:
        units: of the program.
        buffers: graph input -> the buffer of that variable, which counts its `writes`.

    Attributes:
        flags: for each unit 1 if its weights must be reordered in this run, else 0.
    """

    def __init__(self, units: Sequence[Unit], buffers: Mapping[Value, Any]) -> None:
        self._units = [u for u in units if u.kept_value is not None]
        self._buffers = [buffers.get(u.kept_value) for u in self._units]  # type: ignore[arg-type]
        self._seen = [-1] * len(self._units)
        self._now = list(self._seen)
        self.flags = aligned_array((max(len(self._units), 1),), "float32")
        self._memory = [aligned_array((u.kept_bytes,), "uint8") for u in self._units]
        self._places: dict[Any, Place] = {}
        for i, unit in enumerate(self._units):
            self._places["kept", unit] = place_of(self._memory[i])
            self._places["stale", unit] = place_of(self.flags[i : i + 1])

    @property
    def nbytes(self) -> int:
        """The size of the memory."""
        return sum(array.nbytes for array in self._memory)

    @property
    def blocks(self) -> int:
        """The number of blocks of memory, with the flags."""
        return 1 + len(self._memory)

    def place(self, key: Any) -> Place | None:
        """Return the place of a unit's weights or flag; None for other keys."""
        return self._places.get(key)

    def is_fresh(self) -> bool:
        """Return whether the kept weights are the current ones of the variables."""
        seen = self._seen
        for i, buffer in enumerate(self._buffers):
            if seen[i] != (0 if buffer is None else buffer.writes):
                return False
        return True

    def begin(self) -> None:
        """Set the flags for a run."""
        for i, buffer in enumerate(self._buffers):
            self._now[i] = 0 if buffer is None else buffer.writes
            self.flags[i] = self._now[i] != self._seen[i]

    def done(self) -> None:
        """Note that a run has ended: the weights as of its start are kept."""
        self._seen[:] = self._now


def unread(variable: Variable) -> Value:
    """Return a value for the buffer of a variable that a graph writes and does not read."""
    return Value(tuple(variable.shape), dtypes.name_of(variable.buffer.array.dtype))
