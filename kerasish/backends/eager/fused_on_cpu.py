"""Composed functions that one kernel computes for float32: normalizations, products, softmax.

Their ops are those of a GPU (`cuda.fused_functions`), with other kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish.backends.eager.cuda.fused import Call
from kerasish.backends.eager.cuda.fused_affine import (
    THROUGH_RELU,
    whole_affine,
    whole_einsum_affine,
)
from kerasish.backends.eager.cuda.fused_functions import FIRST_RESULTS, whole_dropout
from kerasish.backends.eager.cuda.fused_norm import (
    whole_layer_norm,
    whole_rms_norm,
    whole_standardize_batch,
)
from kerasish.backends.eager.cuda.fused_softmax import (
    whole_class_loss,
    whole_log_softmax,
    whole_softmax,
)
from kerasish.ops import random as randoms
from kerasish.ops.arrays import contraction
from kerasish.ops.arrays.einsum import einsum_affine
from kerasish.ops.basic import activation as activations
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.nonlinearity import relu_gradient
from kerasish.ops.networks import crossentropy, normalization
from kerasish.tensor import is_traced


def _relu_gradient(g: Any, y: Any) -> Call | None:
    g, y = as_tensor(g), as_tensor(y)
    return (THROUGH_RELU, [g, y], {}) if g.shape == y.shape and g.shape else None


_DTYPES = ("float32", "uint32", "int32")  # of numbers, of random states, of classes
_FUSED: dict[Any, Callable[..., Call | None]] = {
    normalization.layer_normalization: whole_layer_norm,
    normalization.rms_normalization: whole_rms_norm,
    normalization.standardize_batch: whole_standardize_batch,
    relu_gradient: _relu_gradient,
    contraction.affine: whole_affine,
    einsum_affine: whole_einsum_affine,
    randoms.dropout: whole_dropout,
    activations.softmax: whole_softmax,
    activations.log_softmax: whole_log_softmax,
    crossentropy.sparse_categorical_crossentropy: whole_class_loss,
}


def fused_call(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Call | None:
    """Return the (op, inputs, attributes) that compute all of a composed function, or None."""
    fit = _FUSED.get(function)
    call = None if fit is None else fit(*args, **kwargs)
    if call is None:
        return None
    for t in call[1]:
        if t.dtype not in _DTYPES or is_traced(t):
            return None
    return call


def results_of(call: Call, result: Any) -> Any:
    """Return those results of the op that the function returns."""
    count = FIRST_RESULTS.get(call[0])
    return result if count is None else result[0] if count == 1 else result[:count]
