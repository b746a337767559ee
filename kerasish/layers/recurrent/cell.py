"""What recurrent cells share: sizes, first states, dropout masks that stay for a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish import activations, ops, random
from kerasish.constraints import Constraint
from kerasish.initializers.initializer import Initializer
from kerasish.layers.options import activation_of
from kerasish.layers.weighted import KernelLayer
from kerasish.ops.arrays.contraction import affine
from kerasish.regularizers import Regularizer
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike, AnyTensor, DTypeLike, SeedLike, Shape


def is_plain(cell: Any) -> bool:
    """Return whether a cell's activations are tanh and, where it has gates, sigmoid."""
    gates = getattr(cell, "recurrent_activation", activations.sigmoid)
    return cell.activation is activations.tanh and gates is activations.sigmoid


class CellAttributes:
    """The types of what recurrent layers show of their cells: see `of_cell`."""

    activation: Callable[..., Tensor]
    recurrent_activation: Callable[..., Tensor]
    use_bias: bool
    unit_forget_bias: bool
    reset_after: bool
    kernel_initializer: Initializer
    recurrent_initializer: Initializer
    bias_initializer: Initializer
    kernel_regularizer: Regularizer | None
    recurrent_regularizer: Regularizer | None
    bias_regularizer: Regularizer | None
    kernel_constraint: Constraint | None
    recurrent_constraint: Constraint | None
    bias_constraint: Constraint | None
    dropout: float
    recurrent_dropout: float
    seed: SeedLike | None


class BaseCell(KernelLayer):
    """What cells share: activations, weights, dropout masks that stay for a sequence.

    Args:
        dropout: share of the inputs dropped in training, the same ones at all steps, 0 to 1.
        recurrent_dropout: the same for the state that goes into the products; the state that is
            carried on is never dropped.
        seed: the seed of the masks.
        options: what `WeightedLayer` takes.
    """

    weight_kinds = ("kernel", "recurrent", "bias")
    recurrent_initializer: Any
    recurrent_regularizer: Any
    recurrent_constraint: Any

    def __init__(
        self,
        activation: ActivationLike | None,
        recurrent_activation: ActivationLike | None,
        use_bias: bool,
        dropout: float,
        recurrent_dropout: float,
        seed: Any,
        **options: Any,
    ) -> None:
        options.pop("implementation", None)  # Keras 2's choice between equal ways
        super().__init__(**options)
        self.activation = activation_of(activation)
        if recurrent_activation is not None:
            self.recurrent_activation = activation_of(recurrent_activation)
        self.use_bias = use_bias
        self.dropout = min(1.0, max(0.0, dropout))
        self.recurrent_dropout = min(1.0, max(0.0, recurrent_dropout))
        self.seed = seed
        self.seed_generator = random.SeedGenerator(seed)
        self._masks: dict[str, Any] = {}

    def _start_of_bias(self, units: int) -> Callable[..., Any]:
        """Return the initializer of the bias."""
        return self.bias_initializer

    def _add_weights(
        self, kernel: Shape, recurrent: Shape, bias: Shape, start: Callable[..., Any]
    ) -> None:
        """Make the weights of these shapes; `start` is the initializer of the bias."""
        self.kernel = self.add_weight_of("kernel", kernel)
        self.recurrent_kernel = self.add_weight_of("recurrent", recurrent, "recurrent_kernel")
        self.bias = self.add_weight_of("bias", bias, initializer=start) if self.use_bias else None

    def reset_dropout_masks(self) -> None:
        """Drop the masks: the next step draws new ones."""
        self._masks.clear()

    def _mask(self, kind: str, x: AnyTensor, rate: float) -> Tensor:
        if kind not in self._masks:
            ones = ops.ones(x.shape, x.dtype)
            self._masks[kind] = random.dropout(ones, rate, seed=self.seed_generator)
        return self._masks[kind]


class LSTMFormulas(BaseCell):
    """What an LSTM's cells share: c' = f c + i g, h' = o activation(c'), the bias of f."""

    unit_forget_bias: bool

    def _start_of_bias(self, units: int) -> Callable[..., Any]:
        """Return the initializer of a bias (4 units,) whose second quarter, f's, may be 1."""
        start = self.bias_initializer
        if not self.unit_forget_bias:
            return start

        def forget_one(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
            parts = [start((units,), dtype), ops.ones((units,), dtype), start((2 * units,), dtype)]
            return ops.concatenate(parts, axis=0)

        return forget_one

    def _step(self, z: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new h and c for the products z, in the order (i, f, g, o)."""
        zi, zf, zc, zo = ops.split(z, 4, axis=-1)
        i, f = self.recurrent_activation(zi), self.recurrent_activation(zf)
        c = ops.add(ops.multiply(f, c), ops.multiply(i, self.activation(zc)))
        return ops.multiply(self.recurrent_activation(zo), self.activation(c)), c


class RecurrentCell(BaseCell):
    """One step of a recurrent layer: (inputs, states) -> (output, new states).

    Args:
        units: size of the output and of each state, >= 1.
        options: see `BaseCell`.

    As in Keras, all gates share one mask of the inputs; with `recurrent_dropout` each gate has
    its own masks, of the inputs and of the state.
    """

    _gates = 1

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None,
        recurrent_activation: ActivationLike | None,
        use_bias: bool,
        **options: Any,
    ) -> None:
        super().__init__(activation, recurrent_activation, use_bias, **options)
        if not isinstance(units, int) or isinstance(units, bool) or units < 1:
            raise ValueError(f"{self.display_name()}: units is a number >= 1, got {units!r}.")
        self.units = units

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

    def build(self, input_shape: Shape) -> None:
        """Make kernel (inputs, gates), recurrent_kernel (units, gates) and bias."""
        size = self._last_size(input_shape)
        width = self._gates * self.units
        shapes = (size, width), (self.units, width), self._bias_shape()
        self._add_weights(*shapes, self._start_of_bias(self.units))

    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return states of zeros."""
        sizes = self.state_size if isinstance(self.state_size, list) else [self.state_size]
        return [ops.zeros((batch_size, size), self.compute_dtype) for size in sizes]

    # --- dropout ------------------------------------------------------------------------------

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
        z = affine(ops.reshape(x, (steps * n, size)), self.kernel, bias)
        return ops.reshape(z, (steps, n, self._gates * self.units))
