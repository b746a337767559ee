"""The arguments of fit, evaluate and predict, as objects that the loops pass on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kerasish import config


class DataArguments(NamedTuple):
    """What a loop runs over; see `Model.fit` for each argument."""

    x: Any = None
    y: Any = None
    sample_weight: Any = None
    class_weight: Any = None
    batch_size: int | None = None
    shuffle: Any = False
    steps: int | None = None


class ValidationArguments(NamedTuple):
    """What `fit` validates on, and when; see `Model.fit` for each argument."""

    split: float = 0.0
    data: Any = None
    steps: int | None = None
    batch_size: int | None = None
    frequency: Any = 1

    def is_due(self, epoch: int) -> bool:
        """Return whether the model is validated after an epoch (counted from 0)."""
        if isinstance(self.frequency, int):
            if self.frequency < 1:
                raise ValueError(f"fit: validation_freq is a number >= 1, got {self.frequency}.")
            return (epoch + 1) % self.frequency == 0
        return epoch + 1 in list(self.frequency)


class FitSettings(NamedTuple):
    """How `fit` trains; see `Model.fit` for each argument."""

    epochs: int = 1
    initial_epoch: int = 0
    verbose: Any = "auto"
    callbacks: Any = None
    resume: Any = None

    def checked_epochs(self) -> int:
        """Return the number of epochs, at most the process's `config.max_epochs()`."""
        epochs = self.epochs
        if not isinstance(epochs, (int, np.integer)) or isinstance(epochs, bool) or epochs < 0:
            raise ValueError(f"fit: epochs is a number >= 0, got {epochs!r}.")
        most = config.max_epochs()
        return int(epochs) if most is None else min(int(epochs), most)


def limited_steps(steps: int | None) -> int | None:
    """Return the number of steps, at most the process's `config.max_steps_per_epoch()`."""
    most = config.max_steps_per_epoch()
    return steps if most is None else most if steps is None else min(steps, most)


def verbosity(verbose: int | str) -> int:
    """Return 0, 1 or 2 for the argument `verbose`."""
    return 1 if verbose == "auto" else int(verbose)
