"""ImageNet: how images are scaled for each kind of network, and what its classes are called."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.datasets.download import get_file
from kerasish.typing import Array, TensorLike

_CLASS_NAMES = (
    "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json"
)
_CLASS_NAMES_MD5 = "c2c37ea517e94d9795004a39431a14cb"
_CLASSES = 1000
# mode -> (divisor of the pixels, mean per channel, standard deviation per channel)
_SCALES: dict[str, tuple[float, tuple[float, ...], tuple[float, ...]]] = {
    "tf": (127.5, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
    "torch": (255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "caffe": (1.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0)),
}
_EFFECTS = {
    "tf": "x / 127.5 - 1: numbers from -1 to 1",
    "torch": "x / 255, minus ImageNet's mean, divided by its deviation, for each channel",
    "caffe": "the channels in the order blue, green, red, minus ImageNet's mean color",
    "none": "x itself: this model scales its images by its first layers",
}


def preprocess_input(x: TensorLike, data_format: str | None = None, mode: str = "caffe") -> Array:
    """Return images of 0 to 255 scaled as a network expects them.

    Args:
        x: images (height, width, 3) or (n, height, width, 3), an array or a tensor.
        data_format: "channels_last" or "channels_first"; None: the image data format.
        mode: "tf" (from -1 to 1), "torch" (from 0 to 1, then ImageNet's mean and deviation of
            each channel) or "caffe" (blue, green, red, minus ImageNet's mean).

    Returns:
        A new array where `x` is one (`x` is not changed), else a tensor. Integers become
        `floatx()`.

    Raises:
        ValueError: mode or data_format is unknown.

    Example:
        >>> preprocess_input(np.full((1, 1, 3), 255.0), mode="tf").tolist()
        [[[1.0, 1.0, 1.0]]]
    """
    if mode not in _SCALES:
        raise ValueError(f"preprocess_input: mode is one of {sorted(_SCALES)}, got {mode!r}.")
    first = config.standardize_data_format(data_format) == "channels_first"
    divisor, mean, deviation = _SCALES[mode]
    is_array = isinstance(x, np.ndarray)
    y: Any = x if is_array or ops.is_tensor(x) or hasattr(x, "dtype") else np.asarray(x)
    if "float" not in str(y.dtype):
        y = y.astype(config.floatx()) if is_array else ops.cast(y, config.floatx())
    axis = len(y.shape) - 3 if first else len(y.shape) - 1
    if mode == "caffe":
        y = np.flip(y, axis) if is_array else ops.flip(y, axis)
    along = (3, 1, 1) if first else (3,)

    def constant(numbers: tuple[float, ...]) -> Any:
        values = np.reshape(np.asarray(numbers, "float64"), along)
        if is_array:
            return values.astype(y.dtype)
        return ops.cast(ops.convert_to_tensor(values, dtype="float32"), y.dtype)

    for number, apply in ((divisor, "divide"), (mean, "subtract"), (deviation, "divide")):
        numbers = number if isinstance(number, tuple) else (number,) * 3
        if numbers != (1.0, 1.0, 1.0) or apply == "subtract":
            y = getattr(np if is_array else ops, apply)(y, constant(numbers))
    return y


def scaling(mode: str) -> Callable[..., Any]:
    """Return the `preprocess_input` of a network whose images are scaled by `mode`.

    Args:
        mode: "tf", "torch", "caffe", or "none" for models that scale their images themselves.

    Example:
        >>> scaling("none")(3.0)
        3.0
    """

    def preprocess_input(x: TensorLike, data_format: str | None = None) -> Array:
        if mode == "none":
            return x
        return _scale(x, data_format=data_format, mode=mode)

    preprocess_input.__doc__ = (
        f"Return {_EFFECTS[mode]}.\n\n"
        "Args:\n    x: images of 0 to 255, (height, width, 3) or (n, height, width, 3).\n"
        '    data_format: "channels_last" or "channels_first"; None: the image data format.\n\n'
        "Returns:\n    A new array where `x` is one, else a tensor.\n\n"
        "Example:\n    >>> images = preprocess_input(images)  # doctest: +SKIP\n"
    )
    return preprocess_input


_scale = preprocess_input


def decode_predictions(preds: TensorLike, top: int = 5) -> list[list[tuple[str, str, Any]]]:
    """Return the `top` most likely classes of each image, most likely first.

    Args:
        preds: probabilities (n, 1000) of ImageNet's classes.
        top: how many classes to return, >= 1.

    Returns:
        One list per image, of (WordNet's id, name, probability).

    Raises:
        ValueError: `preds` has another shape.
        ConnectionError: the names are not in the cache, and there is no network; the message
            says which file to put where.

    Example:
        >>> decode_predictions(model.predict(images), top=3)  # doctest: +SKIP
    """
    numbers = preds if isinstance(preds, np.ndarray) else ops.convert_to_numpy(preds)
    if numbers.ndim != 2 or numbers.shape[1] != _CLASSES:
        raise ValueError(
            f"decode_predictions: expected predictions of shape (n, {_CLASSES}), got "
            f"{tuple(numbers.shape)}."
        )
    names = _class_names()
    order = np.argsort(-numbers, axis=1, kind="stable")[:, :top]
    return [[(*names[i], row[i]) for i in best] for row, best in zip(numbers, order)]


@functools.cache
def _class_names() -> list[tuple[str, str]]:
    """Return (id, name) of each class, from Keras's published file."""
    path = get_file(
        "imagenet_class_index.json", _CLASS_NAMES, cache_subdir="models",
        file_hash=_CLASS_NAMES_MD5,
    )  # fmt: skip
    with open(path, encoding="utf-8") as file:
        names = json.load(file)
    return [(names[str(i)][0], names[str(i)][1]) for i in range(_CLASSES)]
