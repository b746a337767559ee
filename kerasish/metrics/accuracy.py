"""How often predictions are right: equal, above a threshold, the largest, among the k largest."""

from __future__ import annotations

from kerasish import config, ops
from kerasish.errors import ShapeError
from kerasish.losses.pair import as_float, pair
from kerasish.losses.reduction import align
from kerasish.metrics.reduction import MeanMetricWrapper, PlainMetric
from kerasish.ops.networks.crossentropy import class_hits
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, DTypeLike, TensorLike


def accuracy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return 1 where the prediction equals the target, else 0.

    Example:
        >>> accuracy([1, 2], [1, 3]).tolist()
        [1.0, 0.0]
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.convert_to_tensor(y_true, y_pred.dtype)
    y_true, y_pred = align(y_true, y_pred)
    return ops.cast(ops.equal(y_true, y_pred), config.floatx())


def binary_accuracy(y_true: TensorLike, y_pred: TensorLike, threshold: float = 0.5) -> Tensor:
    """Return 1 where the prediction is on the target's side of the threshold, else 0.

    Args:
        y_true: targets, 0 or 1.
        y_pred: predictions; above `threshold` they mean 1.
        threshold: a number.

    Shape: (...), (...) -> (...)

    Example:
        >>> binary_accuracy([[1, 0]], [[0.7, 0.6]]).tolist()
        [[1.0, 0.0]]
    """
    y_true, y_pred = pair(y_true, y_pred, "binary_accuracy")
    positive = ops.cast(ops.greater(y_pred, threshold), y_true.dtype)
    return ops.cast(ops.equal(y_true, positive), config.floatx())


def categorical_accuracy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return 1 where the largest prediction and the largest target have the same place, else 0.

    Args:
        y_true: one-hot or probability rows, shape (..., classes).
        y_pred: scores of the classes, shape (..., classes).

    Shape: (..., classes), (..., classes) -> (...)

    Example:
        >>> categorical_accuracy([[0, 1]], [[0.2, 0.8]]).tolist()
        [1.0]
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.convert_to_tensor(y_true)
    _check_classes(y_true, y_pred, "categorical_accuracy")
    same = ops.equal(ops.argmax(y_true, -1), ops.argmax(y_pred, -1))
    return ops.cast(same, config.floatx())


def sparse_categorical_accuracy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return 1 where the largest prediction is that of the target class, else 0.

    Args:
        y_true: numbers of classes.
        y_pred: one number per class.

    Shape: (...) or (..., 1), (..., classes) -> (...)

    Example:
        >>> sparse_categorical_accuracy([1, 0], [[0.2, 0.8], [0.2, 0.8]]).tolist()
        [1.0, 0.0]
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = _class_numbers(y_true, y_pred, "sparse_categorical_accuracy")
    return class_hits(y_true, y_pred)


def top_k_categorical_accuracy(y_true: TensorLike, y_pred: TensorLike, k: int = 5) -> Tensor:
    """Return 1 where the target class (the largest target) is among the k largest predictions.

    Args:
        y_true: one-hot or probability rows, shape (..., classes).
        y_pred: scores of the classes, shape (..., classes).
        k: how many predictions count, >= 1.

    Shape: (..., classes), (..., classes) -> (...)

    Example:
        >>> top_k_categorical_accuracy([[0, 0, 1]], [[0.1, 0.5, 0.4]], k=2).tolist()
        [1.0]
    """
    y_pred = as_float(y_pred)
    y_true = ops.convert_to_tensor(y_true)
    _check_classes(y_true, y_pred, "top_k_categorical_accuracy")
    return _among_largest(ops.argmax(y_true, -1), y_pred, k)


def sparse_top_k_categorical_accuracy(
    y_true: TensorLike, y_pred: TensorLike, k: int = 5, from_sorted_ids: bool = False
) -> Tensor:
    """Return 1 where the target class is among the k largest predictions, else 0.

    Args:
        y_true: numbers of classes.
        y_pred: one number per class; or the classes themselves, best first.
        k: how many predictions count, >= 1.
        from_sorted_ids: whether `y_pred` is the latter.

    Shape: (...) or (..., 1), (..., classes) -> (...)

    Example:
        >>> sparse_top_k_categorical_accuracy([2], [[0.1, 0.5, 0.4]], k=2).tolist()
        [1.0]
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = _class_numbers(y_true, y_pred, "sparse_top_k_categorical_accuracy")
    if from_sorted_ids:
        first = ops.cast(y_pred[..., :k], "int32")
        result = ops.any(ops.equal(ops.expand_dims(y_true, -1), first), -1)
        return ops.cast(result, config.floatx())
    return _among_largest(y_true, as_float(y_pred), k)


def _among_largest(classes: Tensor, y_pred: AnyTensor, k: int) -> Tensor:
    rows = y_pred if len(y_pred.shape) == 2 else ops.reshape(y_pred, (-1, y_pred.shape[-1]))
    flat = classes if len(classes.shape) == 1 else ops.reshape(classes, (-1,))
    result = ops.cast(ops.in_top_k(flat, rows, k), config.floatx())
    return result if len(classes.shape) == 1 else ops.reshape(result, classes.shape)


def _class_numbers(y_true: AnyTensor, y_pred: AnyTensor, what: str) -> Tensor:
    """Return the targets as int32 in the shape of the predictions without their last axis."""
    y_true = ops.convert_to_tensor(y_true, "int32")
    shape = y_true.shape
    if len(shape) == len(y_pred.shape) and shape and shape[-1] == 1:
        y_true = ops.squeeze(y_true, -1)
    if y_true.shape != tuple(y_pred.shape[:-1]):
        raise ShapeError(
            f"{what}: targets of shape {shape} do not fit predictions of shape {y_pred.shape}; "
            f"expected {tuple(y_pred.shape[:-1])}."
        )
    return y_true


def _check_classes(y_true: AnyTensor, y_pred: AnyTensor, what: str) -> None:
    if y_true.shape != y_pred.shape:
        raise ShapeError(
            f"{what}: targets of shape {y_true.shape} do not fit predictions of shape "
            f"{y_pred.shape}. (Targets that are numbers of classes want the sparse variant.)"
        )


class Accuracy(PlainMetric):
    """The share of predictions that equal their targets.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> Accuracy()([1, 2], [1, 3]).item()
        0.5
    """

    direction = "up"
    counts_hits = True
    _function = staticmethod(accuracy)


class BinaryAccuracy(MeanMetricWrapper):
    """The share of predictions on their target's side of a threshold.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        threshold: predictions above it mean 1.

    Example:
        >>> BinaryAccuracy()([[1], [0]], [[0.7], [0.6]]).item()
        0.5
    """

    direction = "up"
    counts_hits = True

    def __init__(
        self,
        name: str | None = "binary_accuracy",
        dtype: DTypeLike | None = None,
        threshold: float = 0.5,
    ) -> None:
        super().__init__(binary_accuracy, name, dtype, threshold=threshold)
        self.hit_threshold = threshold


class CategoricalAccuracy(PlainMetric):
    """The share of samples whose largest prediction is the target class; targets are one-hot.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> CategoricalAccuracy()([[0, 1], [1, 0]], [[0.2, 0.8], [0.3, 0.7]]).item()
        0.5
    """

    direction = "up"
    counts_hits = True
    _function = staticmethod(categorical_accuracy)


class SparseCategoricalAccuracy(PlainMetric):
    """The share of samples whose largest prediction is the target class.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> SparseCategoricalAccuracy()([1, 0], [[0.2, 0.8], [0.3, 0.7]]).item()
        0.5
    """

    direction = "up"
    counts_hits = True
    _function = staticmethod(sparse_categorical_accuracy)


class TopKCategoricalAccuracy(MeanMetricWrapper):
    """The share of samples whose target class is among the k largest predictions.

    Args:
        k: how many predictions count, >= 1.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> TopKCategoricalAccuracy(k=2)([[0, 0, 1]], [[0.1, 0.5, 0.4]]).item()
        1.0
    """

    direction = "up"

    def __init__(
        self,
        k: int = 5,
        name: str | None = "top_k_categorical_accuracy",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(top_k_categorical_accuracy, name, dtype, k=k)


class SparseTopKCategoricalAccuracy(MeanMetricWrapper):
    """The share of samples whose target class is among the k largest predictions.

    Args:
        k: how many predictions count, >= 1.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        from_sorted_ids: whether predictions are numbers of classes, best first.

    Example:
        >>> SparseTopKCategoricalAccuracy(k=2)([2], [[0.1, 0.5, 0.4]]).item()
        1.0
    """

    direction = "up"

    def __init__(
        self,
        k: int = 5,
        name: str | None = "sparse_top_k_categorical_accuracy",
        dtype: DTypeLike | None = None,
        from_sorted_ids: bool = False,
    ) -> None:
        super().__init__(
            sparse_top_k_categorical_accuracy, name, dtype, k=k, from_sorted_ids=from_sorted_ids
        )
