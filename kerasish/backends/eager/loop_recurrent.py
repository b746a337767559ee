"""Recurrences over all time steps in one compiled call.

The functions compute the same as those of `numpy_recurrent`, for float32. They return None if NumPy
must compute it. `skip` is True where a time step does not count for a row, or None if all count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT
from kerasish.backends.loops import TimeSteps, compile_time_steps
from kerasish.backends.onednn.native import fork_safe_lock
from kerasish.typing import Array

LEAST = 1 << 5  # elements of a state; below, NumPy's calls cost as much

_lock = fork_safe_lock(globals(), "_lock")
_compiled: dict[tuple[str, bool, bool], TimeSteps | None] = {}


def _run(
    cell: str, backward: bool, given: Sequence[Array], skip: Array | None,
    sizes: tuple[int, int, int], results: Sequence[tuple[int, ...]],
) -> list[Array] | None:  # fmt: skip
    """Return the results of all time steps; None if NumPy must compute them.

    Args:
        cell: the kind of the recurrence.
        backward: whether its gradient is computed.
        given: the arrays that are read.
        skip: where a time step does not count.
        sizes: time steps, rows, units.
        results: the shapes of the results.
    """
    steps, rows, units = sizes
    if rows * units < LEAST or not steps or any(a.dtype != FLOAT for a in given):
        return None
    key = cell, backward, skip is not None
    if key not in _compiled:
        with _lock:
            if key not in _compiled:
                _compiled[key] = compile_time_steps(*key)
    run = _compiled[key]
    if run is None:
        return None
    created = [empty(shape, FLOAT) for shape in results]
    mask = [] if skip is None else [np.logical_not(skip).astype(FLOAT, order="C")]
    run((*map(np.ascontiguousarray, given), *created, *mask), sizes)
    return created


def lstm(
    x: Array, recurrent: Array, h: Array, c: Array, skip: Array | None
) -> tuple[Array, ...] | None:
    """Return (states, cells, gates) of all time steps; see `numpy_recurrent`."""
    steps, n, units = sizes = (x.shape[0], x.shape[1], x.shape[2] // 4)
    shapes = [(steps, n, units), (steps, n, units), x.shape]
    results = _run("lstm", False, (x, recurrent, h, c), skip, sizes, shapes)
    return None if results is None else tuple(results)


def lstm_gradient(
    g_states: Array, g_cells: Array, recurrent: Array, c: Array, cells: Array, gates: Array,
    skip: Array | None,
) -> list[Array] | None:  # fmt: skip
    """Return the gradients by x, by the first state and by the first cell."""
    given = (g_states, g_cells, recurrent, c, cells, gates)
    sizes = _, n, units = cells.shape
    return _run("lstm", True, given, skip, sizes, [gates.shape, (n, units), (n, units)])


def gru(
    x: Array, recurrent: Array, bias: Array, h: Array, skip: Array | None
) -> tuple[Array, ...] | None:
    """Return (states, gates) of all time steps; see `numpy_recurrent`."""
    steps, n, units = sizes = (x.shape[0], x.shape[1], x.shape[2] // 3)
    shapes = [(steps, n, units), (steps, n, 4 * units)]
    results = _run("gru", False, (x, recurrent, bias, h), skip, sizes, shapes)
    return None if results is None else tuple(results)


def gru_gradient(
    g: Array, recurrent: Array, h: Array, states: Array, gates: Array, skip: Array | None
) -> list[Array] | None:
    """Return the gradients by x, by the products with the states, and by the first state."""
    sizes = steps, n, units = states.shape
    width = (steps, n, 3 * units)
    return _run(
        "gru", True, (g, recurrent, h, states, gates), skip, sizes, [width, width, (n, units)]
    )


def simple_rnn(x: Array, recurrent: Array, h: Array, skip: Array | None) -> Array | None:
    """Return the states of all time steps; see `numpy_recurrent`."""
    sizes = steps, n, units = x.shape
    results = _run("simple_rnn", False, (x, recurrent, h), skip, sizes, [(steps, n, units)])
    return None if results is None else results[0]


def simple_rnn_gradient(
    g: Array, recurrent: Array, states: Array, skip: Array | None
) -> list[Array] | None:
    """Return the gradients by x and by the first state."""
    sizes = _, n, units = states.shape
    return _run("simple_rnn", True, (g, recurrent, states), skip, sizes, [g.shape, (n, units)])
