"""Adam."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.moments import MomentsOptimizer
from kerasish.optimizers.optimizer import Updates
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class Adam(MomentsOptimizer):
    """w - rate * m^ / (sqrt(v^) + epsilon), with running means m of g and v of g^2.

    m^ = m / (1 - beta_1^t) and v^ = v / (1 - beta_2^t) undo the start from zero.

    Args:
        learning_rate: the step, >= 0.
        beta_1: the share of itself that m keeps per step, 0 <= beta_1 < 1.
        beta_2: the same for v.
        epsilon: keeps the quotient finite (the paper's "epsilon hat").
        amsgrad: divide by the largest v so far.
        options: what every optimizer takes; see `Optimizer`.

    Source: Kingma & Ba, Adam: a method for stochastic optimization, ICLR 2015; Reddi, Kale &
        Kumar, On the convergence of Adam and beyond, ICLR 2018 (amsgrad).

    Example:
        >>> w = Variable([1.0, 1.0])
        >>> Adam(0.1).apply([[5.0, -0.01]], [w])
        >>> [round(float(x), 3) for x in w]
        [0.9, 1.1]
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **options)
        self.amsgrad = amsgrad

    def add_slots(self, variables: Sequence[Variable]) -> None:
        super().add_slots(variables)
        if self.amsgrad:
            self._velocity_hats = self.add_optimizer_variables(variables, "velocity_hat")

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        # rate * sqrt(1 - beta_2^t) / (1 - beta_1^t): both corrections in one number.
        t = self._step(dtype)
        second = ops.sqrt(ops.subtract(1.0, ops.power(self.beta_2, t)))
        first = ops.subtract(1.0, ops.power(self.beta_1, t))
        return ops.divide(ops.multiply(learning_rate, second), first)

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        m, v, *largest = slots
        m = ops.add(m, ops.multiply(ops.subtract(gradient, m), 1 - self.beta_1))
        v = ops.add(v, ops.multiply(ops.subtract(ops.square(gradient), v), 1 - self.beta_2))
        rest = [ops.maximum(largest[0], v)] if largest else []
        scale = ops.add(ops.sqrt(rest[0] if rest else v), self.epsilon)
        return ops.subtract(value, ops.divide(ops.multiply(m, c), scale)), m, v, *rest
