"""How far numbers are from numbers: squared, absolute, relative, robust, angular."""

from __future__ import annotations

import math

from kerasish import config, ops
from kerasish.losses.loss import LossFunction, PlainLoss
from kerasish.losses.pair import pair
from kerasish.losses.targets import takes
from kerasish.tensor import Tensor
from kerasish.typing import DTypeLike, TensorLike


@takes("numbers")
def mean_squared_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return mean((y_true - y_pred)²) over the last axis.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> mean_squared_error([[0.0, 2.0]], [[1.0, 0.0]]).tolist()
        [2.5]
    """
    y_true, y_pred = pair(y_true, y_pred, "mean_squared_error")
    return ops.mean(ops.square(ops.subtract(y_true, y_pred)), -1)


@takes("numbers")
def mean_absolute_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return mean(|y_true - y_pred|) over the last axis.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> mean_absolute_error([[0.0, 2.0]], [[1.0, 0.0]]).tolist()
        [1.5]
    """
    y_true, y_pred = pair(y_true, y_pred, "mean_absolute_error")
    return ops.mean(ops.absolute(ops.subtract(y_true, y_pred)), -1)


@takes("numbers", zero=False)
def mean_absolute_percentage_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return 100 * mean(|y_true - y_pred| / max(|y_true|, epsilon())) over the last axis.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> mean_absolute_percentage_error([[2.0, 4.0]], [[1.0, 4.0]]).tolist()
        [25.0]
    """
    y_true, y_pred = pair(y_true, y_pred, "mean_absolute_percentage_error")
    scale = ops.maximum(ops.absolute(y_true), config.epsilon())
    shares = ops.absolute(ops.divide(ops.subtract(y_true, y_pred), scale))
    return ops.multiply(ops.mean(shares, -1), 100.0)


@takes("numbers", lowest=0)
def mean_squared_logarithmic_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return mean((log(1 + y_true) - log(1 + y_pred))²) over the last axis; no number below 0.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> mean_squared_logarithmic_error([[0.0]], [[0.0]]).tolist()
        [0.0]
    """
    y_true, y_pred = pair(y_true, y_pred, "mean_squared_logarithmic_error")
    smallest = config.epsilon()
    first = ops.log(ops.add(ops.maximum(y_true, smallest), 1.0))
    second = ops.log(ops.add(ops.maximum(y_pred, smallest), 1.0))
    return ops.mean(ops.square(ops.subtract(first, second)), -1)


@takes("numbers")
def huber(y_true: TensorLike, y_pred: TensorLike, delta: float = 1.0) -> Tensor:
    """Return the mean over the last axis of e²/2 where |e| <= delta, else delta (|e| - delta/2).

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.
        delta: the error from which on it grows linearly, > 0.

    Shape: (..., d), (..., d) -> (...)

    Source: Huber, Robust estimation of a location parameter, 1964.

    Example:
        >>> huber([[0.0, 0.0]], [[1.0, 3.0]]).tolist()
        [1.5]
    """
    y_true, y_pred = pair(y_true, y_pred, "huber")
    error = ops.absolute(ops.subtract(y_true, y_pred))
    square = ops.multiply(ops.square(error), 0.5)
    linear = ops.multiply(ops.subtract(error, 0.5 * delta), float(delta))
    return ops.mean(ops.where(ops.less_equal(error, delta), square, linear), -1)


@takes("numbers")
def log_cosh(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return mean(log(cosh(y_pred - y_true))) over the last axis, without overflow.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> log_cosh([[0.0]], [[0.0]]).tolist()
        [0.0]
    """
    y_true, y_pred = pair(y_true, y_pred, "log_cosh")
    error = ops.subtract(y_pred, y_true)
    # log(cosh(e)) = e + log(1 + exp(-2e)) - log(2)
    grown = ops.add(error, ops.softplus(ops.multiply(error, -2.0)))
    return ops.mean(ops.subtract(grown, math.log(2.0)), -1)


@takes("any")
def cosine_similarity(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    """Return -cos of the angle between targets and predictions: -1 where they point one way.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.
        axis: the axis along which they are vectors.

    Example:
        >>> cosine_similarity([[1.0, 0.0]], [[2.0, 0.0]]).tolist()
        [-1.0]
    """
    y_true, y_pred = pair(y_true, y_pred, "cosine_similarity")
    along = ops.multiply(ops.normalize(y_true, axis), ops.normalize(y_pred, axis))
    return ops.negative(ops.sum(along, axis))


class MeanSquaredError(PlainLoss):
    """The mean of (y_true - y_pred)².

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> MeanSquaredError()([[0.0, 2.0]], [[1.0, 0.0]]).item()
        2.5
    """

    _function = staticmethod(mean_squared_error)


class MeanAbsoluteError(PlainLoss):
    """The mean of |y_true - y_pred|.

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> MeanAbsoluteError()([[0.0, 2.0]], [[1.0, 0.0]]).item()
        1.5
    """

    _function = staticmethod(mean_absolute_error)


class MeanAbsolutePercentageError(PlainLoss):
    """The mean of 100 |y_true - y_pred| / |y_true|.

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> MeanAbsolutePercentageError()([[2.0, 4.0]], [[1.0, 4.0]]).item()
        25.0
    """

    _function = staticmethod(mean_absolute_percentage_error)


class MeanSquaredLogarithmicError(PlainLoss):
    """The mean of (log(1 + y_true) - log(1 + y_pred))².

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> MeanSquaredLogarithmicError()([[0.0]], [[0.0]]).item()
        0.0
    """

    _function = staticmethod(mean_squared_logarithmic_error)


class Huber(LossFunction):
    """Squared error near 0, absolute error from `delta` on.

    Args:
        delta: where the one turns into the other, > 0.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Source: Huber, Robust estimation of a location parameter, 1964.

    Example:
        >>> Huber()([[0.0, 0.0]], [[1.0, 3.0]]).item()
        1.5
    """

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "huber_loss",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(huber, reduction, name, dtype, delta=delta)


class LogCosh(PlainLoss):
    """The mean of log(cosh(y_pred - y_true)).

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> LogCosh()([[0.0]], [[0.0]]).item()
        0.0
    """

    _function = staticmethod(log_cosh)


class CosineSimilarity(LossFunction):
    """Minus the cosine of the angle between targets and predictions.

    Args:
        axis: the axis along which they are vectors.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> CosineSimilarity()([[1.0, 0.0]], [[2.0, 0.0]]).item()
        -1.0
    """

    def __init__(
        self,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cosine_similarity",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(cosine_similarity, reduction, name, dtype, axis=axis)
