"""Adadelta."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.moments import RateOptimizer
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class Adadelta(RateOptimizer):
    """w + rate * d with d = -g * sqrt(e + epsilon) / sqrt(a + epsilon).

    a is the running mean of g^2 and e that of d^2, so that d has the unit of w.

    Args:
        learning_rate: the factor, 1.0 in the paper.
        rho: the share of themselves that a and e keep per step, 0 <= rho < 1.
        epsilon: keeps the quotient finite and lets e grow from zero.
        options: what every optimizer takes; see `Optimizer`.

    Source: Zeiler, ADADELTA: an adaptive learning rate method, 2012, arXiv 1212.5701.

    Example:
        >>> w = Variable([1.0])
        >>> Adadelta(1.0, rho=0.0, epsilon=1.0).apply([[0.0]], [w])
        >>> w.numpy().tolist()
        [1.0]
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-7,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        self.rho, self.epsilon = rho, epsilon

    def add_slots(self, variables: Sequence[Variable]) -> None:
        self._accumulated_grads, self._accumulated_delta_vars = self.add_optimizer_variables(
            variables, ["accumulated_grad", "accumulated_delta_var"]
        )

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        a, e = slots
        a = self._mean(a, ops.square(gradient))
        ratio = ops.divide(ops.add(e, self.epsilon), ops.add(a, self.epsilon))
        d = ops.multiply(gradient, ops.sqrt(ratio))
        return ops.subtract(value, ops.multiply(d, c)), a, self._mean(e, ops.square(d))

    def _mean(self, mean: Tensor, new: Tensor) -> Tensor:
        return ops.add(ops.multiply(mean, self.rho), ops.multiply(new, 1 - self.rho))
