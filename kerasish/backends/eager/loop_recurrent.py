"""LSTM over all time steps in one compiled call.

The functions compute the same as those of `numpy_recurrent`, for float32 and without a mask. They
return None if NumPy must compute it.
"""

from __future__ import annotations

import numpy as np

from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT
from kerasish.backends.loops import TimeSteps, compile_time_steps
from kerasish.backends.onednn.native import fork_safe_lock
from kerasish.typing import Array

LEAST = 1 << 5  # elements of a state; below, NumPy's calls cost as much

_lock = fork_safe_lock(globals(), "_lock")
_compiled: dict[bool, TimeSteps | None] = {}


def _ready(backward: bool, first: Array, *arrays: Array) -> TimeSteps | None:
    """Return the compiled steps for states like `first`; None if NumPy must compute them."""
    if first.size < LEAST or any(a.dtype != FLOAT for a in (first, *arrays)):
        return None
    if backward not in _compiled:
        with _lock:
            if backward not in _compiled:
                _compiled[backward] = compile_time_steps(backward)
    return _compiled[backward]


def lstm(x: Array, recurrent: Array, h: Array, c: Array) -> tuple[Array, ...] | None:
    """Return (states, cells, gates) of all time steps; see `numpy_recurrent`."""
    run = _ready(False, h, x, recurrent, c)
    if run is None or not len(x):
        return None
    x, recurrent, h, c = (np.ascontiguousarray(a) for a in (x, recurrent, h, c))
    steps, n, width = x.shape
    units = width // 4
    states, cells = empty((steps, n, units), FLOAT), empty((steps, n, units), FLOAT)
    gates = empty(x.shape, FLOAT)
    run((x, recurrent, h, c, states, cells, gates), (steps, n, units))
    return states, cells, gates


def lstm_gradient(
    g_states: Array, g_cells: Array, recurrent: Array, c: Array, cells: Array, gates: Array
) -> tuple[Array, Array, Array] | None:
    """Return the gradients by x, by the first state and by the first cell."""
    given = (g_states, g_cells, recurrent, c, cells, gates)
    run = _ready(True, c, *given)
    if run is None or not len(gates):
        return None
    arrays = [np.ascontiguousarray(a) for a in given]
    steps, n, width = gates.shape
    units = width // 4
    dx = empty(gates.shape, FLOAT)
    dh, dc = np.empty((n, units), FLOAT), np.empty((n, units), FLOAT)
    run((*arrays, dx, dh, dc), (steps, n, units))
    return dx, dh, dc
