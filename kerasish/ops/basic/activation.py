"""Activation functions, composed of ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.arithmetic import (
    absolute,
    add,
    divide,
    maximum,
    minimum,
    multiply,
    negative,
    sign,
    square,
    subtract,
)
from kerasish.ops.basic.comparison import greater, greater_equal, less, less_equal, select
from kerasish.ops.basic.conversion import as_tensor, cast, stop_gradient
from kerasish.ops.basic.creation import arange
from kerasish.ops.basic.error_function import erf
from kerasish.ops.basic.exponentials import exp as exp
from kerasish.ops.basic.exponentials import expm1, log, sqrt
from kerasish.ops.basic.movement import reshape, strided_slice
from kerasish.ops.basic.nonlinearity import relu, sigmoid, softplus
from kerasish.ops.basic.reduce import reduce_max, running_sum
from kerasish.ops.basic.reduce import reduce_sum as reduce_sum
from kerasish.ops.basic.reshaping import split
from kerasish.ops.basic.selection import sort
from kerasish.ops.basic.statistics import clip
from kerasish.ops.basic.trigonometry import tanh
from kerasish.ops.op import function
from kerasish.ops.shapes import normalize_axes, normalize_axis
from kerasish.typing import Axis, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "celu", "elu", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish",
    "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax", "relu6", "selu", "silu",
    "soft_shrink", "softmax", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax",
    "squareplus", "swish", "tanh_shrink", "threshold",
]  # fmt: skip

# alpha and scale for which mean 0 and variance 1 are a fixed point, Klambauer et al., 2017.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def as_float(x: TensorLike) -> Tensor:
    """Return x as a tensor of a floating (or complex) dtype: the default one for integers."""
    x = as_tensor(x)
    return x if dtypes.is_inexact(x.dtype) else cast(x, dtypes.to_inexact(x.dtype))


def meeting(*xs: Any, floating: bool = True) -> list[Any]:
    """Return all as tensors of the dtype in which they meet; Python's numbers are weak.

    Args:
        floating: whether a Python float is among them, so that integers become floats.

    Example:
        >>> [x.dtype for x in meeting(cast(1, "int8"), cast(1, "float16"), 2.5)]
        ['float16', 'float16', 'float16']
    """
    results = [x if type(x) in (int, float) else as_tensor(x) for x in xs]
    kinds = [type(x) if type(x) in (int, float) else x.dtype for x in results]
    dtype = dtypes.result_type(*kinds, *([float] if floating else []))
    return [cast(as_tensor(x), dtype) for x in results]


# --- of the family of relu --------------------------------------------------------------------


@function
def relu6(x: TensorLike) -> Tensor:
    """Return min(max(x, 0), 6).

    Args:
        x: tensor or array.

    Example:
        >>> relu6([-1.0, 3.0, 8.0]).tolist()
        [0.0, 3.0, 6.0]
    """
    return minimum(relu(x), 6)


@function
def leaky_relu(x: TensorLike, negative_slope: float = 0.2) -> Tensor:
    """Return x where x >= 0, negative_slope * x elsewhere.

    Args:
        x: tensor or array.
        negative_slope: the slope below 0.

    Example:
        >>> leaky_relu([-1.0, 2.0]).tolist()
        [-0.2000..., 2.0]
    """
    x = as_float(x)
    return select(greater_equal(x, 0), x, multiply(x, negative_slope))


@function
def threshold(x: TensorLike, threshold: float, default_value: float) -> Tensor:
    """Return x where x > threshold, default_value elsewhere.

    Args:
        x: tensor or array.
        threshold: the bound.
        default_value: the value below the bound.

    Example:
        >>> threshold([0.5, 2.0], 1.0, 0.0).tolist()
        [0.0, 2.0]
    """
    return select(greater(x, threshold), x, default_value)


def _negative_part(x: Tensor) -> tuple[Any, Any]:
    """Return (x > 0, min(x, 0)); the latter keeps exp finite, so that its gradient is too."""
    positive = greater(x, 0)
    return positive, select(positive, 0, x)


@function
def elu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, alpha * (exp(x) - 1) elsewhere. Source: Clevert et al., ICLR 2016.

    Args:
        x: tensor or array.
        alpha: a factor of the negative part.

    Example:
        >>> elu([-1.0, 2.0]).tolist()
        [-0.6321..., 2.0]
    """
    x = as_float(x)
    positive, below = _negative_part(x)
    return select(positive, x, multiply(expm1(below), alpha))


@function
def selu(x: TensorLike) -> Tensor:
    """Return 1.0507 * elu(x, 1.6733). Source: Klambauer et al., NeurIPS 2017.

    Args:
        x: tensor or array.

    Example:
        >>> selu([-1.0, 2.0]).tolist()
        [-1.1113..., 2.1014...]
    """
    return multiply(elu(x, SELU_ALPHA), SELU_SCALE)


@function
def celu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """Return max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1). Source: Barron, 2017.

    Args:
        x: tensor or array.
        alpha: the limit for large negative x is -alpha; not 0.

    Example:
        >>> celu([-1.0, 2.0]).tolist()
        [-0.6321..., 2.0]
    """
    x = as_float(x)
    positive, below = _negative_part(x)
    return select(positive, x, multiply(expm1(divide(below, alpha)), alpha))


# --- of the family of sigmoid and tanh ----------------------------------------------------------


@function
def log_sigmoid(x: TensorLike) -> Tensor:
    """Return log(1 / (1 + exp(-x))), without overflow.

    Args:
        x: tensor or array.

    Example:
        >>> log_sigmoid([0.5, 1.0]).tolist()
        [-0.4740..., -0.3132...]
    """
    return negative(softplus(negative(x)))


@function
def softsign(x: TensorLike) -> Tensor:
    """Return x / (1 + |x|).

    Args:
        x: tensor or array.

    Example:
        >>> softsign([0.5, 1.0]).tolist()
        [0.3333..., 0.5]
    """
    x = as_float(x)
    return divide(x, add(absolute(x), 1))


@function
def silu(x: TensorLike) -> Tensor:
    """Return x * sigmoid(x). Source: Hendrycks & Gimpel, 2016.

    Args:
        x: tensor or array.

    Example:
        >>> silu([0.0]).tolist()
        [0.0]
    """
    return multiply(x, sigmoid(x))


swish = silu


@function
def mish(x: TensorLike) -> Tensor:
    """Return x * tanh(softplus(x)). Source: Misra, 2019.

    Args:
        x: tensor or array.

    Example:
        >>> mish([0.5, 1.0]).tolist()
        [0.3752..., 0.8650...]
    """
    return multiply(x, tanh(softplus(x)))


@function
def gelu(x: TensorLike, approximate: bool = True) -> Tensor:
    """Return x * P(X <= x) for a standard normal X, by tanh if approximate, else by erf.

    Args:
        x: tensor or array.
        approximate: whether tanh is used instead of erf.

    Source: Hendrycks & Gimpel, 2016.

    Example:
        >>> gelu([-1.0, 2.0]).tolist()
        [-0.1588..., 1.9545...]
    """
    x = as_float(x)
    half = multiply(x, 0.5)
    if approximate:
        cubic = add(multiply(square(x), 0.044715), 1)
        inner = tanh(multiply(multiply(x, cubic), math.sqrt(2 / math.pi)))
    else:
        inner = erf(multiply(x, math.sqrt(0.5)))
    return add(half, multiply(half, inner))


@function
def squareplus(x: TensorLike, b: float = 4) -> Tensor:
    """Return (x + sqrt(x * x + b)) / 2. Source: Barron, 2021.

    Args:
        x: tensor or array.
        b: how wide the bend around 0 is, >= 0.

    Example:
        >>> squareplus([0.5, 1.0]).tolist()
        [1.2807..., 1.6180...]
    """
    x = as_float(x)
    return multiply(add(x, sqrt(add(square(x), b))), 0.5)


@function
def tanh_shrink(x: TensorLike) -> Tensor:
    """Return x - tanh(x).

    Args:
        x: tensor or array.

    Example:
        >>> tanh_shrink([0.5, 1.0]).tolist()
        [0.0378..., 0.2384...]
    """
    x = as_float(x)
    return subtract(x, tanh(x))


@function
def glu(x: TensorLike, axis: int = -1) -> Tensor:
    """Return a * sigmoid(b), a and b being the halves of x along `axis`.

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last.

    Source: Dauphin et al., ICML 2017.

    Example:
        >>> glu([1.0, 0.0]).tolist()
        [0.5]
    """
    x = as_float(x)
    if x.shape[axis] is not None and x.shape[axis] % 2:
        raise ShapeError(f"glu: axis {axis} of shape {x.shape} must have an even size.")
    a, b = split(x, 2, axis)
    return multiply(a, sigmoid(b))


# --- piecewise linear or quadratic --------------------------------------------------------------


@function
def hard_sigmoid(x: TensorLike) -> Tensor:
    """Return min(max(x + 3, 0), 6) / 6.

    Args:
        x: tensor or array.

    Example:
        >>> hard_sigmoid([-3.0, 0.0, 3.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    return divide(relu6(add(as_float(x), 3)), 6)


@function
def hard_silu(x: TensorLike) -> Tensor:
    """Return x * hard_sigmoid(x). Source: Howard et al., MobileNetV3, 2019.

    Args:
        x: tensor or array.

    Example:
        >>> hard_silu([0.5, 1.0]).tolist()
        [0.2916..., 0.6666...]
    """
    return multiply(x, hard_sigmoid(x))


hard_swish = hard_silu


@function
def hard_tanh(x: TensorLike) -> Tensor:
    """Return x held between -1 and 1.

    Args:
        x: tensor or array.

    Example:
        >>> hard_tanh([-2.0, 0.5]).tolist()
        [-1.0, 0.5]
    """
    return clip(x, -1, 1)


@function
def hard_shrink(x: TensorLike, threshold: float = 0.5) -> Tensor:
    """Return x where |x| > threshold, 0 elsewhere.

    Args:
        x: tensor or array.
        threshold: the bound, >= 0.

    Example:
        >>> hard_shrink([0.2, 2.0]).tolist()
        [0.0, 2.0]
    """
    return select(greater(absolute(x), threshold), x, 0)


@function
def soft_shrink(x: TensorLike, threshold: float = 0.5) -> Tensor:
    """Return x moved by `threshold` towards 0, and 0 where it would get past it.

    Args:
        x: tensor or array.
        threshold: the bound, >= 0.

    Example:
        >>> soft_shrink([0.2, 2.0]).tolist()
        [0.0, 1.5]
    """
    x = as_float(x)
    moved = subtract(x, multiply(sign(x), threshold))
    return select(greater(absolute(x), threshold), moved, 0)


@function
def sparse_plus(x: TensorLike) -> Tensor:
    """Return 0 for x <= -1, (x + 1)² / 4 up to 1, and x from there on.

    Args:
        x: tensor or array.

    Example:
        >>> sparse_plus([-2.0, 0.0, 2.0]).tolist()
        [0.0, 0.25, 2.0]
    """
    x = as_float(x)
    curved = multiply(square(add(x, 1)), 0.25)
    return select(less_equal(x, -1), 0, select(less(x, 1), curved, x))


@function
def sparse_sigmoid(x: TensorLike) -> Tensor:
    """Return (x + 1) / 2 held between 0 and 1.

    Args:
        x: tensor or array.

    Example:
        >>> sparse_sigmoid([-2.0, 0.0, 2.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    return multiply(add(clip(as_float(x), -1, 1), 1), 0.5)


# --- distributions over an axis -------------------------------------------------------------------


def _shifted(x: TensorLike, axis: Axis | None) -> tuple[Any, tuple[int, ...]]:
    """Return x less its largest element over `axis`, which keeps exp from overflowing."""
    x = as_float(x)
    axes = normalize_axes(axis, len(x.shape), "softmax")
    if not axes:
        raise ShapeError(f"softmax: needs an axis, got axis={axis} for shape {x.shape}.")
    return subtract(x, reduce_max(stop_gradient(x), axes, True)), axes


@function
def softmax(x: TensorLike, axis: Axis | None = -1) -> Tensor:
    """Return exp(x) / sum(exp(x)) over `axis`: a number, several, or None for all.

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last.

    Example:
        >>> softmax([0.0, 0.0]).tolist()
        [0.5, 0.5]
    """
    shifted, axes = _shifted(x, axis)
    powers = exp(shifted)
    return divide(powers, reduce_sum(powers, axes, True))


@function
def log_softmax(x: TensorLike, axis: Axis | None = -1) -> Tensor:
    """Return x - log(sum(exp(x))) over `axis`: a number, several, or None for all.

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last.

    Example:
        >>> log_softmax([0.0, 0.0]).tolist()
        [-0.6931..., -0.6931...]
    """
    shifted, axes = _shifted(x, axis)
    return subtract(shifted, log(reduce_sum(exp(shifted), axes, True)))


@function
def sparsemax(x: TensorLike, axis: int = -1) -> Tensor:
    """Return the point of the probability simplex along `axis` that is nearest to x.

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last.

    Source: Martins & Astudillo, ICML 2016, algorithm 1.

    Example:
        >>> sparsemax([3.0, 1.0]).tolist()
        [1.0, 0.0]
    """
    x = as_float(x)
    axis = normalize_axis(axis, len(x.shape), "sparsemax")
    size = x.shape[axis]
    lead = [slice(None)] * axis
    largest = strided_slice(sort(x, axis), [*lead, slice(None, None, -1)])
    column = [-1 if i == axis else 1 for i in range(len(x.shape))]
    rank = reshape(arange(1, size + 1, dtype=x.dtype), column)
    kept = greater(add(multiply(largest, rank), 1), running_sum(largest, axis))
    count = reduce_sum(cast(kept, x.dtype), (axis,), True)
    total = reduce_sum(select(kept, largest, 0), (axis,), True)
    return maximum(subtract(x, divide(subtract(total, 1), count)), 0)
