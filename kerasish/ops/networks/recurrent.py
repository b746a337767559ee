"""Whole sequences of recurrent cells: lstm, gru, simple_rnn, and their gradients as ops.

Time is the first axis, so that a step is one block of memory. What a step takes of its input
is given (x W + b, one product for all steps); the ops add what it takes of the state before.
A mask (steps, n), where given, marks the steps that count (not 0): the others keep the state.

Each function is written once, for arrays and for tensors alike (`Maths` holds what differs): on
arrays it is the reference kernel, on tensors the composition by which a gradient of a gradient is
found. Results that are kept for the gradient (gates) are results like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.ops import rows
from kerasish.ops.networks.steps import (
    Maths,
    by_steps,
    choose,
    counts_at,
    cut,
    fitting_units,
    full_gradient,
    kernel_of,
    mask_of,
    sigmoid,
    through_definition,
    weight_gradient,
)
from kerasish.ops.op import op
from kerasish.ops.shapes import Spec
from kerasish.typing import AnyTensor, Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["gru", "lstm", "simple_rnn"]


# --- simple_rnn -------------------------------------------------------------------------------


def _simple(m: Maths, x: Array, recurrent: Array, h: Array, mask: Array = None) -> Array:
    states = []
    for t in range(x.shape[0]):
        h = choose(m, counts_at(m, mask, t), m.tanh(x[t] + h @ recurrent), h)
        states.append(h)
    return m.stack(states)


def _simple_back(
    m: Maths, g: AnyTensor, recurrent: AnyTensor, first: AnyTensor, states: AnyTensor,
    mask: AnyTensor | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    turned, dh, dx = m.turn(recurrent), 0.0 * first, []
    for t in reversed(range(states.shape[0])):
        counts = counts_at(m, mask, t)
        dh = dh + g[t]
        dz = choose(m, counts, dh * (1.0 - states[t] * states[t]), 0.0 * dh)
        dh = choose(m, counts, dz @ turned, dh)
        dx.append(dz)
    dz = m.stack(dx[::-1])
    return dz, weight_gradient(m, first, states, dz), dh


def _simple_shape(x: Spec, recurrent: Spec, h: Spec, mask: Spec | None = None) -> Spec:
    fitting_units("simple_rnn", x, recurrent, (h,), 1)
    return Spec(x.shape, x.dtype)


def _simple_rule(
    g: Tensor, y: Tensor, x: Tensor, recurrent: Tensor, h: Tensor, *mask: Any
) -> tuple[Any, ...]:
    dx, weights, dh = simple_rnn_gradient(g, recurrent, h, y, *mask)
    return dx, weights, dh, None


def _flops(inputs: Any, results: Any) -> int:
    """Return the FLOPs of all steps; the product of the inputs is computed before."""
    steps = math.prod(inputs[0][:-1])
    return steps * (2 * math.prod(inputs[1]) + 3 * inputs[1][-1])


def _gradient_flops(inputs: Any, results: Any) -> int:
    """Return the FLOPs of the gradients of all steps: two products with what `_flops` counts."""
    steps = math.prod(results[0][:-1])
    return steps * (4 * math.prod(results[1]) + 6 * results[1][-1])


@op(
    "recurrent",
    _simple_shape,
    _simple_rule,
    "float",
    examples=[
        (((3, 2, 4), (4, 4), (2, 4)), {}),
        (((4, 3, 2), (2, 2), (3, 2), mask_of(4, 3)), {}),
    ],
    flops=_flops,
    rows=rows.sequences(2, 1),
)
def simple_rnn(xp: ArrayModule, x: Array, recurrent: Array, h: Array, mask: Array = None) -> Array:
    """h[t] = tanh(x[t] + h[t-1] @ recurrent), for all steps t.

    Args:
        x: tensor or array.
        recurrent: matrix from the state to the gates.
        h: the state before the first step.
        mask: (steps, n), not 0 where a step counts; elsewhere h[t] = h[t-1]; None: all count.

    Shape: (steps, n, units), (units, units), (n, units)[, (steps, n)] -> (steps, n, units).
    Source: Elman, Finding structure in time, 1990.

    Example:
        >>> import numpy as np
        >>> x = np.zeros((5, 2, 3), "float32")
        >>> simple_rnn(x, np.eye(3, dtype="float32"), np.zeros((2, 3), "float32")).shape
        (5, 2, 3)
    """
    return kernel_of(_simple)(xp, x, recurrent, h, *(() if mask is None else (mask,)))


@op(
    "recurrent",
    lambda g, recurrent, h, states, mask=None: (
        Spec(g.shape, g.dtype), Spec(recurrent.shape, g.dtype), Spec(h.shape, g.dtype),
    ),
    lambda g, y, *inputs: through_definition(_simple_back, inputs, g),
    "float",
    outputs=3,
    examples=[
        (((3, 2, 4), (4, 4), (2, 4), (3, 2, 4)), {}),
        (((4, 3, 2), (2, 2), (3, 2), (4, 3, 2), mask_of(4, 3)), {}),
    ],
    flops=_gradient_flops,
)  # fmt: skip
def simple_rnn_gradient(
    xp: ArrayModule, g: Array, recurrent: Array, h: Array, states: Array, mask: Array = None
) -> tuple[Array, ...]:
    """The gradients (dx, drecurrent, dh) of `simple_rnn`, g arriving at its result `states`."""
    given = (g, recurrent, h, states)
    return kernel_of(_simple_back)(xp, *given, *(() if mask is None else (mask,)))


# --- lstm -------------------------------------------------------------------------------------


def _lstm(
    m: Maths, x: AnyTensor, recurrent: AnyTensor, h: AnyTensor, c: AnyTensor,
    mask: AnyTensor | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    states, cells, gates = [], [], []
    for t in range(x.shape[0]):
        zi, zf, zc, zo = cut(x[t] + h @ recurrent, 4)
        i, f, g, o = sigmoid(m, zi), sigmoid(m, zf), m.tanh(zc), sigmoid(m, zo)
        new_c = f * c + i * g
        counts = counts_at(m, mask, t)
        h = choose(m, counts, o * m.tanh(new_c), h)
        c = choose(m, counts, new_c, c)
        states.append(h)
        cells.append(c)
        gates.append(m.join([i, f, g, o]))
    return m.stack(states), m.stack(cells), m.stack(gates)


def _lstm_back(
    m: Maths, g_states: AnyTensor, g_cells: AnyTensor, recurrent: AnyTensor, first: AnyTensor,
    first_c: AnyTensor, states: AnyTensor,
    cells: AnyTensor, gates: AnyTensor, mask: AnyTensor | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    turned, dh, dc, dx = m.turn(recurrent), 0.0 * first, 0.0 * first_c, []
    for t in reversed(range(states.shape[0])):
        counts = counts_at(m, mask, t)
        i, f, g, o = cut(gates[t], 4)
        c = cells[t - 1] if t else first_c
        reached = m.tanh(cells[t])
        dh, dc = dh + g_states[t], dc + g_cells[t]
        through = dc + dh * o * (1.0 - reached * reached)
        parts = [
            through * g * i * (1.0 - i),
            through * c * f * (1.0 - f),
            through * i * (1.0 - g * g),
            dh * reached * o * (1.0 - o),
        ]
        dz = choose(m, counts, m.join(parts), 0.0 * gates[t])
        dh = choose(m, counts, dz @ turned, dh)
        dc = choose(m, counts, through * f, dc)
        dx.append(dz)
    dz = m.stack(dx[::-1])
    return dz, weight_gradient(m, first, states, dz), dh, dc


def _lstm_shape(
    x: Spec, recurrent: Spec, h: Spec, c: Spec, mask: Spec | None = None
) -> tuple[Spec, ...]:
    units = fitting_units("lstm", x, recurrent, (h, c), 4)
    states = Spec((*x.shape[:2], units), x.dtype)
    return states, states, Spec(x.shape, x.dtype)


def _lstm_rule(
    g: tuple[Any, ...], y: Sequence[Tensor], x: Tensor, recurrent: Tensor, h: Tensor, c: Tensor,
    *mask: Any,
) -> Sequence[Any]:  # fmt: skip
    if g[2] is not None:  # a gradient of a gradient
        arriving = [full_gradient(a, b) for a, b in zip(g, y)]
        return through_definition(_lstm, (x, recurrent, h, c, *mask), arriving)
    arriving = [full_gradient(a, b) for a, b in zip(g[:2], y)]
    return (*lstm_gradient(*arriving, recurrent, h, c, *y, *mask), None)


@op(
    "recurrent",
    _lstm_shape,
    _lstm_rule,
    "float",
    outputs=3,
    examples=[
        (((3, 2, 8), (2, 8), (2, 2), (2, 2)), {}),
        (((4, 3, 4), (1, 4), (3, 1), (3, 1), mask_of(4, 3)), {}),
    ],
    flops=_flops,
    rows=rows.sequences(2, 2),
)
def lstm(
    xp: ArrayModule, x: Array, recurrent: Array, h: Array, c: Array, mask: Array = None
) -> tuple[Array, ...]:
    """c[t] = f c[t-1] + i g, h[t] = o tanh(c[t]) with gates of z = x[t] + h[t-1] @ recurrent.

    z has the order (i, f, g, o); i, f, o are sigmoids of their parts, g is a tanh.

    Args:
        x: tensor or array.
        recurrent: matrix from the state to the gates.
        h, c: the states before the first step.
        mask: (steps, n), not 0 where a step counts; elsewhere both states stay; None: all count.

    Shape: (steps, n, 4 units), (units, 4 units), (n, units), (n, units)[, (steps, n)] ->
    states h (steps, n, units), c (steps, n, units), gates (steps, n, 4 units).
    Source: Hochreiter and Schmidhuber, Neural Computation 1997; Gers et al. 2000.

    Example:
        >>> import numpy as np
        >>> x, recurrent = np.zeros((5, 2, 12), "float32"), np.zeros((3, 12), "float32")
        >>> state = np.ones((2, 3), "float32")
        >>> h, c, gates = lstm(x, recurrent, state, state)
        >>> h.shape, gates.shape, float(c[0, 0, 0])
        ((5, 2, 3), (5, 2, 12), 0.5)
    """
    return kernel_of(_lstm)(xp, x, recurrent, h, c, *(() if mask is None else (mask,)))


@op(
    "recurrent",
    lambda g_states, g_cells, recurrent, h, c, states, cells, gates, mask=None: (
        Spec(gates.shape, gates.dtype), Spec(recurrent.shape, gates.dtype),
        Spec(h.shape, gates.dtype), Spec(c.shape, gates.dtype),
    ),
    lambda g, y, *inputs: through_definition(_lstm_back, inputs, g),
    "float",
    outputs=4,
    examples=[
        (((3, 2, 2), (3, 2, 2), (2, 8), (2, 2), (2, 2), (3, 2, 2), (3, 2, 2), (3, 2, 8)), {}),
        (((4, 3, 1), (4, 3, 1), (1, 4), (3, 1), (3, 1), (4, 3, 1), (4, 3, 1), (4, 3, 4),
          mask_of(4, 3)), {}),
    ],
    flops=_gradient_flops,
)  # fmt: skip
def lstm_gradient(
    xp: ArrayModule, g_states: Array, g_cells: Array, recurrent: Array, h: Array, c: Array,
    states: Array, cells: Array, gates: Array, mask: Array = None,
) -> tuple[Array, ...]:  # fmt: skip
    """The gradients (dx, drecurrent, dh, dc) of `lstm`.

    Args:
        g_states, g_cells: what arrives at the states h and c of all steps.
        states, cells, gates: what `lstm` gave.

    Source: back-propagation through time, Werbos 1990.
    """
    given = (g_states, g_cells, recurrent, h, c, states, cells, gates)
    return kernel_of(_lstm_back)(xp, *given, *(() if mask is None else (mask,)))


# --- gru --------------------------------------------------------------------------------------


def _gru(
    m: Maths, x: AnyTensor, recurrent: AnyTensor, bias: AnyTensor, h: AnyTensor,
    mask: AnyTensor | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    states, gates = [], []
    for t in range(x.shape[0]):
        xz, xr, xn = cut(x[t], 3)
        hz, hr, hn = cut(h @ recurrent + bias, 3)
        z, r = sigmoid(m, xz + hz), sigmoid(m, xr + hr)
        n = m.tanh(xn + r * hn)
        h = choose(m, counts_at(m, mask, t), z * h + (1.0 - z) * n, h)
        states.append(h)
        gates.append(m.join([z, r, n, hn]))
    return m.stack(states), m.stack(gates)


def _gru_back(
    m: Maths, g: AnyTensor, recurrent: AnyTensor, first: AnyTensor, states: AnyTensor,
    gates: AnyTensor, mask: AnyTensor | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    turned, dh, dx, ds = m.turn(recurrent), 0.0 * first, [], []
    for t in reversed(range(states.shape[0])):
        counts = counts_at(m, mask, t)
        z, r, n, hn = cut(gates[t], 4)
        h = states[t - 1] if t else first
        dh = dh + g[t]
        dn = dh * (1.0 - z) * (1.0 - n * n)
        dz, dr = dh * (h - n) * z * (1.0 - z), dn * hn * r * (1.0 - r)
        none = 0.0 * gates[t][..., h.shape[-1] :]
        of_x = choose(m, counts, m.join([dz, dr, dn]), none)
        of_h = choose(m, counts, m.join([dz, dr, dn * r]), none)
        dh = choose(m, counts, dh * z, dh) + of_h @ turned
        dx.append(of_x)
        ds.append(of_h)
    of_h = m.stack(ds[::-1])
    bias = m.total(by_steps(of_h), 0)
    return m.stack(dx[::-1]), weight_gradient(m, first, states, of_h), bias, dh


def _gru_shape(
    x: Spec, recurrent: Spec, bias: Spec, h: Spec, mask: Spec | None = None
) -> tuple[Spec, ...]:
    units = fitting_units("gru", x, recurrent, (h,), 3)
    width = None if units is None else 4 * units
    return Spec((*x.shape[:2], units), x.dtype), Spec((*x.shape[:2], width), x.dtype)


def _gru_rule(
    g: tuple[Any, ...], y: Sequence[Tensor], x: Tensor, recurrent: Tensor, bias: Tensor, h: Tensor,
    *mask: Any,
) -> Sequence[Any]:  # fmt: skip
    arriving = full_gradient(g[0], y[0])
    if g[1] is not None:  # a gradient of a gradient
        return through_definition(_gru, (x, recurrent, bias, h, *mask), (arriving, g[1]))
    return (*gru_gradient(arriving, recurrent, h, *y, *mask), None)


@op(
    "recurrent",
    _gru_shape,
    _gru_rule,
    "float",
    outputs=2,
    examples=[
        (((3, 2, 6), (2, 6), (6,), (2, 2)), {}),
        (((4, 3, 3), (1, 3), (3,), (3, 1), mask_of(4, 3)), {}),
    ],
    flops=_flops,
    rows=rows.sequences(3, 1),
)
def gru(
    xp: ArrayModule, x: Array, recurrent: Array, bias: Array, h: Array, mask: Array = None
) -> tuple[Array, ...]:
    """h[t] = z h[t-1] + (1 - z) n with n = tanh(x_n + r s_n), s = h[t-1] @ recurrent + bias.

    x[t] and s have the order (z, r, n); z = sigmoid(x_z + s_z), r = sigmoid(x_r + s_r). The reset
    is after the product (Keras's reset_after=True).

    Args:
        x: tensor or array.
        recurrent: matrix from the state to the gates.
        bias: what is added, or None.
        h: the state before the first step.
        mask: (steps, n), not 0 where a step counts; elsewhere the state stays; None: all count.

    Shape: (steps, n, 3 units), (units, 3 units), (3 units,), (n, units)[, (steps, n)] ->
    states (steps, n, units), and z, r, n, s_n as (steps, n, 4 units).
    Source: Cho et al., EMNLP 2014, in cuDNN's variant.

    Example:
        >>> import numpy as np
        >>> x, recurrent = np.zeros((5, 2, 9), "float32"), np.zeros((3, 9), "float32")
        >>> states, _ = gru(x, recurrent, np.zeros(9, "float32"), np.ones((2, 3), "float32"))
        >>> states.shape, float(states[0, 0, 0])
        ((5, 2, 3), 0.5)
    """
    return kernel_of(_gru)(xp, x, recurrent, bias, h, *(() if mask is None else (mask,)))


@op(
    "recurrent",
    lambda g, recurrent, h, states, gates, mask=None: (
        Spec((*g.shape[:2], recurrent.shape[1]), g.dtype), Spec(recurrent.shape, g.dtype),
        Spec((recurrent.shape[1],), g.dtype), Spec(h.shape, g.dtype),
    ),
    lambda g, y, *inputs: through_definition(_gru_back, inputs, g),
    "float",
    outputs=4,
    examples=[
        (((3, 2, 2), (2, 6), (2, 2), (3, 2, 2), (3, 2, 8)), {}),
        (((4, 3, 1), (1, 3), (3, 1), (4, 3, 1), (4, 3, 4), mask_of(4, 3)), {}),
    ],
    flops=_gradient_flops,
)  # fmt: skip
def gru_gradient(
    xp: ArrayModule, g: Array, recurrent: Array, h: Array, states: Array, gates: Array,
    mask: Array = None,
) -> tuple[Array, ...]:  # fmt: skip
    """The gradients (dx, drecurrent, dbias, dh) of `gru`, g arriving at its states.

    Args:
        states, gates: what `gru` gave.
    """
    given = (g, recurrent, h, states, gates)
    return kernel_of(_gru_back)(xp, *given, *(() if mask is None else (mask,)))


for _op in (lstm, gru):
    # Their rules need to know which gradients are missing: no code asks for the gates' but a
    # gradient of a gradient.
    _op.sparse_gradients = True
