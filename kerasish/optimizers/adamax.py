"""Adamax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer
from kerasish.tensor import Variable


class Adamax(Optimizer):
    """w - rate / (1 - beta_1^t) * m / (u + epsilon), u = max(beta_2 * u, |g|).

    Args:
        learning_rate: the step, >= 0.
        beta_1: the share of itself that the running mean m of g keeps a step.
        beta_2: how u, the largest |g| so far, fades a step.
        epsilon: keeps the quotient finite.
        others: see `Optimizer`.

    Source: Kingma & Ba, Adam: a method for stochastic optimization, ICLR 2015, section 7.1.

    Example:
        >>> w = Variable([1.0])
        >>> Adamax(0.5).apply([[4.0]], [w])
        >>> round(float(w[0]), 4)
        0.5
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate, weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema,
            ema_momentum, ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps,
            name, **kwargs,
        )  # fmt: skip
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._m, self._u = self.add_optimizer_variables(variables, ["momentum", "norm"])

    def coefficients(self, learning_rate: Any, dtype: str, shared: Any) -> Any:
        start = ops.subtract(1.0, ops.power(self.beta_1, self._step(dtype)))
        return ops.divide(learning_rate, start)

    def update(self, value: Any, gradient: Any, slots: list[Any], c: Any) -> tuple[Any, ...]:
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
