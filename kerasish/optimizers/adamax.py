"""Adamax."""

from __future__ import annotations

from kerasish import ops
from kerasish.optimizers.moments import MomentsOptimizer
from kerasish.optimizers.optimizer import Updates
from kerasish.tensor import Tensor
from kerasish.typing import Structure


class Adamax(MomentsOptimizer):
    """w - rate / (1 - beta_1^t) * m / (u + epsilon), u = max(beta_2 * u, |g|).

    Args:
        learning_rate: the step, >= 0.
        beta_1: the share of itself that the running mean m of g keeps per step.
        beta_2: how u, the largest |g| so far, fades per step.
        epsilon: keeps the quotient finite.
        options: what every optimizer takes; see `Optimizer`.

    Source: Kingma & Ba, Adam: a method for stochastic optimization, ICLR 2015, section 7.1.

    Example:
        >>> from kerasish import Variable
        >>> w = Variable([1.0])
        >>> Adamax(0.5).apply([[4.0]], [w])
        >>> round(float(w[0]), 4)
        0.5
    """

    elementwise = True
    slot_names = ("momentum", "norm")

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        start = ops.subtract(1.0, ops.power(self.beta_1, self._step(dtype)))
        return ops.divide(learning_rate, start)

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        m, u = slots
        m = ops.add(m, ops.multiply(ops.subtract(gradient, m), 1 - self.beta_1))
        u = ops.maximum(ops.multiply(u, self.beta_2), ops.absolute(gradient))
        step = ops.divide(ops.multiply(m, c), ops.add(u, self.epsilon))
        return ops.subtract(value, step), m, u
