"""Lion."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.moments import RateOptimizer
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class Lion(RateOptimizer):
    """w - rate * sign(beta_1 * m + (1 - beta_1) * g), m the running mean of g (share beta_2).

    Args:
        learning_rate: the size of every element's step; 3 to 10 times below Adam's.
        beta_1: the share of m in the step's direction, 0 < beta_1 <= 1.
        beta_2: the share of itself that m keeps per step.
        options: what every optimizer takes; see `Optimizer`.

    Source: Chen et al., Symbolic discovery of optimization algorithms, NeurIPS 2023.

    Example:
        >>> w = Variable([1.0, 1.0])
        >>> Lion(0.5).apply([[4.0, -0.1]], [w])
        >>> w.numpy().tolist()
        [0.5, 1.5]
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        if not 0 < beta_1 <= 1:
            raise ValueError(f"Lion: 0 < beta_1 <= 1 expected, got {beta_1!r}.")
        self.beta_1, self.beta_2 = beta_1, beta_2

    def add_slots(self, variables: Sequence[Variable]) -> None:
        self._momentums = self.add_optimizer_variables(variables, "momentum")

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        (m,) = slots
        mixed = _mix(m, gradient, self.beta_1)
        step = ops.multiply(ops.sign(mixed), c)
        return ops.subtract(value, step), _mix(m, gradient, self.beta_2)


def _mix(mean: Tensor, new: Tensor, share: float) -> Tensor:
    return ops.add(ops.multiply(mean, share), ops.multiply(new, 1 - share))
