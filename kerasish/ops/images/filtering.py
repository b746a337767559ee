"""Pictures blurred, differentiated, compared, colored, cropped and cut into patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import config
from kerasish.errors import DTypeError, ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.arithmetic import (
    add,
    divide,
    maximum,
    minimum,
    mod,
    multiply,
    square,
    subtract,
)
from kerasish.ops.basic.comparison import equal, select
from kerasish.ops.basic.conv import depthwise_conv
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import ones, unsized
from kerasish.ops.basic.exponentials import exp
from kerasish.ops.basic.movement import reshape, strided_slice
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.basic.reshaping import expand_dims, moveaxis, pad, stack
from kerasish.ops.basic.selection import get_item
from kerasish.ops.basic.statistics import clip, mean
from kerasish.ops.images.resizing import channel_axis, spatial_axes
from kerasish.ops.op import function
from kerasish.ops.shapes import agree, is_unknown
from kerasish.typing import AnyTensor, Array, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "crop_images",  "gaussian_blur", "hsv_to_rgb",
    "pad_images", "rgb_to_grayscale", "rgb_to_hsv", "sobel_edges", "ssim",
]  # fmt: skip

# --- filters --------------------------------------------------------------------------------


def _bell(size: int, sigma: float) -> Array:
    places = np.arange(size) - (size - 1) / 2
    weights = np.exp(-0.5 * (places / sigma) ** 2)
    return weights / weights.sum()


def _curve(size: int, sigma: AnyTensor) -> Tensor:
    """Return a bell curve whose width may be a tensor."""
    if isinstance(sigma, (int, float)):
        return as_tensor(_bell(size, sigma))
    places = as_tensor(np.arange(size) - (size - 1) / 2)
    weights = exp(multiply(square(divide(cast(places, sigma.dtype), sigma)), -0.5))
    return divide(weights, reduce_sum(weights, 0, True))


def _filtered(x: AnyTensor, kernel: AnyTensor, padding: str) -> Tensor:
    """Return pictures (n, h, w, c) each of whose channels is filtered by the matrix `kernel`."""
    weights = cast(as_tensor(kernel), x.dtype)
    weights = multiply(reshape(weights, (*kernel.shape, 1, 1)), ones((x.shape[-1], 1), x.dtype))
    return depthwise_conv(x, weights, 1, padding, "channels_last")


def to_channels_last(x: Tensor, data_format: str | None, what: str) -> tuple[Any, Any]:
    """Return (pictures as (n, h, w, c), a function that turns results back); `what` is the op."""
    if len(x.shape) not in (3, 4):
        raise ShapeError(f"{what}: expected (n, h, w, c) or (h, w, c), got shape {x.shape}.")
    first = config.standardize_data_format(data_format) == "channels_first"
    single = len(x.shape) == 3
    x = expand_dims(x, 0) if single else x
    x = moveaxis(x, 1, -1) if first else x

    def back(y: Tensor) -> Tensor:
        y = moveaxis(y, 3, 1) if first else y
        return get_item(y, 0) if single else y

    return x, back


@function
def gaussian_blur(
    images: TensorLike,
    kernel_size: Sequence[int] = (3, 3),
    sigma: AnyTensor = (1.0, 1.0),
    data_format: str | None = None,
) -> Tensor:
    """Return pictures blurred with a bell curve, zeros lying around them.

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        kernel_size: (width, height) of the filter, in pixels; in this order, as Keras computes it.
        sigma: width of the bell across and down, in pixels.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> import numpy as np
        >>> gaussian_blur(np.ones((1, 8, 8, 3), "float32"), (3, 3), (1.0, 1.0)).shape
        (1, 8, 8, 3)
    """
    dtype = as_tensor(images).dtype
    x, back = to_channels_last(as_float(images), data_format, "gaussian_blur")
    widths = [get_item(sigma, i) if hasattr(sigma, "shape") else sigma[i] for i in (0, 1)]
    across, down = (_curve(int(n), width) for n, width in zip(kernel_size, widths))
    kernel = multiply(reshape(down, (-1, 1)), reshape(across, (1, -1)))
    return cast(back(_filtered(x, kernel, "same")), dtype)


_SOBEL = np.array([[-1.0, -2.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]])


@function
def sobel_edges(images: TensorLike, data_format: str | None = None) -> Tensor:
    """Return the derivatives of pictures down and across, along a new last axis.

    Args:
        images: tensor of shape (n, h, w, channels) or (h, w, channels), or channels first.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Source: Sobel & Feldman, 1968.

    Shape: (n, h, w, c) -> (n, h, w, c, 2)

    Example:
        >>> from kerasish import ops
        >>> sobel_edges(ops.ones((1, 4, 4, 3))).shape
        (1, 4, 4, 3, 2)
    """
    x, back = to_channels_last(as_float(images), data_format, "sobel_edges")
    x = pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
    parts = [_filtered(x, kernel, "valid") for kernel in (_SOBEL, _SOBEL.T)]
    return back(stack(parts, -1))


@function
def ssim(
    image1: Tensor,
    image2: TensorLike,
    max_val: float = 1.0,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    data_format: str | None = None,
) -> Tensor:
    """Return how alike pictures look, at most 1, one number for each pair.

    Args:
        image1: shape (n, h, w, c), (h, w, c), or channels first.
        image2: in the same shape.
        max_val: the largest value that a pixel can have.
        filter_size: size of the bell-shaped window, in pixels.
        filter_sigma: width of the bell, in pixels.
        k1: keeps the ratio of brightness finite.
        k2: keeps the ratio of contrast finite.
        data_format: "channels_last" or "channels_first"; None: the default.

    Source: Wang et al., IEEE Trans. Image Processing 13 (2004).

    Example:
        >>> import numpy as np
        >>> image = np.ones((1, 16, 16, 1), "float32")
        >>> ssim(image, image).tolist()
        [1.0]
    """
    a, _ = to_channels_last(as_float(image1), data_format, "ssim")
    b, _ = to_channels_last(as_float(image2), data_format, "ssim")
    if len(a.shape) != len(b.shape) or not all(map(agree, a.shape, b.shape)):
        raise ShapeError(f"ssim: the pictures have the shapes {a.shape} and {b.shape}.")
    bell = _bell(filter_size, filter_sigma)

    def blurred(x: TensorLike) -> Tensor:
        return _filtered(x, np.outer(bell, bell), "valid")

    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2
    mean_a, mean_b = blurred(a), blurred(b)
    both = multiply(mean_a, mean_b)
    squares = add(square(mean_a), square(mean_b))
    shared = subtract(blurred(multiply(a, b)), both)
    spread = subtract(blurred(add(square(a), square(b))), squares)
    light = divide(add(multiply(both, 2), c1), add(squares, c1))
    contrast = divide(add(multiply(shared, 2), c2), add(spread, c2))
    y = mean(multiply(light, contrast), (1, 2, 3))
    return get_item(y, 0) if len(as_tensor(image1).shape) == 3 else y


# --- colors ----------------------------------------------------------------------------------


def _three(images: AnyTensor, data_format: str | None, what: str) -> tuple[Any, int]:
    x = as_tensor(images)
    if len(x.shape) not in (3, 4):
        raise ShapeError(f"{what}: expected (n, h, w, c) or (h, w, c), got shape {x.shape}.")
    axis = channel_axis(x, data_format)
    if not agree(x.shape[axis], 3):
        raise ShapeError(f"{what}: expected 3 channels on axis {axis}, got shape {x.shape}.")
    return x, axis


def _channel(x: TensorLike, axis: int, i: int) -> Tensor:
    return get_item(x, (*[slice(None)] * axis, i))


@function
def rgb_to_grayscale(images: TensorLike, data_format: str | None = None) -> Tensor:
    """Return 0.2989 red + 0.587 green + 0.114 blue, as one channel. Source: ITU-R BT.601.

    Args:
        images: tensor of shape (n, h, w, channels) or (h, w, channels), or channels first.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> from kerasish import ops
        >>> rgb_to_grayscale(ops.ones((4, 4, 3))).shape
        (4, 4, 1)
    """
    x, axis = _three(images, data_format, "rgb_to_grayscale")
    wide = as_float(x)
    weights = cast(as_tensor([0.2989, 0.587, 0.114]), wide.dtype)
    weights = reshape(weights, [3 if i == axis else 1 for i in range(len(x.shape))])
    y = reduce_sum(multiply(wide, weights), axis, True)
    return cast(y, x.dtype)


def _floating(x: Tensor, what: str) -> None:
    if not dtypes.is_float(x.dtype):
        raise DTypeError(f"{what}: expected floating pictures in [0, 1], got {x.dtype}.")


@function
def rgb_to_hsv(images: TensorLike, data_format: str | None = None) -> Tensor:
    """Return hue, saturation and value, each in [0, 1], of red, green and blue in [0, 1].

    Args:
        images: tensor of shape (n, h, w, channels) or (h, w, channels), or channels first.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> rgb_to_hsv([[[0.5, 0.5, 0.5]]]).tolist()
        [[[0.0, 0.0, 0.5]]]
    """
    x, axis = _three(images, data_format, "rgb_to_hsv")
    _floating(x, "rgb_to_hsv")
    red, green, blue = (_channel(x, axis, i) for i in range(3))
    value = maximum(maximum(red, green), blue)
    spread = subtract(value, minimum(minimum(red, green), blue))
    flat = equal(spread, 0)
    safe = select(flat, 1, spread)
    # The brightest color determines the hue's third of the circle.
    hue = select(
        equal(value, red),
        divide(subtract(green, blue), safe),
        select(
            equal(value, green),
            add(divide(subtract(blue, red), safe), 2),
            add(divide(subtract(red, green), safe), 4),
        ),
    )
    hue = select(flat, 0, mod(divide(hue, 6), 1.0))
    saturation = select(equal(value, 0), 0, divide(spread, select(equal(value, 0), 1, value)))
    return stack([hue, saturation, value], axis)


@function
def hsv_to_rgb(images: TensorLike, data_format: str | None = None) -> Tensor:
    """Return red, green and blue in [0, 1] of hue, saturation and value in [0, 1].

    Args:
        images: tensor of shape (n, h, w, channels) or (h, w, channels), or channels first.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> hsv_to_rgb([[[0.0, 0.0, 0.5]]]).tolist()
        [[[0.5, 0.5, 0.5]]]
    """
    x, axis = _three(images, data_format, "hsv_to_rgb")
    _floating(x, "hsv_to_rgb")
    hue, saturation, value = (_channel(x, axis, i) for i in range(3))
    parts = []
    for shift in (5, 3, 1):
        place = mod(add(multiply(hue, 6), shift), 6)
        share = clip(minimum(place, subtract(4, place)), 0, 1)
        parts.append(subtract(value, multiply(multiply(value, saturation), share)))
    return stack(parts, axis)


# --- frames -------------------------------------------------------------------------------------


def _margins(
    full: int, before: Any, after: Any, target: int | None, grow: bool, names: str
) -> tuple[Any, ...]:
    """Return (before, after) of an axis, of which two of three are given."""
    given = [v is not None for v in (before, after, target)]
    if sum(given) != 2:
        raise ValueError(f"{names}: give two of the three, got {before}, {after}, {target}.")
    margin = None if target is None else (target - full if grow else full - target)
    before = margin - after if before is None else before
    after = margin - before if after is None else after
    if is_unknown(full):
        return before, after
    if before < 0 or after < 0 or (not grow and before + after > full):
        raise ValueError(f"{names}: {before} before and {after} after do not fit size {full}.")
    return int(before), int(after)


@function
def crop_images(
    images: TensorLike,
    top_cropping: int | None = None,
    left_cropping: int | None = None,
    bottom_cropping: int | None = None,
    right_cropping: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Tensor:
    """Return the inner part of pictures: of top, bottom and height two are given, as across.

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        top_cropping: rows to leave out above, in pixels; None: by the other two.
        left_cropping: columns to leave out on the left; None: by the other two.
        bottom_cropping: rows to leave out below; None: by the other two.
        right_cropping: columns to leave out on the right; None: by the other two.
        target_height: height of the result; None: by the other two.
        target_width: width of the result; None: by the other two.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> from kerasish import ops
        >>> crop_images(ops.ones((4, 4, 3)), 1, 1, target_height=2, target_width=3).shape
        (2, 3, 3)
    """
    x = as_tensor(images)
    down, across = spatial_axes(x, data_format, "crop_images")
    parts = [slice(None)] * len(x.shape)
    for axis, before, after, target, names in (
        (down, top_cropping, bottom_cropping, target_height, "crop_images: top, bottom, height"),
        (across, left_cropping, right_cropping, target_width, "crop_images: left, right, width"),
    ):
        start, end = _margins(x.shape[axis], before, after, target, False, names)
        parts[axis] = slice(start, x.shape[axis] - end)
    return strided_slice(x, parts)


@function
def pad_images(
    images: TensorLike,
    top_padding: int | None = None,
    left_padding: int | None = None,
    bottom_padding: int | None = None,
    right_padding: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Tensor:
    """Return pictures with zeros around: of top, bottom and height two are given, as across.

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        top_padding: rows to add above, in pixels; None: by the other two.
        left_padding: columns to add on the left; None: by the other two.
        bottom_padding: rows to add below; None: by the other two.
        right_padding: columns to add on the right; None: by the other two.
        target_height: height of the result; None: by the other two.
        target_width: width of the result; None: by the other two.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> from kerasish import ops
        >>> pad_images(ops.ones((4, 4, 3)), 1, 1, target_height=6, target_width=6).shape
        (6, 6, 3)
    """
    x = as_tensor(images)
    down, across = spatial_axes(x, data_format, "pad_images")
    margin = [(0, 0)] * len(x.shape)
    for axis, before, after, target, names in (
        (down, top_padding, bottom_padding, target_height, "pad_images: top, bottom, height"),
        (across, left_padding, right_padding, target_width, "pad_images: left, right, width"),
    ):
        margin[axis] = _margins(x.shape[axis], before, after, target, True, names)
    if any(map(is_unknown, x.shape)):
        return unsized(tuple(s + a + b for s, (a, b) in zip(x.shape, margin)), x.dtype)
    return pad(x, tuple(margin))
