"""NumPy kernels of whole recurrent sequences: buffers are allocated once, ufuncs write to them.

sigmoid(z) = tanh(z / 2) / 2 + 1/2: all gates of a step are one tanh over one block of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.backends.eager import loop_recurrent
from kerasish.backends.eager.onednn_product import column_sums, matmul
from kerasish.typing import Array, Structure


def _narrow(*arrays: Any) -> bool:
    """Return whether 16-bit numbers are among them: those are computed in 32 bits."""
    return arrays[0].dtype.itemsize == 2


def _wide(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel for arrays of any floating dtype."""

    def run(*arrays: Any) -> Structure:
        if not _narrow(*arrays):
            return kernel(*arrays)
        result = kernel(*(a.astype(np.float32) for a in arrays))
        many = result if isinstance(result, tuple) else (result,)
        created = tuple(r.astype(arrays[0].dtype) for r in many)
        return created if isinstance(result, tuple) else created[0]

    return run


def _scales(units: int, count: int, linear: int, dtype: str) -> tuple[Any, Any]:
    """Return (scale, shift) by which tanh of `count` gates are sigmoids, except for one gate."""
    scale, shift = np.full(count * units, 0.5, dtype), np.full(count * units, 0.5, dtype)
    scale[linear * units : (linear + 1) * units] = 1
    shift[linear * units : (linear + 1) * units] = 0
    return scale, shift


def _skipped(mask: Array) -> Array:
    """Return (steps, n): True where a step does not count; None if all steps count."""
    if mask is None:
        return None
    skip = mask == 0
    return skip if skip.any() else None


def _keep(skip: Array, t: int, new: Array, old: Array) -> None:
    """Write the rows of `old` that step t skips into `new`."""
    if skip is not None and skip[t].any():
        np.copyto(new, old, where=skip[t][:, None])


def _leaves_out(skip: Array, t: int) -> bool:
    """Return whether step t counts for no row: its products are skipped."""
    return skip is not None and bool(skip[t].all())


def _by_recurrent(first: Array, states: Array, dz: Array) -> Array:
    """Return the gradient by the recurrent kernel: one product over all steps but the first."""
    units, width = states.shape[2], dz.shape[2]
    if states.shape[0] < 2:
        return matmul(first.T, dz[0])
    result = matmul(states[:-1].reshape(-1, units).T, dz[1:].reshape(-1, width))
    if first.any() or not np.isfinite(dz[0]).all():  # else it adds zeros: most sequences begin so
        result += matmul(first.T, dz[0])
    return result


def _simple_rnn(x: Array, recurrent: Array, h: Array, mask: Array = None) -> Array:
    skip = _skipped(mask)
    result = loop_recurrent.simple_rnn(x, recurrent, h, skip)
    if result is not None:
        return result
    states = np.empty(x.shape, x.dtype)
    for t in range(x.shape[0]):
        new = states[t]
        if _leaves_out(skip, t):
            new[...] = h
            continue
        np.matmul(h, recurrent, out=new)
        new += x[t]
        np.tanh(new, out=new)
        _keep(skip, t, new, h)
        h = new
    return states


def _simple_rnn_gradient(
    g: Array, recurrent: Array, h: Array, states: Array, mask: Array = None
) -> tuple[Array, ...]:
    skip = _skipped(mask)
    result = loop_recurrent.simple_rnn_gradient(g, recurrent, states, skip)
    if result is not None:
        dx, dh = result
        return dx, _by_recurrent(h, states, dx), dh
    dx = np.empty(g.shape, g.dtype)
    dh, turned = np.zeros(h.shape, g.dtype), np.ascontiguousarray(recurrent.T)
    for t in reversed(range(g.shape[0])):
        dz, y = dx[t], states[t]
        dh += g[t]
        if _leaves_out(skip, t):
            dz[...] = 0
            continue
        np.multiply(y, y, out=dz)
        np.subtract(1, dz, out=dz)
        dz *= dh
        _keep(skip, t, dz, 0)
        past = dz @ turned
        _keep(skip, t, past, dh)
        dh = past
    return dx, _by_recurrent(h, states, dx), dh


def _lstm(x: Array, recurrent: Array, h: Array, c: Array, mask: Array = None) -> tuple[Array, ...]:
    skip = _skipped(mask)
    result = loop_recurrent.lstm(x, recurrent, h, c, skip)
    if result is not None:
        return result
    steps, n, width = x.shape
    units, dtype = width // 4, x.dtype
    states, cells = np.empty((steps, n, units), dtype), np.empty((steps, n, units), dtype)
    gates = np.empty(x.shape, dtype)
    scale, shift = _scales(units, 4, 2, dtype)
    recurrent = recurrent * scale
    row, part = np.empty((n, width), dtype), np.empty((n, units), dtype)
    for t in range(steps):
        z, new_c, new_h = gates[t], cells[t], states[t]
        np.matmul(h, recurrent, out=z)
        np.multiply(x[t], scale, out=row)
        z += row
        np.tanh(z, out=z)
        z *= scale
        z += shift
        np.multiply(z[:, units : 2 * units], c, out=new_c)
        np.multiply(z[:, :units], z[:, 2 * units : 3 * units], out=part)
        new_c += part
        np.tanh(new_c, out=new_h)
        new_h *= z[:, 3 * units :]
        _keep(skip, t, new_c, c)
        _keep(skip, t, new_h, h)
        h, c = new_h, new_c
    return states, cells, gates


def _lstm_gradient(
    g_states: Array, g_cells: Array, recurrent: Array, h: Array, c: Array, states: Array,
    cells: Array,
    gates: Array, mask: Array = None,
) -> tuple[Array, ...]:  # fmt: skip
    skip = _skipped(mask)
    result = loop_recurrent.lstm_gradient(g_states, g_cells, recurrent, c, cells, gates, skip)
    if result is not None:
        dx, dh, dc = result
        return dx, _by_recurrent(h, states, dx), dh, dc
    steps, n, width = gates.shape
    units, dtype = width // 4, gates.dtype
    dx = np.empty(gates.shape, dtype)
    dh, dc = np.zeros((n, units), dtype), np.zeros((n, units), dtype)
    turned = np.ascontiguousarray(recurrent.T)
    slope, reached = np.empty((n, width), dtype), np.empty((n, units), dtype)
    through, past = np.empty((n, units), dtype), np.empty((n, units), dtype)
    for t in reversed(range(steps)):
        z, dz, before = gates[t], dx[t], cells[t - 1] if t else c
        i, f, g, o = (z[:, k * units : (k + 1) * units] for k in range(4))
        di, df, dg, do = (dz[:, k * units : (k + 1) * units] for k in range(4))
        dh += g_states[t]
        dc += g_cells[t]
        if _leaves_out(skip, t):
            dz[...] = 0
            continue
        np.tanh(cells[t], out=reached)
        np.multiply(dh, reached, out=do)
        np.multiply(reached, reached, out=through)
        np.subtract(1, through, out=through)
        through *= o
        through *= dh
        through += dc
        np.multiply(through, g, out=di)
        np.multiply(through, before, out=df)
        np.multiply(through, i, out=dg)
        np.multiply(z, z, out=slope)
        g_slope = slope[:, 2 * units : 3 * units]
        np.subtract(1, g_slope, out=reached)
        np.subtract(z, slope, out=slope)
        g_slope[...] = reached
        dz *= slope
        through *= f
        _keep(skip, t, dz, 0)
        _keep(skip, t, through, dc)
        np.matmul(dz, turned, out=past)
        _keep(skip, t, past, dh)
        dh, past = past, dh
        dc, through = through, dc
    return dx, _by_recurrent(h, states, dx), dh, dc


def _gru(
    x: Array, recurrent: Array, bias: Array, h: Array, mask: Array = None
) -> tuple[Array, ...]:
    skip = _skipped(mask)
    result = loop_recurrent.gru(x, recurrent, bias, h, skip)
    if result is not None:
        return result
    steps, n, width = x.shape
    units, dtype = width // 3, x.dtype
    states, gates = np.empty((steps, n, units), dtype), np.empty((steps, n, 4 * units), dtype)
    half = dtype.type(0.5)
    s, two = np.empty((n, width), dtype), np.empty((n, 2 * units), dtype)
    for t in range(steps):
        row, new = gates[t], states[t]
        np.matmul(h, recurrent, out=s)
        s += bias
        np.add(x[t, :, : 2 * units], s[:, : 2 * units], out=two)
        two *= half
        np.tanh(two, out=two)
        two *= half
        np.add(two, half, out=row[:, : 2 * units])
        z, r, m = row[:, :units], row[:, units : 2 * units], row[:, 2 * units : 3 * units]
        row[:, 3 * units :] = s[:, 2 * units :]
        np.multiply(r, s[:, 2 * units :], out=m)
        m += x[t, :, 2 * units :]
        np.tanh(m, out=m)
        np.subtract(h, m, out=new)
        new *= z
        new += m
        _keep(skip, t, new, h)
        h = new
    return states, gates


def _gru_gradient(
    g: Array, recurrent: Array, h: Array, states: Array, gates: Array, mask: Array = None
) -> tuple[Array, ...]:
    skip = _skipped(mask)
    result = loop_recurrent.gru_gradient(g, recurrent, h, states, gates, skip)
    if result is not None:
        dx, ds, dh = result
        bias = column_sums(ds.reshape(-1, ds.shape[2]))
        return dx, _by_recurrent(h, states, ds), bias, dh
    steps, n, units = states.shape
    dtype = gates.dtype
    dx, ds = np.empty((steps, n, 3 * units), dtype), np.empty((steps, n, 3 * units), dtype)
    turned = np.ascontiguousarray(recurrent.T)
    dh, part = np.zeros((n, units), dtype), np.empty((n, units), dtype)
    past = np.empty((n, units), dtype)
    for t in reversed(range(steps)):
        z, r, m, s = (gates[t][:, k * units : (k + 1) * units] for k in range(4))
        dz, dr, dn = (dx[t][:, k * units : (k + 1) * units] for k in range(3))
        before = states[t - 1] if t else h
        dh += g[t]
        if _leaves_out(skip, t):
            dx[t], ds[t] = 0, 0
            continue
        np.subtract(before, m, out=dz)
        dz *= dh
        dz *= z
        np.subtract(1, z, out=part)
        dz *= part
        np.multiply(dh, part, out=dn)
        np.multiply(m, m, out=part)
        np.subtract(1, part, out=part)
        dn *= part
        np.subtract(1, r, out=part)
        part *= r
        part *= s
        np.multiply(dn, part, out=dr)
        _keep(skip, t, dx[t], 0)
        ds[t] = dx[t]
        ds[t][:, 2 * units :] *= r
        np.multiply(dh, z, out=part)
        _keep(skip, t, part, dh)
        np.matmul(ds[t], turned, out=past)
        np.add(past, part, out=dh)
    bias = ds.reshape(-1, 3 * units).sum(axis=0)
    return dx, _by_recurrent(h, states, ds), bias, dh


KERNELS = {
    "simple_rnn": _wide(_simple_rnn),
    "simple_rnn_gradient": _wide(_simple_rnn_gradient),
    "lstm": _wide(_lstm),
    "lstm_gradient": _wide(_lstm_gradient),
    "gru": _wide(_gru),
    "gru_gradient": _wide(_gru_gradient),
}
