"""Images as files, Pillow images and arrays. Pillow is imported on first use."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.ops import dtypes
from kerasish.typing import Array, DTypeLike, PathLike

MODES = {"grayscale": "L", "rgb": "RGB", "rgba": "RGBA"}
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")


def pillow() -> Any:
    """Return the module PIL.Image; without Pillow, an error that says what to install."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Pictures need Pillow: pip install pillow") from error
    return Image


def array_to_img(
    x: Array, data_format: str | None = None, scale: bool = True, dtype: DTypeLike | None = None
) -> Any:
    """Return an array as a Pillow image.

    Args:
        x: (height, width, channels) with 1, 3 or 4 channels; (channels, height, width) if
            `data_format` says so.
        data_format: the place of the channels; None: the process's.
        scale: whether to scale the values so that the smallest is 0 and the largest 255.
        dtype: the dtype of the computation; None: `floatx()`.

    Raises:
        ValueError: x does not have 3 axes, or has another number of channels.

    Example:
        >>> import numpy as np
        >>> array_to_img(np.zeros((4, 6, 3))).size
        (6, 4)
    """
    data_format = config.standardize_data_format(data_format)
    numbers = np.array(x, dtype=dtypes.array_dtype(dtype or config.floatx()))
    if numbers.ndim != 3:
        raise ValueError(f"array_to_img: expected 3 axes, got shape {numbers.shape}.")
    if data_format == "channels_first":
        numbers = numbers.transpose(1, 2, 0)
    if scale:
        numbers = numbers - numbers.min()
        # In this order, as in Keras: the largest number becomes 255, not a neighbor of it.
        numbers = numbers / (numbers.max() or 1) * 255
    channels = numbers.shape[2]
    if channels not in (1, 3, 4):
        raise ValueError(f"array_to_img: expected 1, 3 or 4 channels, got shape {numbers.shape}.")
    if channels == 1:
        wide = numbers.max() > 255
        plane = numbers[:, :, 0].astype("int32" if wide else "uint8")
        return pillow().fromarray(plane)
    return pillow().fromarray(numbers.astype("uint8"))


def img_to_array(
    img: Array, data_format: str | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Return the numbers of a Pillow image.

    Args:
        img: the image.
        data_format: the position of the channel axis; None: `config.image_data_format()`.
        dtype: the dtype of the result; None: `floatx()`.

    Shape: (height, width, channels), or (channels, height, width).

    Example:
        >>> img_to_array(array_to_img(np.zeros((4, 6, 3)))).shape
        (4, 6, 3)
    """
    data_format = config.standardize_data_format(data_format)
    numbers = np.asarray(img, dtype=dtypes.array_dtype(dtype or config.floatx()))
    if numbers.ndim not in (2, 3):
        raise ValueError(f"img_to_array: expected 2 or 3 axes, got shape {numbers.shape}.")
    if numbers.ndim == 2:
        numbers = numbers[:, :, None]
    return numbers.transpose(2, 0, 1) if data_format == "channels_first" else numbers


def load_img(
    path: PathLike,
    color_mode: str = "rgb",
    target_size: tuple[int, int] | None = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Any:
    """Return the Pillow image in a file.

    Args:
        path: a path, or the file's bytes as `io.BytesIO`.
        color_mode: "grayscale", "rgb" or "rgba".
        target_size: (height, width) to resize to; None: its own size.
        interpolation: "nearest", "bilinear", "bicubic", "box", "hamming" or "lanczos".
        keep_aspect_ratio: whether to crop the middle instead of distorting.

    Raises:
        ValueError: an argument is unknown.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "black.png")
        ...     save_img(path, np.zeros((4, 6, 3)))
        ...     print(load_img(path, target_size=(2, 2)).size)
        (2, 2)
    """
    if color_mode not in MODES:
        raise ValueError(f"load_img: color_mode is one of {list(MODES)}, got {color_mode!r}.")
    if interpolation not in INTERPOLATIONS:
        raise ValueError(
            f"load_img: interpolation is one of {INTERPOLATIONS}, got {interpolation!r}."
        )
    image_module = pillow()
    source = path if isinstance(path, io.BytesIO) else os.fspath(path)
    with image_module.open(source) as opened:
        deep = color_mode == "grayscale" and opened.mode in ("I;16", "I")
        image = opened.copy() if deep else opened.convert(MODES[color_mode])
    if target_size is None or image.size == (target_size[1], target_size[0]):
        return image
    resample = getattr(image_module.Resampling, interpolation.upper())
    box = _middle(image.size, target_size) if keep_aspect_ratio else None
    return image.resize((target_size[1], target_size[0]), resample, box=box)


def _middle(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) of the largest centered part with the target's ratio."""
    width, height = size
    cut_height = min(height, width * target[0] // target[1])
    cut_width = min(width, height * target[1] // target[0])
    left, top = (width - cut_width) // 2, (height - cut_height) // 2
    return left, top, left + cut_width, top + cut_height


def save_img(
    path: PathLike,
    x: Array,
    data_format: str | None = None,
    file_format: str | None = None,
    scale: bool = True,
    **kwargs: Any,
) -> None:
    """Write an array to an image file; see `array_to_img`.

    Args:
        path: the file.
        x: the array.
        data_format: the position of the channel axis; None: `config.image_data_format()`.
        file_format: "png", "jpeg" ...; None: by the path's suffix.
        scale: whether to scale the values to 0..255.
        kwargs: arguments of Pillow's `save`.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_img(os.path.join(folder, "black.png"), np.zeros((4, 6, 3)))
        ...     print(os.listdir(folder))
        ['black.png']
    """
    image = array_to_img(x, data_format, scale)
    jpeg = str(file_format or os.path.splitext(str(path))[1]).lower().lstrip(".")
    if image.mode == "RGBA" and jpeg in ("jpg", "jpeg"):
        image = image.convert("RGB")
    image.save(path, format="jpeg" if file_format == "jpg" else file_format, **kwargs)


def smart_resize(
    x: Array,
    size: tuple[int, int],
    interpolation: str = "bilinear",
    data_format: str = "channels_last",
    **kwargs: Any,
) -> Array:
    """Return images resized without distortion, from the centered part with the target's ratio.

    Args:
        x: an image or a batch of them.
        size: (height, width).
        interpolation: as for `ops.image.resize`.
        data_format: the place of the channels.

    Shape: (..., height, width, channels) -> (..., *size, channels).

    Example:
        >>> import numpy as np
        >>> smart_resize(np.zeros((4, 6, 3)), (2, 2)).shape
        (2, 2, 3)
    """
    if len(size) != 2:
        raise ValueError(f"smart_resize: expected size (height, width), got {size!r}.")
    resized = ops.image.resize(
        x, size, interpolation, data_format=data_format, crop_to_aspect_ratio=True
    )
    return np.asarray(resized) if isinstance(x, np.ndarray) else resized
