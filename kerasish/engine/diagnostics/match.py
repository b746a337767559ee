"""A loss with its output, its targets and the last layer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kerasish.losses.targets import Targets, targets_of
from kerasish.typing import Array


class Match(NamedTuple):
    """One output with its loss.

    Attributes:
        label: the output's name; "" where there is one output.
        index: its place among the outputs.
        loss: the `Loss`.
        shape: of a batch of predictions.
        target, weights: arrays of all rows, or of a batch; weights may be None.
    """

    label: str
    index: int  # type: ignore[assignment]
    loss: Any
    shape: tuple[int, ...]
    target: Any
    weights: Any

    @property
    def y(self) -> str:
        """What messages call the targets."""
        return f"y of output {self.label!r}" if self.label else "y"

    @property
    def takes(self) -> Targets | None:
        """The targets that the loss takes; None for a loss that does not say."""
        return targets_of(getattr(self.loss, "fn", None))

    @property
    def values(self) -> str:
        """Which values the loss takes, as `Targets.values`; "" for a loss that does not say."""
        return self.takes.values if self.takes else ""

    @property
    def loss_name(self) -> str:
        """The name of the loss's function."""
        return str(self.loss.fn.__name__)

    def option(self, name: str, default: int | None = None) -> Any:
        """Return an argument of the loss's function."""
        return getattr(self.loss, "fn_kwargs", {}).get(name, default)

    def counting(self) -> Array:
        """Return the target's rows that count: rows of weight 0 are not checked."""
        target, weights = np.asarray(self.target), self.weights
        if weights is None or not hasattr(weights, "shape") or not weights.shape:
            return target
        if weights.shape == target.shape[: weights.ndim]:
            return target[np.asarray(weights) != 0]
        return target
