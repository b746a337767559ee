"""SimpleRNN and its cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.layers.options import CELL, RECURRENT, CellOptions, RecurrentOptions
from kerasish.layers.recurrent.cell import RecurrentCell
from kerasish.layers.recurrent.loop import CELL_ARGUMENTS, CellLayer, of_cell
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike

# As in Keras, the seed is last.
_OPTIONS = {**{n: d for n, d in RECURRENT.items() if n != "seed"}, "seed": None}


class SimpleRNNCell(RecurrentCell):
    """One step of a plain recurrent net: activation(x @ kernel + h @ recurrent_kernel + bias).

    Args:
        units: size of the output and of the state, >= 1.
        activation: name or function of the state's new values; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        recurrent_initializer: first values of the kernel of the state: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
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

    Shape: (n, inputs), states [h], (n, units) -> (n, units), [h'].
    Source: Elman, Finding structure in time, 1990.

    Example:
        >>> from kerasish import layers
        >>> layers.RNN(SimpleRNNCell(2)).compute_output_shape((None, 3, 4))
        (None, 2)
    """

    @with_options(CellOptions, CELL)
    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        use_bias: bool = True,
        **options: Unpack[CellOptions],
    ) -> None:
        super().__init__(units, activation, None, use_bias, **options)

    def call(
        self, inputs: Tensor, states: Sequence[Tensor], training: bool = False
    ) -> tuple[Any, ...]:
        """Run one step."""
        h = states[0] if isinstance(states, (list, tuple)) else states
        z = self._of_inputs(inputs, training)
        if self.bias is not None:
            z = ops.add(z, self.bias)
        h = self.activation(ops.add(z, self._of_state(h, self.recurrent_kernel, training)))
        return h, [h]

    def _run(self, x: Tensor, states: list[Any], mask: tuple[Any, ...]) -> tuple[Any, ...]:
        z = self._project(x, self.bias)
        h = ops.simple_rnn(z, self.recurrent_kernel, *states, *mask)
        return h, [h[-1]]


@of_cell(*CELL_ARGUMENTS)
class SimpleRNN(CellLayer):
    """activation(x @ kernel + h @ recurrent_kernel + bias) over the steps of a sequence.

    Args:
        units: size of the output and of the state, >= 1.
        activation: name or function of the state's new values; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        recurrent_initializer: first values of the kernel of the state: name, config, object or
            function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        recurrent_regularizer: penalty of the kernel of the state; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        recurrent_constraint: function applied to the kernel of the state after each update; None:
            none.
        bias_constraint: function applied to the bias after each update; None: none.
        dropout, recurrent_dropout: share of the inputs, and of the state, dropped in training.
        return_sequences, return_state, go_backwards, stateful: see `RNN`.
        unroll: accepted for compatibility with Keras; the engine decides.
        seed: an integer or a `SeedGenerator`; None: a new seed.

    Shape: (n, steps, inputs) -> (n, units), or (n, steps, units) with `return_sequences`.

    Example:
        >>> SimpleRNN(4).compute_output_shape((None, 7, 3))
        (None, 4)
    """

    example = {"args": {"units": 3}, "shape": (2, 4, 3)}

    cell_class = SimpleRNNCell

    @with_options(RecurrentOptions, _OPTIONS)
    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        use_bias: bool = True,
        **options: Unpack[RecurrentOptions],
    ) -> None:
        super().__init__(
            options, units=units, activation=activation, use_bias=use_bias,
            name="simple_rnn_cell",
        )  # fmt: skip
