"""Hinge losses as metrics."""

from __future__ import annotations

from kerasish.losses.margin import categorical_hinge, hinge, squared_hinge
from kerasish.metrics.reduction import MeanMetricWrapper
from kerasish.typing import DTypeLike


class Hinge(MeanMetricWrapper):
    """The mean of max(1 - y_true * y_pred, 0).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> Hinge()([[-1.0, 1.0]], [[0.5, 2.0]]).item()
        0.75
    """

    direction = "down"

    def __init__(
        self,
        name: str | None = "hinge",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(hinge, name, dtype)


class SquaredHinge(MeanMetricWrapper):
    """The mean of max(1 - y_true * y_pred, 0)².

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> SquaredHinge()([[-1.0, 1.0]], [[1.0, 2.0]]).item()
        2.0
    """

    direction = "down"

    def __init__(
        self,
        name: str | None = "squared_hinge",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(squared_hinge, name, dtype)


class CategoricalHinge(MeanMetricWrapper):
    """The mean of max(1 + best wrong prediction - the right one, 0).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> CategoricalHinge()([[0.0, 1.0]], [[0.5, 0.75]]).item()
        0.75
    """

    direction = "down"

    def __init__(
        self,
        name: str | None = "categorical_hinge",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(categorical_hinge, name, dtype)
