"""LSTM and its cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.layers.recurrent.cell import RecurrentCell
from kerasish.layers.recurrent.loop import CELL_ARGUMENTS, CellLayer, of_cell, split_options
from kerasish.typing import (
    ActivationLike,
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    RegularizerLike,
    SeedLike,
    Shape,
)

if TYPE_CHECKING:
    from kerasish.initializers.initializer import Initializer
    from kerasish.tensor import Tensor


class LSTMCell(RecurrentCell):
    """One step of an LSTM: c' = f c + i g, h' = o activation(c').

    The gates i, f, o are recurrent_activation, g is activation, each of its quarter of
    z = x @ kernel + h @ recurrent_kernel + bias, which lies as (i, f, g, o).

    Args:
        units: size of the output and of both states, >= 1.
        unit_forget_bias: whether f's bias starts as 1.

    Shape: (n, inputs), states [h, c], each (n, units) -> (n, units), [h', c'].
    Source: Hochreiter and Schmidhuber, Neural Computation 1997; Gers et al. 2000.
    """

    _gates = 4

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        recurrent_activation: ActivationLike | None = "sigmoid",
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
        super().__init__(
            units, activation, recurrent_activation or "linear", use_bias, kernel_initializer,
            recurrent_initializer, bias_initializer, kernel_regularizer, recurrent_regularizer,
            bias_regularizer, kernel_constraint, recurrent_constraint, bias_constraint, dropout,
            recurrent_dropout, seed, **kwargs,
        )  # fmt: skip
        self.unit_forget_bias = unit_forget_bias

    @property
    def state_size(self) -> list[int]:
        """The sizes of h and c."""
        return [self.units, self.units]

    def _bias_start(self) -> Initializer | Callable[..., Any]:
        if not self.unit_forget_bias:
            return self.bias_initializer
        units, start = self.units, self.bias_initializer

        def forget_one(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
            parts = [start((units,), dtype), ops.ones((units,), dtype), start((2 * units,), dtype)]
            return ops.concatenate(parts, axis=0)

        return forget_one

    def call(
        self, inputs: Tensor, states: Sequence[Tensor], training: bool = False
    ) -> tuple[Any, ...]:
        """Run one step."""
        h, c = states
        z = self._of_inputs(inputs, training)
        z = ops.add(z, self._of_state(h, self.recurrent_kernel, training))
        if self.bias is not None:
            z = ops.add(z, self.bias)
        zi, zf, zc, zo = ops.split(z, 4, axis=-1)
        i, f = self.recurrent_activation(zi), self.recurrent_activation(zf)
        c = ops.add(ops.multiply(f, c), ops.multiply(i, self.activation(zc)))
        h = ops.multiply(self.recurrent_activation(zo), self.activation(c))
        return h, [h, c]

    def _run(self, x: Tensor, states: list[Any], mask: tuple[Any, ...]) -> tuple[Any, ...]:
        h, c, _ = ops.lstm(self._project(x, self.bias), self.recurrent_kernel, *states, *mask)
        return h, [h[-1], c[-1]]


@of_cell(*CELL_ARGUMENTS, "recurrent_activation", "unit_forget_bias")
class LSTM(CellLayer):
    """Long short-term memory over the steps of a sequence; see `LSTMCell` for the formulas.

    Args:
        units: size of the output and of both states, >= 1.
        unit_forget_bias: whether the forget gate's bias starts as 1.
        dropout, recurrent_dropout: share of the inputs, and of the state, dropped in training.
        return_sequences, return_state, go_backwards, stateful: see `RNN`.
        unroll, use_cudnn: kept for Keras's sake; the engine decides.

    Shape: (n, steps, inputs) -> (n, units), or (n, steps, units) with `return_sequences`.

    Example:
        >>> LSTM(4, return_sequences=True).compute_output_shape((None, 7, 3))
        (None, 7, 4)
    """

    example = {"args": {"units": 3, "return_sequences": True}, "shape": (2, 4, 3)}

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        recurrent_activation: ActivationLike | None = "sigmoid",
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
        unroll: bool = False,
        use_cudnn: bool | str = "auto",
        **kwargs: Any,
    ) -> None:
        cell = LSTMCell(
            units, activation, recurrent_activation, use_bias, kernel_initializer,
            recurrent_initializer, bias_initializer, unit_forget_bias, kernel_regularizer,
            recurrent_regularizer, bias_regularizer, kernel_constraint, recurrent_constraint,
            bias_constraint, dropout, recurrent_dropout, seed, name="lstm_cell",
            **split_options(kwargs),
        )  # fmt: skip
        super().__init__(
            cell, unroll, return_sequences=return_sequences, return_state=return_state,
            go_backwards=go_backwards, stateful=stateful,
            activity_regularizer=activity_regularizer, **kwargs,
        )  # fmt: skip
        self.use_cudnn = use_cudnn
