"""How little two regions overlap: Dice and Tversky, for segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import config, ops
from kerasish.losses.loss import LossFunction
from kerasish.losses.pair import pair
from kerasish.losses.shares import batch_sum
from kerasish.losses.targets import takes
from kerasish.tensor import Tensor
from kerasish.typing import Axis, DTypeLike, TensorLike


@takes("any")
def dice(y_true: TensorLike, y_pred: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """Return 1 - 2 * sum(t * p) / (sum(t) + sum(p)).

    Args:
        y_true: t, in [0, 1].
        y_pred: p, in [0, 1].
        axis: the axes of the sums; None: all.

    Source: Milletari et al., V-Net, 2016.

    Example:
        >>> dice([1.0, 1.0], [1.0, 0.0]).item() < 0.34
        True
    """
    y_true, y_pred = pair(y_true, y_pred, "dice")
    axes = _axes(axis)
    common = ops.multiply(batch_sum(ops.multiply(y_true, y_pred), axes), 2.0)
    whole = ops.add(batch_sum(y_true, axes), batch_sum(y_pred, axes))
    return ops.subtract(1.0, ops.divide(common, ops.add(whole, config.epsilon())))


@takes("any")
def tversky(
    y_true: TensorLike,
    y_pred: TensorLike,
    alpha: float = 0.5,
    beta: float = 0.5,
    axis: int | Sequence[int] | None = None,
) -> Tensor:
    """Return 1 - c / (c + alpha * false negatives + beta * false positives), c = sum(t * p).

    Alpha and beta are placed as in Keras's results, swapped compared with the paper.

    Args:
        y_true: t, in [0, 1].
        y_pred: p, in [0, 1].
        alpha: what false negatives, sum(t * (1 - p)), cost, >= 0.
        beta: what false positives, sum((1 - t) * p), cost, >= 0.
        axis: the axes of the sums; None: all.

    Source: Salehi et al., Tversky loss function for image segmentation, 2017.

    Example:
        >>> round(tversky([1.0, 1.0], [1.0, 0.0]).item(), 4)
        0.3333
    """
    y_true, y_pred = pair(y_true, y_pred, "tversky")
    axes = _axes(axis)
    common = batch_sum(ops.multiply(y_true, y_pred), axes)
    positives = batch_sum(ops.multiply(ops.subtract(1.0, y_true), y_pred), axes)
    negatives = batch_sum(ops.multiply(y_true, ops.subtract(1.0, y_pred)), axes)
    missed = ops.add(ops.multiply(negatives, alpha), ops.multiply(positives, beta))
    whole = ops.add(ops.add(common, missed), config.epsilon())
    return ops.subtract(1.0, ops.divide(common, whole))


def _axes(axis: Axis | None) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


class Dice(LossFunction):
    """1 - 2 * sum(t * p) / (sum(t) + sum(p)).

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        axis: the axes of the sums; None: all.
        dtype: dtype of the computation; None: the default float.

    Source: Milletari et al., V-Net, 2016.

    Example:
        >>> round(Dice()([1.0, 1.0], [1.0, 0.0]).item(), 4)
        0.3333
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "dice",
        axis: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(dice, reduction, name, dtype, axis=axis)


class Tversky(LossFunction):
    """1 - c / (c + alpha * false negatives + beta * false positives), c = sum(t * p).

    Args:
        alpha, beta: what false negatives and false positives cost, >= 0; see `tversky`.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        axis: the axes of the sums; None: all.
        dtype: dtype of the computation; None: the default float.

    Source: Salehi et al., Tversky loss function for image segmentation, 2017.

    Example:
        >>> round(Tversky()([1.0, 1.0], [1.0, 0.0]).item(), 4)
        0.3333
    """

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "tversky",
        axis: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(tversky, reduction, name, dtype, alpha=alpha, beta=beta, axis=axis)
