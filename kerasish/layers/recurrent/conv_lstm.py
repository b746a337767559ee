"""ConvLSTM1D, ConvLSTM2D, ConvLSTM3D: an LSTM whose products are convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish import activations, config, constraints, initializers, ops, random, regularizers
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.convolutional import as_sizes
from kerasish.layers.recurrent.loop import RNN, of_cell, split_options
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
    SeedLike,
    Shape,
)

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class ConvLSTMCell(Layer):
    """One step of a convolutional LSTM; see `LSTMCell`, with convolutions for products.

    Args:
        rank: the number of spatial axes.
        filters: channels of the output and of both states, >= 1.
        kernel_size, strides, dilation_rate, padding: of the convolution of the inputs; that of the
            state has the same window, "same" padding and no strides.

    Shape: (n, *spatial, channels), states [h, c] of (n, *windows, filters) -> the same, [h', c'].
    Source: Shi et al., Convolutional LSTM network, NeurIPS 2015.
    """

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: RegularizerLike | None = None,
        recurrent_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        who = self.display_name()
        self.rank, self.filters = rank, as_sizes(filters, 1, "filters", who)[0]
        self.kernel_size = as_sizes(kernel_size, rank, "kernel_size", who)
        self.strides = as_sizes(strides, rank, "strides", who)
        self.dilation_rate = as_sizes(dilation_rate, rank, "dilation_rate", who)
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                f"{who}: strides {self.strides} or dilation_rate {self.dilation_rate} must be 1."
            )
        self.padding = padding.lower()
        if self.padding not in ("valid", "same"):
            raise ValueError(f"{who}: padding is 'valid' or 'same', got {padding!r}.")
        self.data_format = config.standardize_data_format(data_format)
        self.activation = activations.get(activation)
        self.recurrent_activation = activations.get(recurrent_activation)
        self.use_bias, self.unit_forget_bias = use_bias, unit_forget_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = regularizers.get(recurrent_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.recurrent_constraint = constraints.get(recurrent_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.dropout = min(1.0, max(0.0, dropout))
        self.recurrent_dropout = min(1.0, max(0.0, recurrent_dropout))
        self.seed = seed
        self.seed_generator = random.SeedGenerator(seed)
        self._masks: dict[str, Any] = {}
        self._state_shape: tuple[Any, ...] | None = None

    @property
    def state_size(self) -> list[int]:
        """The channels of h and c."""
        return [self.filters, self.filters]

    def _windows(self, shape: Shape) -> tuple[Any, ...]:
        """Return the state's shape, without the batch, for one step's input shape."""
        first = self.data_format == "channels_first"
        sizes = tuple(shape[2:] if first else shape[1:-1])
        padding = resolve_padding(
            self.padding,
            sizes,
            self.kernel_size,
            self.strides,
            self.dilation_rate,
            self.display_name(),
        )
        result = window_counts(
            sizes, self.kernel_size, self.strides, padding, self.dilation_rate, self.display_name()
        )
        return (self.filters, *result) if first else (*result, self.filters)

    def build(self, input_shape: Shape) -> None:
        """Make kernel (*window, channels, 4 filters), recurrent_kernel and bias."""
        channels = input_shape[1 if self.data_format == "channels_first" else -1]
        if channels is None:
            raise ShapeError(f"{self.display_name()}: channels must be known, got {input_shape}.")
        self._windows(input_shape)  # raises where no window fits
        width = 4 * self.filters
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.kernel_size, channels, width),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel",
            shape=(*self.kernel_size, self.filters, width),
            initializer=self.recurrent_initializer,
            regularizer=self.recurrent_regularizer,
            constraint=self.recurrent_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(width,),
                initializer=self._forget_one if self.unit_forget_bias else self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _forget_one(self, shape: Shape, dtype: str | None = None) -> Tensor:
        n, start = self.filters, self.bias_initializer
        parts = [start((n,), dtype), ops.ones((n,), dtype), start((2 * n,), dtype)]
        return ops.concatenate(parts, axis=0)

    def first_states(self, step_shape: Shape) -> list[Any]:
        """Return states of zeros for inputs of one step of this shape."""
        shape = (step_shape[0], *self._windows(step_shape))
        return [ops.zeros(shape, self.compute_dtype) for _ in range(2)]

    def reset_dropout_masks(self) -> None:
        """Forget the masks: the next step draws new ones."""
        self._masks.clear()

    def _mask(self, kind: str, x: Tensor, rate: float) -> Any:
        if kind not in self._masks:
            ones = ops.ones(x.shape, x.dtype)
            self._masks[kind] = random.dropout(ones, rate, seed=self.seed_generator)
        return self._masks[kind]

    def _product(
        self, kind: str, x: Tensor, kernel: AnyTensor, training: bool, rate: float, *window: Any
    ) -> Tensor:
        """Return the convolution of `x`, in training with dropout: each gate has its own mask."""
        if not training or not rate:
            return ops.conv(x, kernel, *window)
        parts = enumerate(ops.split(kernel, 4, axis=-1))
        dropped = [(ops.multiply(x, self._mask(f"{kind} {i}", x, rate)), k) for i, k in parts]
        return ops.concatenate([ops.conv(x, k, *window) for x, k in dropped], axis=-1)

    def call(
        self, inputs: Tensor, states: Sequence[Tensor], training: bool = False
    ) -> tuple[Any, ...]:
        """Run one step."""
        form = "channels_last"
        x, h, c = (channels_to_last(t, self.data_format) for t in (inputs, *states))
        z = self._product(
            "inputs", x, self.kernel, training, self.dropout, self.strides, self.padding, form,
            self.dilation_rate,
        )  # fmt: skip
        z = z if self.bias is None else ops.add(z, self.bias)
        s = self._product(
            "state", h, self.recurrent_kernel, training, self.recurrent_dropout, 1, "same", form
        )
        z = ops.add(z, s)
        zi, zf, zc, zo = ops.split(z, 4, axis=-1)
        i, f = self.recurrent_activation(zi), self.recurrent_activation(zf)
        c = ops.add(ops.multiply(f, c), ops.multiply(i, self.activation(zc)))
        h = ops.multiply(self.recurrent_activation(zo), self.activation(c))
        h, c = (channels_back(t, self.data_format) for t in (h, c))
        return h, [h, c]


@of_cell(
    "filters", "kernel_size", "strides", "padding", "data_format", "dilation_rate", "activation",
    "recurrent_activation", "use_bias", "kernel_initializer", "recurrent_initializer",
    "bias_initializer", "unit_forget_bias", "kernel_regularizer", "recurrent_regularizer",
    "bias_regularizer", "kernel_constraint", "recurrent_constraint", "bias_constraint", "dropout",
    "recurrent_dropout", "seed",
)  # fmt: skip
class BaseConvLSTM(RNN):
    """A convolutional LSTM over the steps of a sequence of pictures; see `ConvLSTMCell`.

    Args:
        rank: the number of spatial axes, 1 to 3.
        filters: channels of the output and of both states, >= 1.
        return_sequences, return_state, go_backwards, stateful: see `RNN`.

    Shape: (n, steps, *spatial, channels) -> (n[, steps], *windows, filters).
    """

    _rank = 0

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrTuple,
        strides: IntOrTuple = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrTuple = 1,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: RegularizerLike | None = None,
        recurrent_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: SeedLike | None = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        **kwargs: Any,
    ) -> None:
        cell = ConvLSTMCell(
            self._rank, filters, kernel_size, strides, padding, data_format, dilation_rate,
            activation, recurrent_activation, use_bias, kernel_initializer, recurrent_initializer,
            bias_initializer, unit_forget_bias, kernel_regularizer, recurrent_regularizer,
            bias_regularizer, kernel_constraint, recurrent_constraint, bias_constraint, dropout,
            recurrent_dropout, seed, name="conv_lstm_cell", **split_options(kwargs),
        )  # fmt: skip
        super().__init__(
            cell, return_sequences, return_state, go_backwards, stateful,
            activity_regularizer=activity_regularizer, **kwargs,
        )  # fmt: skip
        self.input_spec = InputSpec(ndim=self._rank + 3)

    def _zero_states(self, shape: Shape) -> list[Any]:
        return self.cell.first_states((shape[0], *shape[2:]))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        config["unroll"] = self.unroll
        config["zero_output_for_mask"] = self.zero_output_for_mask
        return config


class ConvLSTM1D(BaseConvLSTM):
    """A convolutional LSTM over sequences of rows.

    Shape: (n, steps, places, channels) -> (n[, steps], windows, filters).
    """

    example = {"args": {"filters": 2, "kernel_size": 2}, "shape": (2, 3, 4, 2)}
    _rank = 1


class ConvLSTM2D(BaseConvLSTM):
    """A convolutional LSTM over sequences of pictures.

    Shape: (n, steps, height, width, channels) -> (n[, steps], windows, windows, filters).
    """

    example = {"args": {"filters": 2, "kernel_size": 2, "return_sequences": True},
               "shape": (2, 3, 4, 3, 2)}  # fmt: skip
    _rank = 2


class ConvLSTM3D(BaseConvLSTM):
    """A convolutional LSTM over sequences of volumes.

    Shape: (n, steps, depth, height, width, channels) -> (n[, steps], *windows, filters).
    """

    example = {"args": {"filters": 2, "kernel_size": 2}, "shape": (1, 2, 3, 3, 2, 2)}
    _rank = 3
