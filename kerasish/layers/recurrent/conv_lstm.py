"""ConvLSTM1D, ConvLSTM2D, ConvLSTM3D: an LSTM whose products are convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.errors import ShapeError
from kerasish.layers.options import CELL, RECURRENT, CellOptions, RecurrentOptions
from kerasish.layers.recurrent.cell import CellAttributes, LSTMFormulas
from kerasish.layers.recurrent.loop import RNN, make_cell, of_cell
from kerasish.layers.spatial import WindowLayer, as_sizes
from kerasish.ops.basic.window import channels_back, channels_to_last
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike, AnyTensor, IntOrTuple, Shape

_OPTIONS = {name: default for name, default in RECURRENT.items() if name != "unroll"}


class ConvLSTMCell(WindowLayer, LSTMFormulas):
    """One step of a convolutional LSTM; see `LSTMCell`, with convolutions for products.

    Args:
        rank: the number of spatial axes.
        filters: channels of the output and of both states, >= 1.
        kernel_size, strides, dilation_rate, padding: of the convolution of the inputs; that of the
            state has the same window, "same" padding and no strides.

    Shape: (n, *spatial, channels), states [h, c] of (n, *windows, filters) -> the same, [h', c'].
    Source: Shi et al., Convolutional LSTM network, NeurIPS 2015.
    """

    @with_options(CellOptions, CELL, unit_forget_bias="bias_initializer")
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
        *,
        unit_forget_bias: bool = True,
        **options: Unpack[CellOptions],
    ) -> None:
        self.rank = rank
        super().__init__(
            padding, data_format, activation=activation, use_bias=use_bias,
            recurrent_activation=recurrent_activation, **options,
        )  # fmt: skip
        who = self.display_name()
        self.filters = as_sizes(filters, 1, "filters", who)[0]
        self.kernel_size = as_sizes(kernel_size, rank, "kernel_size", who)
        self.strides = as_sizes(strides, rank, "strides", who)
        self.dilation_rate = as_sizes(dilation_rate, rank, "dilation_rate", who)
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                f"{who}: strides {self.strides} or dilation_rate {self.dilation_rate} must be 1."
            )
        self.unit_forget_bias = unit_forget_bias

    @property
    def state_size(self) -> list[int]:
        """The channels of h and c."""
        return [self.filters, self.filters]

    def _windows(self, shape: Shape) -> tuple[Any, ...]:
        """Return the state's shape for one step's input shape."""
        n, sizes, _ = self._split_shape(shape)
        windows = self._count_windows(sizes, self.kernel_size, self.dilation_rate)
        return self._join_shape(n, windows, self.filters)

    def build(self, input_shape: Shape) -> None:
        """Make kernel (*window, channels, 4 filters), recurrent_kernel and bias."""
        channels = self._split_shape(input_shape)[2]
        if channels is None:
            raise ShapeError(f"{self.display_name()}: channels must be known, got {input_shape}.")
        self._windows(input_shape)  # raises where no window fits
        window, width = self.kernel_size, 4 * self.filters
        shapes = (*window, channels, width), (*window, self.filters, width), (width,)
        self._add_weights(*shapes, self._start_of_bias(self.filters))

    def first_states(self, step_shape: Shape) -> list[Any]:
        """Return states of zeros for inputs of one step of this shape."""
        shape = self._windows(step_shape)
        return [ops.zeros(shape, self.compute_dtype) for _ in range(2)]

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
        h, c = self._step(ops.add(z, s), c)
        h, c = (channels_back(t, self.data_format) for t in (h, c))
        return h, [h, c]


@of_cell(
    "filters", "kernel_size", "strides", "padding", "data_format", "dilation_rate", "activation",
    "recurrent_activation", "use_bias", "unit_forget_bias", *CELL,
)  # fmt: skip
class BaseConvLSTM(CellAttributes, RNN):
    """A convolutional LSTM over the steps of a sequence of pictures; see `ConvLSTMCell`.

    Args:
        rank: the number of spatial axes, 1 to 3.
        filters: channels of the output and of both states, >= 1.
        return_sequences, return_state, go_backwards, stateful: see `RNN`.

    Shape: (n, steps, *spatial, channels) -> (n[, steps], *windows, filters).
    """

    names_activity = True

    _rank = 0
    filters: int
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    data_format: str
    dilation_rate: tuple[int, ...]

    @with_options(RecurrentOptions, _OPTIONS, unit_forget_bias="bias_initializer")
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
        *,
        unit_forget_bias: bool = True,
        **options: Unpack[RecurrentOptions],
    ) -> None:
        cell, rest = make_cell(
            ConvLSTMCell, options, self._rank, filters, kernel_size, strides, padding, data_format,
            dilation_rate, activation, recurrent_activation, use_bias,
            unit_forget_bias=unit_forget_bias, name="conv_lstm_cell",
        )  # fmt: skip
        super().__init__(cell, **rest)
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

    Args:
        filters: number of channels of the result, >= 1.
        kernel_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        dilation_rate: distance between the elements of a window: a number, or one for each axis.
        activation: name or function of the state's new values; None: none.
        recurrent_activation: name or function of the gates.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        recurrent_initializer: first values of the kernel of the state: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        unit_forget_bias: whether the bias of the forget gate starts at 1.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        recurrent_regularizer: penalty of the kernel of the state; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        recurrent_constraint: function applied to the kernel of the state after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.
        dropout: share of the inputs that is dropped in training, 0 <= dropout < 1.
        recurrent_dropout: share of the state that is dropped in training, 0 <= recurrent_dropout <
            1.
        seed: an integer or a `SeedGenerator`; None: a new seed.
        return_sequences: whether the result has all steps, or only the last.
        return_state: whether the last state is returned as well.
        go_backwards: whether the steps are read from the last to the first.
        stateful: whether the last state of a batch is the first of the next.

    Shape: (n, steps, places, channels) -> (n[, steps], windows, filters).

    Example:
        >>> ConvLSTM1D(filters=2, kernel_size=2).compute_output_shape((None, 3, 4, 2))
        (None, 3, 2)
    """

    example = {"args": {"filters": 2, "kernel_size": 2}, "shape": (2, 3, 4, 2)}
    _rank = 1


class ConvLSTM2D(BaseConvLSTM):
    """A convolutional LSTM over sequences of pictures.

    Args:
        filters: number of channels of the result, >= 1.
        kernel_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        dilation_rate: distance between the elements of a window: a number, or one for each axis.
        activation: name or function of the state's new values; None: none.
        recurrent_activation: name or function of the gates.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        recurrent_initializer: first values of the kernel of the state: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        unit_forget_bias: whether the bias of the forget gate starts at 1.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        recurrent_regularizer: penalty of the kernel of the state; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        recurrent_constraint: function applied to the kernel of the state after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.
        dropout: share of the inputs that is dropped in training, 0 <= dropout < 1.
        recurrent_dropout: share of the state that is dropped in training, 0 <= recurrent_dropout <
            1.
        seed: an integer or a `SeedGenerator`; None: a new seed.
        return_sequences: whether the result has all steps, or only the last.
        return_state: whether the last state is returned as well.
        go_backwards: whether the steps are read from the last to the first.
        stateful: whether the last state of a batch is the first of the next.

    Shape: (n, steps, height, width, channels) -> (n[, steps], windows, windows, filters).

    Example:
        >>> layer = ConvLSTM2D(filters=2, kernel_size=2, return_sequences=True)
        >>> layer.compute_output_shape((None, 3, 4, 3, 2))
        (None, 3, 3, 2, 2)
    """

    example = {"args": {"filters": 2, "kernel_size": 2, "return_sequences": True},
               "shape": (2, 3, 4, 3, 2)}  # fmt: skip
    _rank = 2


class ConvLSTM3D(BaseConvLSTM):
    """A convolutional LSTM over sequences of volumes.

    Args:
        filters: number of channels of the result, >= 1.
        kernel_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        dilation_rate: distance between the elements of a window: a number, or one for each axis.
        activation: name or function of the state's new values; None: none.
        recurrent_activation: name or function of the gates.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        recurrent_initializer: first values of the kernel of the state: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        unit_forget_bias: whether the bias of the forget gate starts at 1.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        recurrent_regularizer: penalty of the kernel of the state; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        recurrent_constraint: function applied to the kernel of the state after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.
        dropout: share of the inputs that is dropped in training, 0 <= dropout < 1.
        recurrent_dropout: share of the state that is dropped in training, 0 <= recurrent_dropout <
            1.
        seed: an integer or a `SeedGenerator`; None: a new seed.
        return_sequences: whether the result has all steps, or only the last.
        return_state: whether the last state is returned as well.
        go_backwards: whether the steps are read from the last to the first.
        stateful: whether the last state of a batch is the first of the next.

    Shape: (n, steps, depth, height, width, channels) -> (n[, steps], *windows, filters).

    Example:
        >>> ConvLSTM3D(filters=2, kernel_size=2).compute_output_shape((None, 2, 3, 3, 2, 2))
        (None, 2, 2, 1, 2)
    """

    example = {"args": {"filters": 2, "kernel_size": 2}, "shape": (1, 2, 3, 3, 2, 2)}
    _rank = 3
