"""Learning rates that fall: exponentially, as 1 / t, by a polynomial, in steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kerasish import ops
from kerasish.optimizers.schedules.schedule import LearningRateSchedule, as_float
from kerasish.signatures import with_defaults
from kerasish.typing import TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class ExponentialDecay(LearningRateSchedule):
    """rate * decay_rate^(step / decay_steps).

    Args:
        initial_learning_rate: the rate at step 0.
        decay_steps: steps for one factor, > 0.
        decay_rate: the factor.
        staircase: integers in the exponent.
        name: name of the schedule.

    Example:
        >>> float(ExponentialDecay(8.0, 10, 0.5)(20))
        2.0
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str = "ExponentialDecay",
    ) -> None:
        _check_steps(self, decay_steps)
        self.initial_learning_rate, self.decay_steps = initial_learning_rate, decay_steps
        self.decay_rate, self.staircase, self.name = decay_rate, staircase, name

    def __call__(self, step: TensorLike) -> Tensor:
        share = ops.divide(as_float(step), float(self.decay_steps))
        share = ops.floor(share) if self.staircase else share
        return ops.multiply(self._decay(share), float(self.initial_learning_rate))

    def _decay(self, share: Tensor) -> Tensor:
        return ops.power(float(self.decay_rate), share)


class InverseTimeDecay(ExponentialDecay):
    """rate / (1 + decay_rate * step / decay_steps).

    Args:
        initial_learning_rate: the rate at step 0, > 0.
        decay_steps: steps over which the rate falls, > 0.
        decay_rate: how much it falls.
        staircase: whether it falls in steps, once per `decay_steps`.
        name: name of the schedule.

    Example:
        >>> float(InverseTimeDecay(8.0, 10, 1.0)(30))
        2.0
    """

    __init__ = with_defaults(ExponentialDecay.__init__, {"name": "InverseTimeDecay"})

    def _decay(self, share: Tensor) -> Tensor:
        return ops.reciprocal(ops.add(ops.multiply(share, float(self.decay_rate)), 1.0))


class PolynomialDecay(LearningRateSchedule):
    """end + (rate - end) * (1 - step / decay_steps)^power; `end` from decay_steps on.

    Args:
        initial_learning_rate: the rate at step 0.
        decay_steps: steps to the end, > 0.
        end_learning_rate: the rate at the end.
        power: 1 falls in a line.
        cycle: at the end, stretch decay_steps to its next multiple and continue.
        name: name of the schedule.

    Example:
        >>> float(PolynomialDecay(1.0, 10, 0.0)(5))
        0.5
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        name: str = "PolynomialDecay",
    ) -> None:
        _check_steps(self, decay_steps)
        self.initial_learning_rate, self.decay_steps = initial_learning_rate, decay_steps
        self.end_learning_rate, self.power = end_learning_rate, power
        self.cycle, self.name = cycle, name

    def __call__(self, step: TensorLike) -> Tensor:
        step, steps = as_float(step), float(self.decay_steps)
        if self.cycle:
            rounds = ops.maximum(ops.ceil(ops.divide(step, steps)), 1.0)
            share = ops.divide(step, ops.multiply(rounds, steps))
        else:
            share = ops.divide(ops.minimum(step, steps), steps)
        left = ops.power(ops.subtract(1.0, share), float(self.power))
        span = float(self.initial_learning_rate) - float(self.end_learning_rate)
        return ops.add(ops.multiply(left, span), float(self.end_learning_rate))


class PiecewiseConstantDecay(LearningRateSchedule):
    """values[i] up to step boundaries[i], values[-1] after the last.

    Args:
        boundaries: rising steps.
        values: one more rate than boundaries.
        name: name of the schedule.

    Example:
        >>> schedule = PiecewiseConstantDecay([5, 10], [4.0, 2.0, 1.0])
        >>> [float(schedule(step)) for step in (5, 6, 11)]
        [4.0, 2.0, 1.0]
    """

    def __init__(
        self,
        boundaries: Sequence[float],
        values: Sequence[float],
        name: str = "PiecewiseConstant",
    ) -> None:
        if len(boundaries) != len(values) - 1:
            raise ValueError(
                "PiecewiseConstantDecay: one more value than boundaries expected, got "
                f"{len(values)} values and {len(boundaries)} boundaries."
            )
        self.boundaries, self.values, self.name = boundaries, values, name

    def __call__(self, step: TensorLike) -> Tensor:
        step = as_float(step)
        rate = ops.convert_to_tensor(float(self.values[-1]), "float32")
        for boundary, value in reversed(list(zip(self.boundaries, self.values))):
            rate = ops.where(ops.less_equal(step, float(boundary)), float(value), rate)
        return rate


def _check_steps(
    schedule: ExponentialDecay | InverseTimeDecay | PolynomialDecay, steps: int
) -> None:
    if not steps > 0:
        raise ValueError(f"{type(schedule).__name__}: decay_steps must be > 0, got {steps!r}.")
