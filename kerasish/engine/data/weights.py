"""Class weights: from the classes in `y` to one weight per sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerasish.engine.data.convert import to_array
from kerasish.typing import Structure


def check_class_weight(class_weight: Mapping[Any, Any]) -> None:
    """Raise unless `class_weight` maps class numbers to finite weights."""
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "class_weight: expected a dict such as {0: 1.0, 1: 5.0} (class: weight), got "
            f"{type(class_weight).__name__} {class_weight!r}."
        )
    for label, weight in class_weight.items():
        if not isinstance(label, (int, np.integer)) or not math.isfinite(weight):
            raise ValueError(
                "class_weight: expected integer classes with finite weights, got "
                f"{label!r}: {weight!r}."
            )


def class_weights_of(y: Structure, class_weight: Mapping[int, float]) -> np.ndarray:
    """Return w[i] = class_weight[class of y[i]], and 1 for classes that are not named.

    Args:
        y: classes as integers, shape (n,) or (n, 1), or one-hot rows, shape (n, classes).
        class_weight: weight of each class.

    Example:
        >>> class_weights_of(np.array([0, 1, 2]), {1: 5.0})
        array([1., 5., 1.], dtype=float32)
    """
    if not isinstance(y, np.ndarray):
        what = "no y" if y is None else f"y as a {type(y).__name__} of {len(y)}"
        raise ValueError(f"class_weight: expected a model with one output and one y, got {what}.")
    if y.ndim > 1:
        y = y[..., 0] if y.shape[-1] == 1 else np.argmax(y, axis=-1)
    classes, where = np.unique(np.round(y).astype(np.int64), return_inverse=True)
    weights = to_array([float(class_weight.get(int(k), 1.0)) for k in classes], "class_weight")
    return weights[where].reshape(y.shape)


def combine(sample_weight: Structure, class_weights: np.ndarray) -> np.ndarray:
    """Return sample_weight * class_weights, sample by sample; a weight of None counts as 1."""
    if sample_weight is None:
        return class_weights
    if not isinstance(sample_weight, np.ndarray):
        raise ValueError(
            "class_weight: expected one array as sample_weight with it, got a "
            f"{type(sample_weight).__name__}."
        )
    extra = sample_weight.ndim - class_weights.ndim
    shape = class_weights.shape + (1,) * extra if extra > 0 else class_weights.shape
    try:
        return (sample_weight * class_weights.reshape(shape)).astype(class_weights.dtype)
    except ValueError as error:
        raise ValueError(
            "sample_weight: expected one weight for each entry of y with class_weight, got shape "
            f"{sample_weight.shape} where y's classes have {class_weights.shape}."
        ) from error
