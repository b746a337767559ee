"""F-scores: precision and recall in one number, by class or over all."""

from __future__ import annotations

from kerasish import config, ops
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.metrics.metric import Metric
from kerasish.tensor import Tensor
from kerasish.typing import DTypeLike, TensorLike

_AVERAGES = ("micro", "macro", "weighted")


class FBetaScore(Metric):
    """(1 + b²) * precision * recall / (b² * precision + recall), b = beta.

    Args:
        average: None: one score a class; "micro": of all counts together; "macro": the mean of
            the scores; "weighted": their mean by how often the classes occur.
        beta: how many times recall matters as much as precision, > 0.
        threshold: predictions above it mean 1, in (0, 1]; None: the largest of a row does.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Shape: (n, classes), (n, classes) -> (classes,), or () with an average

    Source: van Rijsbergen, Information retrieval, 1979.

    Example:
        >>> score = FBetaScore(average="macro", beta=1.0, threshold=0.5)
        >>> round(score([[1.0], [1.0]], [[0.9], [0.2]]).item(), 4)
        0.6667
    """

    direction = "up"

    def __init__(
        self,
        average: str | None = None,
        beta: float = 1.0,
        threshold: float | None = None,
        name: str | None = "fbeta_score",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if average is not None and average not in _AVERAGES:
            raise UnknownNameError.of("average", average, _AVERAGES)
        if not isinstance(beta, float) or beta <= 0:
            raise ValueError(f"{type(self).__name__}: beta is a float > 0, got {beta!r}.")
        if threshold is not None and not (isinstance(threshold, float) and 0 < threshold <= 1):
            raise ValueError(
                f"{type(self).__name__}: threshold is a float in (0, 1], got {threshold!r}."
            )
        self.average, self.beta, self.threshold = average, beta, threshold
        self._built = False

    def _build(self, classes: int) -> None:
        shape = () if self.average == "micro" else (classes,)
        self.true_positives = self.add_variable(shape, name="true_positives")
        self.false_positives = self.add_variable(shape, name="false_positives")
        self.false_negatives = self.add_variable(shape, name="false_negatives")
        self._built = True

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Take in targets (0 or 1) and predictions."""
        y_true = ops.convert_to_tensor(y_true, self._dtype)
        y_pred = ops.convert_to_tensor(y_pred, self._dtype)
        if len(y_pred.shape) != 2 or y_true.shape != y_pred.shape:
            raise ShapeError(
                f"{type(self).__name__}: targets and predictions are (n, classes), got "
                f"{y_true.shape} and {y_pred.shape}."
            )
        if not self._built:
            self._build(y_pred.shape[-1])
        chosen = ops.cast(self._choose(y_pred), self._dtype)
        weights: TensorLike = 1.0
        if sample_weight is not None:
            weights = ops.convert_to_tensor(sample_weight, self._dtype)
            weights = ops.reshape(weights, (-1, 1)) if len(weights.shape) == 1 else weights
        axis = None if self.average == "micro" else 0
        hits = ops.multiply(y_true, chosen)
        for variable, marks in (
            (self.true_positives, hits),
            (self.false_positives, ops.subtract(chosen, hits)),
            (self.false_negatives, ops.subtract(y_true, hits)),
        ):
            variable.assign_add(ops.sum(ops.multiply(marks, weights), axis))

    def _choose(self, y_pred: TensorLike) -> Tensor:
        if self.threshold is not None:
            return ops.greater(y_pred, self.threshold)
        largest = ops.greater_equal(y_pred, ops.max(y_pred, -1, True))
        # A row of zeros chooses nothing.
        return ops.logical_and(largest, ops.greater(ops.absolute(y_pred), 1e-9))

    def result(self) -> Tensor:
        """Return the score of each class, or their average."""
        if not self._built:
            return ops.zeros((), self._dtype)
        hits, smallest = self.true_positives.value, config.epsilon()
        relevant = ops.add(hits, self.false_negatives.value)
        predicted = ops.add(hits, self.false_positives.value)
        precision = ops.divide(hits, ops.add(predicted, smallest))
        recall = ops.divide(hits, ops.add(relevant, smallest))
        square = self.beta**2
        top = ops.multiply(ops.multiply(precision, recall), 1.0 + square)
        scores = ops.divide(top, ops.add(ops.multiply(precision, square) + recall, smallest))
        if self.average == "weighted":
            shares = ops.divide(relevant, ops.add(ops.sum(relevant), smallest))
            return ops.sum(ops.multiply(scores, shares))
        return scores if self.average in (None, "micro") else ops.mean(scores)


class F1Score(FBetaScore):
    """2 * precision * recall / (precision + recall).

    Args:
        average, threshold: see `FBetaScore`.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Shape: (n, classes), (n, classes) -> (classes,), or () with an average

    Example:
        >>> round(F1Score(average="micro", threshold=0.5)([[1.0], [1.0]], [[0.9], [0.2]]).item(), 4)
        0.6667
    """

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str | None = "f1_score",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(average=average, beta=1.0, threshold=threshold, name=name, dtype=dtype)
