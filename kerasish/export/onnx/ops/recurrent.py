"""Recurrent layers as LSTM, GRU and RNN; with masks as `Scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kerasish.export.onnx.ops.control import scan
from kerasish.export.onnx.registry import Call, translates, untranslated
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.ops import dtypes
from kerasish.ops.basic import arithmetic, movement, product
from kerasish.ops.networks import recurrent
from kerasish.ops.shapes import Spec


def _blocks(w: OnnxWriter, x: Item, order: Sequence[int]) -> Item:
    """Return x with the equal parts of its last axis in another order."""
    count, axis = len(order), len(x.shape) - 1
    if list(order) == list(range(count)):
        return x
    size = x.shape[-1] // count
    if x.array is not None:
        parts = np.split(x.array, count, axis=-1)
        joined = np.concatenate([parts[i] for i in order], axis=-1)
        return w.initializer(joined, f"{x.name}/reordered")
    cut = [w.slice(x, axis, i * size, (i + 1) * size, size) for i in order]
    return w.concat(cut, axis, x.shape[-1])


def _projection(call: Call) -> tuple[Item, Item, Item | None] | None:
    """Return (sequence, kernel, bias) if the input is sequence @ kernel + bias; else None.

    The layers compute this product for all steps at once, as (steps * n, inputs) @ kernel.
    """
    flat = _made_by(call, call.x, movement.reshape)
    if flat is None:
        return None
    bias: Item | None = None
    source = flat.x
    added = _made_by(call, source, arithmetic.add)
    if added is not None and len(added.inputs[1].shape) == 1:
        source, bias = added.inputs
    multiplied = _made_by(call, source, product.matmul)
    if multiplied is None or len(multiplied.inputs[1].shape) != 2:
        return None
    rows = _made_by(call, multiplied.x, movement.reshape)
    kernel = multiplied.inputs[1]
    sequence = rows.x if rows is not None else None
    if sequence is None or len(sequence.shape) != 3 or sequence.shape[2] != kernel.shape[0]:
        return None
    if tuple(sequence.shape[:2]) != tuple(call.x.shape[:2]):
        return None
    return sequence, kernel, bias


def _made_by(call: Call, item: Item, op: Any) -> Call | None:
    maker = call.makers.get(item.name)
    return maker[1] if maker is not None and maker[0] is op else None


def _sequence_op(
    w: OnnxWriter, call: Call, kind: str, weights: Item, order: Sequence[int],
    own_bias: Item | None, states: Sequence[Item], **attrs: Any,
) -> list[Item]:  # fmt: skip
    """Return [states of all steps, last states ...] of an ONNX recurrent operator."""
    gates, units = len(order), weights.shape[0]
    dtype = "float64" if call.x.dtype == "float64" else "float32"
    if dtype == "float64":
        raise ValueError(f"runtimes compute {kind} in float32 only")
    projection = _projection(call)
    if projection is None:
        eye = w.initializer(np.eye(gates * units, dtype="float32"), "identity")
        projection = (call.x, eye, None)
    sequence, kernel, bias = projection
    zeros = w.initializer(np.zeros(gates * units, "float32"), "no_bias")
    both = [zeros if b is None else b for b in (bias, own_bias)]

    def wide(x: Item) -> Item:
        return w.cast(x, dtype)

    def matrix(x: Item) -> Item:
        return w.unsqueeze(w.transpose(_blocks(w, wide(x), order), (1, 0)), [0])

    biases = w.unsqueeze(w.concat([_blocks(w, wide(b), order) for b in both], 0, None), [0])
    steps, n = call.x.shape[:2]
    last = (dtype, (1, n, units))
    inputs = [wide(sequence), matrix(kernel), matrix(weights), biases, None]
    inputs += [w.unsqueeze(wide(s), [0]) for s in states]
    results = w.ops(
        kind, inputs, [(dtype, (steps, 1, n, units)), *([last] * len(states))],
        hidden_size=units, **attrs,
    )  # fmt: skip
    every = w.cast(w.squeeze(results[0], [1]), call.out.dtype)
    return [every, *(w.cast(y, call.out.dtype) for y in results[1:])]


def _only_last(item: Item, dtype: str) -> Item:
    """Return a value of which only the last part is known."""
    result = Item("", dtype, ())
    result.last = item
    return result


@translates(recurrent.simple_rnn)
def _simple_rnn(w: OnnxWriter, call: Call) -> Item:
    _, weights, h, *mask = call.inputs
    if mask:
        return _masked(w, call, [h], mask[0], partial(_simple_step, weights))[0]
    y, last = _sequence_op(w, call, "RNN", weights, (0,), None, [h], activations=["Tanh"])
    y.last = last
    return y


@translates(recurrent.lstm)
def _lstm(w: OnnxWriter, call: Call) -> list[Item]:
    x, weights, h, c, *mask = call.inputs
    if mask:
        states, cells = _masked(w, call, [h, c], mask[0], partial(_lstm_step, weights))
    else:
        # The gates are stored as i, f, c, o here, and as i, o, f, c in ONNX.
        order = (0, 3, 1, 2)
        states, last, last_cell = _sequence_op(w, call, "LSTM", weights, order, None, [h, c])
        states.last = last
        cells = _only_last(last_cell, states.dtype)
    return [states, cells, Item("", x.dtype, ())]


@translates(recurrent.gru)
def _gru(w: OnnxWriter, call: Call) -> list[Item]:
    x, weights, bias, h, *mask = call.inputs
    if mask:
        (states,) = _masked(w, call, [h], mask[0], partial(_gru_step, weights, bias))
    else:
        states, last = _sequence_op(
            w, call, "GRU", weights, (0, 1, 2), bias, [h], linear_before_reset=1
        )
        states.last = last
    return [states, Item("", x.dtype, ())]


# --- with masks ---------------------------------------------------------------------------------

Step = Callable[[OnnxWriter, Item, list[Item]], list[Item]]


def _masked(w: OnnxWriter, call: Call, states: list[Item], mask: Item, step: Step) -> list[Item]:
    """Return each state after all steps; a step that the mask leaves out keeps the state."""
    x = call.x
    dtype = dtypes.name_of(dtypes.adding_dtype(x.dtype))
    states = [w.cast(s, dtype) for s in states]
    counts = w.cast(mask, "bool")

    def body(
        inner: OnnxWriter, given: list[Item], parts: list[Item]
    ) -> tuple[list[Item], list[Item]]:
        new = step(inner, parts[0], given)
        taken = inner.unsqueeze(parts[1], [1])
        kept = [inner.op("Where", [taken, a, b], dtype, b.shape) for a, b in zip(new, given)]
        return kept, kept

    specs = [Spec(s.shape, dtype) for s in states]
    rows = [Spec((x.shape[0], *s.shape), dtype) for s in states]
    results = scan(w, states, [w.cast(x, dtype), counts], body, [*specs, *rows])
    return [w.cast(y, x.dtype) for y in results[len(states) :]]


def _cut(w: OnnxWriter, x: Item, count: int) -> list[Item]:
    size = x.shape[-1] // count
    return [w.slice(x, 1, i * size, (i + 1) * size, size) for i in range(count)]


def _sum(w: OnnxWriter, a: Item, b: Item) -> Item:
    return w.op("Add", [a, b])


def _times(w: OnnxWriter, a: Item, b: Item) -> Item:
    return w.op("Mul", [a, b])


def _after(w: OnnxWriter, h: Item, weights: Item) -> Item:
    kernel = w.cast(weights, h.dtype)
    return w.op("MatMul", [h, kernel], shape=(h.shape[0], kernel.shape[1]))


def _simple_step(weights: Item, w: OnnxWriter, x: Item, states: list[Item]) -> list[Item]:
    return [w.op("Tanh", [_sum(w, x, _after(w, states[0], weights))])]


def _lstm_step(weights: Item, w: OnnxWriter, x: Item, states: list[Item]) -> list[Item]:
    h, c = states
    zi, zf, zc, zo = _cut(w, _sum(w, x, _after(w, h, weights)), 4)
    i, f, o = (w.op("Sigmoid", [z]) for z in (zi, zf, zo))
    new = _sum(w, _times(w, f, c), _times(w, i, w.op("Tanh", [zc])))
    return [_times(w, o, w.op("Tanh", [new])), new]


def _gru_step(weights: Item, bias: Item, w: OnnxWriter, x: Item, states: list[Item]) -> list[Item]:
    (h,) = states
    xz, xr, xn = _cut(w, x, 3)
    state = _sum(w, _after(w, h, weights), w.cast(bias, h.dtype))
    hz, hr, hn = _cut(w, state, 3)
    z, r = w.op("Sigmoid", [_sum(w, xz, hz)]), w.op("Sigmoid", [_sum(w, xr, hr)])
    n = w.op("Tanh", [_sum(w, xn, _times(w, r, hn))])
    rest = w.op("Sub", [w.like(1, h.dtype), z], shape=z.shape)
    return [_sum(w, _times(w, z, h), _times(w, rest, n))]


untranslated(
    "it is a gradient, which only training computes",
    recurrent.gru_gradient,
    recurrent.lstm_gradient,
    recurrent.simple_rnn_gradient,
)
