"""Composed functions that one kernel computes for float32: normalizations, products, softmax.

Their ops are those of a GPU (`cuda.fused_functions`), with other kernels. They are imported when
the first of these functions is called; steps of the static engine call none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.first_use import find
from kerasish.ops import random as randoms
from kerasish.ops.arrays import contraction
from kerasish.ops.arrays.einsum import einsum_affine
from kerasish.ops.basic import activation as activations
from kerasish.ops.basic import pool, statistics
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.nonlinearity import relu_gradient
from kerasish.ops.networks import attention, crossentropy, normalization

if TYPE_CHECKING:
    from kerasish.backends.eager.cuda.fused import Call


def fused_relu_gradient(g: Any, y: Any) -> Call | None:
    """Return the call of the op that computes a gradient through a ReLU, or None."""
    g, y = as_tensor(g), as_tensor(y)
    through_relu = _named("cuda.fused_affine:THROUGH_RELU")
    return (through_relu, [g, y], {}) if g.shape == y.shape and g.shape else None


# Of numbers, random states, classes and masks; dtypes of a trace are strings, not among them.
_DTYPES = frozenset(map(np.dtype, ("float32", "uint32", "int32", "bool")))
# Composed function -> the function that returns an op's call, as "module:name" here.
_FUSED: dict[Any, str] = {
    normalization.layer_normalization: "cuda.fused_norm:fused_layer_norm",
    normalization.rms_normalization: "cuda.fused_norm:fused_rms_norm",
    normalization.standardize_batch: "cuda.fused_norm:fused_standardize_batch",
    relu_gradient: "fused_on_cpu:fused_relu_gradient",
    contraction.affine: "cuda.fused_affine:fused_affine",
    einsum_affine: "cuda.fused_affine:fused_einsum_affine",
    randoms.dropout: "cuda.fused_functions:fused_dropout",
    attention.attend: "cuda.native_heads:fused_attend",
    activations.softmax: "cuda.fused_softmax:fused_softmax",
    activations.log_softmax: "cuda.fused_softmax:fused_log_softmax",
    crossentropy.class_hits: "cuda.fused_metrics:fused_class_hits",
    crossentropy.sparse_categorical_crossentropy: "cuda.fused_softmax:fused_class_loss",
    pool.max_pool: "cuda.fused_pool:fused_max_pool",
    statistics.mean: "cuda.fused_metrics:fused_mean",
    statistics.running_sums: "cuda.fused_metrics:fused_running_sums",
}


@functools.cache
def _named(place: str) -> Any:
    return find(f"kerasish.backends.eager.{place}")


def fused_call(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Call | None:
    """Return the (op, inputs, attributes) that compute a whole composed function, or None."""
    place = _FUSED.get(function)
    call: Call | None = None if place is None else _named(place)(*args, **kwargs)
    if call is None:
        return None
    for t in call[1]:
        if t.value.dtype not in _DTYPES:
            return None
    return call


def results_of(call: Call, result: Any) -> Any:
    """Return the results of the op that the function returns."""
    shown = call[0].shown
    return result[0] if shown == 1 else result[:shown] if shown else result
