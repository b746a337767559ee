"""Composed functions that one NumPy kernel computes for float32: normalizations, relu's gradient.

The ops of normalizations are those of a GPU (`cuda.fused_norm`), with other kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.fused import Call, make_op
from kerasish.backends.eager.cuda.fused_functions import FIRST_RESULTS
from kerasish.backends.eager.cuda.fused_norm import (
    whole_layer_norm,
    whole_rms_norm,
    whole_standardize_batch,
)
from kerasish.ops.basic.arithmetic import multiply
from kerasish.ops.basic.comparison import greater
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.nonlinearity import relu_gradient
from kerasish.ops.networks import normalization
from kerasish.tensor import is_traced
from kerasish.typing import Array, ArrayModule


def _through_relu_kernel(xp: ArrayModule, g: Array, y: Array) -> Array:
    slope = np.greater(y, 0).astype(g.dtype)
    return np.multiply(g, slope, out=slope)


_THROUGH_RELU = make_op(
    _through_relu_kernel,
    lambda h, dx, g, y: (multiply(h, cast(greater(y, 0), g.dtype)), None),
)


def _relu_gradient(g: Any, y: Any) -> Call | None:
    g, y = as_tensor(g), as_tensor(y)
    return (_THROUGH_RELU, [g, y], {}) if g.shape == y.shape and g.shape else None


_FUSED: dict[Any, Callable[..., Call | None]] = {
    normalization.layer_normalization: whole_layer_norm,
    normalization.rms_normalization: whole_rms_norm,
    normalization.standardize_batch: whole_standardize_batch,
    relu_gradient: _relu_gradient,
}


def fused_call(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Call | None:
    """Return the (op, inputs, attributes) that compute all of a composed function, or None."""
    fit = _FUSED.get(function)
    call = None if fit is None else fit(*args, **kwargs)
    if call is None or any(t.dtype != "float32" or is_traced(t) for t in call[1]):
        return None
    return call


def results_of(call: Call, result: Any) -> Any:
    """Return those results of the op that the function returns."""
    count = FIRST_RESULTS.get(call[0])
    return result if count is None else result[0] if count == 1 else result[:count]
