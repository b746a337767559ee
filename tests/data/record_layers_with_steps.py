"""Write layers_recurrent.json and layers_windows.json: what Keras's own layers give.

Run with Keras 3 and JAX installed: KERAS_BACKEND=jax python tests/data/record_layers_with_steps.py
Inputs and weights are waves (see `wave`), so that only results are stored: outputs in full,
of each gradient its product with a wave.
"""

from __future__ import annotations

import json
import math
import pathlib
import sys

import numpy as np

MASK = [[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]]


def wave(shape, start, size=1.0):
    """Return numbers that anyone can make again: size * sin(start + 0.7 k)."""
    count = math.prod(shape)
    return (size * np.sin(start + 0.7 * np.arange(count))).reshape(shape).astype("float32")


def recurrent_cases():
    plain = [
        {}, {"return_sequences": True}, {"go_backwards": True, "return_sequences": True},
        {"return_state": True}, {"use_bias": False}, {"unroll": True}, {"activation": "relu"},
    ]  # fmt: skip
    masked = [
        {}, {"return_sequences": True, "return_state": True},
        {"go_backwards": True, "return_sequences": True},
        {"zero_output_for_mask": True, "return_sequences": True},
        {"activation": "relu", "return_sequences": True},
    ]  # fmt: skip
    for name in ("LSTM", "GRU", "SimpleRNN"):
        for args in plain:
            yield name, {"units": 3, **args}, [2, 5, 4], {}
        for args in masked:
            yield name, {"units": 3, **args}, [2, 5, 4], {"mask": True}
            if not args.get("return_sequences") or args.get("zero_output_for_mask"):
                # Keras's backends differ in the output before the first step that counts.
                yield name, {"units": 3, **args}, [2, 5, 4], {"mask": True, "state": True}
    for args in ({"return_sequences": True}, {"use_bias": False}):
        yield "GRU", {"units": 3, "reset_after": False, **args}, [2, 5, 4], {}
    yield "LSTM", {"units": 3, "recurrent_activation": "hard_sigmoid"}, [2, 5, 4], {}
    for n, places in (("1D", [5]), ("2D", [4, 3]), ("3D", [3, 3, 2])):
        for args in ({}, {"padding": "same", "strides": 2, "return_sequences": True}):
            shape = [2, 3, *places, 2]
            yield f"ConvLSTM{n}", {"filters": 2, "kernel_size": 2, **args}, shape, {}


def window_cases():
    for n, places in (("1D", [7]), ("2D", [5, 6]), ("3D", [3, 4, 3])):
        last, first = [2, *places, 4], [2, 4, *places]
        conv = {"filters": 4, "kernel_size": 2}
        for args in (
            {}, {"strides": 2, "padding": "same"}, {"dilation_rate": 2, "padding": "same"},
            {"groups": 2, "activation": "relu", "use_bias": False},
        ):  # fmt: skip
            yield f"Conv{n}", {**conv, **args}, last, {}
        yield f"Conv{n}", {**conv, "data_format": "channels_first"}, first, {}
        for args in (
            {}, {"strides": 2, "padding": "same"}, {"strides": 2, "output_padding": 1},
        ):  # fmt: skip
            yield f"Conv{n}Transpose", {**conv, "kernel_size": 3, **args}, last, {}
        for kind in ("Max", "Average"):
            for args in ({"strides": 1}, {"padding": "same", "pool_size": 3, "strides": 2}):
                yield f"{kind}Pooling{n}", {"pool_size": 2, **args}, last, {}
            yield f"{kind}Pooling{n}", {"pool_size": 2, "data_format": "channels_first"}, first, {}
            yield f"Global{kind}Pooling{n}", {"keepdims": True}, last, {}
            yield f"Adaptive{kind}Pooling{n}", {"output_size": 2}, last, {}
    yield "Conv1D", {"filters": 2, "kernel_size": 3, "padding": "causal"}, [2, 7, 3], {}
    yield "GlobalAveragePooling1D", {}, [2, 5, 3], {"mask": True}
    for n, places in (("1D", [7]), ("2D", [5, 6])):
        shape = [2, *places, 3]
        for args in ({}, {"strides": 2, "padding": "same"}, {"depth_multiplier": 2}):
            yield f"DepthwiseConv{n}", {"kernel_size": 2, **args}, shape, {}
            yield f"SeparableConv{n}", {"filters": 3, "kernel_size": 2, **args}, shape, {}


def arguments(name, args, call):
    """Return the keyword arguments of a call."""
    made = {}
    if call.get("mask"):
        made["mask"] = np.array(MASK, bool)
    if call.get("state"):
        first = wave((2, args["units"]), 2.0)
        made["initial_state"] = [first, -first] if name == "LSTM" else [first]
    return made


def main():
    import jax
    import keras

    def record(name, args, shape, call, digits):
        layer = getattr(keras.layers, name)(**args)
        x, options = wave(shape, 0.0), arguments(name, args, call)
        layer(x, **options)
        weights = [wave(w.shape, 1.0 + i, 0.5) for i, w in enumerate(layer.weights)]

        def run(x, weights):
            y, _ = layer.stateless_call(
                weights, [v.value for v in layer.non_trainable_variables], x, **options
            )
            return list(y) if isinstance(y, (list, tuple)) else [y]

        def loss(x, weights):
            return sum((y * wave(y.shape, 3.0 + i)).sum() for i, y in enumerate(run(x, weights)))

        dx, dw = jax.grad(loss, argnums=(0, 1))(x, weights)
        return {
            "layer": name, "args": args, "shape": shape, "call": call,
            "weights": [list(w.shape) for w in weights],
            "outputs": [
                np.round(np.asarray(y, "float64"), digits).tolist() for y in run(x, weights)
            ],
            "gradients": [
                round(float((np.asarray(g, "float64") * wave(g.shape, 4.0)).sum()), 5)
                for g in (dx, *dw)
            ],
        }  # fmt: skip

    folder = pathlib.Path(__file__).parent
    chosen = sys.argv[1:] or ["recurrent", "windows"]
    for file, cases in (("recurrent", recurrent_cases()), ("windows", window_cases())):
        if file not in chosen:
            continue
        digits = 4 if file == "windows" else 6
        rows = [json.dumps(record(*case, digits), separators=(",", ":")) for case in cases]
        (folder / f"layers_{file}.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
