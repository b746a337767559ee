"""Hinge losses: no loss beyond a margin of 1."""

from __future__ import annotations

from kerasish import ops
from kerasish.losses.loss import PlainLoss
from kerasish.losses.pair import pair
from kerasish.losses.targets import takes
from kerasish.tensor import Tensor
from kerasish.typing import TensorLike


def _signs(y_true: TensorLike) -> Tensor:
    """Return targets that are all 0 or 1 as -1 or 1, others as they are."""
    binary = ops.all(ops.logical_or(ops.equal(y_true, 0.0), ops.equal(y_true, 1.0)))
    return ops.where(binary, ops.subtract(ops.multiply(y_true, 2.0), 1.0), y_true)


def _shortfall(y_true: TensorLike, y_pred: TensorLike, what: str) -> Tensor:
    y_true, y_pred = pair(y_true, y_pred, what)
    return ops.maximum(ops.subtract(1.0, ops.multiply(_signs(y_true), y_pred)), 0.0)


@takes("signs")
def hinge(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return mean(max(1 - y_true * y_pred, 0)) over the last axis.

    Args:
        y_true: -1 or 1; where all are 0 or 1, 0 counts as -1.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> hinge([[-1.0, 1.0]], [[0.5, 2.0]]).tolist()
        [0.75]
    """
    return ops.mean(_shortfall(y_true, y_pred, "hinge"), -1)


@takes("signs")
def squared_hinge(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return mean(max(1 - y_true * y_pred, 0)²) over the last axis.

    Args:
        y_true: -1 or 1; where all are 0 or 1, 0 counts as -1.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> squared_hinge([[-1.0, 1.0]], [[1.0, 2.0]]).tolist()
        [2.0]
    """
    return ops.mean(ops.square(_shortfall(y_true, y_pred, "squared_hinge")), -1)


@takes("elements")
def categorical_hinge(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return max(1 + best wrong prediction - the right one, 0) over the last axis.

    Args:
        y_true: one-hot.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., classes), (..., classes) -> (...)

    Example:
        >>> categorical_hinge([[0.0, 1.0]], [[0.5, 0.75]]).tolist()
        [0.75]
    """
    y_true, y_pred = pair(y_true, y_pred, "categorical_hinge")
    right = ops.sum(ops.multiply(y_true, y_pred), -1)
    wrong = ops.max(ops.multiply(ops.subtract(1.0, y_true), y_pred), -1)
    return ops.maximum(ops.add(ops.subtract(wrong, right), 1.0), 0.0)


class Hinge(PlainLoss):
    """The mean of max(1 - y_true * y_pred, 0).

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> Hinge()([[-1.0, 1.0]], [[0.5, 2.0]]).item()
        0.75
    """

    _function = staticmethod(hinge)


class SquaredHinge(PlainLoss):
    """The mean of max(1 - y_true * y_pred, 0)².

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> SquaredHinge()([[-1.0, 1.0]], [[1.0, 2.0]]).item()
        2.0
    """

    _function = staticmethod(squared_hinge)


class CategoricalHinge(PlainLoss):
    """max(1 + best wrong prediction - the right one, 0), targets being one-hot.

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> CategoricalHinge()([[0.0, 1.0]], [[0.5, 0.75]]).item()
        0.75
    """

    _function = staticmethod(categorical_hinge)
