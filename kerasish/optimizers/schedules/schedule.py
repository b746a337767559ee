"""What every learning rate schedule is: a function of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.reprs import arguments_repr
from kerasish.signatures import ConfiguredByArguments
from kerasish.typing import TensorLike
from kerasish.watched import Watched

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.tensor import Tensor


class LearningRateSchedule(ConfiguredByArguments, Watched):
    """A function step -> learning rate with a config; subclasses write `__call__` and `get_config`.

    Example:
        >>> class Halving(LearningRateSchedule):
        ...     def __call__(self, step):
        ...         return ops.power(0.5, ops.cast(step, "float32"))
        >>> float(Halving()(3))
        0.125
    """

    def __call__(self, step: TensorLike) -> Tensor:
        """Return the learning rate at `step`, an integer (tensor) from 0 on."""
        raise NotImplementedError(f"{type(self).__name__} must write __call__(step).")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the schedule that `get_config` described."""
        return cls(**config)

    __repr__ = arguments_repr


def as_float(step: TensorLike) -> Tensor:
    """Return the step as a float32 tensor."""
    return ops.cast(ops.convert_to_tensor(step), "float32")
