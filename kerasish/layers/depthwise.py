"""Convolutions of every channel by itself: DepthwiseConv and SeparableConv, 1D and 2D."""

from __future__ import annotations

from typing import Any

from kerasish import ops
from kerasish.layers.convolutional import ConvolutionLayer
from kerasish.layers.options import DepthwiseOptions, SeparableOptions, of_weights
from kerasish.layers.spatial import as_sizes
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike, IntOrTuple, Shape


def _size(value: IntOrTuple, name: str, layer: ConvolutionLayer) -> int:
    return as_sizes(value, 1, name, layer.display_name())[0]


class _DepthwiseLayer(ConvolutionLayer):
    """What layers with a depthwise kernel share."""

    paddings = ("valid", "same", "causal")
    depthwise_initializer: Any
    depthwise_regularizer: Any
    depthwise_constraint: Any
    depth_multiplier: int

    def _depthwise_kernel(self, input_shape: Shape, name: str) -> tuple[int, Any]:
        """Return (channels of its results, a new kernel (*kernel_size, channels, multiplier))."""
        channels = self._channels(input_shape)
        self.compute_output_shape(input_shape)  # raises where no window fits
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        kernel = self.add_weight_of("depthwise", shape, name)
        return channels * self.depth_multiplier, kernel


class BaseDepthwiseConv(_DepthwiseLayer):
    """A convolution of every channel with its own filters (*kernel_size, channels, multiplier)."""

    weight_kinds = ("depthwise", "bias")

    @with_options(DepthwiseOptions, of_weights("depthwise", "bias"))
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
        **options: Unpack[DepthwiseOptions],
    ) -> None:
        super().__init__(
            kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            **options,
        )  # fmt: skip
        self.depth_multiplier = _size(depth_multiplier, "depth_multiplier", self)

    def build(self, input_shape: Shape) -> None:
        """Make kernel (*kernel_size, channels, depth_multiplier) and bias."""
        results, self.kernel = self._depthwise_kernel(input_shape, "kernel")
        self._add_bias(results)

    def _results(self, channels: int) -> int:
        return channels * self.depth_multiplier

    def _convolve(self, x: Tensor) -> Tensor:
        return ops.depthwise_conv(
            x, self.kernel, self.strides, self.padding, "channels_last", self.dilation_rate
        )


class DepthwiseConv1D(BaseDepthwiseConv):
    """activation(depthwise convolution + bias) over one axis: channels do not see each other.

    Args:
        kernel_size, strides, dilation_rate: integers >= 1.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        depth_multiplier: results of each channel.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        depthwise_initializer: first values of the depthwise kernel: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        depthwise_regularizer: penalty of the depthwise kernel; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        depthwise_constraint: function applied to the depthwise kernel after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, steps, channels) -> (n, windows, channels * depth_multiplier).

    Example:
        >>> layer = DepthwiseConv1D(kernel_size=2, depth_multiplier=2)
        >>> layer.compute_output_shape((None, 5, 3))
        (None, 4, 6)
    """

    example = {"args": {"kernel_size": 2, "depth_multiplier": 2}, "shape": (2, 5, 3)}
    rank = 1


class DepthwiseConv2D(BaseDepthwiseConv):
    """activation(depthwise convolution + bias) over two axes: channels do not see each other.

    Args:
        kernel_size, strides, dilation_rate: an integer >= 1, or one for each of two axes.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        depth_multiplier: results of each channel.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        depthwise_initializer: first values of the depthwise kernel: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        depthwise_regularizer: penalty of the depthwise kernel; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        depthwise_constraint: function applied to the depthwise kernel after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, height, width, channels) -> (n, windows, windows, channels * depth_multiplier).

    Example:
        >>> DepthwiseConv2D(3, padding="same").compute_output_shape((None, 8, 8, 16))
        (None, 8, 8, 16)
    """

    example = {"args": {"kernel_size": 3, "padding": "same"}, "shape": (2, 4, 5, 3)}
    rank = 2


class BaseSeparableConv(_DepthwiseLayer):
    """A depthwise convolution, then one of 1 place over all channels."""

    weight_kinds = ("depthwise", "pointwise", "bias")
    pointwise_initializer: Any
    pointwise_regularizer: Any
    pointwise_constraint: Any

    @with_options(SeparableOptions, of_weights("depthwise", "pointwise", "bias"))
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
        **options: Unpack[SeparableOptions],
    ) -> None:
        super().__init__(
            kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            **options,
        )  # fmt: skip
        self.depth_multiplier = _size(depth_multiplier, "depth_multiplier", self)
        self.filters = _size(filters, "filters", self)

    def build(self, input_shape: Shape) -> None:
        """Make the kernels (*kernel_size, channels, multiplier), (1.., products, filters), bias."""
        between, self.depthwise_kernel = self._depthwise_kernel(input_shape, "depthwise_kernel")
        shape = (*(1,) * self.rank, between, self.filters)
        self.pointwise_kernel = self.add_weight_of("pointwise", shape, "pointwise_kernel")
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
        kernel_size, strides, dilation_rate: integers >= 1.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        depth_multiplier: results of each channel in between.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        depthwise_initializer: first values of the depthwise kernel: name, config, object or
            function.
        pointwise_initializer: first values of the pointwise kernel: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        depthwise_regularizer: penalty of the depthwise kernel; None: none.
        pointwise_regularizer: penalty of the pointwise kernel; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        depthwise_constraint: function applied to the depthwise kernel after each update; None:
            none.
        pointwise_constraint: function applied to the pointwise kernel after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, steps, channels) -> (n, windows, filters).

    Example:
        >>> SeparableConv1D(filters=4, kernel_size=2).compute_output_shape((None, 5, 3))
        (None, 4, 4)
    """

    example = {"args": {"filters": 4, "kernel_size": 2}, "shape": (2, 5, 3)}
    rank = 1


class SeparableConv2D(BaseSeparableConv):
    """activation(pointwise(depthwise convolution) + bias) over two axes.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: an integer >= 1, or one for each of two axes.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        depth_multiplier: results of each channel in between.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        depthwise_initializer: first values of the depthwise kernel: name, config, object or
            function.
        pointwise_initializer: first values of the pointwise kernel: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        depthwise_regularizer: penalty of the depthwise kernel; None: none.
        pointwise_regularizer: penalty of the pointwise kernel; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        depthwise_constraint: function applied to the depthwise kernel after each update; None:
            none.
        pointwise_constraint: function applied to the pointwise kernel after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, height, width, channels) -> (n, windows, windows, filters).
    Source: Chollet, Xception, CVPR 2017.

    Example:
        >>> SeparableConv2D(filters=4, kernel_size=2).compute_output_shape((None, 4, 5, 3))
        (None, 3, 4, 4)
    """

    example = {"args": {"filters": 4, "kernel_size": 2}, "shape": (2, 4, 5, 3)}
    rank = 2
