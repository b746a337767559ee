"""LSTM over all time steps: a product by oneDNN and one compiled loop in each step.

The functions compute what those of `numpy_recurrent` compute, for float32 and without a mask. They
return None where NumPy is to compute it. Kernels are reordered for oneDNN once for all steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kerasish.backends import onednn
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT, Loop
from kerasish.backends.eager.onednn_runner import Runner, Step, find
from kerasish.backends.loops import ArrayLoop, LoopBuilder, address_of
from kerasish.typing import Array

LEAST = 1 << 11  # elements of a state; below, NumPy's calls cost as much


def _numbers(k: LoopBuilder, count: int) -> list[Any]:
    return [k.input("float32") for _ in range(count)]


def _cell(k: LoopBuilder) -> None:
    given = _numbers(k, 9)
    i, f, g, o = (x + s for x, s in zip(given[:4], given[4:8]))
    i, f, o = (k.op("sigmoid", z) for z in (i, f, o))
    g = k.op("tanh", g)
    c = f * given[8] + i * g
    for v in (i, f, g, o, c, o * k.op("tanh", c)):
        k.output(v)


def _cell_gradient(k: LoopBuilder) -> None:
    i, f, g, o, before, c, arriving, past, dc, by_cell = _numbers(k, 10)
    dh = arriving + past
    reached = k.op("tanh", c)
    through = dc + by_cell + (1.0 - reached * reached) * o * dh
    k.output(through * g * (i - i * i))
    k.output(through * before * (f - f * f))
    k.output(through * i * (1.0 - g * g))
    k.output(dh * reached * (o - o * o))
    k.output(through * f)


_CELL, _CELL_GRADIENT = Loop(_cell), Loop(_cell_gradient)


class _Product(NamedTuple):
    """A product by one matrix, run for the states of each time step.

    Attributes:
        binding: the primitive with its addresses.
        nbytes: bytes of a state.
        keep: the arrays that the binding points to.
    """

    binding: onednn.Binding
    nbytes: int
    keep: list[Array]

    def run(self, address: int) -> None:
        """Multiply the states that lie at this address."""
        self.binding.rebind("a", onednn.Buffer(address, self.nbytes))
        self.binding.execute()


def _product(states: Array, kernel: Array, out: Array) -> _Product | None:
    """Return the product of arrays like `states` by the kernel, which may lie in any order."""
    steps = tuple(s // 4 for s in kernel.strides)

    def make() -> Runner:
        product = onednn.matmul(states.shape, kernel.shape, b_layout="any")
        plain = onednn.strided(kernel.shape, steps, "float32")
        chosen = product.arguments["b"]
        if chosen == plain:
            return Runner([Step(product)], {})
        return Runner([Step(product), Step(onednn.reorder(plain, chosen))], {})

    runner = find(("recurrent product", states.shape, kernel.shape, steps), make)
    if runner is None:
        return None
    product, *reorders = (step.primitive for step in runner.steps)
    keep, given = [kernel, out], kernel
    for reorder in reorders:
        given = np.empty(product.arguments["b"].nbytes + 64, np.uint8)
        keep.append(given)
        reorder.bind(
            {"source": _whole(kernel), "destination": given, **reorder.scratch()}
        ).execute()
    scratch = product.scratch()
    keep += scratch.values()
    binding = product.bind({"a": states, "b": _whole(given), "out": out, **scratch})
    return _Product(binding, states.nbytes, keep)


def _whole(x: Array) -> onednn.Buffer:
    return onednn.Buffer(address_of(x) if x.flags.writeable else int(x.ctypes.data), x.nbytes)


def _ready(loop: Loop, first: Array, *arrays: Array) -> ArrayLoop | None:
    """Return the compiled loop for states like `first`; None where NumPy is to compute it."""
    single = all(a.dtype == FLOAT for a in (first, *arrays))
    return loop.find() if single and first.size >= LEAST else None


def lstm(x: Array, recurrent: Array, h: Array, c: Array) -> tuple[Array, ...] | None:
    """Return (states, cells, gates) of all time steps; see `numpy_recurrent`."""
    loop = _ready(_CELL, h, x, recurrent, c)
    if loop is None or not len(x):
        return None
    x, recurrent, h, c = (np.ascontiguousarray(a) for a in (x, recurrent, h, c))
    steps, n, width = x.shape
    units = width // 4
    z = np.empty((n, width), FLOAT)
    product = _product(h, recurrent, z)
    if product is None:
        return None
    states, cells = empty((steps, n, units), FLOAT), empty((steps, n, units), FLOAT)
    gates = empty(x.shape, FLOAT)
    strides = (*[width] * 8, units, *[width] * 4, units, units)
    one, row = units * 4, n * units * 4  # bytes of a gate in a row; of a state
    z_at, x_at, gates_at = address_of(z), _whole(x).address, address_of(gates)
    h_at, c_at = _whole(h).address, _whole(c).address
    new_h, new_c = address_of(states), address_of(cells)
    sums = [z_at + k * one for k in range(4)]
    for _ in range(steps):
        product.run(h_at)
        inputs = [x_at, x_at + one, x_at + 2 * one, x_at + 3 * one, *sums, c_at]
        outputs = [gates_at, gates_at + one, gates_at + 2 * one, gates_at + 3 * one, new_c, new_h]
        loop.at([*inputs, *outputs], n, units, strides)
        h_at, c_at = new_h, new_c
        x_at, gates_at, new_h, new_c = x_at + 4 * row, gates_at + 4 * row, new_h + row, new_c + row
    return states, cells, gates


def lstm_gradient(
    g_states: Array, g_cells: Array, recurrent: Array, c: Array, cells: Array, gates: Array
) -> tuple[Array, Array, Array] | None:
    """Return the gradients by x, by the first state and by the first cell."""
    given = (g_states, g_cells, recurrent, cells, gates)
    loop = _ready(_CELL_GRADIENT, c, *given)
    if loop is None or not len(gates):
        return None
    g_states, g_cells, cells, gates, c = map(
        np.ascontiguousarray, (g_states, g_cells, cells, gates, c)
    )
    steps, n, width = gates.shape
    units = width // 4
    dx, dh = empty(gates.shape, FLOAT), np.zeros((n, units), FLOAT)
    product = _product(dx[0], recurrent.T, dh)
    if product is None:
        return None
    dcs = [np.zeros((n, units), FLOAT) for _ in range(2)]
    strides = (*[width] * 4, *[units] * 6, *[width] * 4, units)
    one, row = units * 4, n * units * 4
    first = [_whole(a).address for a in (gates, dx, cells, g_states, g_cells)]
    before, dh_at, (dc, new_dc) = _whole(c).address, address_of(dh), map(address_of, dcs)
    for t in reversed(range(steps)):
        gates_at, dx_at = (a + 4 * t * row for a in first[:2])
        cell, arriving, by_cell = (a + t * row for a in first[2:])
        inputs = [gates_at + k * one for k in range(4)]
        inputs += [cell - row if t else before, cell, arriving, dh_at, dc, by_cell]
        loop.at([*inputs, *[dx_at + k * one for k in range(4)], new_dc], n, units, strides)
        product.run(dx_at)
        dc, new_dc = new_dc, dc
    return dx, dh, dcs[0] if dc == address_of(dcs[0]) else dcs[1]
