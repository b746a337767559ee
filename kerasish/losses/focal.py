"""Focal cross-entropies: samples that are predicted well already count less."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import config, ops
from kerasish.losses.loss import LossFunction
from kerasish.losses.pair import pair, same_shape
from kerasish.losses.probabilistic import check_share, smooth
from kerasish.losses.targets import takes
from kerasish.tensor import Tensor
from kerasish.typing import DTypeLike, TensorLike


@takes("binary")
def binary_focal_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Return mean((1 - q)^gamma * cross-entropy) over `axis`, q = t * p + (1 - t) * (1 - p).

    Args:
        y_true: t, in [0, 1].
        y_pred: p, in [0, 1], or logits.
        apply_class_balancing: weigh class 1 by alpha, class 0 by 1 - alpha.
        alpha: weight of class 1, in [0, 1].
        gamma: how fast well predicted samples lose weight, >= 0.
        from_logits: whether `y_pred` is logits.
        label_smoothing: share s in [0, 1]: targets become t * (1 - s) + s / 2.
        axis: the axis of the mean.

    Shape: (..., d), (..., d) -> (...)

    Source: Lin et al., Focal loss for dense object detection, 2017.

    Example:
        >>> binary_focal_crossentropy([[1.0]], [[1.0]]).tolist() < [1e-6]
        True
    """
    y_true, y_pred = same_shape(y_true, y_pred, "binary_focal_crossentropy")
    y_true = smooth(y_true, label_smoothing, 2)
    entropy = ops.binary_crossentropy(y_true, y_pred, from_logits)
    p = ops.sigmoid(y_pred) if from_logits else y_pred
    other = ops.subtract(1.0, y_true)
    missed = ops.add(ops.multiply(y_true, ops.subtract(1.0, p)), ops.multiply(other, p))
    values = ops.multiply(ops.power(missed, float(gamma)), entropy)
    if apply_class_balancing:
        weights = ops.add(ops.multiply(y_true, alpha), ops.multiply(other, 1.0 - alpha))
        values = ops.multiply(values, weights)
    return ops.mean(values, axis)


@takes("one-hot")
def categorical_focal_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    alpha: float | Sequence[float] = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Return -sum(alpha * (1 - p)^gamma * t * log(p)) over `axis`.

    Args:
        y_true: t, one-hot or a distribution.
        y_pred: p (scaled to sum to 1), or logits.
        alpha: one weight, or one per class.
        gamma: how fast well predicted samples lose weight, >= 0.
        from_logits: whether `y_pred` is logits.
        label_smoothing: share s in [0, 1]: targets become t * (1 - s) + s / k, k being the size
            of the last axis (as in Keras, whatever `axis` is).
        axis: the axis of the classes.

    Shape: (..., classes), (..., classes) -> (...)

    Source: Lin et al., Focal loss for dense object detection, 2017.

    Example:
        >>> categorical_focal_crossentropy([[0.0, 1.0]], [[0.0, 1.0]]).tolist() < [1e-6]
        True
    """
    y_true, y_pred = pair(y_true, y_pred, "categorical_focal_crossentropy")
    y_true = smooth(y_true, label_smoothing, y_true.shape[-1] if y_true.shape else 1)
    if from_logits:
        p = ops.softmax(y_pred, axis)
    else:
        p = ops.divide(y_pred, ops.sum(y_pred, axis, True))
    p = ops.clip(p, config.epsilon(), 1.0 - config.epsilon())
    entropy = ops.negative(ops.multiply(y_true, ops.log(p)))
    factor = ops.multiply(ops.power(ops.subtract(1.0, p), float(gamma)), _weights(alpha, p))
    return ops.sum(ops.multiply(factor, entropy), axis)


def _weights(alpha: float | Sequence[float], like: Tensor) -> TensorLike:
    return alpha if isinstance(alpha, (int, float)) else ops.convert_to_tensor(alpha, like.dtype)


class BinaryFocalCrossentropy(LossFunction):
    """Binary cross-entropy in which well predicted samples count less.

    Args:
        apply_class_balancing, alpha, gamma, from_logits, label_smoothing, axis: see
            `binary_focal_crossentropy`.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Source: Lin et al., Focal loss for dense object detection, 2017.

    Example:
        >>> BinaryFocalCrossentropy(gamma=0.0, from_logits=True)([[1.0]], [[0.0]]).item()
        0.6931471824645996
    """

    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_focal_crossentropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        check_share(label_smoothing, "BinaryFocalCrossentropy")
        super().__init__(
            binary_focal_crossentropy, reduction, name, dtype,
            apply_class_balancing=apply_class_balancing, alpha=alpha, gamma=gamma,
            from_logits=from_logits, label_smoothing=label_smoothing, axis=axis,
        )  # fmt: skip


class CategoricalFocalCrossentropy(LossFunction):
    """Categorical cross-entropy in which well predicted samples count less.

    Args:
        alpha, gamma, from_logits, label_smoothing, axis: see `categorical_focal_crossentropy`.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Source: Lin et al., Focal loss for dense object detection, 2017.

    Example:
        >>> loss = CategoricalFocalCrossentropy(alpha=1.0, gamma=0.0)
        >>> round(loss([[0.0, 1.0]], [[0.5, 0.5]]).item(), 6)
        0.693147
    """

    def __init__(
        self,
        alpha: float | Sequence[float] = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_focal_crossentropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        check_share(label_smoothing, "CategoricalFocalCrossentropy")
        super().__init__(
            categorical_focal_crossentropy, reduction, name, dtype,
            alpha=alpha, gamma=gamma, from_logits=from_logits,
            label_smoothing=label_smoothing, axis=axis,
        )  # fmt: skip
