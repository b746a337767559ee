"""LSTM and its cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.layers.options import CELL, RECURRENT, CellOptions, RecurrentOptions
from kerasish.layers.recurrent.cell import LSTMFormulas, RecurrentCell
from kerasish.layers.recurrent.loop import CELL_ARGUMENTS, CellLayer, of_cell
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike


class LSTMCell(LSTMFormulas, RecurrentCell):
    """One step of an LSTM: c' = f c + i g, h' = o activation(c').

    The gates i, f, o are recurrent_activation, g is activation, each of its quarter of
    z = x @ kernel + h @ recurrent_kernel + bias, in the order (i, f, g, o).

    Args:
        units: size of the output and of both states, >= 1.
        activation: name or function of the state's new values; None: none.
        recurrent_activation: name or function of the gates.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        recurrent_initializer: first values of the kernel of the state: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        unit_forget_bias: whether f's bias starts as 1.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        recurrent_regularizer: penalty of the kernel of the state; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        recurrent_constraint: function applied to the kernel of the state after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.
        dropout: share of the inputs that is dropped in training, 0 <= dropout < 1.
        recurrent_dropout: share of the state that is dropped in training, 0 <= recurrent_dropout <
            1.
        seed: an integer or a `SeedGenerator`; None: a new seed.

    Shape: (n, inputs), states [h, c], each (n, units) -> (n, units), [h', c'].
    Source: Hochreiter and Schmidhuber, Neural Computation 1997; Gers et al. 2000.

    Example:
        >>> from kerasish import layers
        >>> layers.RNN(LSTMCell(2)).compute_output_shape((None, 3, 4))
        (None, 2)
    """

    _gates = 4

    @with_options(CellOptions, CELL, unit_forget_bias="bias_initializer")
    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        recurrent_activation: ActivationLike | None = "sigmoid",
        use_bias: bool = True,
        *,
        unit_forget_bias: bool = True,
        **options: Unpack[CellOptions],
    ) -> None:
        gates = recurrent_activation or "linear"
        super().__init__(units, activation, gates, use_bias, **options)
        self.unit_forget_bias = unit_forget_bias

    @property
    def state_size(self) -> list[int]:
        """The sizes of h and c."""
        return [self.units, self.units]

    def call(
        self, inputs: Tensor, states: Sequence[Tensor], training: bool = False
    ) -> tuple[Any, ...]:
        """Run one step."""
        h, c = states
        z = self._of_inputs(inputs, training)
        z = ops.add(z, self._of_state(h, self.recurrent_kernel, training))
        if self.bias is not None:
            z = ops.add(z, self.bias)
        h, c = self._step(z, c)
        return h, [h, c]

    def _run(self, x: Tensor, states: list[Any], mask: tuple[Any, ...]) -> tuple[Any, ...]:
        h, c, _ = ops.lstm(self._project(x, self.bias), self.recurrent_kernel, *states, *mask)
        return h, [h[-1], c[-1]]


@of_cell(*CELL_ARGUMENTS, "recurrent_activation", "unit_forget_bias")
class LSTM(CellLayer):
    """Long short-term memory over the steps of a sequence; see `LSTMCell` for the formulas.

    Args:
        units: size of the output and of both states, >= 1.
        activation: name or function of the state's new values; None: none.
        recurrent_activation: name or function of the gates.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        recurrent_initializer: first values of the kernel of the state: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        unit_forget_bias: whether the forget gate's bias starts as 1.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        recurrent_regularizer: penalty of the kernel of the state; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        recurrent_constraint: function applied to the kernel of the state after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.
        dropout, recurrent_dropout: share of the inputs, and of the state, dropped in training.
        seed: an integer or a `SeedGenerator`; None: a new seed.
        return_sequences, return_state, go_backwards, stateful: see `RNN`.
        unroll, use_cudnn: accepted for compatibility with Keras; the engine decides.

    Shape: (n, steps, inputs) -> (n, units), or (n, steps, units) with `return_sequences`.

    Example:
        >>> LSTM(4, return_sequences=True).compute_output_shape((None, 7, 3))
        (None, 7, 4)
    """

    example = {"args": {"units": 3, "return_sequences": True}, "shape": (2, 4, 3)}

    cell_class = LSTMCell

    @with_options(RecurrentOptions, RECURRENT, unit_forget_bias="bias_initializer")
    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        recurrent_activation: ActivationLike | None = "sigmoid",
        use_bias: bool = True,
        *,
        unit_forget_bias: bool = True,
        use_cudnn: bool | str = "auto",
        **options: Unpack[RecurrentOptions],
    ) -> None:
        super().__init__(
            options, units=units, activation=activation, use_bias=use_bias, name="lstm_cell",
            recurrent_activation=recurrent_activation, unit_forget_bias=unit_forget_bias,
        )  # fmt: skip
        self.use_cudnn = use_cudnn
