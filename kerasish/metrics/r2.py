"""R²: the share of the targets' variance that predictions explain."""

from __future__ import annotations

from collections.abc import Mapping

from kerasish import ops
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.losses.reduction import align
from kerasish.metrics.metric import Metric
from kerasish.tensor import Tensor, Variable
from kerasish.typing import DTypeLike, TensorLike

_MOMENTS = ("count", "mean", "spread")  # of the targets
_AGGREGATIONS = ("uniform_average", "variance_weighted_average")


class R2Score(Metric):
    """1 - sum((t - p)²) / sum((t - mean(t))²) over all batches.

    Means and squared distances of batches are merged, not sums of squares subtracted, so that
    targets far from 0 keep their precision.

    Args:
        class_aggregation: over several outputs: "uniform_average", "variance_weighted_average", or
            None for one number per output.
        num_regressors: how many inputs the model has, for the adjusted R²; 0: not adjusted.
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Shape: (n, outputs), (n, outputs) -> () or (outputs,)

    Source: Chan, Golub and LeVeque, Algorithms for computing the sample variance, 1983.

    Example:
        >>> R2Score()([[1.0], [2.0], [3.0]], [[1.0], [2.0], [2.0]]).item()
        0.5
    """

    direction = "up"
    count: Variable
    mean: Variable
    spread: Variable

    def __init__(
        self,
        class_aggregation: str | None = "uniform_average",
        num_regressors: int = 0,
        name: str | None = "r2_score",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if class_aggregation is not None and class_aggregation not in _AGGREGATIONS:
            raise UnknownNameError.of("class_aggregation", class_aggregation, _AGGREGATIONS)
        if num_regressors < 0:
            raise ValueError(f"R2Score: num_regressors is at least 0, got {num_regressors}.")
        self.class_aggregation, self.num_regressors = class_aggregation, num_regressors
        self.num_samples = self.add_variable((), name="num_samples")
        self._built = False

    def _build(self, outputs: int) -> None:
        for name in _MOMENTS:
            setattr(self, name, self.add_variable((outputs,), name=name, aggregation="stack"))
        self.error = self.add_variable((outputs,), name="error")
        self._built = True

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Take in targets and predictions of a batch."""
        y_true = ops.convert_to_tensor(y_true, self._dtype)
        y_pred = ops.convert_to_tensor(y_pred, self._dtype)
        y_true, y_pred = align(y_true, y_pred)
        if len(y_pred.shape) != 2 or y_true.shape != y_pred.shape:
            raise ShapeError(
                f"R2Score: targets and predictions are (n, outputs), got {y_true.shape} and "
                f"{y_pred.shape}."
            )
        if not self._built:
            self._build(y_pred.shape[1])
        weights = ops.ones_like(y_true)
        if sample_weight is not None:
            given = ops.convert_to_tensor(sample_weight, self._dtype)
            given = ops.reshape(given, (-1, 1)) if len(given.shape) == 1 else given
            weights = ops.multiply(weights, given)
        self._merge(y_true, weights)
        missed = ops.multiply(ops.square(ops.subtract(y_true, y_pred)), weights)
        self.error.assign_add(ops.sum(missed, 0))
        self.num_samples.assign_add(float(y_true.size))

    def _merge(self, y_true: TensorLike, weights: Tensor) -> None:
        new = ops.sum(weights, 0)
        mean = ops.divide_no_nan(ops.sum(ops.multiply(y_true, weights), 0), new)
        spread = ops.sum(ops.multiply(ops.square(ops.subtract(y_true, mean)), weights), 0)
        self._add(new, mean, spread)

    def merge_shards(self, states: Mapping[Variable, Tensor]) -> None:
        """Take in the moments of the shards of a batch, in order."""
        columns = [ops.unstack(states[getattr(self, name)]) for name in _MOMENTS]
        for moments in zip(*columns):
            self._add(*moments)

    def _add(self, new: Tensor, mean: Tensor, spread: Tensor) -> None:
        """Take in the count, the mean and the sum of squares around it of some more targets."""
        old, apart = self.count.value, ops.subtract(mean, self.mean.value)
        share = ops.divide_no_nan(new, ops.add(old, new))
        between = ops.multiply(ops.multiply(ops.square(apart), old), share)
        self.spread.assign_add(ops.add(spread, between))
        self.mean.assign_add(ops.multiply(apart, share))
        self.count.assign_add(new)

    def result(self) -> Tensor:
        """Return R², at most 1; 0 for an output whose targets are constant."""
        if not self._built:
            return ops.zeros((), self._dtype)
        spread = self.spread.value
        raw = ops.subtract(1.0, ops.divide_no_nan(self.error.value, spread))
        raw = ops.where(ops.equal(spread, 0.0), ops.zeros_like(raw), raw)
        if self.class_aggregation == "uniform_average":
            raw = ops.mean(raw)
        elif self.class_aggregation == "variance_weighted_average":
            raw = ops.divide_no_nan(ops.sum(ops.multiply(raw, spread)), ops.sum(spread))
        return raw if not self.num_regressors else self._adjust(raw)

    def _adjust(self, raw: Tensor) -> Tensor:
        """Return 1 - (1 - R²) * (n - 1) / (n - k - 1); R² itself while n is too small for it.

        n counts targets, over all outputs, as Keras does.
        """
        n, k = self.num_samples.value, float(self.num_regressors)
        left = ops.subtract(n, k + 1.0)
        factor = ops.divide_no_nan(ops.subtract(n, 1.0), left)
        adjusted = ops.subtract(1.0, ops.multiply(ops.subtract(1.0, raw), factor))
        return ops.where(ops.greater(left, 0.0), adjusted, raw)
