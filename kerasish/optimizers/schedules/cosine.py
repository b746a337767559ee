"""Learning rates that fall along a cosine, once or again and again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kerasish import ops
from kerasish.optimizers.schedules.schedule import LearningRateSchedule, as_float
from kerasish.typing import TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def _fall(share: Tensor, top: float, alpha: float) -> Tensor:
    """Return top * (alpha + (1 - alpha) * (1 + cos(pi * share)) / 2)."""
    wave = ops.multiply(ops.add(ops.cos(ops.multiply(share, math.pi)), 1.0), 0.5)
    return ops.multiply(ops.add(ops.multiply(wave, 1.0 - alpha), alpha), top)


class CosineDecay(LearningRateSchedule):
    """top * (alpha + (1 - alpha) * (1 + cos(pi * step / decay_steps)) / 2), after a linear rise.

    Args:
        initial_learning_rate: the rate at step 0.
        decay_steps: steps of the fall, > 0.
        alpha: the share of the top that is left at the end.
        name: name of the schedule.
        warmup_target: the top; None: no rise, the top is the initial rate.
        warmup_steps: steps of the rise, >= 0.

    Source: Loshchilov & Hutter, SGDR: stochastic gradient descent with warm restarts, ICLR 2017.

    Example:
        >>> schedule = CosineDecay(0.0, 10, warmup_target=1.0, warmup_steps=4)
        >>> [float(schedule(step)) for step in (0, 2, 4, 14)]
        [0.0, 0.5, 1.0, 0.0]
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        alpha: float = 0.0,
        name: str = "CosineDecay",
        warmup_target: float | None = None,
        warmup_steps: int = 0,
    ) -> None:
        if not decay_steps > 0:
            raise ValueError(f"CosineDecay: decay_steps must be > 0, got {decay_steps!r}.")
        self.initial_learning_rate, self.decay_steps = initial_learning_rate, decay_steps
        self.alpha, self.name = alpha, name
        self.warmup_target, self.warmup_steps = warmup_target, warmup_steps

    def __call__(self, step: TensorLike) -> Tensor:
        step, start = as_float(step), float(self.initial_learning_rate)
        if self.warmup_target is None:
            return self._fallen(step, start)
        top, rise = float(self.warmup_target), float(self.warmup_steps)
        fallen = self._fallen(ops.subtract(step, rise), top)
        if not rise:
            return fallen
        rising = ops.add(ops.multiply(ops.divide(step, rise), top - start), start)
        return ops.where(ops.less(step, rise), rising, fallen)

    def _fallen(self, step: Tensor, top: float) -> Tensor:
        steps = float(self.decay_steps)
        return _fall(ops.divide(ops.clip(step, 0.0, steps), steps), top, float(self.alpha))


class CosineDecayRestarts(LearningRateSchedule):
    """A cosine's fall, over and over: each t_mul times as long and from m_mul times as high.

    Args:
        initial_learning_rate: the rate at step 0.
        first_decay_steps: steps of the first fall, > 0.
        t_mul: the factor of the length, >= 1.
        m_mul: the factor of the height.
        alpha: the share of the initial rate that is left at each end.
        name: name of the schedule.

    Source: Loshchilov & Hutter, SGDR: stochastic gradient descent with warm restarts, ICLR 2017.

    Example:
        >>> schedule = CosineDecayRestarts(1.0, 10, m_mul=0.5)
        >>> [round(float(schedule(step)), 3) for step in (0, 5, 10, 20)]
        [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self,
        initial_learning_rate: float,
        first_decay_steps: int,
        t_mul: float = 2.0,
        m_mul: float = 1.0,
        alpha: float = 0.0,
        name: str = "SGDRDecay",
    ) -> None:
        if not first_decay_steps > 0:
            raise ValueError(
                f"CosineDecayRestarts: first_decay_steps must be > 0, got {first_decay_steps!r}."
            )
        self.initial_learning_rate = initial_learning_rate
        self.first_decay_steps, self.t_mul, self.m_mul = first_decay_steps, t_mul, m_mul
        self.alpha, self.name = alpha, name

    def __call__(self, step: TensorLike) -> Tensor:
        share = ops.divide(as_float(step), float(self.first_decay_steps))
        t_mul = float(self.t_mul)
        if t_mul == 1.0:
            rounds = ops.floor(share)
            within = ops.subtract(share, rounds)
        else:
            # The falls end at the sums of a geometric series.
            grown = ops.add(ops.multiply(share, t_mul - 1.0), 1.0)
            rounds = ops.floor(ops.divide(ops.log(grown), math.log(t_mul)))
            length = ops.power(t_mul, rounds)
            begun = ops.divide(ops.subtract(1.0, length), 1.0 - t_mul)
            within = ops.divide(ops.subtract(share, begun), length)
        height = ops.power(float(self.m_mul), rounds)
        wave = ops.multiply(ops.add(ops.cos(ops.multiply(within, math.pi)), 1.0), 0.5)
        alpha = float(self.alpha)
        kept = ops.add(ops.multiply(ops.multiply(wave, height), 1.0 - alpha), alpha)
        return ops.multiply(kept, float(self.initial_learning_rate))
