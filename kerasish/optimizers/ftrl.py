"""Follow the regularized leader."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import initializers, ops
from kerasish.optimizers.optimizer import Optimizer, Updates
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class Ftrl(Optimizer):
    """The minimum of all past linearized losses plus L1 and L2 penalties, in closed form.

    With n the sum of g^2 and s = n^-power / rate, the linear part z gains
    g' - (s_new - s_old) * w, g' = g + 2 * shrinkage * w, and
    w = (clip(z, -l1, l1) - z) / (s_new + 2 * l2 + beta / rate).

    Args:
        learning_rate: the step, > 0.
        learning_rate_power: how the step falls with n, <= 0; 0: it does not.
        initial_accumulator_value: what n starts from, >= 0.
        l1_regularization_strength, l2_regularization_strength: penalties, >= 0.
        l2_shrinkage_regularization_strength: a penalty on the size of the step, >= 0.
        beta: the beta of the paper.
        options: what every optimizer takes; see `Optimizer`.

    Source: McMahan et al., Ad click prediction: a view from the trenches, KDD 2013.

    Example:
        >>> w = Variable([1.0])
        >>> Ftrl(0.1, l1_regularization_strength=50.0).apply([[1.0]], [w])
        >>> w.numpy().tolist()
        [0.0]
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        _check_at_least_zero(
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
            minus_learning_rate_power=-learning_rate_power,
        )
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self.beta = beta

    def add_slots(self, variables: Sequence[Variable]) -> None:
        start = initializers.Constant(self.initial_accumulator_value)
        self._squares, self._linears = self.add_optimizer_variables(
            variables, ["accumulator", "linear"], [start, "zeros"]
        )

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        fixed = ops.add(ops.divide(self.beta, learning_rate), 2.0 * self.l2_regularization_strength)
        return ops.reciprocal(learning_rate), fixed

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        n, z = slots
        per_rate, fixed = c
        total = ops.add(n, ops.square(gradient))
        before, after = self._strength(n, per_rate), self._strength(total, per_rate)
        if self.l2_shrinkage_regularization_strength:
            pull = ops.multiply(value, 2.0 * self.l2_shrinkage_regularization_strength)
            gradient = ops.add(gradient, pull)
        z = ops.add(z, ops.subtract(gradient, ops.multiply(ops.subtract(after, before), value)))
        l1 = self.l1_regularization_strength
        kept = ops.subtract(ops.clip(z, -l1, l1), z) if l1 else ops.negative(z)
        return ops.divide(kept, ops.add(after, fixed)), total, z

    def _strength(self, n: Tensor, per_rate: Tensor) -> Tensor:
        power = -self.learning_rate_power
        grown = ops.sqrt(n) if power == 0.5 else ops.power(n, power)
        return ops.multiply(grown, per_rate)


def _check_at_least_zero(**numbers: float) -> None:
    for name, number in numbers.items():
        if number < 0:
            raise ValueError(f"Ftrl: {name} must be >= 0, got {number!r}.")
