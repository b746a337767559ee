"""Adagrad."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import initializers, ops
from kerasish.optimizers.moments import RateOptimizer
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class Adagrad(RateOptimizer):
    """w - rate * g / sqrt(a + epsilon), with the sum a of all g^2.

    Args:
        learning_rate: the step, >= 0.
        initial_accumulator_value: what a starts from, >= 0.
        epsilon: keeps the quotient finite.
        options: what every optimizer takes; see `Optimizer`.

    Source: Duchi, Hazan & Singer, Adaptive subgradient methods for online learning and stochastic
        optimization, JMLR 12 (2011).

    Example:
        >>> w = Variable([1.0])
        >>> Adagrad(0.5, initial_accumulator_value=0.0).apply([[4.0]], [w])
        >>> round(float(w[0]), 4)
        0.5
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        self.initial_accumulator_value, self.epsilon = initial_accumulator_value, epsilon

    def add_slots(self, variables: Sequence[Variable]) -> None:
        start = initializers.Constant(self.initial_accumulator_value)
        self._accumulators_of_squares = self.add_optimizer_variables(
            variables, "accumulator", start
        )

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        a = ops.add(slots[0], ops.square(gradient))
        step = ops.divide(ops.multiply(gradient, c), ops.sqrt(ops.add(a, self.epsilon)))
        return ops.subtract(value, step), a
