"""What is read off the curves that a moving threshold draws: areas, and best points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from kerasish import config, ops
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.metrics.confusion import Counts, check_thresholds, count, prepare
from kerasish.metrics.metric import Metric
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import DTypeLike, TensorLike

_CURVES = ("ROC", "PR", "PRGAIN")
_METHODS = ("interpolation", "majoring", "minoring")


class _Curve(Metric):
    """A metric that keeps all four counts at many thresholds."""

    direction = "up"
    true_positives: Any

    def _keep(self, shape: tuple[int, ...]) -> None:
        for name in Counts._fields:
            setattr(self, name, self.add_variable(shape, name=name))

    def _counts(self) -> Counts:
        return Counts(*(getattr(self, name).value for name in Counts._fields))

    def _add(self, counts: Counts) -> None:
        for name, added in zip(Counts._fields, counts):
            getattr(self, name).assign_add(added)


def _check_choice(value: str, known: tuple[str, ...], what: str) -> str:
    for name in known:
        if str(value).lower() == name.lower():
            return name
    raise UnknownNameError.of(what, value, known)


class AUC(_Curve):
    """The area under the curve of true against false positives (or precision against recall).

    Args:
        num_thresholds: how many thresholds divide [0, 1] evenly, >= 2: more are nearer
            to the true area.
        curve: "ROC"; "PR"; or "PRGAIN": of the gains of precision and recall over always saying 1.
        summation_method: how a step of the curve is filled: "interpolation", "minoring" (from
            below), "majoring" (from above).
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        thresholds: thresholds in (0, 1), instead of `num_thresholds`; None: evenly spaced.
        multi_label: the mean of the areas of the labels (the last axis).
        num_labels: how many labels there are, when known beforehand; None: from the first batch.
        label_weights: the weights of the labels in that mean; without `multi_label`: of their
            samples; None: equal.
        from_logits: whether predictions are logits.

    Source: Davis and Goadrich, The relationship between precision-recall and ROC curves, 2006;
        Flach and Kull, Precision-recall-gain curves, 2015.

    Example:
        >>> round(AUC()([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9]).item(), 3)
        0.75
    """

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        thresholds: Sequence[float] | None = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Sequence[float] | None = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.curve = _check_choice(curve, _CURVES, "curve")
        self.summation_method = _check_choice(summation_method, _METHODS, "summation_method")
        self._given = None
        if thresholds is not None:
            inner = sorted(check_thresholds(list(thresholds), 0.5))
            self._given, num_thresholds = inner, len(inner) + 2
        elif num_thresholds < 2:
            raise ValueError(f"AUC: num_thresholds is at least 2, got {num_thresholds}.")
        else:
            inner = [i / (num_thresholds - 1) for i in range(1, num_thresholds - 1)]
        self.num_thresholds = num_thresholds
        # A little beyond 0 and 1, so that the curve reaches both its ends.
        self._thresholds = [-config.epsilon(), *inner, 1.0 + config.epsilon()]
        self.multi_label, self.num_labels = bool(multi_label), num_labels
        self.label_weights, self.from_logits = label_weights, bool(from_logits)
        if num_labels is not None and not multi_label:
            raise ValueError("AUC: num_labels is for multi_label=True.")
        self._built = False
        if not multi_label:
            self._build(None)
        elif num_labels:
            self._build(num_labels)

    @property
    def thresholds(self) -> list[float]:
        """The thresholds, ascending, as a NumPy array."""
        return np.asarray(self._thresholds)

    def _build(self, labels: int | None) -> None:
        size = len(self._thresholds)
        self._keep((size,) if labels is None else (size, labels))
        self._built = True

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Take in targets (0 or 1) and predictions (in [0, 1], or logits)."""
        y_true, y_pred, weights = prepare(y_true, y_pred, sample_weight, dtype=self._dtype)
        if self.from_logits:
            y_pred = ops.sigmoid(y_pred)
        if not self._built:
            if len(y_pred.shape) != 2:
                raise ShapeError(
                    f"AUC: multi_label=True wants predictions (n, labels), got {y_pred.shape}."
                )
            self._build(y_pred.shape[1])
        if self.label_weights is not None and not self.multi_label:
            own = ops.convert_to_tensor(self.label_weights, y_pred.dtype)
            weights = ops.multiply(own, ops.ones_like(y_pred) if weights is None else weights)
        self._add(count(y_true, y_pred, weights, self._thresholds, self.multi_label))

    def result(self) -> Tensor:
        """Return the area, in [0, 1]; 0 before the first batch."""
        if not self._built:
            return ops.zeros((), self._dtype)
        areas = self._areas(self._counts())
        if not self.multi_label:
            return areas
        if self.label_weights is None:
            return ops.mean(areas)
        weights = ops.convert_to_tensor(self.label_weights, self._dtype)
        return ops.divide_no_nan(ops.sum(ops.multiply(areas, weights)), ops.sum(weights))

    def _areas(self, counts: Counts) -> Tensor:
        if self.curve == "PR" and self.summation_method == "interpolation":
            return _precision_recall_area(counts)
        tp, fp, tn, fn = counts
        recall = ops.divide_no_nan(tp, ops.add(tp, fn))
        if self.curve == "ROC":
            x, y = ops.divide_no_nan(fp, ops.add(fp, tn)), recall
        elif self.curve == "PRGAIN":
            odds = ops.divide_no_nan(ops.add(tp, fn), ops.add(fp, tn))
            x, y = _gain(tp, fn, odds, 0.0), _gain(tp, fp, odds, 1.0)
        else:
            x, y = recall, ops.divide_no_nan(tp, ops.add(tp, fp))
        first, second = y[:-1], y[1:]
        if self.summation_method == "interpolation":
            height = ops.multiply(ops.add(first, second), 0.5)
        elif self.summation_method == "minoring":
            height = ops.minimum(first, second)
        else:
            height = ops.maximum(first, second)
        return ops.sum(ops.multiply(ops.subtract(x[:-1], x[1:]), height), 0)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        results = super().get_config()
        results["thresholds"] = self._given
        if self._given is None:
            del results["thresholds"]
        return results


def _gain(hits: Tensor, errors: Tensor, odds: Tensor, of_nothing: float) -> Tensor:
    """Return 1 - odds * errors / hits, at least 0; `of_nothing` where neither was counted."""
    gain = ops.relu(ops.subtract(1.0, ops.multiply(odds, ops.divide_no_nan(errors, hits))))
    none = ops.where(ops.greater(errors, 0.0), ops.zeros_like(gain), of_nothing)
    return ops.where(ops.greater(hits, 0.0), gain, none)


def _precision_recall_area(counts: Counts) -> Tensor:
    """Return the area of steps along which true positives grow linearly with the predicted ones.

    With tp = slope * p + rest, precision is slope + rest / p, whose integral over tp has a
    logarithm.
    """
    tp, fp, _, fn = counts
    p = ops.add(tp, fp)
    gained = ops.subtract(tp[:-1], tp[1:])
    slope = ops.divide_no_nan(gained, ops.relu(ops.subtract(p[:-1], p[1:])))
    rest = ops.subtract(tp[1:], ops.multiply(slope, p[1:]))
    known = ops.logical_and(ops.greater(p[:-1], 0.0), ops.greater(p[1:], 0.0))
    ratio = ops.where(known, ops.divide_no_nan(p[:-1], p[1:]), 1.0)
    step = ops.multiply(slope, ops.add(gained, ops.multiply(rest, ops.log(ratio))))
    return ops.sum(ops.divide_no_nan(step, ops.add(tp[1:], fn[1:])), 0)


class PointOptions(TypedDict, total=False):
    """Arguments of the metrics of one point of a curve, other than the given rate."""

    num_thresholds: int
    class_id: int | None
    name: str | None
    dtype: DTypeLike | None


_OPTIONS = {"num_thresholds": 200, "class_id": None, "name": None, "dtype": None}
_with_options = with_options(PointOptions, _OPTIONS, rest=False)


# A rate is the share of its first count in the sum of both.
_RATES = {
    "sensitivity": ("true_positives", "false_negatives"),
    "specificity": ("true_negatives", "false_positives"),
    "precision": ("true_positives", "false_positives"),
    "recall": ("true_positives", "false_negatives"),
}


class _BestPoint(_Curve):
    """The largest of one rate among the thresholds at which another is large enough."""

    _maximized = ""  # the first of these rates

    def __init__(
        self, given: str, value: float, num_thresholds: int, class_id: int | None, **options: Any
    ) -> None:
        super().__init__(**options)
        if not 0 <= value <= 1:
            raise ValueError(f"{type(self).__name__}: {given} must be in [0, 1], got {value}.")
        if num_thresholds < 1:
            raise ValueError(
                f"{type(self).__name__}: num_thresholds is at least 1, got {num_thresholds}."
            )
        self._given, self._value = given, value
        self.num_thresholds, self.class_id = num_thresholds, class_id
        setattr(self, given, value)
        last = num_thresholds - 1
        self.thresholds = [0.5] if not last else [i / last for i in range(num_thresholds)]
        self._keep((num_thresholds,))

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Take in targets (0 or 1) and predictions (in [0, 1])."""
        y_true, y_pred, weights = prepare(
            y_true, y_pred, sample_weight, class_id=self.class_id, dtype=self._dtype
        )
        self._add(count(y_true, y_pred, weights, self.thresholds))

    def _rate(self, name: str) -> Tensor:
        x, other = (getattr(self, count).value for count in _RATES[name])
        return ops.divide_no_nan(x, ops.add(x, other))

    def result(self) -> Tensor:
        """Return the largest rate; 0 where no threshold will do."""
        maximized = self._rate(self._maximized)
        allowed = ops.greater_equal(self._rate(self._given), self._value)
        return ops.max(ops.where(allowed, maximized, ops.zeros_like(maximized)))


class SensitivityAtSpecificity(_BestPoint):
    """The best sensitivity, tp / (tp + fn), among thresholds of at least this specificity.

    Args:
        specificity: tn / (tn + fp), in [0, 1].
        num_thresholds: how many thresholds divide [0, 1] evenly, >= 1.
        class_id: the only class that counts; None: all.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> SensitivityAtSpecificity(0.5)([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9]).item()
        1.0
    """

    _maximized = "sensitivity"

    @_with_options
    def __init__(self, specificity: float, **options: Unpack[PointOptions]) -> None:
        super().__init__("specificity", specificity, **options)


class SpecificityAtSensitivity(_BestPoint):
    """The best specificity, tn / (tn + fp), among thresholds of at least this sensitivity.

    Args:
        sensitivity: tp / (tp + fn), in [0, 1].
        num_thresholds: how many thresholds divide [0, 1] evenly, >= 1.
        class_id: the only class that counts; None: all.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> SpecificityAtSensitivity(0.5)([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9]).item()
        1.0
    """

    _maximized = "specificity"

    @_with_options
    def __init__(self, sensitivity: float, **options: Unpack[PointOptions]) -> None:
        super().__init__("sensitivity", sensitivity, **options)


class PrecisionAtRecall(_BestPoint):
    """The best precision, tp / (tp + fp), among thresholds of at least this recall.

    Args:
        recall: tp / (tp + fn), in [0, 1].
        num_thresholds: how many thresholds divide [0, 1] evenly, >= 1.
        class_id: the only class that counts; None: all.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> PrecisionAtRecall(0.5)([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9]).item()
        1.0
    """

    _maximized = "precision"

    @_with_options
    def __init__(self, recall: float, **options: Unpack[PointOptions]) -> None:
        super().__init__("recall", recall, **options)


class RecallAtPrecision(_BestPoint):
    """The best recall, tp / (tp + fn), among thresholds of at least this precision.

    Args:
        precision: tp / (tp + fp), in [0, 1].
        num_thresholds: how many thresholds divide [0, 1] evenly, >= 1.
        class_id: the only class that counts; None: all.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> RecallAtPrecision(0.8)([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9]).item()
        0.5
    """

    _maximized = "recall"

    @_with_options
    def __init__(self, precision: float, **options: Unpack[PointOptions]) -> None:
        super().__init__("precision", precision, **options)
