"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.moments import RateOptimizer
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class SGD(RateOptimizer):
    """w - rate * g; with momentum m <- momentum * m - rate * g and w + m.

    Args:
        learning_rate: the step, >= 0.
        momentum: the share of the last step that is kept, 0 <= momentum <= 1.
        nesterov: look ahead: w + momentum * m - rate * g.
        options: what every optimizer takes; see `Optimizer`.

    Source: Sutskever, Martens, Dahl & Hinton, On the importance of initialization and momentum in
        deep learning, ICML 2013.

    Example:
        >>> w = Variable([1.0])
        >>> SGD(0.1).apply([[5.0]], [w])
        >>> w.numpy().tolist()
        [0.5]
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        if not 0 <= momentum <= 1:
            raise ValueError(f"SGD: 0 <= momentum <= 1 expected, got {momentum!r}.")
        self.momentum, self.nesterov = momentum, nesterov

    def add_slots(self, variables: Sequence[Variable]) -> None:
        self.momentums = []
        if self.momentum:
            self.momentums = self.add_optimizer_variables(variables, "momentum")

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        step = ops.multiply(gradient, c)
        if not slots:
            return (ops.subtract(value, step),)
        m = ops.subtract(ops.multiply(slots[0], self.momentum), step)
        if self.nesterov:
            return ops.subtract(ops.add(value, ops.multiply(m, self.momentum)), step), m
        return ops.add(value, m), m
