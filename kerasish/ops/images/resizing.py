"""Pictures in another size: weights along each axis, then a matrix product per axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import config
from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.movement import reshape, strided_slice
from kerasish.ops.basic.product import matmul
from kerasish.ops.basic.reshaping import pad
from kerasish.ops.basic.statistics import clip, round
from kerasish.ops.op import function
from kerasish.typing import AnyTensor, Array, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["resize", "scale_and_translate"]


def _linear(x: Array) -> Array:
    return np.maximum(0, 1 - x)


def _cubic(x: Array) -> Array:
    # Keys, IEEE Trans. ASSP 29 (1981), with a = -0.5.
    near = ((1.5 * x - 2.5) * x) * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _lanczos(radius: int) -> Callable[[Any], Any]:
    return lambda x: np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0)


KERNELS: dict[str, Callable[[Any], Any]] = {
    "linear": _linear, "bilinear": _linear, "trilinear": _linear, "triangle": _linear,
    "cubic": _cubic, "bicubic": _cubic, "tricubic": _cubic,
    "lanczos3": _lanczos(3), "lanczos5": _lanczos(5),
}  # fmt: skip
METHODS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")


def axis_weights(
    size: int, new: int, scale: float, shift: float, method: str, antialias: bool
) -> Array:
    """Return the matrix (new, size) that makes `new` samples out of `size` along an axis.

    Sample i is at (i + 0.5 - shift) / scale - 0.5; the weights around it are scaled to sum to 1,
    and are 0 where it is outside.
    """
    if method not in KERNELS:
        raise ValueError(f"resize: the method must be one of {sorted(KERNELS)}, got {method!r}.")
    at = (np.arange(new) + 0.5 - shift) / scale - 0.5
    width = max(1 / scale, 1.0) if antialias else 1.0
    weights = KERNELS[method](np.abs(at[:, None] - np.arange(size)) / width)
    total = weights.sum(axis=1, keepdims=True)
    weights = np.where(np.abs(total) > 1e-4, weights / np.where(total == 0, 1, total), 0)
    inside = (at >= -0.50001) & (at <= size - 0.49999)  # the edge itself, however rounded
    return np.where(inside[:, None], weights, 0)


def along_axis(x: AnyTensor, weights: AnyTensor, axis: int) -> Tensor:
    """Return x with `axis` multiplied by the matrix `weights` (new size, size)."""
    lead, tail = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    rows = reshape(x, (lead, x.shape[axis], tail))
    y = matmul(cast(as_tensor(weights), x.dtype), rows)
    return reshape(y, (*x.shape[:axis], weights.shape[0], *x.shape[axis + 1 :]))


def _back_to(y: Tensor, dtype: str) -> Tensor:
    """Return y in the input's dtype, rounded and clipped to it if that is an integer one."""
    if y.dtype == dtype or dtypes.is_inexact(dtype):
        return y if y.dtype == dtype else cast(y, dtype)
    low, high = dtypes.limits(dtype) or (0, 0)
    return cast(clip(round(y), float(low), float(high)), dtype)


@function
def scale_and_translate(
    images: TensorLike,
    output_shape: Sequence[int],
    scale: TensorLike,
    translation: TensorLike,
    spatial_dims: Sequence[int],
    method: str,
    antialias: bool = True,
) -> Tensor:
    """Return images scaled and moved along some axes.

    Args:
        images: any tensor.
        output_shape: the shape of the result.
        scale: one factor for each of `spatial_dims`; numbers, not traced.
        translation: one shift, in pixels of the result, for each of `spatial_dims`.
        spatial_dims: the axes concerned.
        method: "linear", "cubic", "lanczos3" or "lanczos5".
        antialias: whether the kernel widens where the result is smaller.

    Example:
        >>> from kerasish import ops
        >>> image, factors, shifts = ops.ones((4, 4)), [2.0, 2.0], [0.0, 0.0]
        >>> scale_and_translate(image, (8, 8), factors, shifts, (0, 1), "linear").shape
        (8, 8)
    """
    x = as_tensor(images)
    y = as_float(x)
    factors = np.asarray(as_tensor(scale), "float64").reshape(-1)
    shifts = np.asarray(as_tensor(translation), "float64").reshape(-1)
    for axis, factor, shift in zip(spatial_dims, factors, shifts):
        size, new = y.shape[axis], int(output_shape[axis])
        weights = axis_weights(size, new, factor, shift, method, antialias)
        y = along_axis(y, weights, axis % len(x.shape))
    return _back_to(y, x.dtype)


def _fitted(
    x: Tensor, axes: tuple[int, int], size: tuple[int, int], value: float, crop: bool
) -> Tensor:
    """Return x cropped, or padded with `value`, to the ratio of `size`."""
    height, width = (x.shape[a] for a in axes)
    tall, wide = int(width * size[0] / size[1]), int(height * size[1] / size[0])
    if crop:
        kept = max(min(height, tall), 1), max(min(width, wide), 1)
        parts = [slice(None)] * len(x.shape)
        for axis, full, keep in zip(axes, (height, width), kept):
            start = int((full - keep) / 2)
            parts[axis] = slice(start, start + keep)
        return strided_slice(x, parts)
    grown = max(height, tall), max(width, wide)
    margins = [(0, 0)] * len(x.shape)
    for axis, full, new in zip(axes, (height, width), grown):
        before = int((new - full) / 2)
        margins[axis] = (before, before)
    return pad(x, tuple(margins), constant_values=value)


@function
def resize(
    images: TensorLike,
    size: Sequence[int],
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> Tensor:
    """Return pictures of `size` pixels.

    Pixels are squares: the center of the first one is half a pixel inside the picture.

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        size: (height, width).
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
        antialias: whether the kernel widens where the result is smaller.
        crop_to_aspect_ratio: whether to cut the middle of the ratio of `size` out first.
        pad_to_aspect_ratio: whether to pad to the ratio of `size` first.
        fill_mode: "constant", the one way to pad.
        fill_value: what is padded with.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> from kerasish import ops
        >>> resize(ops.ones((4, 4, 3)), (2, 8)).shape
        (2, 8, 3)
    """
    if interpolation not in METHODS:
        raise ValueError(f"resize: interpolation must be one of {METHODS}, got {interpolation!r}.")
    if fill_mode != "constant":
        raise ValueError(f"resize: fill_mode must be 'constant', got {fill_mode!r}.")
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError("resize: choose crop_to_aspect_ratio or pad_to_aspect_ratio, not both.")
    x = as_tensor(images)
    size = (int(size[0]), int(size[1]))
    if min(size) < 1:
        raise ValueError(f"resize: size must have a positive height and width, got {size}.")
    axes = spatial_axes(x, data_format, "resize")
    if crop_to_aspect_ratio or pad_to_aspect_ratio:
        x = _fitted(x, axes, size, fill_value, crop_to_aspect_ratio)
    if interpolation == "nearest":
        for axis, new in zip(axes, size):
            old = x.shape[axis]
            places = np.floor((np.arange(new) + 0.5) * (old / new)).astype("int32")
            x = x if new == old else take_rows(x, np.minimum(places, old - 1), axis)
        return x
    y = as_float(x)
    for axis, new in zip(axes, size):
        old = y.shape[axis]
        if new != old:
            weights = axis_weights(old, new, new / old, 0.0, interpolation, antialias)
            y = along_axis(y, weights, axis)
    return _back_to(y, x.dtype)


def spatial_axes(x: AnyTensor, data_format: str | None, what: str) -> tuple[int, int]:
    """Return the axes of height and width of pictures (n, h, w, c) or one picture (h, w, c)."""
    if len(x.shape) not in (3, 4):
        raise ShapeError(f"{what}: expected (n, h, w, c) or (h, w, c), got shape {x.shape}.")
    first = config.standardize_data_format(data_format) == "channels_first"
    start = len(x.shape) - (2 if first else 3)
    return start, start + 1


def channel_axis(x: AnyTensor, data_format: str | None) -> int:
    """Return the axis of the channels of pictures."""
    first = config.standardize_data_format(data_format) == "channels_first"
    return len(x.shape) - 3 if first else len(x.shape) - 1
