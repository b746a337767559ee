"""What recurrent cells share: sizes, first states, dropout masks that stay for a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import activations, constraints, initializers, ops, random, regularizers
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.typing import (
    ActivationLike,
    AnyTensor,
    ConstraintLike,
    InitializerLike,
    RegularizerLike,
    Shape,
)

if TYPE_CHECKING:
    from kerasish.initializers.initializer import Initializer
    from kerasish.tensor import Tensor


def is_plain(cell: Any) -> bool:
    """Return whether a cell's activations are tanh and, where it has gates, sigmoid."""
    gates = getattr(cell, "recurrent_activation", activations.sigmoid)
    return cell.activation is activations.tanh and gates is activations.sigmoid


class RecurrentCell(Layer):
    """One step of a recurrent layer: (inputs, states) -> (output, new states).

    Args:
        units: size of the output and of each state, >= 1.
        dropout: share of the inputs dropped in training, the same ones at all steps, 0 to 1.
        recurrent_dropout: the same for the state that goes into the products; the state that is
            carried on is never dropped.
        seed: where the masks come from.

    As in Keras, all gates share one mask of the inputs; with `recurrent_dropout` each gate has
    masks of its own, of the inputs and of the state.
    """

    _gates = 1

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None,
        recurrent_activation: ActivationLike | None,
        use_bias: bool,
        kernel_initializer: InitializerLike,
        recurrent_initializer: InitializerLike,
        bias_initializer: InitializerLike,
        kernel_regularizer: RegularizerLike | None,
        recurrent_regularizer: RegularizerLike | None,
        bias_regularizer: RegularizerLike | None,
        kernel_constraint: ConstraintLike | None,
        recurrent_constraint: ConstraintLike | None,
        bias_constraint: ConstraintLike | None,
        dropout: float,
        recurrent_dropout: float,
        seed: Any,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("implementation", None)  # Keras 2's choice between equal ways
        super().__init__(**kwargs)
        if not isinstance(units, int) or isinstance(units, bool) or units < 1:
            raise ValueError(f"{self.display_name()}: units is a number >= 1, got {units!r}.")
        self.units, self.activation = units, activations.get(activation)
        if recurrent_activation is not None:
            self.recurrent_activation = activations.get(recurrent_activation)
        self.use_bias = use_bias
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

    @property
    def state_size(self) -> int:
        """The size of the state, or a list of sizes."""
        return self.units

    @property
    def output_size(self) -> int:
        """The size of the output."""
        return self.units

    def _bias_shape(self) -> tuple[int, ...]:
        return (self._gates * self.units,)

    def _bias_start(self) -> Initializer:
        return self.bias_initializer

    def build(self, input_shape: Shape) -> None:
        """Make kernel (inputs, gates), recurrent_kernel (units, gates) and bias."""
        size = input_shape[-1]
        if size is None:
            raise ShapeError(
                f"{self.display_name()}: the input's last size must be known, got {input_shape}."
            )
        width = self._gates * self.units
        self.kernel = self.add_weight(
            name="kernel",
            shape=(size, width),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel",
            shape=(self.units, width),
            initializer=self.recurrent_initializer,
            regularizer=self.recurrent_regularizer,
            constraint=self.recurrent_constraint,
        )
        self.bias = (
            self.add_weight(
                name="bias",
                shape=self._bias_shape(),
                initializer=self._bias_start(),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
            if self.use_bias
            else None
        )

    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return states of zeros."""
        sizes = self.state_size if isinstance(self.state_size, list) else [self.state_size]
        return [ops.zeros((batch_size, size), self.compute_dtype) for size in sizes]

    # --- dropout ------------------------------------------------------------------------------

    def reset_dropout_masks(self) -> None:
        """Forget the masks: the next step draws new ones."""
        self._masks.clear()

    def _mask(self, kind: str, x: AnyTensor, rate: float) -> Tensor:
        if kind not in self._masks:
            ones = ops.ones(x.shape, x.dtype)
            self._masks[kind] = random.dropout(ones, rate, seed=self.seed_generator)
        return self._masks[kind]

    def _product(
        self,
        kind: str,
        x: AnyTensor,
        kernel: AnyTensor,
        training: bool,
        rate: float,
        first: int = 0,
    ) -> Tensor:
        """Return x @ kernel, in training with dropout of `x`.

        Args:
            kind: what `x` is, "inputs" or "state".
            kernel: (size of x, gates * units).
            first: the number of the kernel's first gate.
        """
        if not training or not rate:
            return ops.matmul(x, kernel)
        if self._gates == 1 or not self.recurrent_dropout:
            return ops.matmul(ops.multiply(x, self._mask(kind, x, rate)), kernel)
        count = kernel.shape[-1] // self.units
        parts = [kernel] if count == 1 else ops.split(kernel, count, axis=-1)
        products = [
            ops.matmul(ops.multiply(x, self._mask(f"{kind} {gate}", x, rate)), part)
            for gate, part in enumerate(parts, first)
        ]
        return products[0] if count == 1 else ops.concatenate(products, axis=-1)

    def _of_inputs(self, x: Tensor, training: bool) -> Tensor:
        """Return a step's inputs @ kernel, with dropout in training."""
        return self._product("inputs", x, self.kernel, training, self.dropout)

    def _of_state(self, h: AnyTensor, kernel: AnyTensor, training: bool, first: int = 0) -> Tensor:
        """Return the state @ kernel, with dropout in training; `kernel` begins at gate `first`."""
        return self._product("state", h, kernel, training, self.recurrent_dropout, first)

    # --- whole sequences ------------------------------------------------------------------------

    def run(
        self, x: Tensor, states: list[Any], mask: AnyTensor | None, training: bool
    ) -> tuple[Any, ...] | None:
        """Return (outputs of all steps, last states) by one op, or None where there is none.

        Args:
            x: (steps, n, inputs).
            states: the states before the first step.
            mask: (steps, n), whether a step counts, or None.
        """
        if not is_plain(self) or (training and self.recurrent_dropout):
            return None
        if training and self.dropout:
            x = ops.multiply(x, self._mask("inputs", x[0], self.dropout))
        return self._run(x, states, () if mask is None else (ops.cast(mask, x.dtype),))

    def _run(self, x: Tensor, states: list[Any], mask: tuple[Any, ...]) -> Any:
        """Return what `run` does."""
        return None

    def _project(self, x: Tensor, bias: AnyTensor | None) -> Tensor:
        """Return x @ kernel + bias: one product for all steps."""
        steps, n, size = x.shape
        z = ops.matmul(ops.reshape(x, (steps * n, size)), self.kernel)
        z = z if bias is None else ops.add(z, bias)
        return ops.reshape(z, (steps, n, self._gates * self.units))
