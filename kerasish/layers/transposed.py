"""Transposed convolutions: Conv1DTranspose, Conv2DTranspose, Conv3DTranspose."""

from __future__ import annotations

from typing import Any

from kerasish import ops
from kerasish.layers.convolutional import ConvolutionLayer
from kerasish.layers.options import KERNEL, KernelOptions
from kerasish.layers.spatial import as_sizes
from kerasish.layers.weighted import KernelLayer
from kerasish.ops.basic.conv import transpose_geometry
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike, IntOrTuple, Shape


class BaseConvTranspose(ConvolutionLayer, KernelLayer):
    """A transposed convolution with one kernel (*kernel_size, filters, channels).

    Args:
        output_padding: how many places the result gets beyond the smallest size, less than the
            stride; None: the number that makes the result size * stride for "same".
    """

    @with_options(KernelOptions, KERNEL)
    def __init__(
        self,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        output_padding: IntOrTuple | None = None,
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        **options: Unpack[KernelOptions],
    ) -> None:
        super().__init__(
            kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            **options,
        )  # fmt: skip
        who = self.display_name()
        self.filters = as_sizes(filters, 1, "filters", who)[0]
        self.output_padding: tuple[int, ...] | None = None
        if output_padding is not None:
            self.output_padding = as_sizes(output_padding, self.rank, "output_padding", who, 0)
            if any(p >= s for p, s in zip(self.output_padding, self.strides)):
                raise ValueError(
                    f"{who}: output_padding must be less than strides={self.strides}, got "
                    f"{self.output_padding}."
                )

    def build(self, input_shape: Shape) -> None:
        """Make kernel (*kernel_size, filters, channels) and bias (filters,)."""
        channels = self._channels(input_shape)
        self.kernel = self.add_weight_of("kernel", (*self.kernel_size, self.filters, channels))
        self._add_bias(self.filters)

    def _convolve(self, x: Tensor) -> Tensor:
        return ops.conv_transpose(
            x, self.kernel, self.strides, self.padding, self.output_padding, "channels_last",
            self.dilation_rate,
        )  # fmt: skip

    def _spatial(self, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        extra = self.output_padding or (None,) * self.rank
        return tuple(
            transpose_geometry(n, w, s, d, self.padding, e)[0]
            for n, w, s, d, e in zip(
                sizes, self.kernel_size, self.strides, self.dilation_rate, extra
            )
        )


class Conv1DTranspose(BaseConvTranspose):
    """activation(transposed convolution + bias) over one axis.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: integers >= 1.
        padding: "valid" or "same".
        output_padding: see `BaseConvTranspose`.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, steps, channels) -> (n, new steps, filters).

    Example:
        >>> Conv1DTranspose(4, 3, strides=2, padding="same").compute_output_shape((None, 5, 2))
        (None, 10, 4)
    """

    example = {"args": {"filters": 3, "kernel_size": 3, "strides": 2}, "shape": (2, 4, 2)}
    rank = 1


class Conv2DTranspose(BaseConvTranspose):
    """activation(transposed convolution + bias) over two axes.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: an integer >= 1, or one for each of two axes.
        padding: "valid" or "same".
        output_padding: see `BaseConvTranspose`.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, height, width, channels) -> (n, new height, new width, filters).

    Example:
        >>> Conv2DTranspose(8, 3, 2, padding="same").compute_output_shape((None, 7, 7, 4))
        (None, 14, 14, 8)
    """

    example = {"args": {"filters": 3, "kernel_size": 2, "strides": 2}, "shape": (2, 3, 4, 2)}
    rank = 2


class Conv3DTranspose(BaseConvTranspose):
    """activation(transposed convolution + bias) over three axes.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: an integer >= 1, or one for each of three axes.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        output_padding: see `BaseConvTranspose`.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, depth, height, width, channels) -> the same with new sizes and `filters` channels.

    Example:
        >>> Conv3DTranspose(filters=2, kernel_size=2).compute_output_shape((None, 2, 3, 2, 2))
        (None, 3, 4, 3, 2)
    """

    example = {"args": {"filters": 2, "kernel_size": 2}, "shape": (1, 2, 3, 2, 2)}
    rank = 3

    @with_options(KernelOptions, KERNEL)
    def __init__(
        self,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = (1, 1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        output_padding: IntOrTuple | None = None,  # after data_format, as in Keras
        dilation_rate: IntOrTuple = (1, 1, 1),
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        **options: Unpack[KernelOptions],
    ) -> None:
        super().__init__(
            filters, kernel_size, strides, padding, output_padding, data_format, dilation_rate,
            activation, use_bias, **options,
        )  # fmt: skip
