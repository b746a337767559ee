"""Convolutions: Conv1D, Conv2D, Conv3D and what they share with the other convolution layers."""

from __future__ import annotations

from typing import Any

from kerasish import activations, ops
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.errors import ShapeError
from kerasish.layers.lora import LowRankKernel
from kerasish.layers.options import KERNEL, LowRankOptions, activation_of
from kerasish.layers.spatial import WindowLayer, as_sizes
from kerasish.layers.weighted import KernelLayer, WeightedLayer
from kerasish.ops.basic.conv import biased_conv
from kerasish.ops.basic.window import channels_back, channels_to_last
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike, AnyTensor, IntOrTuple, Shape


class ConvolutionLayer(WindowLayer, WeightedLayer):
    """What all convolution layers share: windows, layout, bias, activation.

    Args:
        kernel_size, strides, dilation_rate: a number >= 1, or one for each spatial axis.
        padding: "valid", "same", or, along one axis, "causal".
        options: what `WeightedLayer` takes.
    """

    names_activity = True

    layer_role = "convolution"

    def __init__(
        self,
        kernel_size: IntOrTuple,
        strides: IntOrTuple,
        padding: str,
        data_format: str | None,
        dilation_rate: IntOrTuple,
        activation: ActivationLike | None,
        use_bias: bool,
        **options: Any,
    ) -> None:
        super().__init__(padding, data_format, **options)
        who = self.display_name()
        self.kernel_size = as_sizes(kernel_size, self.rank, "kernel_size", who)
        self.strides = as_sizes(strides, self.rank, "strides", who)
        self.dilation_rate = as_sizes(dilation_rate, self.rank, "dilation_rate", who)
        self.activation = activation_of(activation)
        self.use_bias = use_bias

    def _channels(self, input_shape: Shape) -> int:
        """Return the channels of inputs of this shape; from now on they must stay."""
        channels = self._split_shape(input_shape)[2]
        axis = -1 if self.data_format == "channels_last" else 1
        if channels is None:
            raise ShapeError(
                f"{self.display_name()}: the number of channels (axis {axis}, "
                f"{self.data_format}) must be known, got shape {input_shape}."
            )
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={axis: channels})
        return int(channels)

    def _add_bias(self, results: int) -> None:
        self.bias = self.add_weight_of("bias", (results,)) if self.use_bias else None

    def _convolve(self, x: Tensor) -> Any:
        """Return the convolution of x, whose channels are last."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it convolves.")

    def call(self, inputs: Tensor) -> Tensor:
        """Compute activation(convolution + bias)."""
        x, first = channels_to_last(inputs, self.data_format), self.data_format == "channels_first"
        rectified = self.bias is not None and self.activation is activations.relu and not first
        y = channels_back(self._biased(x, rectified), self.data_format)
        done = rectified or self.activation in (None, activations.linear)
        return y if done else self.activation(y)

    def _biased(self, x: Tensor, rectified: bool) -> Tensor:
        """Return convolution + bias of x, whose channels are last; relu of it if asked to."""
        y = self._convolve(x)
        if self.bias is not None:
            y = ops.add(y, self.bias)
        return activations.relu(y) if rectified else y

    def _results(self, channels: int) -> int:
        """Return the channels of the result."""
        return self.filters  # type: ignore[attr-defined]

    def _spatial(self, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the spatial sizes of the result."""
        return self._count_windows(sizes, self.kernel_size, self.dilation_rate)

    def compute_output_shape(self, input_shape: Shape) -> tuple[Any, ...]:
        """Return the result's shape."""
        n, sizes, channels = self._split_shape(input_shape)
        return self._join_shape(n, self._spatial(sizes), self._results(channels))


class BaseConv(LowRankKernel, ConvolutionLayer, KernelLayer):
    """A convolution with one kernel (*kernel_size, channels / groups, filters)."""

    paddings = ("valid", "same", "causal")

    @with_options(LowRankOptions, KERNEL)
    def __init__(
        self,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        groups: int = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        **options: Unpack[LowRankOptions],
    ) -> None:
        rank, alpha = options.pop("lora_rank", None), options.pop("lora_alpha", None)
        super().__init__(
            kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            **options,
        )  # fmt: skip
        self.filters = as_sizes(filters, 1, "filters", self.display_name())[0]
        self.groups = as_sizes(groups, 1, "groups", self.display_name())[0]
        if self.filters % self.groups:
            raise ValueError(
                f"{self.display_name()}: filters ({filters}) must be a multiple of groups "
                f"({groups})."
            )
        self.plan_lora(rank, alpha)

    def build(self, input_shape: Shape) -> None:
        """Make kernel (*kernel_size, channels / groups, filters), bias (filters,), and LoRA's."""
        channels = self._channels(input_shape)
        if channels % self.groups:
            raise ShapeError(
                f"{self.display_name()}: the input's channels must be a multiple of groups="
                f"{self.groups}, got shape {input_shape}."
            )
        self.compute_output_shape(input_shape)  # raises where no window fits
        shape = (*self.kernel_size, channels // self.groups, self.filters)
        self.kernel = self.add_weight_of("kernel", shape)
        self._add_bias(self.filters)
        self.start_lora()

    def _biased(self, x: Tensor, rectified: bool) -> Tensor:
        if self.bias is None or self.lora_enabled:
            return super()._biased(x, rectified)
        settings = (self.strides, self.padding, self.dilation_rate, rectified)
        return biased_conv(x, self._kernel, self.bias, *settings)

    def _convolve(self, x: Tensor) -> Tensor:
        y = self._convolve_with(x, self._kernel)
        if not self.lora_enabled:
            return y
        first, second = self.lora_parts(y.dtype)
        if self.groups == 1:
            low = ops.matmul(self._convolve_with(x, first), second)
        else:  # each group has separate channels in between: the second product is grouped, too
            low = self._convolve_with(x, ops.concatenate([first] * self.groups, axis=-1))
            second = ops.reshape(second, (*[1] * self.rank, *second.shape))
            low = ops.conv(low, second, 1, "valid", "channels_last")
        return ops.add(y, ops.multiply(low, self.lora_scale))

    def _convolve_with(self, x: Tensor, kernel: AnyTensor) -> Tensor:
        return ops.conv(x, kernel, self.strides, self.padding, "channels_last", self.dilation_rate)


class Conv1D(BaseConv):
    """activation(convolution(x, kernel) + bias) over one axis.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: integers >= 1.
        padding: "valid", "same", or "causal": the result at t sees nothing after t.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        groups: channels and filters are cut into this many groups that do not see each other.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, steps, channels) -> (n, windows, filters); with data_format="channels_first" the
    channels are axis 1.

    Example:
        >>> Conv1D(4, 3).compute_output_shape((None, 10, 2))
        (None, 8, 4)
    """

    example = {"args": {"filters": 3, "kernel_size": 2, "padding": "causal"}, "shape": (2, 5, 2)}
    rank = 1


class Conv2D(BaseConv):
    """activation(convolution(x, kernel) + bias) over two axes.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: an integer >= 1, or one for each of two axes.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        groups: see `Conv1D`.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, height, width, channels) -> (n, windows, windows, filters); with
    data_format="channels_first" the channels are axis 1.

    Example:
        >>> Conv2D(8, 3, strides=2, padding="same").compute_output_shape((None, 28, 28, 1))
        (None, 14, 14, 8)
    """

    example = {"args": {"filters": 4, "kernel_size": 3, "activation": "relu"},
               "shape": (2, 6, 5, 3)}  # fmt: skip
    rank = 2


class Conv3D(BaseConv):
    """activation(convolution(x, kernel) + bias) over three axes.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: an integer >= 1, or one for each of three axes.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        groups: see `Conv1D`.
        activation: name or function applied to the result; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.

    Shape: (n, depth, height, width, channels) -> (n, windows, windows, windows, filters); with
    data_format="channels_first" the channels are axis 1.

    Example:
        >>> Conv3D(filters=2, kernel_size=2).compute_output_shape((None, 3, 4, 3, 2))
        (None, 2, 3, 2, 2)
    """

    example = {"args": {"filters": 2, "kernel_size": 2}, "shape": (1, 3, 4, 3, 2)}
    rank = 3
