"""Convolutions of every channel by itself: DepthwiseConv and SeparableConv, 1D and 2D."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import constraints, initializers, ops, regularizers
from kerasish.layers.convolutional import ConvolutionLayer, as_sizes
from kerasish.typing import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    IntOrTuple,
    RegularizerLike,
    Shape,
)

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class BaseDepthwiseConv(ConvolutionLayer):
    """A convolution of every channel with its own filters (*kernel_size, channels, multiplier)."""

    layer_role = "convolution"

    _causal = True

    def __init__(
        self,
        rank: int,
        depth_multiplier: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        depthwise_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            rank, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            bias_initializer, bias_regularizer, bias_constraint, activity_regularizer, **kwargs,
        )  # fmt: skip
        self.depth_multiplier = as_sizes(
            depth_multiplier, 1, "depth_multiplier", self.display_name()
        )[0]
        self.depthwise_initializer = initializers.get(depthwise_initializer)
        self.depthwise_regularizer = regularizers.get(depthwise_regularizer)
        self.depthwise_constraint = constraints.get(depthwise_constraint)

    def build(self, input_shape: Shape) -> None:
        """Make kernel (*kernel_size, channels, depth_multiplier) and bias."""
        channels = self._channels(input_shape)
        self.compute_output_shape(input_shape)  # raises where no window fits
        self.kernel = self._add(
            "kernel", (*self.kernel_size, channels, self.depth_multiplier), "depthwise"
        )
        self._add_bias(channels * self.depth_multiplier)

    def _results(self, channels: int) -> int:
        return channels * self.depth_multiplier

    def _convolve(self, x: Tensor) -> Tensor:
        return ops.depthwise_conv(
            x, self.kernel, self.strides, self.padding, "channels_last", self.dilation_rate
        )


class DepthwiseConv1D(BaseDepthwiseConv):
    """activation(depthwise convolution + bias) over one axis: channels do not see each other.

    Args:
        kernel_size, strides, dilation_rate: whole numbers >= 1.
        depth_multiplier: results of each channel.

    Shape: (n, steps, channels) -> (n, windows, channels * depth_multiplier).
    """

    example = {"args": {"kernel_size": 2, "depth_multiplier": 2}, "shape": (2, 5, 3)}

    def __init__(
        self,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        depthwise_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            1, depth_multiplier, kernel_size, strides, padding, data_format, dilation_rate,
            activation, use_bias, depthwise_initializer, bias_initializer, depthwise_regularizer,
            bias_regularizer, activity_regularizer, depthwise_constraint, bias_constraint,
            **kwargs,
        )  # fmt: skip


class DepthwiseConv2D(BaseDepthwiseConv):
    """activation(depthwise convolution + bias) over two axes: channels do not see each other.

    Args:
        kernel_size, strides, dilation_rate: a whole number >= 1, or one for each of two axes.
        depth_multiplier: results of each channel.

    Shape: (n, height, width, channels) -> (n, windows, windows, channels * depth_multiplier).

    Example:
        >>> DepthwiseConv2D(3, padding="same").compute_output_shape((None, 8, 8, 16))
        (None, 8, 8, 16)
    """

    example = {"args": {"kernel_size": 3, "padding": "same"}, "shape": (2, 4, 5, 3)}

    def __init__(
        self,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = (1, 1),
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: IntOrTuple = (1, 1),
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        depthwise_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            2, depth_multiplier, kernel_size, strides, padding, data_format, dilation_rate,
            activation, use_bias, depthwise_initializer, bias_initializer, depthwise_regularizer,
            bias_regularizer, activity_regularizer, depthwise_constraint, bias_constraint,
            **kwargs,
        )  # fmt: skip


class BaseSeparableConv(ConvolutionLayer):
    """A depthwise convolution, then one of 1 place over all channels."""

    layer_role = "convolution"

    _causal = True

    def __init__(
        self,
        rank: int,
        depth_multiplier: int,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        pointwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike | None = None,
        pointwise_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        depthwise_constraint: ConstraintLike | None = None,
        pointwise_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            rank, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            bias_initializer, bias_regularizer, bias_constraint, activity_regularizer, **kwargs,
        )  # fmt: skip
        self.depth_multiplier = as_sizes(
            depth_multiplier, 1, "depth_multiplier", self.display_name()
        )[0]
        self.filters = as_sizes(filters, 1, "filters", self.display_name())[0]
        self.depthwise_initializer = initializers.get(depthwise_initializer)
        self.pointwise_initializer = initializers.get(pointwise_initializer)
        self.depthwise_regularizer = regularizers.get(depthwise_regularizer)
        self.pointwise_regularizer = regularizers.get(pointwise_regularizer)
        self.depthwise_constraint = constraints.get(depthwise_constraint)
        self.pointwise_constraint = constraints.get(pointwise_constraint)

    def build(self, input_shape: Shape) -> None:
        """Make the kernels (*kernel_size, channels, multiplier), (1.., products, filters), bias."""
        channels = self._channels(input_shape)
        self.compute_output_shape(input_shape)  # raises where no window fits
        self.depthwise_kernel = self._add(
            "depthwise_kernel", (*self.kernel_size, channels, self.depth_multiplier), "depthwise"
        )
        self.pointwise_kernel = self._add(
            "pointwise_kernel",
            (*(1,) * self.rank, channels * self.depth_multiplier, self.filters),
            "pointwise",
        )
        self._add_bias(self.filters)

    def _convolve(self, x: Tensor) -> Tensor:
        return ops.separable_conv(
            x, self.depthwise_kernel, self.pointwise_kernel, self.strides, self.padding,
            "channels_last", self.dilation_rate,
        )  # fmt: skip


class SeparableConv1D(BaseSeparableConv):
    """activation(pointwise(depthwise convolution) + bias) over one axis.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: whole numbers >= 1.
        depth_multiplier: results of each channel in between.

    Shape: (n, steps, channels) -> (n, windows, filters).
    """

    example = {"args": {"filters": 4, "kernel_size": 2}, "shape": (2, 5, 3)}

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        depth_multiplier: int = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        pointwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike | None = None,
        pointwise_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        depthwise_constraint: ConstraintLike | None = None,
        pointwise_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            1, depth_multiplier, filters, kernel_size, strides, padding, data_format,
            dilation_rate, activation, use_bias, depthwise_initializer, pointwise_initializer,
            bias_initializer, depthwise_regularizer, pointwise_regularizer, bias_regularizer,
            activity_regularizer, depthwise_constraint, pointwise_constraint, bias_constraint,
            **kwargs,
        )  # fmt: skip


class SeparableConv2D(BaseSeparableConv):
    """activation(pointwise(depthwise convolution) + bias) over two axes.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: a whole number >= 1, or one for each of two axes.
        depth_multiplier: results of each channel in between.

    Shape: (n, height, width, channels) -> (n, windows, windows, filters).
    Source: Chollet, Xception, CVPR 2017.
    """

    example = {"args": {"filters": 4, "kernel_size": 2}, "shape": (2, 4, 5, 3)}

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = (1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = (1, 1),
        depth_multiplier: int = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        pointwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike | None = None,
        pointwise_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        depthwise_constraint: ConstraintLike | None = None,
        pointwise_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            2, depth_multiplier, filters, kernel_size, strides, padding, data_format,
            dilation_rate, activation, use_bias, depthwise_initializer, pointwise_initializer,
            bias_initializer, depthwise_regularizer, pointwise_regularizer, bias_regularizer,
            activity_regularizer, depthwise_constraint, pointwise_constraint, bias_constraint,
            **kwargs,
        )  # fmt: skip
