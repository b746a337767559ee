"""Patches of pictures and volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import config
from kerasish.errors import ShapeError
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.movement import reshape, transpose
from kerasish.ops.basic.reshaping import expand_dims, moveaxis, pad
from kerasish.ops.basic.selection import get_item
from kerasish.ops.op import function
from kerasish.typing import AnyTensor, IntOrTuple, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["extract_patches", "extract_patches_3d"]


def _windows(x: Tensor, axis: int, size: int, stride: int, dilation: int, padding: str) -> Tensor:
    """Return x with `axis` replaced by (windows, elements of a window)."""
    full, reach = x.shape[axis], dilation * (size - 1) + 1
    if padding == "same":
        count = -(-full // stride)
        margin = max((count - 1) * stride + reach - full, 0)
        width = [(0, 0)] * len(x.shape)
        width[axis] = (margin // 2, margin - margin // 2)
        x = pad(x, tuple(width))
    else:
        count = (full - reach) // stride + 1
    if count < 1:
        raise ShapeError(f"extract_patches: patches of {reach} exceed the size {full}.")
    places = np.arange(count)[:, None] * stride + np.arange(size) * dilation
    return take_rows(x, places.astype("int32"), axis)


def _patches(
    images: AnyTensor,
    rank: int,
    size: Any,
    strides: IntOrTuple | None,
    dilation: IntOrTuple,
    padding: str,
    data_format: Any,
) -> Tensor:
    x = as_tensor(images)
    single = len(x.shape) == rank + 1
    if not single and len(x.shape) != rank + 2:
        raise ShapeError(f"extract_patches: expected {rank} spatial axes, got shape {x.shape}.")
    if padding not in ("valid", "same"):
        raise ValueError(f"extract_patches: padding must be 'valid' or 'same', got {padding!r}.")
    x = expand_dims(x, 0) if single else x
    first = config.standardize_data_format(data_format) == "channels_first"
    x = moveaxis(x, 1, -1) if first else x
    size, strides, dilation = (
        (v,) * rank if isinstance(v, int) else tuple(v)
        for v in (size, size if strides is None else strides, dilation)
    )
    if len(size) != rank:
        raise TypeError(f"extract_patches: expected {rank} sizes of a patch, got {size}.")
    if (len(strides), len(dilation)) != (rank, rank):
        raise ValueError(
            f"extract_patches: expected {rank} strides and dilation rates, got {strides} and "
            f"{dilation}."
        )
    for i in range(rank):
        x = _windows(x, 1 + 2 * i, size[i], strides[i], dilation[i], padding)
    counts = tuple(x.shape[1 + 2 * i] for i in range(rank))
    order = (0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1)
    depth = math.prod(size) * x.shape[-1]
    y = reshape(transpose(x, order), (x.shape[0], *counts, depth))
    y = moveaxis(y, -1, 1) if first else y
    return get_item(y, 0) if single else y


@function
def extract_patches(
    images: TensorLike,
    size: int | Sequence[int],
    strides: IntOrTuple | None = None,
    dilation_rate: IntOrTuple = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Tensor:
    """Return the patches of pictures, each as one pixel with all its elements as channels.

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        size: (height, width) of a patch, or one number; three: as `extract_patches_3d`.
        strides: distance of the patches; None: their size.
        dilation_rate: distance of the elements of a patch.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first"; None: the default.

    Shape: (n, h, w, c) -> (n, patches down, patches across, height * width * c)

    Example:
        >>> from kerasish import ops
        >>> extract_patches(ops.ones((1, 4, 4, 3)), 2).shape
        (1, 2, 2, 12)
    """
    axes = 3 if not isinstance(size, int) and len(size) == 3 else 2
    return _patches(images, axes, size, strides, dilation_rate, padding, data_format)


@function
def extract_patches_3d(
    volumes: TensorLike,
    size: int,
    strides: IntOrTuple | None = None,
    dilation_rate: IntOrTuple = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Tensor:
    """Return the patches of volumes, each as one element with all its elements as channels.

    Args:
        volumes: shape (n, depth, h, w, c), without n, or channels first.
        size: (depth, height, width) of a patch, or one number.
        strides: distance of the patches; None: their size.
        dilation_rate: distance of the elements of a patch.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> from kerasish import ops
        >>> extract_patches_3d(ops.ones((1, 4, 4, 4, 3)), 2).shape
        (1, 2, 2, 2, 24)
    """
    return _patches(volumes, 3, size, strides, dilation_rate, padding, data_format)
