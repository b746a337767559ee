"""Intersection over union of predicted and true classes, for segmentation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.metrics.metric import Metric
from kerasish.ops import dtypes
from kerasish.tensor import Tensor
from kerasish.typing import DTypeLike, TensorLike


class _Overlap(Metric):
    """A metric that keeps the confusion matrix: rows are true classes, columns predicted ones."""

    direction = "up"

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(name=name, dtype=dtype or "int32")
        self.num_classes, self.ignore_class, self.axis = num_classes, ignore_class, axis
        self.sparse_y_true, self.sparse_y_pred = sparse_y_true, sparse_y_pred
        self.total_cm = self.add_variable((num_classes, num_classes), name="total_confusion_matrix")

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Take in true and predicted classes.

        Args:
            y_true, y_pred: numbers of classes in [0, num_classes); where they are not sparse, one
                number per class, of which the largest counts.
            sample_weight: one weight per class number (whole ones, unless dtype is a float).
        """
        true = self._classes(y_true, self.sparse_y_true)
        pred = self._classes(y_pred, self.sparse_y_pred)
        if true.shape != pred.shape:
            raise ShapeError(
                f"{self.name}: {true.shape[0]} true classes do not fit {pred.shape[0]} predicted "
                "ones."
            )
        classes = self.num_classes
        counts = ops.logical_and(_within(true, classes), _within(pred, classes))
        if self.ignore_class is not None:
            counts = ops.logical_and(counts, ops.not_equal(true, self.ignore_class))
        # What does not count goes to a place beyond the matrix.
        place = ops.where(counts, ops.add(ops.multiply(true, classes), pred), classes * classes)
        weights = self._weights(sample_weight, y_true, true)
        added = ops.segment_sum(weights, place, classes * classes)
        self.total_cm.assign_add(ops.reshape(added, (classes, classes)))

    def _classes(self, y: TensorLike, sparse: bool) -> Tensor:
        y = ops.convert_to_tensor(y)
        y = y if sparse else ops.argmax(y, self.axis)
        return ops.reshape(ops.cast(y, "int32"), (-1,))

    def _weights(
        self, sample_weight: TensorLike | None, y_true: TensorLike, true: Tensor
    ) -> Tensor:
        if sample_weight is None:
            return ops.ones(true.shape, self._dtype)
        weights = ops.convert_to_tensor(sample_weight)
        if dtypes.is_float(weights.dtype) and dtypes.is_integer(self._dtype):
            warnings.warn(
                f"{self.name}: sample weights are {weights.dtype} but the counts {self._dtype}: "
                'they lose their fractions. Give dtype="float32".',
                stacklevel=4,
            )
        weights = ops.cast(weights, self._dtype)
        if weights.size != true.size and self.sparse_y_true:
            shape = ops.convert_to_tensor(y_true).shape
            fill = (1,) * (len(shape) - len(weights.shape))
            weights = ops.broadcast_to(ops.reshape(weights, (*weights.shape, *fill)), shape)
        return ops.reshape(weights, (-1,))

    def _by_class(self) -> tuple[Any, Any]:
        """Return the ratio of each class, and whether the class occurred at all."""
        matrix = ops.cast(self.total_cm.value, _float(self._dtype))
        both = ops.diagonal(matrix)
        either = ops.subtract(ops.add(ops.sum(matrix, 0), ops.sum(matrix, 1)), both)
        return ops.divide_no_nan(both, either), ops.cast(ops.greater(either, 0.0), both.dtype)


def _within(classes: Tensor, count: int) -> Tensor:
    return ops.logical_and(ops.greater_equal(classes, 0), ops.less(classes, count))


def _float(dtype: str) -> str:
    return dtype if dtypes.is_float(dtype) else "float32"


class IoU(_Overlap):
    """The mean of tp / (tp + fp + fn) over chosen classes.

    Args:
        num_classes: how many classes there are.
        target_class_ids: the classes of the mean.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        ignore_class: true classes of this number do not count; None: all count.
        sparse_y_true, sparse_y_pred: whether they are class numbers (else one number per class).
        axis: the axis of the classes where they are not.

    Example:
        >>> IoU(num_classes=2, target_class_ids=[0])([0, 0, 1, 1], [0, 1, 0, 1]).item() < 0.34
        True
    """

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(num_classes, name, dtype, ignore_class, sparse_y_true, sparse_y_pred, axis)
        if max(target_class_ids) >= num_classes:
            raise ValueError(
                f"{type(self).__name__}: target class {max(target_class_ids)} is beyond the "
                f"{num_classes} classes."
            )
        self.target_class_ids = list(target_class_ids)

    def result(self) -> Tensor:
        """Return the mean ratio of the chosen classes that occurred."""
        ratios, occurred = self._by_class()
        if self.target_class_ids != list(range(self.num_classes)):
            ratios = ops.take(ratios, self.target_class_ids)
            occurred = ops.take(occurred, self.target_class_ids)
        return ops.divide_no_nan(ops.sum(ratios), ops.sum(occurred))


class BinaryIoU(IoU):
    """The mean of tp / (tp + fp + fn) over the classes 0 and 1.

    Args:
        target_class_ids: (0, 1), or one of them.
        threshold: predictions of at least it mean 1.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> BinaryIoU(target_class_ids=[1])([0, 1, 1], [0.1, 0.9, 0.2]).item()
        0.5
    """

    def __init__(
        self,
        target_class_ids: Sequence[int] = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(2, target_class_ids, name, dtype)
        self.threshold = threshold

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Take in targets (0 or 1) and predictions."""
        y_pred = ops.greater_equal(ops.convert_to_tensor(y_pred), self.threshold)
        super().update_state(y_true, ops.cast(y_pred, "int32"), sample_weight)


class MeanIoU(IoU):
    """The mean of tp / (tp + fp + fn) over all classes that occurred.

    Args:
        num_classes, ignore_class, sparse_y_true, sparse_y_pred, axis: see `IoU`.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> round(MeanIoU(num_classes=2)([0, 0, 1, 1], [0, 1, 0, 1]).item(), 4)
        0.3333
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(
            num_classes, range(num_classes), name, dtype, ignore_class,
            sparse_y_true, sparse_y_pred, axis,
        )  # fmt: skip


class OneHotIoU(IoU):
    """`IoU` of one-hot targets.

    Args:
        num_classes, target_class_ids, ignore_class, sparse_y_pred, axis: see `IoU`.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> OneHotIoU(2, [1])([[1, 0], [0, 1]], [[0.8, 0.2], [0.3, 0.7]]).item()
        1.0
    """

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(
            num_classes, target_class_ids, name, dtype, ignore_class, False, sparse_y_pred, axis
        )


class OneHotMeanIoU(MeanIoU):
    """`MeanIoU` of one-hot targets.

    Args:
        num_classes, ignore_class, sparse_y_pred, axis: see `IoU`.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> OneHotMeanIoU(2)([[1, 0], [0, 1]], [[0.8, 0.2], [0.3, 0.7]]).item()
        1.0
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(num_classes, name, dtype, ignore_class, False, sparse_y_pred, axis)
