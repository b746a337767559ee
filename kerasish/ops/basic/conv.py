"""Convolutions as in Keras: functions composed of the ops of `convolution`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError, UnknownNameError
from kerasish.ops.basic.arithmetic import add
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.convolution import convolution, convolution_data_gradient
from kerasish.ops.basic.movement import reshape
from kerasish.ops.basic.nonlinearity import relu
from kerasish.ops.basic.window import channels_back, channels_to_last, layout, per_axis
from kerasish.ops.op import function
from kerasish.ops.shapes import agree
from kerasish.typing import IntOrTuple, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["conv", "conv_transpose", "depthwise_conv", "separable_conv"]


def _data_and_layout(inputs: TensorLike, data_format: str | None, what: str) -> tuple[Any, str]:
    inputs, data_format = as_tensor(inputs), layout(data_format)
    if not 3 <= len(inputs.shape) <= 5:
        raise ShapeError(
            f"{what}: expected inputs of 3 to 5 axes (batch, 1 to 3 spatial axes, channels), got "
            f"shape {inputs.shape}."
        )
    return channels_to_last(inputs, data_format), data_format


@function
def conv(
    inputs: TensorLike,
    kernel: TensorLike,
    strides: IntOrTuple = 1,
    padding: str | Sequence[Any] = "valid",
    data_format: str | None = None,
    dilation_rate: IntOrTuple = 1,
) -> Tensor:
    """Return the convolution of `inputs` with `kernel` over 1, 2 or 3 spatial axes.

    Args:
        inputs: tensor of shape (n, *spatial, channels), or channels first.
        kernel: (*window, channels / groups, results); the groups follow from the channels.
        strides: steps from window to window: a number, or one for each spatial axis.
        padding: "valid", "same" or "causal".
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        dilation_rate: distance between the elements of a window: a number, or one for each spatial
            axis.

    Example:
        >>> conv([[[1.0], [2.0], [3.0]]], [[[1.0]], [[10.0]]]).tolist()
        [[[21.0], [32.0]]]
    """
    x, data_format = _data_and_layout(inputs, data_format, "conv")
    kernel = as_tensor(kernel)
    channels = x.shape[-1]
    if channels is None or len(kernel.shape) < 3 or channels % kernel.shape[-2]:
        raise ShapeError(
            f"conv: the inputs' channels ({channels}) must be a multiple of the kernel's last size "
            f"but one, got a kernel of shape {kernel.shape}."
        )
    groups = channels // kernel.shape[-2]
    y = convolution(x, kernel, strides, padding, dilation_rate, groups)
    return channels_back(y, data_format)


@function
def biased_conv(
    inputs: TensorLike,
    kernel: TensorLike,
    bias: TensorLike,
    strides: IntOrTuple = 1,
    padding: str | Sequence[Any] = "valid",
    dilation_rate: IntOrTuple = 1,
    rectified: bool = False,
) -> Tensor:
    """Return conv + bias, the channels being last; `rectified`: max(that, 0).

    Args:
        bias: shape (results,).

    Example:
        >>> biased_conv([[[1.0], [2.0]]], [[[1.0]]], [-1.5], rectified=True).tolist()
        [[[0.0], [0.5]]]
    """
    y = add(conv(inputs, kernel, strides, padding, "channels_last", dilation_rate), bias)
    return relu(y) if rectified else y


@function
def depthwise_conv(
    inputs: TensorLike,
    kernel: TensorLike,
    strides: IntOrTuple = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: IntOrTuple = 1,
) -> Tensor:
    """Return the convolution of every channel with its own filters.

    Args:
        inputs: tensor of shape (n, *spatial, channels), or channels first.
        kernel: (*window, channels, multiplier): the results of channel c are at
            c * multiplier, c * multiplier + 1, ...
        strides: steps from window to window: a number, or one for each spatial axis.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        dilation_rate: distance between the elements of a window: a number, or one for each spatial
            axis.

    Example:
        >>> depthwise_conv([[[1.0, 2.0]]], [[[1.0, 3.0], [1.0, 3.0]]]).tolist()
        [[[1.0, 3.0, 2.0, 6.0]]]
    """
    x, data_format = _data_and_layout(inputs, data_format, "depthwise_conv")
    kernel = as_tensor(kernel)
    *window, channels, multiplier = kernel.shape
    if not agree(x.shape[-1], channels):
        raise ShapeError(
            f"depthwise_conv: the kernel of shape {kernel.shape} is for {channels} channels, the "
            f"inputs have {x.shape[-1]}."
        )
    kernel = reshape(kernel, (*window, 1, channels * multiplier))
    y = convolution(x, kernel, strides, padding, dilation_rate, channels)
    return channels_back(y, data_format)


@function
def separable_conv(
    inputs: TensorLike,
    depthwise_kernel: TensorLike,
    pointwise_kernel: TensorLike,
    strides: IntOrTuple = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: IntOrTuple = 1,
) -> Tensor:
    """Return conv(depthwise_conv(inputs, depthwise_kernel), pointwise_kernel).

    Args:
        inputs: tensor of shape (n, *spatial, channels), or channels first.
        depthwise_kernel: shape (*sizes, channels, multiplier).
        pointwise_kernel: shape (1, ..., channels * multiplier, filters).
        strides: steps from window to window: a number, or one for each spatial axis.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        dilation_rate: distance between the elements of a window: a number, or one for each spatial
            axis.

    Example:
        >>> separable_conv([[[1.0], [2.0], [3.0]]], [[[1.0]], [[1.0]]], [[[2.0]]]).tolist()
        [[[6.0], [10.0]]]
    """
    y = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return conv(y, pointwise_kernel, 1, "valid", data_format)


def transpose_geometry(
    size: int | None, window: int, stride: int, dilation: int, padding: str, extra: int | None
) -> tuple[int | None, tuple[int, int]]:
    """Return (size, padding) of a transposed convolution's result along one axis.

    Args:
        size: the input's size, None if not known.
        extra: Keras's output_padding, or None: "same" then gives size * stride, "valid" all that
            a window touches and at least size * stride.
    """
    span = dilation * (window - 1) + 1
    # How much longer the result is than (size - 1) * stride: the same for every size.
    if padding == "valid":
        beyond = max(span, stride) if extra is None else span + extra
    else:
        beyond = stride if extra is None else span - 2 * (span // 2) + extra
    before = max(span - beyond, 0) // 2 if padding == "same" else 0
    after = span - beyond - before
    if -stride < after < 0:
        after = 0  # The last places meet no window: the count of windows is the same.
    result = None if size is None else (size - 1) * stride + beyond
    return result, (before, after)


@function
def conv_transpose(
    inputs: TensorLike,
    kernel: TensorLike,
    strides: IntOrTuple = 1,
    padding: str = "valid",
    output_padding: int | Sequence[int] | None = None,
    data_format: str | None = None,
    dilation_rate: IntOrTuple = 1,
) -> Tensor:
    """Return the transposed convolution: what a `conv` with this kernel turns into `inputs`.

    Args:
        inputs: tensor of shape (n, *spatial, channels), or channels first.
        kernel: (*window, results, channels).
        strides: steps from window to window: a number, or one for each spatial axis.
        padding: "valid" or "same".
        output_padding: how many places the result gets beyond the smallest size, or None.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        dilation_rate: distance between the elements of a window: a number, or one for each spatial
            axis.

    Example:
        >>> conv_transpose([[[1.0], [2.0]]], [[[1.0]], [[10.0]]]).tolist()
        [[[1.0], [12.0], [20.0]]]
    """
    x, data_format = _data_and_layout(inputs, data_format, "conv_transpose")
    kernel = as_tensor(kernel)
    count = len(x.shape) - 2
    if padding not in ("valid", "same"):
        raise UnknownNameError.of("padding of conv_transpose", padding, ("valid", "same"))
    strides = per_axis(strides, count, "conv_transpose: strides")
    dilation = per_axis(dilation_rate, count, "conv_transpose: dilation_rate")
    extra: tuple[Any, ...] = (None,) * count
    if output_padding is not None:
        extra = per_axis(output_padding, count, "conv_transpose: output_padding", 0)
    axes = [
        transpose_geometry(n, w, s, d, padding, e)
        for n, w, s, d, e in zip(x.shape[1:-1], kernel.shape, strides, dilation, extra)
    ]
    size, pairs = tuple(a[0] for a in axes), tuple(a[1] for a in axes)
    y = convolution_data_gradient(x, kernel, size, strides, pairs, dilation, 1)
    return channels_back(y, data_format)
