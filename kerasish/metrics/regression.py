"""Errors of numbers: squared, absolute, relative, angular."""

from __future__ import annotations

from kerasish import ops
from kerasish.losses.pair import pair
from kerasish.losses.regression import cosine_similarity as negative_cosine
from kerasish.losses.regression import (
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
)
from kerasish.metrics.reduction import AxisMetric, Mean, PlainMetric
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, DTypeLike, TensorLike


def cosine_similarity(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    """Return the cosine of the angle between targets and predictions: 1 where they point one way.

    Args:
        axis: the axis along which they are vectors.

    Example:
        >>> cosine_similarity([[1.0, 0.0]], [[2.0, 0.0]]).tolist()
        [1.0]
    """
    return ops.negative(negative_cosine(y_true, y_pred, axis))


class MeanSquaredError(PlainMetric):
    """The mean of (y_true - y_pred)².

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> MeanSquaredError()([[0.0, 2.0]], [[1.0, 0.0]]).item()
        2.5
    """

    direction = "down"
    _function = staticmethod(mean_squared_error)


class MeanAbsoluteError(PlainMetric):
    """The mean of |y_true - y_pred|.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> MeanAbsoluteError()([[0.0, 2.0]], [[1.0, 0.0]]).item()
        1.5
    """

    direction = "down"
    _function = staticmethod(mean_absolute_error)


class MeanAbsolutePercentageError(PlainMetric):
    """The mean of 100 |y_true - y_pred| / |y_true|.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> MeanAbsolutePercentageError()([[2.0, 4.0]], [[1.0, 4.0]]).item()
        25.0
    """

    direction = "down"
    _function = staticmethod(mean_absolute_percentage_error)


class MeanSquaredLogarithmicError(PlainMetric):
    """The mean of (log(1 + y_true) - log(1 + y_pred))².

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> MeanSquaredLogarithmicError()([[0.0]], [[0.0]]).item()
        0.0
    """

    direction = "down"
    _function = staticmethod(mean_squared_logarithmic_error)


class LogCoshError(PlainMetric):
    """The mean of log(cosh(y_pred - y_true)).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> LogCoshError()([[0.0]], [[0.0]]).item()
        0.0
    """

    direction = "down"
    _function = staticmethod(log_cosh)
    _default_name = "logcosh"


class CosineSimilarity(AxisMetric):
    """The mean of the cosine of the angle between targets and predictions.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        axis: the axis along which they are vectors.

    Example:
        >>> CosineSimilarity()([[1.0, 0.0]], [[2.0, 0.0]]).item()
        1.0
    """

    direction = "up"
    _function = staticmethod(cosine_similarity)


class RootMeanSquaredError(Mean):
    """The square root of the mean of (y_true - y_pred)² over all batches.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> RootMeanSquaredError()([[0.0, 2.0]], [[2.0, 4.0]]).item()
        2.0
    """

    direction = "down"

    def __init__(
        self, name: str | None = "root_mean_squared_error", dtype: DTypeLike | None = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(  # type: ignore[override]
        self, y_true: AnyTensor, y_pred: AnyTensor, sample_weight: AnyTensor | None = None
    ) -> None:
        """Take in targets and predictions of a batch."""
        y_true, y_pred = pair(y_true, y_pred, "root_mean_squared_error")
        super().update_state(ops.square(ops.subtract(y_true, y_pred)), sample_weight)

    def result(self) -> Tensor:
        """Return the root of the mean."""
        return ops.sqrt(super().result())
