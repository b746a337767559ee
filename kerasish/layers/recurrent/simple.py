"""SimpleRNN and its cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.layers.recurrent.cell import RecurrentCell
from kerasish.layers.recurrent.loop import CELL_ARGUMENTS, CellLayer, of_cell, split_options
from kerasish.typing import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    RegularizerLike,
    SeedLike,
)

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class SimpleRNNCell(RecurrentCell):
    """One step of a plain recurrent net: activation(x @ kernel + h @ recurrent_kernel + bias).

    Args:
        units: size of the output and of the state, >= 1.

    Shape: (n, inputs), states [h], (n, units) -> (n, units), [h'].
    Source: Elman, Finding structure in time, 1990.
    """

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        recurrent_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: SeedLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units, activation, None, use_bias, kernel_initializer, recurrent_initializer,
            bias_initializer, kernel_regularizer, recurrent_regularizer, bias_regularizer,
            kernel_constraint, recurrent_constraint, bias_constraint, dropout, recurrent_dropout,
            seed, **kwargs,
        )  # fmt: skip

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
        dropout, recurrent_dropout: share of the inputs, and of the state, dropped in training.
        return_sequences, return_state, go_backwards, stateful: see `RNN`.
        unroll: kept for Keras's sake; the engine decides.

    Shape: (n, steps, inputs) -> (n, units), or (n, steps, units) with `return_sequences`.

    Example:
        >>> SimpleRNN(4).compute_output_shape((None, 7, 3))
        (None, 4)
    """

    example = {"args": {"units": 3}, "shape": (2, 4, 3)}

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        recurrent_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: SeedLike | None = None,
        **kwargs: Any,
    ) -> None:
        cell = SimpleRNNCell(
            units, activation, use_bias, kernel_initializer, recurrent_initializer,
            bias_initializer, kernel_regularizer, recurrent_regularizer, bias_regularizer,
            kernel_constraint, recurrent_constraint, bias_constraint, dropout, recurrent_dropout,
            seed, name="simple_rnn_cell", **split_options(kwargs),
        )  # fmt: skip
        super().__init__(
            cell, unroll, return_sequences=return_sequences, return_state=return_state,
            go_backwards=go_backwards, stateful=stateful,
            activity_regularizer=activity_regularizer, **kwargs,
        )  # fmt: skip
