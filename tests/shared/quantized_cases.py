"""Quantized layers and models for the facts from Keras: weights made by a formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

DENSE = ("Dense", {"units": 7, "activation": "tanh"}, (3, 20))
TABLE = ("Embedding", {"input_dim": 6, "output_dim": 13}, (2, 4))
TIED = ("ReversibleEmbedding", {"input_dim": 6, "output_dim": 13}, (2, 4))
UNTIED = (TIED[0], {**TIED[1], "tie_weights": False}, (2, 4))


def einsum(equation: str, output_shape: Any, bias: str | None, shape: Any) -> tuple[Any, ...]:
    arguments = {"equation": equation, "output_shape": output_shape, "bias_axes": bias}
    return "EinsumDense", arguments, shape


LAYERS = {
    "Dense": DENSE,
    "Dense without bias": ("Dense", {"units": 4, "use_bias": False}, (2, 3, 9)),
    "EinsumDense heads": einsum("abc,cde->abde", (None, 2, 3), "de", (2, 4, 5)),
    "EinsumDense joined": einsum("btnh,nhd->btd", (None, 5), "d", (2, 3, 2, 4)),
    "EinsumDense turned": einsum("abc,cd->adb", (5, None), None, (2, 3, 4)),
    "EinsumDense of both": einsum("abc,cbd->abd", (3, 5), None, (2, 3, 4)),
    "Embedding": TABLE,
    "ReversibleEmbedding": TIED,
    "ReversibleEmbedding untied": UNTIED,
}
# name -> (config class, its arguments): what `quantize` gets.
MODES = {
    "int8": ("Int8QuantizationConfig", {}),
    "int8 weights": ("Int8QuantizationConfig", {"activation_quantizer": None}),
    "int4": ("Int4QuantizationConfig", {}),
    "int4 blocks": ("Int4QuantizationConfig", {"block_size": 4}),
    "int4 columns": ("Int4QuantizationConfig", {"block_size": None}),
}
CASES = {f"{layer}, {mode}": (layer, mode) for layer in LAYERS for mode in MODES}
# name -> (lower limit, upper limit, further arguments)
FAKE = {
    "8 bits": (-1.3, 2.1, {}),
    "4 bits, narrow": (-0.5, 2.0, {"num_bits": 4, "narrow_range": True}),
    "all above 0": (0.5, 2.0, {"num_bits": 3}),
    "all below 0": (-2.0, -1.0, {"num_bits": 4}),
    "columns": ([-1.0, -2.0, -0.1, -3.0], [1.0, 2.5, 3.0, 0.5], {"axis": 1}),
}


def fake_case(case: str) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return inputs, limits and further arguments of `fake_quant_with_min_max_vars`."""
    low, high, options = FAKE[case]
    return wave((6, 4)) * 3, np.float32(low), np.float32(high), options


def float8_model(keras: Any) -> Any:
    """Return a model of one layer with float8."""
    layer = keras.layers.Dense(3, dtype="float8_from_float32")
    model = keras.Sequential([keras.Input((4,)), layer])
    for v in model.weights:
        if v.name in ("kernel", "bias"):
            v.assign(wave(tuple(v.shape)))
    return model


def float8_data() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets of that model."""
    return wave((5, 4), 2.0) * 3, wave((5, 3), 4.0)


# Cases with which Keras's LoRA fails.
NOT_ADAPTED = {
    case
    for case, (layer, mode) in CASES.items()
    if layer in ("EinsumDense turned", "EinsumDense of both", "EinsumDense joined")
    or "untied" in layer
}


def wave(shape: tuple[int, ...], place: float = 0.0) -> np.ndarray:
    """Return numbers made by a formula, between -1 and 1."""
    numbers = np.arange(math.prod(shape), dtype="float64")
    return np.sin(numbers * 1.7 + place + 0.3).reshape(shape).astype("float32")


def config_of(mode: str, quantizers: Any) -> Any:
    """Return the config of a mode, of Keras or kerasish."""
    name, arguments = MODES[mode]
    return getattr(quantizers, name)(**arguments)


def inputs_of(layer: str) -> np.ndarray:
    """Return the inputs of a case."""
    name, _, shape = LAYERS[layer]
    if "Embedding" in name:
        return np.arange(math.prod(shape), dtype="int32").reshape(shape) % 6
    return wave(shape, 1.0)


def layer_of(layer: str, mode: str, keras: Any) -> Any:
    """Return the quantized layer of a case."""
    name, arguments, shape = LAYERS[layer]
    made = getattr(keras.layers, name)(**arguments)
    made.build(shape)
    made.set_weights([wave(tuple(v.shape), i) for i, v in enumerate(made.weights)])
    made.quantize(config=config_of(mode, keras.quantizers))
    return made


def adapt(layer: Any) -> None:
    """Enable LoRA with weights that are not 0."""
    layer.enable_lora(2)
    name = "embeddings" if hasattr(layer, "lora_embeddings_a") else "kernel"
    for i, part in enumerate("ab"):
        v = getattr(layer, f"lora_{name}_{part}")
        v.assign(wave(tuple(v.shape), 3.0 + i) * 0.3)


def model_of(keras: Any) -> Any:
    """Return a model of each kind of layer, with floats."""
    x = keras.Input((4,), dtype="int32")
    y = keras.layers.Embedding(6, 10, name="table")(x)
    y = keras.layers.EinsumDense("abc,cd->abd", (None, 9), bias_axes="d", name="mix")(y)
    y = keras.layers.GlobalAveragePooling1D()(keras.layers.Activation("relu")(y))
    model = keras.Model(x, keras.layers.Dense(3, name="out")(y))
    model.set_weights([wave(tuple(v.shape), i) * 0.5 for i, v in enumerate(model.weights)])
    return model


def model_inputs() -> np.ndarray:
    """Return the inputs of the model."""
    return np.arange(20, dtype="int32").reshape(5, 4) * 7 % 6
