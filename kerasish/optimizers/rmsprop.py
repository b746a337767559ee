"""RMSprop."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.moments import RateOptimizer
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class RMSprop(RateOptimizer):
    """w - rate * g / sqrt(v + epsilon), with a running mean v of g^2.

    Args:
        learning_rate: the step, >= 0.
        rho: the share of itself that v keeps per step, 0 <= rho < 1.
        momentum: the share of the last step that is kept.
        epsilon: keeps the quotient finite.
        centered: divide by the running variance instead of the mean square.
        options: what every optimizer takes; see `Optimizer`.

    Source: Hinton, Neural networks for machine learning, lecture 6e, 2012.

    Example:
        >>> w = Variable([1.0])
        >>> RMSprop(0.1, rho=0.75).apply([[4.0]], [w])
        >>> round(float(w[0]), 4)
        0.8
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        self.rho, self.momentum, self.epsilon = rho, momentum, epsilon
        self.centered = centered

    def add_slots(self, variables: Sequence[Variable]) -> None:
        self._velocities = self.add_optimizer_variables(variables, "velocity")
        if self.momentum > 0:
            self._momentums = self.add_optimizer_variables(variables, "momentum")
        if self.centered:
            self._average_gradients = self.add_optimizer_variables(variables, "average_gradient")

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        v, *others = slots
        rho, new = self.rho, []
        v = ops.add(ops.multiply(v, rho), ops.multiply(ops.square(gradient), 1 - rho))
        spread = v
        if self.centered:
            mean = ops.add(ops.multiply(others[-1], rho), ops.multiply(gradient, 1 - rho))
            spread = ops.subtract(v, ops.square(mean))
            new.append(mean)
        step = ops.divide(ops.multiply(gradient, c), ops.sqrt(ops.add(spread, self.epsilon)))
        if self.momentum > 0:
            step = ops.add(ops.multiply(others[0], self.momentum), step)
            new.insert(0, step)
        return ops.subtract(value, step), v, *new
