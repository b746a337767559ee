"""Reads and sets the values of logs and the learning rate as plain Python numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from kerasish.optimizers.optimizer import Optimizer


def plain(value: object) -> Any:
    """Return `value` as a Python number if it is a number, else unchanged.

    Logs hold floats, NumPy scalars, arrays of one number, tensors, or objects that compute their
    number in `float()`.

    Example:
        >>> plain(np.float32(0.5)), plain(np.array([2.0])), plain("text")
        (0.5, 2.0, 'text')
    """
    if isinstance(value, (bool, int, float, str, bytes, list, tuple, dict)) or value is None:
        return value
    shape = getattr(value, "shape", ())
    if math.prod(shape) != 1:
        return np.asarray(value)
    if shape or isinstance(value, np.generic):
        return np.asarray(value).item()
    return float(value) if hasattr(value, "__float__") else value


def rated(optimizer: Optimizer) -> list[tuple[str, Any]]:
    """Return (name in the logs, optimizer) of each optimizer that has a learning rate.

    There is one, or several for a MultiOptimizer.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    many = getattr(optimizer, "optimizers", None)
    if many is None:
        return [("learning_rate", optimizer)]
    return [(f"learning_rate_{one.name}", one) for one in many]


def rates(optimizer: Optimizer) -> dict[str, float]:
    """Return the learning rates by their names in the logs."""
    return {name: get_rate(one) for name, one in rated(optimizer)}


def get_rate(optimizer: Optimizer) -> float:
    """Return the optimizer's learning rate.

    Raises:
        ValueError: the optimizer has none.
    """
    if not hasattr(optimizer, "learning_rate"):
        raise ValueError(
            f"expected an optimizer with a learning_rate, got {optimizer!r}; "
            f"compile the model first"
        )
    rate = optimizer.learning_rate
    if callable(rate):  # a schedule
        rate = rate(optimizer.iterations)
    return float(np.asarray(rate))


def set_rate(optimizer: Optimizer, value: float, who: str) -> None:
    """Set the optimizer's learning rate; `who` is the caller's name for the error message.

    Raises:
        TypeError: the rate is given by a schedule object.
    """
    rate = optimizer.learning_rate
    if callable(rate):
        raise TypeError(
            f"{who}: cannot set the learning rate, since the {type(optimizer).__name__}'s follows "
            f"a {type(rate).__name__}; give the optimizer a number to set it while training"
        )
    if hasattr(rate, "assign"):
        rate.assign(value)
    else:
        optimizer.learning_rate = value


def input_wait_of(model: object) -> tuple[float, float]:
    """Return the seconds for which the last epoch of training waited for batches, and its seconds.

    Args:
        model: the model that is trained; (0.0, 0.0) for one that is not trained by kerasish.
    """
    program = getattr(model, "training_program", None)
    waited, total = getattr(program, "input_wait", (0.0, 0.0))
    return float(waited), float(total)
