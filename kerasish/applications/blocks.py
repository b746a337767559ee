"""Layers as the applications join them: one call for a layer on a tensor."""

from __future__ import annotations

from typing import Any

from kerasish.applications.network import channel_axis, image_sides
from kerasish.layers import (
    Activation,
    BatchNormalization,
    Concatenate,
    Conv2D,
    DepthwiseConv2D,
    ZeroPadding2D,
)
from kerasish.typing import IntOrTuple


def conv(
    x: Any, filters: int, kernel: IntOrTuple, strides: IntOrTuple = 1, name: str | None = None,
    padding: str = "same", bias: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """Return a convolution of `x`, by default without a bias, for a normalization follows."""
    return Conv2D(
        filters, kernel, strides=strides, padding=padding, use_bias=bias, name=name, **options
    )(x)


def depthwise(
    x: Any, kernel: IntOrTuple, strides: IntOrTuple = 1, name: str | None = None,
    padding: str = "same", **options: Any,
) -> Any:  # fmt: skip
    """Return a depth-wise convolution of `x` without a bias."""
    return DepthwiseConv2D(
        kernel, strides=strides, padding=padding, use_bias=False, name=name, **options
    )(x)


def norm(x: Any, name: str | None = None, **options: Any) -> Any:
    """Return the batch normalization of `x` along its channels."""
    return BatchNormalization(axis=channel_axis(), name=name, **options)(x)


def activate(x: Any, function: Any, name: str | None = None) -> Any:
    """Return function(x), as a layer."""
    return Activation(function, name=name)(x)


def join(tensors: list[Any], name: str | None = None) -> Any:
    """Return tensors side by side along their channels."""
    return Concatenate(axis=channel_axis(), name=name)(tensors)


def pad_for_stride(x: Any, kernel: int, name: str | None = None) -> Any:
    """Return `x` with zeros around it, so that "valid" with a stride of 2 keeps its middle.

    An even side gets one zero less in front: the windows are then placed as in PyTorch and in the
    papers.
    """
    half = kernel // 2
    odd = [1 if side is None else 1 - side % 2 for side in image_sides(x.shape)]
    if image_sides(x.shape)[0] is None:
        odd = [1, 1]
    return ZeroPadding2D(tuple((half - less, half) for less in odd), name=name)(x)
