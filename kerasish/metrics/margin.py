"""Hinge losses as metrics."""

from __future__ import annotations

from kerasish.losses.margin import categorical_hinge, hinge, squared_hinge
from kerasish.metrics.reduction import PlainMetric


class Hinge(PlainMetric):
    """The mean of max(1 - y_true * y_pred, 0).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> Hinge()([[-1.0, 1.0]], [[0.5, 2.0]]).item()
        0.75
    """

    direction = "down"
    _function = staticmethod(hinge)


class SquaredHinge(PlainMetric):
    """The mean of max(1 - y_true * y_pred, 0)².

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> SquaredHinge()([[-1.0, 1.0]], [[1.0, 2.0]]).item()
        2.0
    """

    direction = "down"
    _function = staticmethod(squared_hinge)


class CategoricalHinge(PlainMetric):
    """The mean of max(1 + best wrong prediction - the right one, 0).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> CategoricalHinge()([[0.0, 1.0]], [[0.5, 0.75]]).item()
        0.75
    """

    direction = "down"
    _function = staticmethod(categorical_hinge)
