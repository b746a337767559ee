"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer
from kerasish.tensor import Variable


class SGD(Optimizer):
    """w - rate * g; with momentum m <- momentum * m - rate * g and w + m.

    Args:
        learning_rate: the step, >= 0.
        momentum: the share of the last step that is kept, 0 <= momentum <= 1.
        nesterov: look ahead: w + momentum * m - rate * g.
        others: see `Optimizer`.

    Source: Sutskever, Martens, Dahl & Hinton, On the importance of initialization and momentum in
        deep learning, ICML 2013.

    Example:
        >>> w = Variable([1.0])
        >>> SGD(0.1).apply([[5.0]], [w])
        >>> w.numpy().tolist()
        [0.5]
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
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
        if not 0 <= momentum <= 1:
            raise ValueError(f"SGD: 0 <= momentum <= 1 expected, got {momentum!r}.")
        self.momentum, self.nesterov = momentum, nesterov

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.momentums = []
        if self.momentum:
            self.momentums = self.add_optimizer_variables(variables, "momentum")

    def coefficients(self, learning_rate: Any, dtype: str, shared: Any) -> Any:
        return learning_rate

    def update(self, value: Any, gradient: Any, slots: list[Any], c: Any) -> tuple[Any, ...]:
        step = ops.multiply(gradient, c)
        if not slots:
            return (ops.subtract(value, step),)
        m = ops.subtract(ops.multiply(slots[0], self.momentum), step)
        if self.nesterov:
            return ops.subtract(ops.add(value, ops.multiply(m, self.momentum)), step), m
        return ops.add(value, m), m

    def fused_rule(self) -> tuple[str, dict[str, Any]] | None:
        kind = type(self)
        if kind.update is not SGD.update or kind.coefficients is not SGD.coefficients:
            return None
        return "sgd", {"momentum": self.momentum, "nesterov": self.nesterov}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}
