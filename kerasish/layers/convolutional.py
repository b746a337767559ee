"""Convolutions: Conv1D, Conv2D, Conv3D and what they share with the other convolution layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import activations, config, constraints, initializers, ops, regularizers
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.ops.basic.conv import biased_conv
from kerasish.ops.basic.window import (
    channels_back,
    channels_to_last,
    resolve_padding,
    window_counts,
)
from kerasish.typing import (
    ActivationLike,
    AnyTensor,
    ConstraintLike,
    InitializerLike,
    IntOrTuple,
    RegularizerLike,
    Shape,
)

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def as_sizes(value: Any, rank: int, name: str, who: str, least: int = 1) -> tuple[int, ...]:
    """Return `value`, a number or one for each of `rank` axes, as a tuple of numbers >= least."""
    many = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(many) != rank or any(not hasattr(v, "__index__") or v < least for v in many):
        raise ValueError(
            f"{who}: {name} is a whole number >= {least}, or {rank} of them, got {value!r}."
        )
    return tuple(int(v) for v in many)


class ConvolutionLayer(Layer):
    """What all convolution layers share: windows, layout, bias, activation.

    Args:
        rank: the number of spatial axes, 1 to 3.
        kernel_size, strides, dilation_rate: a number >= 1, or one for each spatial axis.
        padding: "valid", "same", or, along one axis, "causal".
    """

    _paddings: tuple[str, ...] = ("valid", "same")

    def __init__(
        self,
        rank: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple,
        padding: str,
        data_format: str | None,
        dilation_rate: IntOrTuple,
        activation: ActivationLike | None,
        use_bias: bool,
        bias_initializer: InitializerLike,
        bias_regularizer: RegularizerLike | None,
        bias_constraint: ConstraintLike | None,
        activity_regularizer: RegularizerLike | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        who = self.display_name()
        self.rank = rank
        self.kernel_size = as_sizes(kernel_size, rank, "kernel_size", who)
        self.strides = as_sizes(strides, rank, "strides", who)
        self.dilation_rate = as_sizes(dilation_rate, rank, "dilation_rate", who)
        self.padding = padding.lower() if isinstance(padding, str) else padding
        known = (*self._paddings, "causal") if rank == 1 and self._causal else self._paddings
        if self.padding not in known:
            raise ValueError(f"{who}: padding is one of {list(known)}, got {padding!r}.")
        self.data_format = config.standardize_data_format(data_format)
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.bias_initializer = initializers.get(bias_initializer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.bias_constraint = constraints.get(bias_constraint)
        self.input_spec = InputSpec(ndim=rank + 2)

    _causal = False

    @property
    def _channel_axis(self) -> int:
        return -1 if self.data_format == "channels_last" else 1

    def _channels(self, input_shape: Shape) -> int:
        """Return the channels of inputs of this shape; from now on they must stay."""
        rank = self.rank + 2
        if len(input_shape) != rank:
            raise ShapeError(
                f"{self.display_name()}: expected an input with {rank} axes, got shape "
                f"{input_shape}. For data without an axis of channels use x[..., None]."
            )
        channels = input_shape[self._channel_axis]
        if channels is None:
            raise ShapeError(
                f"{self.display_name()}: the number of channels (axis {self._channel_axis}, "
                f"{self.data_format}) must be known, got shape {input_shape}."
            )
        self.input_spec = InputSpec(ndim=rank, axes={self._channel_axis: channels})
        return int(channels)

    def _add(self, name: str, shape: tuple[int, ...], kind: str | None = None) -> AnyTensor:
        """Return a new weight with the initializer, regularizer and constraint of its kind."""
        kind = kind or name
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=getattr(self, f"{kind}_initializer"),
            regularizer=getattr(self, f"{kind}_regularizer"),
            constraint=getattr(self, f"{kind}_constraint"),
        )

    def _add_bias(self, results: int) -> None:
        self.bias = self._add("bias", (results,)) if self.use_bias else None

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
        settings = (self.kernel_size, self.strides)
        padding = resolve_padding(
            self.padding, sizes, *settings, self.dilation_rate, self.display_name()
        )
        return window_counts(sizes, *settings, padding, self.dilation_rate, self.display_name())

    def compute_output_shape(self, input_shape: Shape) -> tuple[Any, ...]:
        """Return the result's shape."""
        shape = tuple(input_shape)
        if len(shape) != self.rank + 2:
            raise ShapeError(
                f"{self.display_name()}: expected an input with {self.rank + 2} axes, got shape "
                f"{shape}. For data without an axis of channels use x[..., None]."
            )
        first = self.data_format == "channels_first"
        channels, sizes = (shape[1], shape[2:]) if first else (shape[-1], shape[1:-1])
        result, results = self._spatial(sizes), self._results(channels)
        return (shape[0], results, *result) if first else (shape[0], *result, results)


class BaseConv(ConvolutionLayer):
    """A convolution with one kernel (*kernel_size, channels / groups, filters)."""

    layer_role = "convolution"

    _causal = True

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        groups: int = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            rank, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            bias_initializer, bias_regularizer, bias_constraint, activity_regularizer, **kwargs,
        )  # fmt: skip
        self.filters = as_sizes(filters, 1, "filters", self.display_name())[0]
        self.groups = as_sizes(groups, 1, "groups", self.display_name())[0]
        if self.filters % self.groups:
            raise ValueError(
                f"{self.display_name()}: filters ({filters}) must be a multiple of groups "
                f"({groups})."
            )
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)

    def build(self, input_shape: Shape) -> None:
        """Make kernel (*kernel_size, channels / groups, filters) and bias (filters,)."""
        channels = self._channels(input_shape)
        if channels % self.groups:
            raise ShapeError(
                f"{self.display_name()}: the input's channels must be a multiple of groups="
                f"{self.groups}, got shape {input_shape}."
            )
        self.compute_output_shape(input_shape)  # raises where no window fits
        self.kernel = self._add(
            "kernel", (*self.kernel_size, channels // self.groups, self.filters)
        )
        self._add_bias(self.filters)

    def _biased(self, x: Tensor, rectified: bool) -> Tensor:
        if self.bias is None:
            return self._convolve(x)
        settings = (self.strides, self.padding, self.dilation_rate, rectified)
        return biased_conv(x, self.kernel, self.bias, *settings)

    def _convolve(self, x: Tensor) -> Tensor:
        return ops.conv(
            x, self.kernel, self.strides, self.padding, "channels_last", self.dilation_rate
        )


class Conv1D(BaseConv):
    """activation(convolution(x, kernel) + bias) over one axis.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: whole numbers >= 1.
        padding: "valid", "same", or "causal": the result at t sees nothing after t.
        groups: channels and filters are cut into this many groups that do not see each other.

    Shape: (n, steps, channels) -> (n, windows, filters); with data_format="channels_first" the
    channels come second.

    Example:
        >>> Conv1D(4, 3).compute_output_shape((None, 10, 2))
        (None, 8, 4)
    """

    example = {"args": {"filters": 3, "kernel_size": 2, "padding": "causal"}, "shape": (2, 5, 2)}

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
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            1, filters, kernel_size, strides, padding, data_format, dilation_rate, groups,
            activation, use_bias, kernel_initializer, bias_initializer, kernel_regularizer,
            bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint, **kwargs,
        )  # fmt: skip


class Conv2D(BaseConv):
    """activation(convolution(x, kernel) + bias) over two axes.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: a whole number >= 1, or one for each of two axes.
        groups: see `Conv1D`.

    Shape: (n, height, width, channels) -> (n, windows, windows, filters); with
    data_format="channels_first" the channels come second.

    Example:
        >>> Conv2D(8, 3, strides=2, padding="same").compute_output_shape((None, 28, 28, 1))
        (None, 14, 14, 8)
    """

    example = {"args": {"filters": 4, "kernel_size": 3, "activation": "relu"},
               "shape": (2, 6, 5, 3)}  # fmt: skip

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = (1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = (1, 1),
        groups: int = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            2, filters, kernel_size, strides, padding, data_format, dilation_rate, groups,
            activation, use_bias, kernel_initializer, bias_initializer, kernel_regularizer,
            bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint, **kwargs,
        )  # fmt: skip


class Conv3D(BaseConv):
    """activation(convolution(x, kernel) + bias) over three axes.

    Args:
        filters: channels of the result, >= 1.
        kernel_size, strides, dilation_rate: a whole number >= 1, or one for each of three axes.
        groups: see `Conv1D`.

    Shape: (n, depth, height, width, channels) -> (n, windows, windows, windows, filters); with
    data_format="channels_first" the channels come second.
    """

    example = {"args": {"filters": 2, "kernel_size": 2}, "shape": (1, 3, 4, 3, 2)}

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = (1, 1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = (1, 1, 1),
        groups: int = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            3, filters, kernel_size, strides, padding, data_format, dilation_rate, groups,
            activation, use_bias, kernel_initializer, bias_initializer, kernel_regularizer,
            bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint, **kwargs,
        )  # fmt: skip
