"""Write layers_long.json: what Keras's recurrent layers give over 200 steps, dropout included.

On JAX. Inputs, weights and the masks of dropout are waves (see `wave`), so that only results are
stored: of outputs and gradients their products with waves, and the outputs' largest number.
"""

from __future__ import annotations

import json
import math
import os
import pathlib

import numpy as np

STEPS = 200
RATE = 0.25
BOTH = {"dropout": RATE, "recurrent_dropout": RATE}


def wave(shape, start, size=1.0):
    """Return numbers that anyone can make again: size * sin(start + 0.7 k)."""
    count = math.prod(shape)
    return (size * np.sin(start + 0.7 * np.arange(count))).reshape(shape).astype("float32")


def dropout_mask(kind, gate, shape):
    """Return the mask of "inputs" or "state" for one gate: 0 or 1 / (1 - RATE)."""
    start = {"inputs": 0.3, "state": 1.9}[kind] + 1.1 * gate
    return ((wave(shape, start) > -0.7) / (1 - RATE)).astype("float32")


def step_mask():
    """Return which of the steps count, for two sequences."""
    found = wave((2, STEPS), 0.4) > -0.6
    found[0, :3], found[1, -9:] = False, False
    return found


def cases():
    """Yield (layer, arguments, the input's shape, options of the call)."""
    flat, train = [2, STEPS, 4], {"training": True}
    kinds = [("LSTM", {}), ("GRU", {}), ("GRU", {"reset_after": False}), ("SimpleRNN", {})]
    for name, own in kinds:
        args = {"units": 3, **own}
        yield name, {**args, "return_sequences": True}, flat, {}
        yield name, {**args, "go_backwards": True}, flat, {"mask": True}
        yield name, {**args, "stateful": True, "return_state": True}, flat, {"calls": 2}
        yield name, {**args, "dropout": RATE, "return_sequences": True}, flat, train
        yield name, {**args, "recurrent_dropout": RATE}, flat, train
        every = {**BOTH, "return_sequences": True, "return_state": True, "go_backwards": True}
        yield name, {**args, **every}, flat, {**train, "mask": True}
        yield f"Bidirectional {name}", {**args, **BOTH}, flat, {**train, "mask": True}
    for name in ("LSTM", "GRU"):
        args = {"units": 3, "merge_mode": "mul", "return_sequences": True}
        yield f"Bidirectional {name}", args, flat, {"mask": True}
    yield "Stacked", {"units": 3, "return_sequences": True, **BOTH}, flat, train
    yield "Stacked", {"units": 3, "go_backwards": True}, flat, {"mask": True}
    conv = {"filters": 2, "kernel_size": 2}
    yield "ConvLSTM1D", {**conv, "return_sequences": True}, [2, STEPS, 4, 2], {}
    yield "ConvLSTM1D", {**conv, "padding": "same", **BOTH}, [2, STEPS, 3, 2], train
    yield "ConvLSTM1D", {**conv, "dropout": RATE}, [2, STEPS, 3, 2], train
    yield "ConvLSTM2D", {**conv, "recurrent_dropout": RATE}, [1, STEPS, 3, 2, 1], train


def make(layers, name, args):
    """Return the layer of a case, of Keras's or kerasish's `layers`."""
    kind, _, inner = name.partition(" ")
    if kind == "Bidirectional":
        args = dict(args)
        merge = args.pop("merge_mode", "concat")
        return layers.Bidirectional(getattr(layers, inner)(**args), merge_mode=merge)
    if kind == "Stacked":
        args = dict(args)
        units, rates = args.pop("units"), {k: args.pop(k) for k in list(args) if "dropout" in k}
        cells = [layers.LSTMCell(units, **rates), layers.GRUCell(units, **rates)]
        return layers.RNN(cells, **args)
    return getattr(layers, kind)(**args)


def cells_of(layer):
    """Return the cells inside a layer."""
    if hasattr(layer, "forward_layer"):
        return [*cells_of(layer.forward_layer), *cells_of(layer.backward_layer)]
    return getattr(layer.cell, "cells", [layer.cell])


def weights_like(variables):
    """Return a wave for each weight, small enough that 200 steps are no chaos."""
    return [wave(w.shape, 1.0 + i, 0.4) for i, w in enumerate(variables)]


def arguments(call):
    """Return the keyword arguments of a call."""
    made = {"training": True} if call.get("training") else {}
    return {**made, "mask": step_mask()} if call.get("mask") else made


def summary(arrays, start):
    """Return of each array its product with a wave."""
    return [round(float((np.asarray(a, "float64") * wave(np.shape(a), start)).sum()), 5)
            for a in arrays]  # fmt: skip


def main():
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import keras

    def fix_masks(cell):
        count = getattr(cell, "dropout_mask_count", None)

        def masks(kind):
            def mask(x):
                shape = tuple(x.shape)
                if count is None:
                    return dropout_mask(kind, 0, shape)
                return [dropout_mask(kind, gate, shape) for gate in range(count)]

            return mask

        if cell.dropout:
            cell.get_dropout_mask = masks("inputs")
        if cell.recurrent_dropout:
            cell.get_recurrent_dropout_mask = masks("state")

    def record(name, args, shape, call):
        layer = make(keras.layers, name, args)
        x, options = wave(shape, 0.0), arguments(call)
        layer.build(tuple(shape))
        for cell in cells_of(layer):
            fix_masks(cell)
        weights = weights_like(layer.trainable_variables)

        def run(x, weights):
            with keras.StatelessScope(list(zip(layer.trainable_variables, weights))):
                for _ in range(call.get("calls", 1)):
                    y = layer(x, **options)
            return list(y) if isinstance(y, (list, tuple)) else [y]

        def loss(x, weights):
            ys = run(x, weights)
            return sum((y * wave(y.shape, 3.0 + i)).sum() for i, y in enumerate(ys)), ys

        (dx, dw), outputs = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(x, weights)
        return {
            "layer": name, "args": args, "shape": shape, "call": call,
            "largest": [round(float(np.abs(y).max()), 5) for y in outputs],
            "outputs": summary(outputs, 2.0), "gradients": summary((dx, *dw), 4.0),
        }  # fmt: skip

    rows = []
    for case in cases():
        rows.append(json.dumps(record(*case), separators=(",", ":")))
        print(rows[-1][:70], flush=True)
    path = pathlib.Path(__file__).parents[1] / "layers_long.json"
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
