"""Adamax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer, Updates
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable


class Adamax(Optimizer):
    """w - rate / (1 - beta_1^t) * m / (u + epsilon), u = max(beta_2 * u, |g|).

    Args:
        learning_rate: the step, >= 0.
        beta_1: the share of itself that the running mean m of g keeps a step.
        beta_2: how u, the largest |g| so far, fades a step.
        epsilon: keeps the quotient finite.
        options: what every optimizer takes; see `Optimizer`.

    Source: Kingma & Ba, Adam: a method for stochastic optimization, ICLR 2015, section 7.1.

    Example:
        >>> w = Variable([1.0])
        >>> Adamax(0.5).apply([[4.0]], [w])
        >>> round(float(w[0]), 4)
        0.5
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._m, self._u = self.add_optimizer_variables(variables, ["momentum", "norm"])

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Any:
        start = ops.subtract(1.0, ops.power(self.beta_1, self._step(dtype)))
        return ops.divide(learning_rate, start)

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Any
    ) -> tuple[Tensor, ...]:
        m, u = slots
        m = ops.add(m, ops.multiply(ops.subtract(gradient, m), 1 - self.beta_1))
        u = ops.maximum(ops.multiply(u, self.beta_2), ops.absolute(gradient))
        step = ops.divide(ops.multiply(m, c), ops.add(u, self.epsilon))
        return ops.subtract(value, step), m, u

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
