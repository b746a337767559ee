"""Learning rates that follow the step: Keras's `optimizers.schedules` module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasish.identifiers import get_by_name
from kerasish.optimizers.schedules.cosine import CosineDecay as CosineDecay
from kerasish.optimizers.schedules.cosine import CosineDecayRestarts as CosineDecayRestarts
from kerasish.optimizers.schedules.decay import ExponentialDecay as ExponentialDecay
from kerasish.optimizers.schedules.decay import InverseTimeDecay as InverseTimeDecay
from kerasish.optimizers.schedules.decay import PiecewiseConstantDecay as PiecewiseConstantDecay
from kerasish.optimizers.schedules.decay import PolynomialDecay as PolynomialDecay
from kerasish.optimizers.schedules.schedule import LearningRateSchedule as LearningRateSchedule
from kerasish.registry import add_builtins, own_objects, serialize_keras_object
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config, Structure

add_builtins("keras.optimizers.schedules", own_objects(__name__))


def serialize(learning_rate_schedule: LearningRateSchedule) -> dict[str, Any]:
    """Return a schedule's config, as files hold it.

    Args:
        learning_rate_schedule: a schedule.

    Example:
        >>> serialize(ExponentialDecay(0.1, 10, 0.5))["class_name"]
        'ExponentialDecay'
    """
    return serialize_keras_object(learning_rate_schedule)


@hides_frames
def deserialize(config: Config, custom_objects: Mapping[str, Any] | None = None) -> Structure:
    """Return the schedule that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> from kerasish.optimizers import schedules
        >>> deserialize(schedules.serialize(schedules.ExponentialDecay(0.5, 10, 0.9))).decay_steps
        10
    """
    what = "learning rate schedule"
    return get_by_name(config, "keras.optimizers.schedules", what, custom_objects)
