"""Fused loops on arrays: the interface between an engine and the code generator.

A loop runs over rows and columns. `LoopBuilder` describes what it computes for each element, each
row and each column; `compile_loop` returns it as a function of arrays. The code generator is
imported when the first loop is compiled; `backends/static/codegen/description.py` describes the ops
and levels.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kerasish.backends.onednn.native import fork_safe_lock
from kerasish.typing import Array

# The import paths of the functions that create the compiled loops.
COMPILER = "kerasish.backends.static.array_loops:compile_array_loop"
STEPS_COMPILER = "kerasish.backends.static.array_loops:compile_time_steps"
HEADS_COMPILER = "kerasish.backends.static.array_kernels:compile_heads"
ROWS_COMPILER = "kerasish.backends.static.array_kernels:compile_row_sums"


class LoopBuilder(Protocol):
    """The description of a loop: inputs first, then ops on their values, then outputs."""

    def input(self, dtype: str, level: str = "element") -> Any:
        """Return the value of an operand: "element", "row", "column" or "scalar" level."""

    def constant(self, value: float, dtype: str) -> Any:
        """Return the value of a number in the code."""

    def op(self, name: str, *args: Any, dtype: str | None = None, **attrs: Any) -> Any:
        """Return the value of an op, by its name in `kerasish.ops`; numbers become constants."""

    def output(self, value: Any, *, in_place: Any = None) -> int:
        """Write a value: one number for each of its level.

        Args:
            value: the value that is written.
            in_place: the input in whose memory it is written, element by element, or None.
        """


Describe = Callable[[LoopBuilder], None]


class ArrayLoop(Protocol):
    """A compiled loop."""

    def __call__(self, arrays: Sequence[Array], rows: int, columns: int, groups: int = 1) -> None:
        """Run the loop on the number of threads that its work pays for.

        The results do not depend on the number of threads.

        Args:
            arrays: the inputs, then the outputs, in the order of the description: in C order, of
                the dtypes described. No output overlaps another array, unless described so.
            rows: the number of rows.
            columns: the number of columns.
            groups: equal runs of rows with separate results of column reductions.
        """

    def at(
        self, addresses: Sequence[int], rows: int, columns: int, strides: tuple[int, ...]
    ) -> None:
        """Run the loop on operands at any addresses, such as parts of the columns of an array.

        Args:
            addresses: of the inputs, then of the outputs.
            rows: the number of rows.
            columns: the number of columns.
            strides: for each operand the elements from one row to the next.
        """

    def over_segments(
        self, sizes: tuple[int, ...], addresses: Sequence[Sequence[int]], shared: Sequence[int]
    ) -> None:
        """Run the loop on several lists of arrays, each with a separate size.

        Args:
            sizes: the elements of each segment.
            addresses: of each input of "element" level and of each output, in order: one for each
                segment.
            shared: the addresses of the inputs of "scalar" level, which follow those of "element"
                level.
        """


class TimeSteps(Protocol):
    """All time steps of a recurrence, or of its gradient, in one call."""

    def __call__(self, arrays: Sequence[Array], sizes: tuple[int, int, int]) -> None:
        """Run the steps on the number of threads that their work pays for.

        The results do not depend on the number of threads.

        Args:
            arrays: float32 in C order: inputs, results, and the mask (steps, rows) if there is one.
                Of `kerasish.ops.lstm` x, recurrent, h, c, states, cells, gates; of its gradient
                g_states, g_cells, recurrent, c, cells, gates, dx, dh, dc. Of `gru` x, recurrent,
                bias, h, states, gates; of its gradient g, recurrent, h, states, gates, dx, ds, dh,
                where ds is the gradient by the products with the states. Of `simple_rnn` x,
                recurrent, h, states; of its gradient g, recurrent, states, dx, dh.
            sizes: time steps, rows of the batch, units.
        """


class AttentionHeads(Protocol):
    """softmax(scale * q @ k^T) @ v for each head, or its gradients, in one call."""

    def __call__(self, arrays: Sequence[Array], scale: float) -> None:
        """Compute all heads on the number of threads that their work pays for.

        The results do not depend on the number of threads.

        Args:
            arrays: each has the axes batch, heads, rows, columns, in memory of any order, but
                columns are adjacent. Forward: q (targets, size), k (sources, size), v (sources,
                values), with a mask the mask (targets, sources), and the results out (targets,
                values), maxima and sums (targets, 1). Backward: q, k, v, maxima, sums, the
                gradient that arrives at out, the mask, and the results dq, dk, dv. They are
                float32, the mask bool.
            scale: of the products.
        """


class RowSums(Protocol):
    """Sums of rows by place, in one call."""

    def __call__(self, places: Array, rows: Array, y: Array) -> None:
        """Write zeros to y, then add each row to y at its place, in order.

        The results do not depend on the number of threads.

        Args:
            places: int64, from 0 to the rows of y.
            rows: float32 in C order, a row for each place.
            y: float32 in C order.
        """


_from_buffer = ctypes.c_char.from_buffer


def address_of(array: Array) -> int:
    """Return the address of an array's first element."""
    try:
        return ctypes.addressof(_from_buffer(array))  # a fifth of the time of the other way
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a dtype without a code
        return int(array.ctypes.data)


_State: dict[str, Any] = {}
_lock = fork_safe_lock(globals(), "_lock")


def compile_loop(describe: Describe, segments: bool = False) -> ArrayLoop | None:
    """Return the loop that `describe` describes, or None where this machine cannot compile one.

    Args:
        describe: calls the methods of the builder that is passed to it.
        segments: whether the loop will run by `over_segments`.
    """
    compiler: Callable[..., ArrayLoop | None] = _function(COMPILER)
    return compiler(describe, segments)


def compile_time_steps(cell: str, backward: bool, masked: bool = False) -> TimeSteps | None:
    """Return all time steps of a recurrence, or None where this machine cannot compile them.

    Args:
        cell: "lstm", "gru" or "simple_rnn".
        backward: whether they are those of the gradient.
        masked: whether a mask selects the rows that count.
    """
    compiler: Callable[..., TimeSteps | None] = _function(STEPS_COMPILER)
    return compiler(cell, backward, masked)


def compile_heads(backward: bool, masked: bool) -> AttentionHeads | None:
    """Return attention heads, or None where this machine cannot compile them.

    Args:
        backward: whether their gradients are computed.
        masked: whether a mask selects the sources that count for a target; elsewhere the logits are
            -1e9 and the weights 0.
    """
    compiler: Callable[..., AttentionHeads | None] = _function(HEADS_COMPILER)
    return compiler(backward, masked)


def compile_row_sums() -> RowSums | None:
    """Return sums of rows by place, or None where this machine cannot compile them."""
    compiler: Callable[..., RowSums | None] = _function(ROWS_COMPILER)
    return compiler()


def _function(where: str) -> Callable[..., Any]:
    """Return the function at "module:name", imported at the first call."""
    with _lock:
        if where not in _State:
            module, _, name = where.partition(":")
            _State[where] = getattr(importlib.import_module(module), name)
        function: Callable[..., Any] = _State[where]
        return function
