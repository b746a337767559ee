"""The default model of an estimator: a multi-layer perceptron with the sizes of the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kerasish import engine, layers, regularizers
from kerasish.engine.model.model import Model
from kerasish.regularizers import Regularizer
from kerasish.wrappers.parameters import is_integral, is_number

HIDDEN_LAYER_SIZES = (100,)
ACTIVATION = "relu"
ALPHA = 1e-4
_ACTIVATIONS = {"identity": "linear", "logistic": "sigmoid"}


def build_perceptron(
    meta: dict[str, Any],
    hidden_layer_sizes: int | Sequence[int] | None = None,
    activation: str | None = None,
    alpha: float | None = None,
) -> Model:
    """Return an uncompiled MLP from `meta["n_features_in_"]` features to the outputs of the data.

    The outputs are logits (classifier) or plain numbers (regressor), one head for each output of
    a multi-output classifier.

    Args:
        hidden_layer_sizes: units of each hidden layer; None: (100,).
        activation: of the hidden layers, scikit-learn's names included; None: "relu".
        alpha: strength of the L2 penalty on all kernels, alpha / 2 |w|² / (rows of a batch);
            None: 1e-4.
    """
    sizes = HIDDEN_LAYER_SIZES if hidden_layer_sizes is None else hidden_layer_sizes
    sizes = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
    if not all(is_integral(size, 1) for size in sizes):
        raise ValueError(
            f"hidden_layer_sizes: expected integers of 1 or more, got {hidden_layer_sizes!r}."
        )
    strength = ALPHA if alpha is None else alpha
    if not is_number(strength, 0):
        raise ValueError(f"alpha: expected a number of 0 or more, got {alpha!r}.")
    strength = strength / 2 / meta["batch_weight_"]
    name = ACTIVATION if activation is None else activation
    name = _ACTIVATIONS.get(name, name) if isinstance(name, str) else name
    dtype = meta["compute_dtype_"]

    def penalty() -> Regularizer | None:
        return regularizers.L2(strength) if strength else None

    x: Any = engine.Input((meta["n_features_in_"],), dtype=dtype, name="features")
    inputs = x
    for i, size in enumerate(sizes):
        x = layers.Dense(
            int(size), activation=name, kernel_initializer="glorot_uniform",
            kernel_regularizer=penalty(), dtype=dtype, name=f"hidden_{i}",
        )(x)  # fmt: skip
    widths = meta["n_outputs_expected_"]
    heads = widths if isinstance(widths, list) else [widths]
    outputs = [
        layers.Dense(width, kernel_regularizer=penalty(), dtype=dtype, name=f"output_{i}")(x)
        for i, width in enumerate(heads)
    ]
    return engine.Model(inputs, outputs if isinstance(widths, list) else outputs[0])
