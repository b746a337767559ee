"""Correlation of targets and predictions along an axis, as a mean over samples."""

from __future__ import annotations

from typing import Any

from kerasish import config, ops
from kerasish.losses.pair import pair
from kerasish.metrics.reduction import AxisMetric
from kerasish.tensor import Tensor
from kerasish.typing import TensorLike


def pearson_correlation(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    """Return cov(t, p) / (std(t) * std(p)) along `axis`, in [-1, 1]; nan for constants.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.
        axis: the axis along which it is taken.

    Example:
        >>> round(pearson_correlation([[1.0, 2.0, 3.0]], [[2.0, 4.0, 6.0]]).tolist()[0], 4)
        1.0
    """
    t, p = _centered(y_true, y_pred, axis, "pearson_correlation")[:2]
    lengths = ops.multiply(ops.sum(ops.square(t), axis), ops.sum(ops.square(p), axis))
    return ops.divide(ops.sum(ops.multiply(t, p), axis), ops.sqrt(lengths))


def concordance_correlation(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    """Return 2 * cov(t, p) / (var(t) + var(p) + (mean(t) - mean(p))²) along `axis`.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.
        axis: the axis along which it is taken.

    Source: Lin, A concordance correlation coefficient to evaluate reproducibility, 1989.

    Example:
        >>> round(concordance_correlation([[1.0, 2.0, 3.0]], [[2.0, 3.0, 4.0]]).tolist()[0], 4)
        0.5714
    """
    t, p, apart = _centered(y_true, y_pred, axis, "concordance_correlation")
    common = ops.multiply(ops.mean(ops.multiply(t, p), axis), 2.0)
    spread = ops.add(ops.mean(ops.square(t), axis), ops.mean(ops.square(p), axis))
    return ops.divide(common, ops.add(ops.add(spread, ops.square(apart)), config.epsilon()))


def _centered(y_true: TensorLike, y_pred: TensorLike, axis: int, what: str) -> tuple[Any, Any, Any]:
    """Return both less their means, and the difference of the means."""
    y_true, y_pred = pair(y_true, y_pred, what)
    true, pred = ops.mean(y_true, axis, True), ops.mean(y_pred, axis, True)
    apart = ops.subtract(ops.mean(y_true, axis), ops.mean(y_pred, axis))
    return ops.subtract(y_true, true), ops.subtract(y_pred, pred), apart


class PearsonCorrelation(AxisMetric):
    """The mean over samples of cov(t, p) / (std(t) * std(p)).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        axis: the axis of a sample's numbers; None: all.

    Example:
        >>> round(PearsonCorrelation()([[1.0, 2.0, 3.0]], [[2.0, 4.0, 6.0]]).item(), 4)
        1.0
    """

    direction = "up"
    _function = staticmethod(pearson_correlation)


class ConcordanceCorrelation(AxisMetric):
    """The mean over samples of 2 * cov(t, p) / (var(t) + var(p) + (mean(t) - mean(p))²).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        axis: the axis of a sample's numbers; None: all.

    Source: Lin, A concordance correlation coefficient to evaluate reproducibility, 1989.

    Example:
        >>> round(ConcordanceCorrelation()([[1.0, 2.0, 3.0]], [[2.0, 3.0, 4.0]]).item(), 4)
        0.5714
    """

    direction = "up"
    _function = staticmethod(concordance_correlation)
