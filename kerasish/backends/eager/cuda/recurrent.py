"""Whole recurrent sequences: per step one product and one kernel for all gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import by_cupy, cast, compact, copy_into, cupy, empty
from kerasish.backends.eager.cuda.blas import matrix_product
from kerasish.backends.eager.cuda.kernels import NOTHING, fits, launch, launch_elements
from kerasish.backends.eager.cuda.norm import column_sums
from kerasish.backends.eager.cuda.window import divisor
from kerasish.typing import Array

SOURCE = "recurrent"
SAMPLES, UNITS = 4, 256  # of a block of `lstm_sequence`: see recurrent.cu


def _with_fallback(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel for the dtypes it supports; the reference one for others."""
    name = kernel.__name__

    def run(*arrays: Any) -> Array:
        if not fits(*arrays) or not all(a.size for a in arrays):
            return by_cupy(name, *arrays)
        return kernel(*(compact(a) for a in arrays))

    run.__name__, run.__doc__ = name, kernel.__doc__
    return run


def _step(kernel: str, x: Array, units: int, *args: Any) -> None:
    """Launch a step for all units of all samples; arguments after the sizes are flags."""
    launch_elements(SOURCE, kernel, x.dtype, x.shape[1] * units, *args)


def _sizes(x: Array, units: int, mask: Array, *flags: bool) -> tuple[Any, ...]:
    masked = np.int32(mask is not None)
    return (np.int64(x.shape[1]), divisor(units), masked, *(np.int32(f) for f in flags))


def _at(mask: Array, t: int) -> Array:
    return NOTHING if mask is None else mask[t]


def _by_recurrent(first: Array, states: Array, dz: Array) -> Array:
    """Return the gradient by the recurrent kernel: one product over all steps."""
    before = empty(states.shape, states.dtype)
    copy_into(before[:1], first[None])
    copy_into(before[1:], states[:-1])
    rows = dz.reshape(-1, dz.shape[-1])
    return matrix_product(before.reshape(-1, first.shape[-1]).T, rows)


def _arrived(carry: Array, past: Array, spare: Array, dtype: str) -> Array:
    """Return carry + past in a dtype: the gradient of the first state."""
    copy_into(spare, past)
    cupy().add(carry, spare, out=carry)
    return cast(carry, dtype)


def _floats(x: Any, count: int) -> list[Any]:
    return [empty(x.shape, np.float32) for _ in range(count)]


# The memory of a step's product is freed at the step's end. The next step still reads it: its
# launch precedes that of the product that writes there again.


def simple_rnn(x: Array, recurrent: Array, h: Array, mask: Array = None) -> Array:
    """Return h[t] = tanh(x[t] + h[t-1] @ recurrent) for all steps."""
    units = h.shape[-1]
    states = empty(x.shape, x.dtype)
    sizes = _sizes(x, units, mask)
    for t in range(x.shape[0]):
        s = matrix_product(h, recurrent)
        _step("simple_step", x, units, x[t], s, h, _at(mask, t), states[t], *sizes)
        h = states[t]
    return states


def simple_rnn_gradient(
    g: Array, recurrent: Array, h: Array, states: Array, mask: Array = None
) -> tuple[Array, ...]:
    """Return (dx, drecurrent, dh) of `simple_rnn`."""
    units = h.shape[-1]
    dx, past = empty(g.shape, g.dtype), NOTHING
    carry, spare = _floats(h, 2)
    turned, steps = compact(recurrent.T), g.shape[0]
    for t in reversed(range(steps)):
        sizes = _sizes(g, units, mask, t + 1 < steps)
        args = (g[t], states[t], carry, past, _at(mask, t), dx[t], spare)
        _step("simple_step_gradient", g, units, *args, *sizes)
        carry, spare = spare, carry
        past = matrix_product(dx[t], turned)
    dh = _arrived(carry, past, spare, g.dtype)
    return dx, _by_recurrent(h, states, dx), dh


def lstm(x: Array, recurrent: Array, h: Array, c: Array, mask: Array = None) -> tuple[Array, ...]:
    """Return the states h, c and the gates of all steps: by one launch if there are few units."""
    if h.shape[-1] <= UNITS:
        return lstm_at_once(x, recurrent, h, c, mask)
    return lstm_by_steps(x, recurrent, h, c, mask)


def lstm_at_once(
    x: Array, recurrent: Array, h: Array, c: Array, mask: Array = None
) -> tuple[Array, ...]:
    """Return the states h, c and the gates of all steps, of at most UNITS units."""
    steps, samples, units = x.shape[0], x.shape[1], h.shape[-1]
    states, cells = (empty((steps, samples, units), x.dtype) for _ in range(2))
    gates = empty(x.shape, x.dtype)
    sizes = tuple(np.int64(k) for k in (steps, samples, units))
    given = (x, recurrent, h, c, NOTHING if mask is None else mask)
    args = (*given, states, cells, gates, *sizes, np.int32(mask is not None))
    launch(SOURCE, "lstm_sequence", x.dtype, -(-samples // SAMPLES), (UNITS,), *args)
    return states, cells, gates


def lstm_by_steps(
    x: Array, recurrent: Array, h: Array, c: Array, mask: Array = None
) -> tuple[Array, ...]:
    """Return the states h, c and the gates of all steps: a product and a kernel for each."""
    units = h.shape[-1]
    shape = (*x.shape[:2], units)
    states, cells = empty(shape, x.dtype), empty(shape, x.dtype)
    gates = empty(x.shape, x.dtype)
    cell, spare = _floats(c, 2)
    copy_into(cell, c)
    sizes = _sizes(x, units, mask)
    for t in range(x.shape[0]):
        s = matrix_product(h, recurrent)
        args = (x[t], s, h, cell, _at(mask, t), states[t], cells[t], spare, gates[t])
        _step("lstm_step", x, units, *args, *sizes)
        cell, spare = spare, cell
        h = states[t]
    return states, cells, gates


def lstm_gradient(
    g_states: Array, g_cells: Array, recurrent: Array, h: Array, c: Array, states: Array,
    cells: Array,
    gates: Array, mask: Array = None,
) -> tuple[Array, ...]:  # fmt: skip
    """Return (dx, drecurrent, dh, dc) of `lstm`."""
    units = h.shape[-1]
    dx, past = empty(gates.shape, gates.dtype), NOTHING
    carry_h, carry_c, next_h, next_c = _floats(h, 4)
    turned, steps = compact(recurrent.T), gates.shape[0]
    for t in reversed(range(steps)):
        before = cells[t - 1] if t else c
        sizes = _sizes(gates, units, mask, t + 1 < steps)
        args = (g_states[t], g_cells[t], gates[t], cells[t], before, carry_h, carry_c, past)
        result = (_at(mask, t), dx[t], next_h, next_c)
        _step("lstm_step_gradient", gates, units, *args, *result, *sizes)
        carry_h, carry_c, next_h, next_c = next_h, next_c, carry_h, carry_c
        past = matrix_product(dx[t], turned)
    dh = _arrived(carry_h, past, next_h, h.dtype)
    return dx, _by_recurrent(h, states, dx), dh, cast(carry_c, c.dtype)


def gru(x: Array, recurrent: Array, bias: Array, h: Array, mask: Array = None) -> tuple[Array, ...]:
    """Return the states and the gates z, r, n, s_n of all steps."""
    units = h.shape[-1]
    states = empty((*x.shape[:2], units), x.dtype)
    gates = empty((*x.shape[:2], 4 * units), x.dtype)
    sizes = _sizes(x, units, mask)
    for t in range(x.shape[0]):
        s = matrix_product(h, recurrent)
        args = (x[t], s, bias, h, _at(mask, t), states[t], gates[t])
        _step("gru_step", x, units, *args, *sizes)
        h = states[t]
    return states, gates


def gru_gradient(
    g: Array, recurrent: Array, h: Array, states: Array, gates: Array, mask: Array = None
) -> tuple[Array, ...]:
    """Return (dx, drecurrent, dbias, dh) of `gru`."""
    units = h.shape[-1]
    shape = (*g.shape[:2], 3 * units)
    dx, ds = empty(shape, g.dtype), empty(shape, g.dtype)
    carry, spare = _floats(h, 2)
    past, turned, steps = NOTHING, compact(recurrent.T), g.shape[0]
    for t in reversed(range(steps)):
        before = states[t - 1] if t else h
        sizes = _sizes(g, units, mask, t + 1 < steps)
        args = (g[t], gates[t], before, carry, past, _at(mask, t), dx[t], ds[t], spare)
        _step("gru_step_gradient", g, units, *args, *sizes)
        carry, spare = spare, carry
        past = matrix_product(ds[t], turned)
    dh = _arrived(carry, past, spare, g.dtype)
    bias = cast(column_sums(ds.reshape(-1, 3 * units)), g.dtype)
    return dx, _by_recurrent(h, states, ds), bias, dh


KERNELS: dict[str, Any] = {
    f.__name__: _with_fallback(f)
    for f in (simple_rnn, simple_rnn_gradient, lstm, lstm_gradient, gru, gru_gradient)
}
