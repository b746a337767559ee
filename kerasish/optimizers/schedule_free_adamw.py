"""Schedule-free AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.optimizers.moments import MomentsOptimizer
from kerasish.optimizers.optimizer import Updates
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class ScheduleFreeAdamW(MomentsOptimizer):
    """Adam without a schedule: z takes the steps, x is the mean of all z, gradients are at y.

    y = (1 - beta_1) * z + beta_1 * x is what the variables hold, as in Keras after training, too;
    `averages` gives x.

    Args:
        learning_rate: the step, >= 0.
        beta_1: the share of the mean x in y, 0 < beta_1 <= 1.
        beta_2: the share of itself that the running mean of g^2 keeps per step.
        epsilon: keeps the quotient finite.
        warmup_steps: steps over which the rate grows to its value.
        options: what every optimizer takes; see `Optimizer`.

    Source: Defazio et al., The road less scheduled, NeurIPS 2024.

    Example:
        >>> ScheduleFreeAdamW().beta_1
        0.9
    """

    elementwise = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.0025,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        warmup_steps: int = 0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **options)
        if not 0 < beta_1 <= 1:
            raise ValueError(f"ScheduleFreeAdamW: 0 < beta_1 <= 1 expected, got {beta_1!r}.")
        self.warmup_steps = warmup_steps

    def add_slots(self, variables: Sequence[Variable]) -> None:
        super().add_slots(variables)
        for z, variable in zip(self._momentums, variables):
            z.assign(variable.value)

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        t = self._step(dtype)
        if self.warmup_steps:
            grown = ops.minimum(ops.divide(t, float(self.warmup_steps)), 1.0)
            learning_rate = ops.multiply(learning_rate, grown)
        start = ops.subtract(1.0, ops.power(self.beta_2, t))
        return learning_rate, start, ops.reciprocal(t)

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        z, v = slots
        rate, start, share = c
        v = ops.add(
            ops.multiply(v, self.beta_2), ops.multiply(ops.square(gradient), 1 - self.beta_2)
        )
        scale = ops.add(ops.sqrt(ops.divide(v, start)), self.epsilon)
        step = ops.divide(ops.multiply(gradient, rate), scale)
        x = self._mean(value, z)
        z = ops.subtract(z, step)
        x = ops.add(x, ops.multiply(ops.subtract(z, x), share))
        y = ops.add(ops.multiply(x, self.beta_1), ops.multiply(z, 1 - self.beta_1))
        return y, z, v

    def _mean(self, y: Tensor, z: Tensor) -> Tensor:
        """Return x of y and z."""
        return ops.divide(ops.subtract(y, ops.multiply(z, 1 - self.beta_1)), self.beta_1)

    def averages(self) -> list[Any]:
        """Return the means x, one tensor per variable: the best place to evaluate the model at."""
        pairs = zip(self._trainable_variables, self._momentums)
        return [self._mean(v.value, z.value) for v, z in pairs]
