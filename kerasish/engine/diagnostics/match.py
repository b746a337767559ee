"""A loss with its output, its targets and the last layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish.typing import Array

if TYPE_CHECKING:
    from kerasish.losses.loss import Loss

SPARSE = frozenset({"sparse_categorical_crossentropy", "categorical_generalized_cross_entropy"})
CATEGORICAL = frozenset({"categorical_crossentropy", "categorical_focal_crossentropy"})
BINARY = frozenset({"binary_crossentropy", "binary_focal_crossentropy"})
HINGE = frozenset({"hinge", "squared_hinge"})
REGRESSION = frozenset(
    {
        "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error",
        "mean_squared_logarithmic_error", "huber", "log_cosh",
    }
)  # fmt: skip
# Losses that meet target and prediction number by number: their shapes must be equal.
BY_NUMBER = REGRESSION | BINARY | HINGE | {"categorical_hinge", "poisson", "kl_divergence"}


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
    def kind(self) -> str:
        """The name of the built-in function behind the loss; "" for the user's losses."""
        return kind_of(self.loss)

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


def kind_of(loss: Loss) -> str:
    """Return the name of the built-in function that a loss wraps, or ""."""
    function = getattr(loss, "fn", None)
    own = getattr(function, "__module__", None) or ""
    return function.__name__ if own.startswith("kerasish.losses.") else ""  # type: ignore[union-attr]
