"""Lamb."""

from __future__ import annotations

from kerasish import ops
from kerasish.optimizers.moments import MomentsOptimizer
from kerasish.optimizers.optimizer import Updates
from kerasish.tensor import Tensor
from kerasish.typing import Structure


class Lamb(MomentsOptimizer):
    """Adam's direction d, scaled in each variable to the variable's own norm: w - rate * d |w|/|d|.

    Args:
        learning_rate: the step as a share of the variable's norm, >= 0.
        beta_1: the share of itself that the running mean of g keeps per step.
        beta_2: the same for that of g^2.
        epsilon: keeps the quotient finite.
        options: what every optimizer takes; see `Optimizer`.

    Source: You et al., Large batch optimization for deep learning: training BERT in 76 minutes,
        ICLR 2020.

    Example:
        >>> from kerasish import Variable
        >>> w = Variable([3.0, 4.0])
        >>> Lamb(0.1).apply([[1.0, 0.0]], [w])
        >>> [round(float(x), 3) for x in w]
        [2.5, 4.0]
    """

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        t = self._step(dtype)
        first = ops.subtract(1.0, ops.power(self.beta_1, t))
        second = ops.subtract(1.0, ops.power(self.beta_2, t))
        return learning_rate, first, second

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        m, v = slots
        rate, first, second = c
        m = ops.add(m, ops.multiply(ops.subtract(gradient, m), 1 - self.beta_1))
        v = ops.add(v, ops.multiply(ops.subtract(ops.square(gradient), v), 1 - self.beta_2))
        scale = ops.add(ops.sqrt(ops.divide(v, second)), self.epsilon)
        d = ops.divide(ops.divide(m, first), scale)
        step = ops.multiply(d, ops.multiply(rate, _trust(value, d)))
        return ops.subtract(value, step), m, v


def _trust(value: Tensor, direction: Tensor) -> Tensor:
    """Return |value| / |direction|, or 1 where one of them is 0."""
    own, other = (ops.sqrt(ops.sum(ops.square(x))) for x in (value, direction))
    fit = ops.logical_and(ops.greater(own, 0.0), ops.greater(other, 0.0))
    return ops.where(fit, ops.divide(own, ops.where(fit, other, 1.0)), 1.0)
