"""Adadelta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer
from kerasish.tensor import Variable


class Adadelta(Optimizer):
    """w + rate * d with d = -g * sqrt(e + epsilon) / sqrt(a + epsilon).

    a is the running mean of g^2 and e that of d^2, so that d has the unit of w.

    Args:
        learning_rate: the factor, 1.0 in the paper.
        rho: the share of themselves that a and e keep a step, 0 <= rho < 1.
        epsilon: keeps the quotient finite and lets e grow from zero.
        others: see `Optimizer`.

    Source: Zeiler, ADADELTA: an adaptive learning rate method, 2012, arXiv 1212.5701.

    Example:
        >>> w = Variable([1.0])
        >>> Adadelta(1.0, rho=0.0, epsilon=1.0).apply([[0.0]], [w])
        >>> w.numpy().tolist()
        [1.0]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
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
        self.rho, self.epsilon = rho, epsilon

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._accumulated_grads, self._accumulated_delta_vars = self.add_optimizer_variables(
            variables, ["accumulated_grad", "accumulated_delta_var"]
        )

    def coefficients(self, learning_rate: Any, dtype: str, shared: Any) -> Any:
        return learning_rate

    def update(self, value: Any, gradient: Any, slots: list[Any], c: Any) -> tuple[Any, ...]:
        a, e = slots
        a = self._mean(a, ops.square(gradient))
        ratio = ops.divide(ops.add(e, self.epsilon), ops.add(a, self.epsilon))
        d = ops.multiply(gradient, ops.sqrt(ratio))
        return ops.subtract(value, ops.multiply(d, c)), a, self._mean(e, ops.square(d))

    def _mean(self, mean: Any, new: Any) -> Any:
        return ops.add(ops.multiply(mean, self.rho), ops.multiply(new, 1 - self.rho))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rho": self.rho, "epsilon": self.epsilon}
