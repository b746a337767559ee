"""Counts of right and wrong decisions at thresholds, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.losses.reduction import align, spread
from kerasish.metrics.metric import Metric
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, DTypeLike, TensorLike

_BELOW_ALL = -1e10  # what predictions become that are not among the k largest


class Counts(NamedTuple):
    """The weights of true and false positives and negatives, one entry a threshold (and label)."""

    true_positives: Any
    false_positives: Any
    true_negatives: Any
    false_negatives: Any


def check_thresholds(thresholds: Any, default: float) -> list[float]:
    """Return the thresholds as a list.

    Raises:
        ValueError: one of them is outside [0, 1].
    """
    if thresholds is None:
        return [default]
    values = list(thresholds) if isinstance(thresholds, (list, tuple, np.ndarray)) else [thresholds]
    bad = [t for t in values if t is None or not 0 <= t <= 1]
    if bad:
        raise ValueError(f"Thresholds must be in [0, 1], got {bad[0]!r} in {thresholds!r}.")
    return [float(t) for t in values]


def prepare(
    y_true: TensorLike,
    y_pred: TensorLike,
    sample_weight: TensorLike | None = None,
    top_k: int | None = None,
    class_id: int | None = None,
    dtype: str = "float32",
) -> tuple[Any, Any, Any]:
    """Return targets, predictions and weights (or None) of one shape.

    Args:
        top_k: let only the k largest predictions of a row count as positive.
        class_id: the only entry of the last axis that counts.

    Raises:
        ShapeError: they do not fit.
    """
    y_pred = ops.convert_to_tensor(y_pred, dtype)
    y_true = ops.convert_to_tensor(y_true, dtype)
    true, pred = y_true.shape, y_pred.shape
    y_true, y_pred = align(y_true, y_pred)
    if y_true.shape != y_pred.shape:
        raise ShapeError(
            f"Targets of shape {true} do not fit predictions of shape {pred}: expected one target "
            "for each prediction, so one-hot targets for several classes (utils.to_categorical)."
        )
    if sample_weight is not None:
        sample_weight = ops.convert_to_tensor(sample_weight, dtype)
        _, sample_weight = align(y_pred, sample_weight)
        sample_weight = ops.broadcast_to(spread(sample_weight, y_pred), y_pred.shape)
    if top_k is not None:
        largest = ops.top_k(y_pred, top_k, False)[1]
        counts = ops.max(ops.one_hot(largest, y_pred.shape[-1], dtype="int32"), -2)
        y_pred = ops.where(ops.equal(counts, 1), y_pred, _BELOW_ALL)
    if class_id is not None and len(y_pred.shape) < 2:
        raise ShapeError(
            f"class_id={class_id} is an entry of the last axis of (n, classes), got predictions "
            f"of shape {pred}."
        )
    if class_id is not None:
        if not -y_pred.shape[-1] <= class_id < y_pred.shape[-1]:
            raise ValueError(
                f"class_id={class_id} is an entry of the last axis, and the predictions of shape "
                f"{tuple(y_pred.shape)} have {y_pred.shape[-1]} classes."
            )
        y_true, y_pred = y_true[..., class_id], y_pred[..., class_id]
        sample_weight = None if sample_weight is None else sample_weight[..., class_id]
    return y_true, y_pred, sample_weight


def count(
    y_true: TensorLike,
    y_pred: AnyTensor,
    weights: Tensor | None,
    thresholds: Sequence[float],
    by_label: bool = False,
) -> Counts:
    """Return the counts at ascending thresholds: a prediction above one is positive there.

    Each prediction falls between two thresholds; its weight goes there once, and running sums from
    both ends give all the counts, so that the work hardly grows with the number of thresholds.

    Args:
        y_true: targets, in [0, 1].
        weights: one a target, or None.
        by_label: keep the entries of the last axis apart.

    Shape: (n, ...) -> (thresholds,), or (thresholds, labels) by label
    """
    if len(thresholds) == 1 and not by_label:
        return _count_at_one(y_true, y_pred, weights, thresholds[0])
    labels = y_pred.shape[-1] if by_label else 1
    spots = len(thresholds) + 1
    edges = np.asarray(thresholds, np.float32)
    spot = ops.searchsorted(ops.convert_to_tensor(edges, y_pred.dtype), ops.reshape(y_pred, (-1,)))
    if by_label:
        spot = ops.reshape(ops.reshape(spot, (-1, labels)) + ops.arange(labels) * spots, (-1,))
    hit, miss = _shares(y_true, weights)
    both = ops.stack([ops.reshape(hit, (-1,)), ops.reshape(miss, (-1,))], 1)
    held = ops.segment_sum(both, spot, labels * spots)
    held = ops.reshape(held, (labels, spots, 2))
    below = ops.cumsum(held, 1)[:, :-1]
    above = ops.flip(ops.cumsum(ops.flip(held, 1), 1), 1)[:, 1:]
    parts = (above[..., 0], above[..., 1], below[..., 1], below[..., 0])
    return Counts(*(ops.transpose(p) if by_label else p[0] for p in parts))


def _shares(y_true: TensorLike, weights: Tensor | None) -> tuple[Any, Any]:
    """Return the weights of targets as positives, and as negatives."""
    other = ops.subtract(1.0, y_true)
    if weights is None:
        return y_true, other
    return ops.multiply(y_true, weights), ops.multiply(other, weights)


def _count_at_one(
    y_true: AnyTensor, y_pred: AnyTensor, weights: Tensor | None, threshold: float
) -> Counts:
    positive = ops.cast(ops.greater(y_pred, threshold), y_true.dtype)
    negative = ops.subtract(1.0, positive)
    hit, miss = _shares(y_true, weights)
    parts = ((hit, positive), (miss, positive), (miss, negative), (hit, negative))
    return Counts(*(ops.reshape(ops.sum(ops.multiply(a, b)), (1,)) for a, b in parts))


class _Counting(Metric):
    """A metric that adds up some of the four counts at thresholds.

    `_counted` names the counts that it keeps, each in a variable.
    """

    _counted: tuple[str, ...] = ()

    def _start(self, thresholds: float | Sequence[Any] | None, default: float = 0.5) -> None:
        self.init_thresholds = thresholds
        self.thresholds = check_thresholds(thresholds, default)
        order = np.argsort(self.thresholds, kind="stable")
        self._ascending = [self.thresholds[i] for i in order]
        self._places = None if np.all(np.diff(order) > 0) else np.argsort(order).astype("int32")

    def _keep(self, names: Sequence[str]) -> None:
        for name in names:
            setattr(self, name, self.add_variable((len(self.thresholds),), name=name))

    def _count(
        self,
        y_true: AnyTensor,
        y_pred: AnyTensor,
        weights: Tensor | None,
        variables: dict[str, Any],
    ) -> None:
        y_true = ops.cast(ops.not_equal(y_true, 0.0), y_pred.dtype)
        counts = count(y_true, y_pred, weights, self._ascending)
        for name, variable in variables.items():
            added = getattr(counts, name)
            if self._places is not None:
                added = ops.take(added, self._places)
            variable.assign_add(added)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "thresholds": self.init_thresholds}

    def _one_or_all(self, x: Tensor) -> Tensor:
        return x[0] if len(self.thresholds) == 1 else x


class _Confusion(_Counting):
    """One of the four counts."""

    def __init__(
        self,
        thresholds: float | Sequence[float] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._start(thresholds)
        self.accumulator = self.add_variable((len(self.thresholds),), name="accumulator")

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Take in targets (0 or 1) and predictions (in [0, 1])."""
        y_true, y_pred, weights = prepare(y_true, y_pred, sample_weight, dtype=self._dtype)
        self._count(y_true, y_pred, weights, {self._counted[0]: self.accumulator})

    def result(self) -> Tensor:
        """Return the count; one per threshold if there are several."""
        return self._one_or_all(self.accumulator.value)


class TruePositives(_Confusion):
    """How many targets 1 are predicted as 1.

    Args:
        thresholds: predictions above it mean 1, in [0, 1]; or several; None: 0.5.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> TruePositives()([1, 1, 0], [0.9, 0.2, 0.9]).item()
        1.0
    """

    _counted = ("true_positives",)


class TrueNegatives(_Confusion):
    """How many targets 0 are predicted as 0.

    Args:
        thresholds: predictions above it mean 1, in [0, 1]; or several; None: 0.5.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> TrueNegatives()([1, 1, 0], [0.9, 0.2, 0.1]).item()
        1.0
    """

    _counted = ("true_negatives",)


class FalsePositives(_Confusion):
    """How many targets 0 are predicted as 1.

    Args:
        thresholds: predictions above it mean 1, in [0, 1]; or several; None: 0.5.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> FalsePositives()([1, 1, 0], [0.9, 0.2, 0.9]).item()
        1.0
    """

    _counted = ("false_positives",)


class FalseNegatives(_Confusion):
    """How many targets 1 are predicted as 0.

    Args:
        thresholds: predictions above it mean 1, in [0, 1]; or several; None: 0.5.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> FalseNegatives()([1, 1, 0], [0.9, 0.2, 0.9]).item()
        1.0
    """

    _counted = ("false_negatives",)


class _Ratio(_Counting):
    """true positives / (true positives + one other count)."""

    direction = "up"

    def __init__(
        self,
        thresholds: float | Sequence[Any] | None = None,
        top_k: int | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._start(thresholds, 0.5 if top_k is None else _BELOW_ALL)
        self.top_k, self.class_id = top_k, class_id
        self._keep(self._counted)

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Take in targets (0 or 1) and predictions (in [0, 1])."""
        y_true, y_pred, weights = prepare(
            y_true, y_pred, sample_weight, self.top_k, self.class_id, self._dtype
        )
        self._count(y_true, y_pred, weights, {n: getattr(self, n) for n in self._counted})

    def result(self) -> Tensor:
        """Return the ratio, 0 where nothing was counted; one a threshold if there are several."""
        hits, others = (getattr(self, n).value for n in self._counted)
        return self._one_or_all(ops.divide_no_nan(hits, ops.add(hits, others)))


class Precision(_Ratio):
    """true positives / all that was predicted as 1.

    Args:
        thresholds: predictions above it mean 1, in [0, 1]; or several; None: 0.5.
        top_k: let the k largest predictions of a row mean 1 (with thresholds: if above them too);
            None: only thresholds decide.
        class_id: the only class that counts; None: all.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> Precision()([1, 1, 0], [0.9, 0.2, 0.9]).item()
        0.5
    """

    _counted = ("true_positives", "false_positives")


class Recall(_Ratio):
    """true positives / all that is 1.

    Args:
        thresholds: predictions above it mean 1, in [0, 1]; or several; None: 0.5.
        top_k: let the k largest predictions of a row mean 1 (with thresholds: if above them too);
            None: only thresholds decide.
        class_id: the only class that counts; None: all.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> Recall()([1, 1, 0], [0.9, 0.2, 0.9]).item()
        0.5
    """

    _counted = ("true_positives", "false_negatives")
