"""LoRA on each layer that has it: cases for Keras and for us, and a model that is saved."""

from __future__ import annotations

from typing import Any

import numpy as np

# name -> (class, arguments, shape of the input, arguments of enable_lora)
CASES: dict[str, tuple[str, dict[str, Any], tuple[int, ...], dict[str, Any]]] = {
    "Dense": ("Dense", {"units": 4}, (3, 6), {"rank": 2}),
    "Dense alpha": ("Dense", {"units": 4, "activation": "relu"}, (3, 6),
                    {"rank": 2, "lora_alpha": 5.0}),
    "Dense 3D, no bias": ("Dense", {"units": 4, "use_bias": False}, (2, 3, 6), {"rank": 1}),
    "Dense regularized": ("Dense", {"units": 4, "kernel_regularizer": "l2"}, (3, 6), {"rank": 2}),
    "Embedding": ("Embedding", {"input_dim": 7, "output_dim": 5}, (3, 4),
                  {"rank": 2, "lora_alpha": 3.0}),
    "EinsumDense": ("EinsumDense", {"equation": "abc,cd->abd", "output_shape": (None, 4),
                                    "bias_axes": "d", "activation": "relu"}, (2, 3, 5),
                    {"rank": 2}),
    "EinsumDense heads": ("EinsumDense", {"equation": "abc,cde->abde", "output_shape": (None, 2, 3),
                                          "bias_axes": "de"}, (2, 3, 5), {"rank": 2}),
    "EinsumDense joined": ("EinsumDense", {"equation": "abde,dec->abc", "output_shape": (None, 4)},
                           (2, 3, 2, 5), {"rank": 3, "lora_alpha": 1.0}),
    "EinsumDense transposed": ("EinsumDense", {"equation": "ab,cb->ac", "output_shape": (4,)},
                               (3, 6), {"rank": 2}),
    "EinsumDense by batch": ("EinsumDense", {"equation": "abc,bc->abc", "output_shape": (3, 5)},
                             (2, 3, 5), {"rank": 2}),
    "EinsumDense dots": ("EinsumDense", {"equation": "...x,xy->...y", "output_shape": (4,)},
                         (2, 3, 6), {"rank": 2}),
    "Conv1D causal": ("Conv1D", {"filters": 3, "kernel_size": 2, "padding": "causal"}, (2, 5, 2),
                      {"rank": 2}),
    "Conv2D": ("Conv2D", {"filters": 4, "kernel_size": 3, "activation": "relu", "strides": 2},
               (2, 6, 5, 3), {"rank": 2, "lora_alpha": 3.0}),
    "Conv2D groups": ("Conv2D", {"filters": 6, "kernel_size": (1, 2), "groups": 3,
                                 "padding": "same", "use_bias": False}, (2, 4, 5, 6), {"rank": 2}),
    "Conv2D dilated": ("Conv2D", {"filters": 2, "kernel_size": 2, "dilation_rate": 2,
                                  "kernel_regularizer": "l1"}, (1, 5, 5, 2), {"rank": 1}),
    "Conv3D": ("Conv3D", {"filters": 2, "kernel_size": 2}, (1, 3, 4, 3, 2), {"rank": 2}),
}  # fmt: skip


def wave(shape: tuple[int, ...], start: float) -> np.ndarray:
    """Return numbers between -0.8 and 0.8, a function of position and start."""
    count = int(np.prod(shape))
    return (0.8 * np.sin(1.7 * np.arange(count) + start)).reshape(shape).astype("float32")


def inputs_of(case: str) -> np.ndarray:
    """Return the input of a case."""
    kind, options, shape, _ = CASES[case]
    if kind == "Embedding":
        return (np.arange(np.prod(shape)).reshape(shape) * 3 % options["input_dim"]).astype("int32")
    return wave(shape, 1.0)


def layer_of(case: str, layers: Any) -> Any:
    """Return the layer of a case with LoRA, each weight a function of its place."""
    kind, options, shape, lora = CASES[case]
    layer = getattr(layers, kind)(**options)
    layer.build((None, *shape[1:]))
    layer.enable_lora(**lora)
    for i, v in enumerate(layer.weights):
        v.assign(wave(tuple(v.shape), float(i)))
    return layer


def model_of(keras: Any) -> Any:
    """Return a model with LoRA on its layers, to be saved."""
    keras.utils.clear_session()
    x = keras.Input((4,), dtype="int32")
    y = keras.layers.Embedding(7, 6, name="table")(x)
    y = keras.layers.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d", name="mix")(y)
    y = keras.layers.GlobalAveragePooling1D(name="mean")(y)
    y = keras.layers.Dense(3, name="out")(y)
    model = keras.Model(x, y, name="adapted")
    for name, alpha in (("table", None), ("mix", 4.0), ("out", None)):
        model.get_layer(name).enable_lora(2, lora_alpha=alpha)
    for i, v in enumerate(model.weights):
        v.assign(wave(tuple(v.shape), float(i)))
    return model


def model_inputs() -> np.ndarray:
    """Return inputs of that model."""
    return (np.arange(12).reshape(3, 4) * 5 % 7).astype("int32")
