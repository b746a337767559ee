"""Normalizations by moments and by norms, and attention, composed of ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish import config
from kerasish.errors import ShapeError
from kerasish.ops.basic.activation import as_float, softmax
from kerasish.ops.basic.arithmetic import (
    absolute,
    add,
    divide,
    maximum,
    minimum,
    multiply,
    negative,
    square,
    subtract,
)
from kerasish.ops.basic.comparison import greater_equal, logical_and, select
from kerasish.ops.basic.conversion import as_tensor, cast, stop_gradient
from kerasish.ops.basic.creation import arange
from kerasish.ops.basic.exponentials import power, rsqrt
from kerasish.ops.basic.movement import reshape, transpose
from kerasish.ops.basic.product import matmul
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.basic.reshaping import repeat, squeeze
from kerasish.ops.basic.statistics import mean
from kerasish.ops.basic.trigonometry import tanh
from kerasish.ops.op import function
from kerasish.ops.shapes import agree, normalize_axes, normalize_axis
from kerasish.typing import AnyTensor, Axis, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "batch_normalization", "dot_product_attention", "layer_normalization", "moments",
    "normalize", "rms_normalization",
]  # fmt: skip

_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38}
_LOW = ("float16", "bfloat16")


def _wide(x: Tensor) -> Tensor:
    """Return x in float32 if its own dtype is too coarse for sums of squares."""
    return cast(x, "float32") if x.dtype in _LOW else x


def _narrow(x: Tensor, dtype: str) -> Tensor:
    if x.dtype == dtype:
        return x
    top = _LARGEST[dtype]
    return cast(minimum(maximum(x, -top), top), dtype)


@function
def moments(
    x: TensorLike, axes: Axis, keepdims: bool = False, synchronized: bool = False
) -> tuple[Any, ...]:
    """Return (mean, mean squared distance from it) over `axes`.

    Half-precision inputs are summed in float32.

    Args:
        x: tensor or array.
        axes: the axes.
        keepdims: whether the axes stay, with size 1.
        synchronized: accepted; the moments are those of this process.

    Example:
        >>> mean, variance = moments([1.0, 3.0], axes=[0])
        >>> float(mean), float(variance)
        (2.0, 1.0)
    """
    x = as_float(x)
    wide = _wide(x)
    axes = normalize_axes(axes, len(x.shape), "moments")
    center = mean(wide, axes, True)
    spread = mean(square(subtract(wide, center)), axes, keepdims)
    center = center if keepdims else squeeze(center, axes)
    return _narrow(center, x.dtype), _narrow(spread, x.dtype)


def _along(v: AnyTensor, shape: tuple[Any, ...], axes: tuple[int, ...]) -> Tensor:
    """Return v, which has the sizes of `axes`, ready to broadcast against `shape`."""
    v = as_tensor(v)
    trailing = tuple(range(len(shape) - len(axes), len(shape)))
    if axes == trailing or len(v.shape) == len(shape):
        return v
    return reshape(v, tuple(s if i in axes else 1 for i, s in enumerate(shape)))


@function
def batch_normalization(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    axis: int,
    offset: TensorLike | None = None,
    scale: TensorLike | None = None,
    epsilon: float = 1e-3,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + offset along `axis`.

    Args:
        x: tensor or array.
        mean: the means, one for each element of the axis.
        variance: the variances, one for each element of the axis.
        axis: axis or axes; negative ones count from the last.
        offset: what is added, one number for each element of the axis; None: 0.
        scale: the factors, one for each element of the axis; None: 1.
        epsilon: a small number > 0 that keeps the quotient finite.

    Source: Ioffe & Szegedy, ICML 2015.

    Example:
        >>> batch_normalization([[1.0], [3.0]], [2.0], [4.0], -1, epsilon=0.0).tolist()
        [[-0.5], [0.5]]
    """
    x = as_float(x)
    axes = (normalize_axis(axis, len(x.shape), "batch_normalization"),)
    size = x.shape[axes[0]]
    for name, v in (("mean", mean), ("variance", variance), ("offset", offset), ("scale", scale)):
        if v is None:
            continue
        shape = as_tensor(v).shape
        if len(shape) != 1 or not agree(shape[0], size):
            raise ShapeError(
                f"batch_normalization: {name} must have the shape ({size},) of axis {axis} of x, "
                f"got {shape}."
            )
    factor = rsqrt(add(variance, epsilon))
    if scale is not None:
        factor = multiply(factor, scale)
    shift = negative(multiply(mean, factor))
    if offset is not None:
        shift = add(shift, offset)
    return add(multiply(x, _along(factor, x.shape, axes)), _along(shift, x.shape, axes))


@function
def standardize(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    gamma: TensorLike | None = None,
    beta: TensorLike | None = None,
    axis: int = -1,
    epsilon: float = 1e-3,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * gamma + beta along `axis`.

    As `batch_normalization`, but the mean is taken off first: precise for means far from 0, too.
    Half-precision inputs are computed with in the dtype of the variance.
    """
    x, variance = as_tensor(x), as_tensor(variance)
    wide = x if variance.dtype in _LOW else _wide(x)
    axes = (normalize_axis(axis, len(x.shape), "standardize"),)
    factor = rsqrt(add(variance, epsilon))
    if gamma is not None:
        factor = multiply(factor, gamma)
    shape = tuple(s if i in axes else 1 for i, s in enumerate(x.shape))
    y = multiply(subtract(wide, reshape(mean, shape)), reshape(factor, shape))
    y = y if beta is None else add(y, reshape(beta, shape))
    return y if wide is x else cast(y, x.dtype)


def _moved(moving: TensorLike, batch: Tensor, momentum: float) -> Tensor:
    """Return a moving number, nearer to the batch's."""
    return add(multiply(moving, momentum), multiply(stop_gradient(batch), 1.0 - momentum))


def _batch_moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the mean over axes, and the mean squared distance from it.

    The sum of the distances from the mean is 0, so the variance does not depend on the mean to
    first order. The mean is held fixed there: a gradient by it would take another pass over x only
    to add up rounding errors. The second term, which is 0, has the derivative of the second order.
    """
    center = mean(x, axes, True)
    fixed = stop_gradient(center)
    spread = mean(square(subtract(x, fixed)), axes)
    variance = subtract(spread, square(squeeze(subtract(center, fixed), axes)))
    return squeeze(center, axes), variance


@function
def standardize_batch(
    x: TensorLike,
    gamma: TensorLike | None,
    beta: TensorLike | None,
    moving_mean: TensorLike,
    moving_variance: TensorLike,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x standardized by its own moments along all axes but one, and the moving moments.

    Half-precision inputs are computed with in float32, and the result has their dtype.

    Args:
        gamma, beta: factor and summand of each feature; None: 1 and 0.
        moving_mean, moving_variance: the moving moments before, shape (features,).
        axis: that of the features.
        momentum: of the moving moments: moving * momentum + the batch's * (1 - momentum).
        epsilon: added to the variance.

    Returns:
        The result, in x's shape; the moving mean; the moving variance.

    Source: Ioffe & Szegedy, ICML 2015.

    Example:
        >>> y, mean, variance = standardize_batch([[1.0], [3.0]], None, None, [0.0], [1.0], -1, 0.5)
        >>> y.numpy().round(2).tolist(), mean.tolist(), variance.tolist()
        ([[-1.0], [1.0]], [1.0], [1.0])
    """
    x = as_tensor(x)
    wide = _wide(x)
    axis = normalize_axis(axis, len(x.shape), "standardize_batch")
    center, variance = _batch_moments(wide, tuple(i for i in range(len(x.shape)) if i != axis))
    moved_variance = _moved(moving_variance, variance, momentum)
    moved_mean = _moved(moving_mean, center, momentum)
    y = standardize(wide, center, variance, gamma, beta, axis, epsilon)
    return cast(y, x.dtype), moved_mean, moved_variance


@function
def group_normalization(
    x: TensorLike,
    groups: int,
    gamma: TensorLike | None = None,
    beta: TensorLike | None = None,
    axis: int = -1,
    epsilon: float = 1e-3,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments of each example's
    groups of places along `axis`.

    Source: Wu & He, ECCV 2018.
    """
    x = as_tensor(x)
    wide = _wide(x)
    shape = tuple(x.shape)
    axis = normalize_axis(axis, len(shape), "group_normalization")
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    parts = reshape(wide, split)
    axes = tuple(i for i in range(1, len(split)) if i != axis)
    centered = subtract(parts, mean(parts, axes, True))
    variance = mean(square(centered), axes, True)
    y = reshape(multiply(centered, rsqrt(add(variance, epsilon))), shape)
    along = tuple(s if i == axis else 1 for i, s in enumerate(shape))
    if gamma is not None:
        y = multiply(y, reshape(gamma, along))
    y = y if beta is None else add(y, reshape(beta, along))
    return y if wide is x else cast(y, x.dtype)


@function
def layer_normalization(
    x: TensorLike, gamma: TensorLike | None = None, beta: TensorLike | None = None,
    axis: Axis = -1, epsilon: float | None = None,
    **kwargs: Any,
) -> Tensor:  # fmt: skip
    """Return (x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments taken over `axis`.

    An epsilon of None is `config.epsilon()`. With `rms_scaling=True`, of older code, the mean
    stays on, and beta off: x / sqrt(variance + epsilon) * gamma.

    Args:
        x: tensor or array.
        gamma: the factors; None: 1.
        beta: what is added; None: 0.
        axis: axis or axes; negative ones count from the last.
        epsilon: a small number > 0 that keeps the quotient finite; None: `config.epsilon()`.

    Source: Ba, Kiros & Hinton, 2016.

    Example:
        >>> layer_normalization([[1.0, 3.0]], epsilon=0.0).tolist()
        [[-1.0, 1.0]]
    """
    rms_scaling = kwargs.pop("rms_scaling", False)
    if kwargs:
        raise TypeError(f"layer_normalization got an unexpected argument {next(iter(kwargs))!r}.")
    x = as_float(x)
    wide = _wide(x)
    axes = normalize_axes(axis, len(x.shape), "layer_normalization")
    centered = subtract(wide, mean(wide, axes, True))
    variance = mean(square(centered), axes, True)
    y = multiply(wide if rms_scaling else centered, rsqrt(add(variance, _epsilon(epsilon))))
    if gamma is not None:
        y = multiply(y, cast(_along(gamma, x.shape, axes), y.dtype))
    if beta is not None and not rms_scaling:
        y = add(y, cast(_along(beta, x.shape, axes), y.dtype))
    return cast(y, x.dtype) if y.dtype != x.dtype else y


def _epsilon(epsilon: float | None) -> float:
    return config.epsilon() if epsilon is None else float(epsilon)


@function
def rms_normalization(
    x: TensorLike, scale: TensorLike | None = None, axis: Axis = -1, epsilon: float | None = None
) -> Tensor:
    """Return x / sqrt(mean(x²) + epsilon) * scale, the mean taken over `axis`.

    Args:
        x: tensor or array.
        scale: the factors, one for each element of the axis; None: 1.
        axis: axis or axes; negative ones count from the last.
        epsilon: a small number > 0 that keeps the quotient finite; None: `config.epsilon()`.

    Source: Zhang & Sennrich, NeurIPS 2019.

    Example:
        >>> rms_normalization([[3.0, 3.0]], epsilon=0.0).tolist()
        [[1.0, 1.0]]
    """
    x = as_float(x)
    wide = _wide(x)
    axes = normalize_axes(axis, len(x.shape), "rms_normalization")
    y = multiply(wide, rsqrt(add(mean(square(wide), axes, True), _epsilon(epsilon))))
    if scale is not None:
        y = multiply(y, cast(_along(scale, x.shape, axes), y.dtype))
    return cast(y, x.dtype) if y.dtype != x.dtype else y


@function
def normalize(
    x: TensorLike, axis: Axis = -1, order: int = 2, epsilon: float | None = None
) -> Tensor:
    """Return x divided by its norm of the given order along `axis`, which counts as >= epsilon.

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last.
        order: the order of the norm, > 0, or Inf.
        epsilon: a small number > 0 that keeps the quotient finite; None: `config.epsilon()`.

    Example:
        >>> [round(v, 4) for v in normalize([3.0, 4.0]).tolist()]
        [0.6, 0.8]
    """
    if not isinstance(order, int) or order < 1:
        raise ValueError(f"normalize: order must be an integer >= 1, got {order!r}.")
    x = as_float(x)
    axes = normalize_axes(axis, len(x.shape), "normalize")
    least = _epsilon(epsilon)
    if order == 2:
        inverse = rsqrt(reduce_sum(square(x), axes, True))
        return multiply(x, minimum(inverse, 1 / least))
    return divide(x, maximum(_norm(x, order, axes), least))


def _norm(x: Tensor, order: int, axes: tuple[int, ...]) -> Tensor:
    if order == 1:
        return reduce_sum(absolute(x), axes, True)
    return power(reduce_sum(power(absolute(x), float(order)), axes, True), 1 / order)


# --- attention ------------------------------------------------------------------------------------


def _allowed(mask: AnyTensor | None, is_causal: bool, targets: int, sources: int) -> Tensor | None:
    """Return the truth array (or None) of which sources a target may attend to."""
    allowed = None if mask is None else as_tensor(mask)
    if allowed is not None and allowed.dtype != "bool":
        allowed = cast(allowed, "bool")
    if is_causal:
        rows, columns = reshape(arange(targets), (-1, 1)), reshape(arange(sources), (1, -1))
        before = reshape(greater_equal(rows, columns), (1, 1, targets, sources))
        allowed = before if allowed is None else logical_and(allowed, before)
    return allowed


@function
def dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    bias: TensorLike | None = None,
    mask: AnyTensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Tensor:
    """Return softmax(query · key * scale + bias) · value for each head.

    Args:
        query: shape (batch, targets, heads, size).
        key: shape (batch, sources, key heads, size); the heads are a multiple of the key heads.
        value: shape (batch, sources, key heads, value size).
        bias: added to the logits; broadcasts to (batch, heads, targets, sources); None: none.
        mask: true where a target may attend; broadcasts likewise; None: all may.
        scale: None: 1 / sqrt(size).
        is_causal: whether a target attends to sources up to its own place only.
        flash_attention: accepted for compatibility; the result is the same.
        attn_logits_soft_cap: c: logits become c * tanh(logits / c); None: no cap.

    Source: Vaswani et al., NeurIPS 2017.

    Example:
        >>> from kerasish import ops
        >>> dot_product_attention(*[ops.ones((1, 3, 2, 4))] * 3).shape
        (1, 3, 2, 4)
    """
    query, key, value = as_float(query), as_float(key), as_float(value)
    for name, x in (("query", query), ("key", key), ("value", value)):
        if len(x.shape) != 4:
            raise ShapeError(
                f"dot_product_attention: {name} must have the shape (batch, length, heads, size), "
                f"got {x.shape}."
            )
    heads, key_heads, size = query.shape[2], key.shape[2], query.shape[3]
    if heads % key_heads:
        raise ShapeError(
            f"dot_product_attention: {heads} heads are no multiple of the key's {key_heads}."
        )
    if heads != key_heads:
        key = repeat(key, heads // key_heads, 2)
        value = repeat(value, heads // key_heads, 2)
    dtype = query.dtype
    query = multiply(query, 1 / math.sqrt(size) if scale is None else float(scale))
    logits = matmul(transpose(query, (0, 2, 1, 3)), transpose(key, (0, 2, 3, 1)))
    logits = _wide(logits)
    if bias is not None:
        logits = add(logits, cast(as_tensor(bias), logits.dtype))
    if attn_logits_soft_cap is not None:
        cap = float(attn_logits_soft_cap)
        logits = multiply(tanh(divide(logits, cap)), cap)
    allowed = _allowed(mask, is_causal, query.shape[1], key.shape[1])
    if allowed is not None:
        logits = select(allowed, logits, -1e30 if logits.dtype == "float32" else -1e300)
    weights = softmax(logits, -1)
    weights = cast(weights, dtype) if weights.dtype != dtype else weights
    return transpose(matmul(weights, transpose(value, (0, 2, 1, 3))), (0, 2, 1, 3))
