"""RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.ops.arithmetic import activation
from kerasish.export.onnx.reading.registry import OnnxNode, check_size, reads, tensor
from kerasish.typing import Structure

MOST_UNROLLED = 2048  # steps


class _Run:
    """One direction of a recurrent node.

    Attributes:
        kernel, recurrent: (inputs, gates * units), (units, gates * units).
        bias, recurrent_bias: (gates * units,).
        peepholes: (3 * units,), or None.
        states: the first states.
        lengths: (batch,), or None.
    """

    def __init__(self, n: OnnxNode, direction: int, gates: int, states: int, dtype: str) -> None:
        self.n, self.gates, self.units = n, gates, int(n.attr("hidden_size") or n.need(2).shape[-1])
        self.kernel = ops.transpose(tensor(n.need(1))[direction])
        self.recurrent = ops.transpose(tensor(n.need(2))[direction])
        (width,) = check_size([gates * self.units])
        bias = n.get(3)
        zeros = np.zeros(width, dtype)
        both = None if bias is None else tensor(bias)[direction]
        self.bias = ops.convert_to_tensor(zeros) if both is None else both[:width]
        self.recurrent_bias = ops.convert_to_tensor(zeros) if both is None else both[width:]
        peepholes = n.get(7)
        self.peepholes = None if peepholes is None else tensor(peepholes)[direction]
        self.lengths = n.get(4)
        self.batch = 0
        self.states = [
            None if n.get(i) is None else tensor(n.get(i))[direction] for i in (5, 6)[:states]
        ]
        names = n.attr("activations")
        default = {1: ["Tanh"], 3: ["Sigmoid", "Tanh"], 4: ["Sigmoid", "Tanh", "Tanh"]}[gates]
        count = len(default)
        own = names[direction * count : (direction + 1) * count] if names else default
        alphas, betas = n.attr("activation_alpha") or [], n.attr("activation_beta") or []
        first = direction * count
        self.activations = [
            activation(name, _at(alphas, first + i), _at(betas, first + i))
            for i, name in enumerate(own)
        ]
        self.plain = [a.lower() for a in own] == [a.lower() for a in default]

    def clipped(self, x: Any) -> Any:
        """Return x within the bound of the node's `clip`."""
        clip = self.n.attr("clip")
        return x if not clip else ops.clip(x, -clip, clip)


def _at(values: Sequence[float], i: int) -> float | None:
    return values[i] if i < len(values) else None


def _recurrent(kind: str, gates: int, count: int, step: Any, fast: Any) -> None:
    @reads(kind)
    def read(n: OnnxNode) -> Structure:
        x = tensor(n.x)
        batch_first = bool(n.attr("layout", 0))
        if batch_first:
            x = ops.transpose(x, (1, 0, 2))
            for i in (5, 6):
                if n.get(i) is not None:
                    n.inputs[i] = ops.transpose(tensor(n.get(i)), (1, 0, 2))
        direction = n.attr("direction", "forward")
        runs = []
        for d in range(2 if direction == "bidirectional" else 1):
            run = _Run(n, d, gates, count, x.dtype)
            run.states = [
                ops.zeros((x.shape[1], run.units), x.dtype) if s is None else s for s in run.states
            ]
            runs.append(_sequence(run, x, step, fast, direction == "reverse" or d == 1))
        every = ops.stack([states for states, _ in runs], axis=1)
        lasts = [ops.stack([last[i] for _, last in runs], axis=0) for i in range(count)]
        if batch_first:
            every = ops.transpose(every, (2, 0, 1, 3))
            lasts = [ops.transpose(s, (1, 0, 2)) for s in lasts]
        return [every, *lasts]


def _sequence(run: _Run, x: Any, step: Any, fast: Any, reverse: bool) -> tuple[Any, list[Any]]:
    """Return (states of all steps, last states)."""
    steps = int(x.shape[0])
    mask = None
    if run.lengths is not None:
        places = np.arange(steps, dtype="int32")[:, None]
        mask = ops.less(places, ops.reshape(ops.cast(tensor(run.lengths), "int32"), (1, -1)))
    if reverse:
        x = ops.flip(x, 0)
        mask = None if mask is None else ops.flip(mask, 0)
    simple = run.plain and run.peepholes is None and not run.n.attr("clip")
    projected = ops.add(ops.matmul(x, run.kernel), run.bias)
    if simple and mask is None and fast is not None and not run.n.attr("input_forget", 0):
        result = fast(run, projected)
        if result is not None:
            states, lasts = result
            return (ops.flip(states, 0) if reverse else states), lasts
    return _stepwise(run, projected, mask, step, reverse)


def _stepwise(
    run: _Run, projected: Any, mask: Any, step: Any, reverse: bool
) -> tuple[Any, list[Any]]:
    states, rows = list(run.states), []
    if int(projected.shape[0]) > MOST_UNROLLED:
        raise ValueError(f"{int(projected.shape[0])} steps with lengths, peepholes or clipping")
    for t in range(int(projected.shape[0])):
        new = step(run, projected[t], states)
        output = new[0]
        if mask is not None:
            counts = ops.expand_dims(mask[t], -1)
            output = ops.where(counts, new[0], ops.zeros_like(new[0]))
            new = [ops.where(counts, a, b) for a, b in zip(new, states)]
        states = new
        rows.append(output)
    return ops.stack(rows[::-1] if reverse else rows, axis=0), states


def _cut(x: Any, count: int) -> list[Any]:
    return list(ops.split(x, count, axis=-1))


def _rnn_step(run: _Run, x: Any, states: list[Any]) -> list[Any]:
    z = ops.add(x, ops.add(ops.matmul(states[0], run.recurrent), run.recurrent_bias))
    return [run.activations[0](run.clipped(z))]


def _gru_step(run: _Run, x: Any, states: list[Any]) -> list[Any]:
    (h,), (f, g) = states, run.activations
    xz, xr, xn = _cut(x, 3)
    rz, rr, rn = _cut(run.recurrent, 3)
    bz, br, bn = _cut(run.recurrent_bias, 3)
    z = f(run.clipped(xz + ops.matmul(h, rz) + bz))
    r = f(run.clipped(xr + ops.matmul(h, rr) + br))
    if run.n.attr("linear_before_reset", 0):
        inner = xn + r * (ops.matmul(h, rn) + bn)
    else:
        inner = xn + ops.matmul(r * h, rn) + bn
    new = g(run.clipped(inner))
    return [(1 - z) * new + z * h]


def _lstm_step(run: _Run, x: Any, states: list[Any]) -> list[Any]:
    (h, c), (f, g, out) = states, run.activations
    parts = _cut(x + ops.matmul(h, run.recurrent) + run.recurrent_bias, 4)
    zi, zo, zf, zc = parts
    pi, po, pf = (0, 0, 0) if run.peepholes is None else _cut(run.peepholes, 3)
    i = f(run.clipped(zi + pi * c))
    forget = 1 - i if run.n.attr("input_forget", 0) else f(run.clipped(zf + pf * c))
    new = forget * c + i * g(run.clipped(zc))
    o = f(run.clipped(zo + po * new))
    return [o * out(new), new]


def _in_order(x: Any, order: Sequence[int]) -> Any:
    parts = _cut(x, len(order))
    return ops.concatenate([parts[i] for i in order], axis=-1)


def _fast_rnn(run: _Run, x: Any) -> Any:
    states = ops.simple_rnn(ops.add(x, run.recurrent_bias), run.recurrent, run.states[0])
    return states, [states[-1]]


def _fast_gru(run: _Run, x: Any) -> Any:
    if not run.n.attr("linear_before_reset", 0):
        return None
    states, _ = ops.gru(x, run.recurrent, run.recurrent_bias, run.states[0])
    return states, [states[-1]]


def _fast_lstm(run: _Run, x: Any) -> Any:
    order = (0, 2, 3, 1)  # from i, o, f, c to i, f, c, o
    z = _in_order(ops.add(x, run.recurrent_bias), order)
    states, cells, _ = ops.lstm(z, _in_order(run.recurrent, order), *run.states)
    return states, [states[-1], cells[-1]]


_recurrent("RNN", 1, 1, _rnn_step, _fast_rnn)
_recurrent("GRU", 3, 1, _gru_step, _fast_gru)
_recurrent("LSTM", 4, 2, _lstm_step, _fast_lstm)
