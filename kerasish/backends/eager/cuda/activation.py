"""activation(x + bias) in one pass, and its gradient; relu, sigmoid and softplus as ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import by_cupy, cast, compact, empty
from kerasish.backends.eager.cuda.kernels import (
    NOTHING,
    check,
    fits,
    launch_elements,
    packed,
)
from kerasish.backends.eager.cuda.norm import column_sums
from kerasish.errors import UnknownNameError
from kerasish.typing import Array

SOURCE = "activation"
# In the order of the kernels' enum.
ACTIVATIONS = ("linear", "relu", "sigmoid", "tanh", "gelu", "gelu_exact", "silu", "softplus")


def _kind(activation: str) -> Array:
    if activation not in ACTIVATIONS:
        raise UnknownNameError.of("activation of a kernel", activation, ACTIVATIONS)
    return np.int32(ACTIVATIONS.index(activation))


def _pieces(count: int, together: Array, itemsize: int) -> int:
    return count // (16 // itemsize) if together else count


def bias_activation(x: Any, bias: Any = None, activation: str = "linear") -> Any:
    """Return activation(x + bias).

    Args:
        bias: shape of x's last axis, x's dtype; None: 0.
        activation: one of ACTIVATIONS; "gelu" is the one by tanh, "gelu_exact" by erf.
    """
    given = (x,) if bias is None else (x, bias)
    check("bias_activation", *given)
    kind, x = _kind(activation), compact(x)
    y = empty(x.shape, x.dtype)
    biased = bias is not None
    columns = x.shape[-1] if biased else max(x.size, 1)
    bias = compact(bias) if biased else NOTHING
    together = packed(columns, x, y, *([bias] if biased else []))
    args = (x, bias, y, np.int64(x.size), np.int64(columns), kind, np.int32(biased), together)
    pieces = _pieces(x.size, together, x.dtype.itemsize)
    launch_elements(SOURCE, "bias_activation", x.dtype, pieces, *args)
    return y


def bias_activation_gradient(
    g: Array, x: Array, bias: Array = None, activation: str = "linear"
) -> tuple[Any, Any]:
    """Return the gradients by x and by the bias (None if there is none); g: that of the result.

    The bias's is summed in a fixed order.
    """
    given = (g, x) if bias is None else (g, x, bias)
    check("bias_activation_gradient", *given)
    kind, g, x = _kind(activation), compact(g), compact(x)
    dx = empty(x.shape, x.dtype)
    biased = bias is not None
    columns = x.shape[-1] if biased else max(x.size, 1)
    bias = compact(bias) if biased else NOTHING
    together = packed(columns, g, x, dx, *([bias] if biased else []))
    sizes = (np.int64(x.size), np.int64(columns))
    args = (g, x, bias, dx, *sizes, kind, np.int32(biased), together)
    pieces = _pieces(x.size, together, x.dtype.itemsize)
    launch_elements(SOURCE, "bias_activation_gradient", x.dtype, pieces, *args)
    return dx, cast(column_sums(dx), x.dtype) if biased else None


def _through(activation: str) -> Callable[..., Any]:
    def kernel(x: Array) -> Array:
        if not fits(x):
            return by_cupy(activation, x)
        return bias_activation(x, None, activation)

    kernel.__name__ = activation
    return kernel


# Those that CuPy would compute in several passes; and relu, whose zero is a separate array.
KERNELS: dict[str, Any] = {name: _through(name) for name in ("relu", "sigmoid", "softplus")}
