"""What optimizers share: a formula of the learning rate alone, or running moments as slots."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish.optimizers.optimizer import Optimizer, Updates
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class RateOptimizer(Optimizer):
    """An optimizer whose `update` needs no number but the learning rate."""

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        return learning_rate


class MomentsOptimizer(Optimizer):
    """An optimizer with running first and second moments of the gradient.

    Args:
        beta_1, beta_2: the shares of the moments that stay in each step, in [0, 1).
        epsilon: keeps the divisor from 0.
        options: what every optimizer takes; see `Optimizer`.
    """

    slot_names = ("momentum", "velocity")

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

    def add_slots(self, variables: Sequence[Variable]) -> None:
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, list(self.slot_names)
        )
