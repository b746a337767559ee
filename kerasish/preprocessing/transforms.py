"""Transformations of single pictures, given or drawn from NumPy's global random numbers.

Keras draws these from NumPy's global generator, and programs seed it: `np.random.seed(0)` gives
the same pictures here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.typing import Array
from kerasish.utils.images import array_to_img, img_to_array, pillow

FILL_MODES = ("constant", "nearest", "reflect", "wrap")


def _check(x: Array, who: str, row_axis: int, col_axis: int, channel_axis: int) -> Array:
    """Return a picture as an array, its axes checked."""
    array = np.asarray(x)
    if array.ndim != 3:
        raise ValueError(f"{who}: expected a picture with 3 axes, got shape {array.shape}.")
    axes = (row_axis, col_axis, channel_axis)
    if sorted(axes) != [0, 1, 2] or channel_axis == 1:
        raise ValueError(
            f"{who}: row_axis, col_axis and channel_axis are 0, 1 and 2, each once, and the "
            f"channels are first or last; got {axes}."
        )
    return array


def _matrix(theta: float, tx: float, ty: float, shear: float, zx: float, zy: float) -> Array | None:
    """Return the 3 x 3 matrix of a rotation, shift, shear and zoom; None if nothing changes."""
    parts = []
    if theta:
        cos, sin = np.cos(np.deg2rad(theta)), np.sin(np.deg2rad(theta))
        parts.append([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    if tx or ty:
        parts.append([[1, 0, tx], [0, 1, ty], [0, 0, 1]])
    if shear:
        cos, sin = np.cos(np.deg2rad(shear)), np.sin(np.deg2rad(shear))
        parts.append([[1, -sin, 0], [0, cos, 0], [0, 0, 1]])
    if zx != 1 or zy != 1:
        parts.append([[zx, 0, 0], [0, zy, 0], [0, 0, 1]])
    if not parts:
        return None
    result = np.eye(3)
    for part in parts:
        result = result @ np.array(part, "float64")
    return result


def apply_affine_transform(
    x: Array,
    theta: float = 0,
    tx: float = 0,
    ty: float = 0,
    shear: float = 0,
    zx: float = 1,
    zy: float = 1,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    order: int = 1,
) -> Array:
    """Return a picture rotated, shifted, sheared and zoomed about its center.

    The pixels are those of Keras 3.15. With the rows' axis before the columns' axis, it takes half
    of the height as the center's column, and half of the width as its row: pictures that are not
    square are turned about another point than their middle.

    Args:
        x: the picture, with 3 axes.
        theta: angle of the rotation in degrees.
        tx: shift in pixels along the later one of the rows' and the columns' axis.
        ty: shift in pixels along the earlier one.
        shear: angle of the shear in degrees.
        zx: zoom along the later axis; below 1 enlarges.
        zy: zoom along the earlier axis.
        row_axis: axis of the rows.
        col_axis: axis of the columns.
        channel_axis: axis of the channels, 0 or 2.
        fill_mode: what is outside the picture: "constant" (`cval`), "nearest" (the border's
            pixel), "reflect" or "wrap".
        cval: value of the pixels outside for "constant".
        order: order of the splines between pixels, 0 to 5; 1 is bilinear.

    Returns:
        An array of x's shape and dtype; x itself where nothing must be done.

    Raises:
        ValueError: the axes do not fit, or `fill_mode` is unknown.

    Source: `scipy.ndimage.affine_transform`, for each channel.

    Example:
        >>> x = np.arange(9.0).reshape(3, 3, 1)
        >>> y = apply_affine_transform(x, theta=90, row_axis=0, col_axis=1, channel_axis=2)
        >>> y[..., 0].round(6).tolist()
        [[2.0, 5.0, 8.0], [1.0, 4.0, 7.0], [0.0, 3.0, 6.0]]
    """
    from scipy import ndimage

    array = _check(x, "apply_affine_transform", row_axis, col_axis, channel_axis)
    if fill_mode not in FILL_MODES:
        raise ValueError(
            f"apply_affine_transform: fill_mode is one of {FILL_MODES}, got {fill_mode!r}."
        )
    matrix = _matrix(theta, tx, ty, shear, zx, zy)
    if matrix is None:
        return array
    to_center = np.eye(3)
    to_center[:2, 2] = array.shape[row_axis] / 2 - 0.5, array.shape[col_axis] / 2 - 0.5
    matrix = to_center @ matrix @ np.linalg.inv(to_center)
    if col_axis > row_axis:  # Keras reads (x, y) as (column, row), the center's x and y too
        matrix = matrix[[1, 0, 2]][:, [1, 0, 2]]
    channels = [
        ndimage.affine_transform(
            channel, matrix[:2, :2], matrix[:2, 2], order=order, mode=fill_mode, cval=cval
        )
        for channel in np.moveaxis(array, channel_axis, 0)
    ]
    return np.stack(channels, axis=channel_axis)


def apply_channel_shift(x: Array, intensity: float, channel_axis: int = 0) -> Array:
    """Return a picture with a number added to all channels, within its own range of values.

    Args:
        x: the picture, with 3 axes.
        intensity: what is added.
        channel_axis: axis of the channels; accepted as in Keras, the result does not depend on it.

    Example:
        >>> apply_channel_shift(np.array([[[0.0, 10.0, 20.0]]]), 5.0).tolist()
        [[[5.0, 15.0, 20.0]]]
    """
    array = np.asarray(x)
    return np.clip(array + intensity, array.min(), array.max()).astype(array.dtype)


def apply_brightness_shift(
    x: Array, brightness: float, scale: bool = True, data_format: str | None = None
) -> Array:
    """Return a picture made darker or brighter by Pillow, which computes with bytes.

    Args:
        x: the picture, with 3 axes and 1, 3 or 4 channels.
        brightness: factor; 0 gives black, 1 leaves it as it is.
        scale: whether to scale the values to 0..255 first. Without it, values outside of 0..255
            are scaled, and scaled back afterwards.
        data_format: the position of the channel axis; None: `config.image_data_format()`.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: the shape does not fit.

    Example:
        >>> x = np.full((2, 2, 3), 100.0)
        >>> apply_brightness_shift(x, 0.5, scale=False)[0, 0].tolist()
        [50.0, 50.0, 50.0]
    """
    pillow()  # a separate error where Pillow is missing
    from PIL import ImageEnhance

    array = np.asarray(x)
    low, high = float(array.min()), float(array.max())
    outside = low < 0 or high > 255
    image = array_to_img(array, data_format, scale=scale or outside)
    result = img_to_array(ImageEnhance.Brightness(image).enhance(brightness), data_format)
    if outside and not scale:
        result = result / 255 * (high - low) + low
    return result


def random_rotation(
    x: Array,
    rg: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> Array:
    """Return a picture rotated by a random angle.

    Args:
        x: the picture, with 3 axes.
        rg: the largest angle in degrees, to either side.
        row_axis, col_axis, channel_axis, fill_mode, cval: as for `apply_affine_transform`.
        interpolation_order: its `order`.

    Raises:
        ValueError: the axes do not fit, or `fill_mode` is unknown.

    Example:
        >>> random_rotation(np.zeros((3, 8, 8)), 20).shape
        (3, 8, 8)
    """
    theta = np.random.uniform(-rg, rg)
    axes = (row_axis, col_axis, channel_axis)
    return apply_affine_transform(
        x, theta, 0, 0, 0, 1, 1, *axes, fill_mode, cval, interpolation_order
    )


def random_shift(
    x: Array,
    wrg: float,
    hrg: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> Array:
    """Return a picture shifted at random.

    Args:
        x: the picture, with 3 axes.
        wrg: the largest shift along the width, as a part of the width.
        hrg: the largest shift along the height, as a part of the height.
        row_axis, col_axis, channel_axis, fill_mode, cval: as for `apply_affine_transform`.
        interpolation_order: its `order`.

    Raises:
        ValueError: the axes do not fit, or `fill_mode` is unknown.

    Example:
        >>> random_shift(np.zeros((3, 8, 8)), 0.25, 0.25).shape
        (3, 8, 8)
    """
    axes = (row_axis, col_axis, channel_axis)
    array = _check(x, "random_shift", *axes)
    tx = np.random.uniform(-hrg, hrg) * array.shape[row_axis]
    ty = np.random.uniform(-wrg, wrg) * array.shape[col_axis]
    return apply_affine_transform(
        array, 0, tx, ty, 0, 1, 1, *axes, fill_mode, cval, interpolation_order
    )


def random_shear(
    x: Array,
    intensity: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> Array:
    """Return a picture sheared by a random angle.

    Args:
        x: the picture, with 3 axes.
        intensity: the largest angle in degrees, to either side.
        row_axis, col_axis, channel_axis, fill_mode, cval: as for `apply_affine_transform`.
        interpolation_order: its `order`.

    Raises:
        ValueError: the axes do not fit, or `fill_mode` is unknown.

    Example:
        >>> random_shear(np.zeros((3, 8, 8)), 10).shape
        (3, 8, 8)
    """
    shear = np.random.uniform(-intensity, intensity)
    axes = (row_axis, col_axis, channel_axis)
    return apply_affine_transform(
        x, 0, 0, 0, shear, 1, 1, *axes, fill_mode, cval, interpolation_order
    )


def random_zoom(
    x: Array,
    zoom_range: Sequence[float],
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> Array:
    """Return a picture zoomed at random, along each axis by a separate factor.

    Args:
        x: the picture, with 3 axes.
        zoom_range: the smallest and the largest factor; below 1 enlarges.
        row_axis, col_axis, channel_axis, fill_mode, cval: as for `apply_affine_transform`.
        interpolation_order: its `order`.

    Raises:
        ValueError: `zoom_range` is no pair, the axes do not fit, or `fill_mode` is unknown.

    Example:
        >>> random_zoom(np.zeros((3, 8, 8)), (0.8, 1.2)).shape
        (3, 8, 8)
    """
    low, high = pair(zoom_range, "random_zoom: zoom_range")
    zx, zy = (1, 1) if low == high == 1 else np.random.uniform(low, high, 2)
    axes = (row_axis, col_axis, channel_axis)
    return apply_affine_transform(
        x, 0, 0, 0, 0, zx, zy, *axes, fill_mode, cval, interpolation_order
    )


def random_channel_shift(x: Array, intensity_range: float, channel_axis: int = 0) -> Array:
    """Return a picture with a random number added to all channels; see `apply_channel_shift`.

    Args:
        x: the picture, with 3 axes.
        intensity_range: the largest number, to either side.
        channel_axis: axis of the channels.

    Example:
        >>> random_channel_shift(np.zeros((3, 8, 8)), 10.0).shape
        (3, 8, 8)
    """
    intensity = np.random.uniform(-intensity_range, intensity_range)
    return apply_channel_shift(x, intensity, channel_axis)


def random_brightness(x: Array, brightness_range: Sequence[float], scale: bool = True) -> Array:
    """Return a picture of random brightness; see `apply_brightness_shift`.

    Args:
        x: the picture, with 3 axes and 1, 3 or 4 channels.
        brightness_range: the smallest and the largest factor.
        scale: whether to scale the values to 0..255 first.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: `brightness_range` is no pair, or the shape does not fit.

    Example:
        >>> random_brightness(np.zeros((8, 8, 3)), (0.5, 1.5)).shape
        (8, 8, 3)
    """
    low, high = pair(brightness_range, "random_brightness: brightness_range")
    return apply_brightness_shift(x, np.random.uniform(low, high), scale)


def pair(value: Any, what: str) -> tuple[float, float]:
    """Return the two numbers of an argument.

    Args:
        value: what was given.
        what: the function and the argument, for the message.

    Raises:
        ValueError: it is no sequence of two numbers.

    Example:
        >>> pair([0.5, 2], "zoom_range")
        (0.5, 2.0)
    """
    try:
        low, high = (float(number) for number in value)
    except (TypeError, ValueError):
        raise ValueError(f"{what}: expected two numbers (low, high), got {value!r}.") from None
    return low, high
