"""GRU and its cell."""

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


class GRUCell(RecurrentCell):
    """One step of a GRU: h' = z h + (1 - z) n.

    z and r are recurrent_activation(x_z + s_z) and (x_r + s_r), with x @ kernel + bias[0] lying
    as (z, r, n), and so s = h @ recurrent_kernel + bias[1]; n = activation(x_n + r s_n). With
    reset_after=False, n = activation(x_n + (r h) @ recurrent_kernel_n) and there is one bias.

    Args:
        units: size of the output and of the state, >= 1.
        activation: name or function of the state's new values; None: none.
        recurrent_activation: name or function of the gates.
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
        reset_after: whether the reset gate is applied after the product.
        seed: an integer or a `SeedGenerator`; None: a new seed.

    Shape: (n, inputs), states [h], (n, units) -> (n, units), [h'].
    Source: Cho et al., EMNLP 2014.

    Example:
        >>> from kerasish import layers
        >>> layers.RNN(GRUCell(2)).compute_output_shape((None, 3, 4))
        (None, 2)
    """

    _gates = 3

    @with_options(CellOptions, CELL, reset_after="recurrent_dropout")
    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        recurrent_activation: ActivationLike | None = "sigmoid",
        use_bias: bool = True,
        *,
        reset_after: bool = True,
        **options: Unpack[CellOptions],
    ) -> None:
        gates = recurrent_activation or "linear"
        super().__init__(units, activation, gates, use_bias, **options)
        self.reset_after = reset_after

    def _bias_shape(self) -> tuple[int, ...]:
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def _biases(self) -> tuple[Any, Any]:
        """Return the biases of the inputs' and of the state's product (None: none)."""
        if self.bias is None:
            return None, None
        bias = ops.convert_to_tensor(self.bias)
        return (bias[0], bias[1]) if self.reset_after else (bias, None)

    def call(
        self, inputs: Tensor, states: Sequence[Tensor], training: bool = False
    ) -> tuple[Any, ...]:
        """Run one step."""
        h = states[0] if isinstance(states, (list, tuple)) else states
        of_x, of_h = self._biases()
        x = self._of_inputs(inputs, training)
        x = x if of_x is None else ops.add(x, of_x)
        xz, xr, xn = ops.split(x, 3, axis=-1)
        two = 2 * self.units
        kernel = ops.convert_to_tensor(self.recurrent_kernel)
        s = self._of_state(h, kernel if self.reset_after else kernel[:, :two], training)
        s = s if of_h is None else ops.add(s, of_h)
        z = self.recurrent_activation(ops.add(xz, s[:, : self.units]))
        r = self.recurrent_activation(ops.add(xr, s[:, self.units : two]))
        if self.reset_after:
            sn = ops.multiply(r, s[:, two:])
        else:
            sn = self._of_state(ops.multiply(r, h), kernel[:, two:], training, first=2)
        n = self.activation(ops.add(xn, sn))
        h = ops.add(ops.multiply(z, h), ops.multiply(ops.subtract(1.0, z), n))
        return h, [h]

    def _run(self, x: Tensor, states: list[Any], mask: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not self.reset_after:
            return None
        of_x, of_h = self._biases()
        if of_h is None:
            of_h = ops.zeros((3 * self.units,), x.dtype)
        h, _ = ops.gru(self._project(x, of_x), self.recurrent_kernel, of_h, *states, *mask)
        return h, [h[-1]]


@of_cell(*CELL_ARGUMENTS, "recurrent_activation", "reset_after")
class GRU(CellLayer):
    """Gated recurrent unit over the steps of a sequence; see `GRUCell` for the formulas.

    Args:
        units: size of the output and of the state, >= 1.
        activation: name or function of the state's new values; None: none.
        recurrent_activation: name or function of the gates.
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
        seed: an integer or a `SeedGenerator`; None: a new seed.
        return_sequences, return_state, go_backwards, stateful: see `RNN`.
        unroll, use_cudnn: accepted for compatibility with Keras; the engine decides.
        reset_after: whether the reset gate is applied after the product.

    Shape: (n, steps, inputs) -> (n, units), or (n, steps, units) with `return_sequences`.

    Example:
        >>> GRU(4).compute_output_shape((None, 7, 3))
        (None, 4)
    """

    example = {"args": {"units": 3}, "shape": (2, 4, 3)}

    cell_class = GRUCell

    @with_options(RecurrentOptions, RECURRENT)
    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        recurrent_activation: ActivationLike | None = "sigmoid",
        use_bias: bool = True,
        *,
        reset_after: bool = True,
        use_cudnn: bool | str = "auto",
        **options: Unpack[RecurrentOptions],
    ) -> None:
        super().__init__(
            options, units=units, activation=activation, use_bias=use_bias, name="gru_cell",
            recurrent_activation=recurrent_activation, reset_after=reset_after,
        )  # fmt: skip
        self.use_cudnn = use_cudnn
