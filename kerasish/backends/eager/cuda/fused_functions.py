"""Composed functions that one kernel computes: softmax, losses, norms, dropout.

`FUSED_FUNCTIONS` lists them for the engine of a GPU. An entry takes the function's arguments and
returns (op, inputs, attributes) of an op defined in this package, a `Result` of several such ops,
or None if the composition must be used. These ops are in no registry, since only this engine uses
them. Their gradients are also kernels; a second derivative is computed by differentiating the
composition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.backends.eager import loop_random
from kerasish.backends.eager.cuda import activation, random, update
from kerasish.backends.eager.cuda.fused import Call, Result, again, composition, fits, make_op
from kerasish.backends.eager.cuda.fused_affine import (
    THROUGH_RELU,
    fused_affine,
    fused_einsum_affine,
)
from kerasish.backends.eager.cuda.fused_attention import ATTENTION, fused_attend, fused_attention
from kerasish.backends.eager.cuda.fused_convolution import fused_biased_conv
from kerasish.backends.eager.cuda.fused_metrics import (
    fused_class_hits,
    fused_mean,
    fused_running_sums,
)
from kerasish.backends.eager.cuda.fused_norm import (
    BATCH_NORM,
    GROUP_NORM,
    LAYER_NORM,
    RMS_NORM,
    STANDARDIZE,
    fused_group_norm,
    fused_layer_norm,
    fused_moments,
    fused_rms_norm,
    fused_standardize,
    fused_standardize_batch,
)
from kerasish.backends.eager.cuda.fused_pool import MAX_POOL
from kerasish.backends.eager.cuda.fused_softmax import (
    CLASS_LOSS,
    TARGET_LOSS,
    fused_class_loss,
    fused_log_softmax,
    fused_softmax,
    fused_target_loss,
)
from kerasish.backends.eager.cuda.kernels import SCALARS
from kerasish.backends.eager.cuda.native_heads import HEADS
from kerasish.ops import random as randoms
from kerasish.ops.arrays import contraction
from kerasish.ops.arrays.einsum import einsum_affine
from kerasish.ops.basic import activation as activations
from kerasish.ops.basic import statistics
from kerasish.ops.basic.conv import biased_conv
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.nonlinearity import relu_gradient
from kerasish.ops.networks import attention, crossentropy, normalization
from kerasish.optimizers import clipping
from kerasish.typing import Array, ArrayModule


def _activation_kernel(xp: ArrayModule, x: Array, *, kind: str) -> Array:
    return activation.bias_activation(x, None, kind)


def _activation_gradient_kernel(xp: ArrayModule, g: Array, x: Array, *, kind: str) -> Array:
    return activation.bias_activation_gradient(g, x, None, kind)[0]


def _activation_composed(x: Array, kind: str) -> Any:
    if kind == "silu":
        return composition(activations.silu)(x)
    return composition(activations.gelu)(x, kind == "gelu")


_ACTIVATION_GRADIENT = make_op(
    _activation_gradient_kernel,
    lambda h, dx, g, x, kind: again(
        lambda g, x: again(lambda x: _activation_composed(x, kind), [x], [g])[0], [g, x], [h]
    ),
)
_ACTIVATION = make_op(
    _activation_kernel, lambda g, y, x, kind: (_ACTIVATION_GRADIENT(g, x, kind=kind),)
)


def _gelu(x: Array, approximate: bool = True) -> Call | None:
    x = as_tensor(x)
    kind = "gelu" if approximate else "gelu_exact"
    return (_ACTIVATION, [x], {"kind": kind}) if fits(x) else None


def _silu(x: Array) -> Call | None:
    x = as_tensor(x)
    return (_ACTIVATION, [x], {"kind": "silu"}) if fits(x) else None


def _relu_gradient(g: Array, y: Array) -> Call | None:
    given = [as_tensor(g), as_tensor(y)]
    same = len({(t.dtype, t.shape) for t in given}) == 1
    return (THROUGH_RELU, given, {}) if same and fits(*given) else None


def _dropout_kernel(xp: ArrayModule, state: Array, x: Array, *, rate: float) -> Array:
    return (loop_random if xp is np else random).dropout(state, x, rate)


_DROPOUT = make_op(
    _dropout_kernel, lambda g, y, state, x, rate: (None, _DROPOUT(state, g, rate=rate))
)


def fused_dropout(state: Array, inputs: Array, rate: float, noise_shape: Any = None) -> Call | None:
    """Return the fused op of `dropout`: with a mask of the inputs' shape."""
    x = as_tensor(inputs)
    if noise_shape is not None or not 0 < rate < 1 or not fits(x):
        return None
    return _DROPOUT, [as_tensor(state), x], {"rate": rate}


def _norm_factor_kernel(xp: ArrayModule, *gradients: Any, limit: float) -> Array:
    return update.global_norm(gradients, limit)[1]


_NORM_FACTOR = make_op(
    _norm_factor_kernel,
    lambda g, y, *gradients, limit: again(
        lambda *xs: composition(clipping.norm_factor)(xs, limit), gradients, [g]
    ),
)


def _norm_factor(gradients: Sequence[Array], limit: float) -> Call | None:
    given = [as_tensor(g) for g in gradients]
    # Empty ones are allowed, too.
    known = given and all(g.dtype in SCALARS for g in given)
    return (_NORM_FACTOR, given, {"limit": limit}) if known else None


FUSED_FUNCTIONS: dict[Any, Callable[..., Call | Result | None]] = {
    contraction.affine: fused_affine,
    einsum_affine: fused_einsum_affine,
    biased_conv: fused_biased_conv,
    activations.softmax: fused_softmax,
    activations.log_softmax: fused_log_softmax,
    activations.gelu: _gelu,
    activations.silu: _silu,
    relu_gradient: _relu_gradient,
    crossentropy.sparse_categorical_crossentropy: fused_class_loss,
    crossentropy.categorical_crossentropy: fused_target_loss,
    attention.attend: fused_attend,
    normalization.dot_product_attention: fused_attention,
    normalization.group_normalization: fused_group_norm,
    normalization.layer_normalization: fused_layer_norm,
    normalization.rms_normalization: fused_rms_norm,
    normalization.moments: fused_moments,
    normalization.standardize: fused_standardize,
    normalization.standardize_batch: fused_standardize_batch,
    randoms.dropout: fused_dropout,
    clipping.norm_factor: _norm_factor,
    crossentropy.class_hits: fused_class_hits,
    statistics.mean: fused_mean,
    statistics.running_sums: fused_running_sums,
}
# The number of an op's results that the function returns; the others are for its gradient.
FIRST_RESULTS = {
    CLASS_LOSS: 1,
    MAX_POOL: 1,
    TARGET_LOSS: 1,
    LAYER_NORM: 1,
    RMS_NORM: 1,
    GROUP_NORM: 1,
    STANDARDIZE: 1,
    ATTENTION: 1,
    HEADS: 1,
    BATCH_NORM: 3,
}
