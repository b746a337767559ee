"""Optimizers by name: Keras's `optimizers` module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasish.first_use import imports_on_first_use
from kerasish.identifiers import get_by_name
from kerasish.optimizers import schedules as schedules
from kerasish.optimizers.optimizer import Optimizer as Optimizer
from kerasish.registry import BUILTINS, add_builtins, serialize_keras_object
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config, OptimizerLike, Structure

with imports_on_first_use(__name__) as _PLACES:
    from kerasish.optimizers.adadelta import Adadelta as Adadelta
    from kerasish.optimizers.adafactor import Adafactor as Adafactor
    from kerasish.optimizers.adagrad import Adagrad as Adagrad
    from kerasish.optimizers.adam import Adam as Adam
    from kerasish.optimizers.adamax import Adamax as Adamax
    from kerasish.optimizers.adamw import AdamW as AdamW
    from kerasish.optimizers.eve import Eve as Eve
    from kerasish.optimizers.ftrl import Ftrl as Ftrl
    from kerasish.optimizers.lamb import Lamb as Lamb
    from kerasish.optimizers.lion import Lion as Lion
    from kerasish.optimizers.loss_scale_optimizer import LossScaleOptimizer as LossScaleOptimizer
    from kerasish.optimizers.multi_optimizer import MultiOptimizer as MultiOptimizer
    from kerasish.optimizers.multi_optimizer import OptimizerMap as OptimizerMap
    from kerasish.optimizers.muon import Muon as Muon
    from kerasish.optimizers.nadam import Nadam as Nadam
    from kerasish.optimizers.rmsprop import RMSprop as RMSprop
    from kerasish.optimizers.schedule_free_adamw import ScheduleFreeAdamW as ScheduleFreeAdamW
    from kerasish.optimizers.sgd import SGD as SGD

_KNOWN = {"Optimizer": Optimizer, **_PLACES}
add_builtins("keras.optimizers", _KNOWN)
add_builtins("keras.optimizers", {name.lower(): value for name, value in _KNOWN.items()})


@hides_frames
def get(identifier: OptimizerLike | None) -> Structure:
    """Return the optimizer for a name, a config, a class or an object; None for None.

    Args:
        identifier: a name, config, class, function or object; None gives None.

    Raises:
        ValueError: a name that is not known; the message lists the nearest known ones.

    Example:
        >>> type(get("sgd")).__name__, get(None) is None
        ('SGD', True)
    """
    if identifier is None or isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, str):
        names = BUILTINS["keras.optimizers"]
        identifier = identifier if identifier in names else identifier.lower()
    result = get_by_name(identifier, "keras.optimizers", "optimizer")
    if not hasattr(result, "apply"):
        raise ValueError(f"Expected an optimizer, got {identifier!r}.")
    return result


def serialize(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimizer's config, as files hold it.

    Args:
        optimizer: an optimizer.

    Example:
        >>> serialize(SGD())["class_name"]
        'SGD'
    """
    return serialize_keras_object(optimizer)


@hides_frames
def deserialize(config: Config | str, custom_objects: Mapping[str, Any] | None = None) -> Structure:
    """Return the optimizer that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> from kerasish import optimizers
        >>> float(deserialize(optimizers.serialize(optimizers.SGD(0.5))).learning_rate)
        0.5
    """
    return get_by_name(config, "keras.optimizers", "optimizer", custom_objects)
