"""Metrics: classes, functions, and the names that they go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kerasish import registry
from kerasish.identifiers import deserialize_of, get_by_name
from kerasish.losses.focal import binary_focal_crossentropy as binary_focal_crossentropy
from kerasish.losses.focal import categorical_focal_crossentropy as categorical_focal_crossentropy
from kerasish.losses.loss import Loss
from kerasish.losses.margin import categorical_hinge as categorical_hinge
from kerasish.losses.margin import hinge as hinge
from kerasish.losses.margin import squared_hinge as squared_hinge
from kerasish.losses.probabilistic import binary_crossentropy as binary_crossentropy
from kerasish.losses.probabilistic import categorical_crossentropy as categorical_crossentropy
from kerasish.losses.probabilistic import kl_divergence as kl_divergence
from kerasish.losses.probabilistic import poisson as poisson
from kerasish.losses.probabilistic import (
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from kerasish.losses.regression import huber as huber
from kerasish.losses.regression import log_cosh as log_cosh
from kerasish.losses.regression import mean_absolute_error as mean_absolute_error
from kerasish.losses.regression import (
    mean_absolute_percentage_error as mean_absolute_percentage_error,
)
from kerasish.losses.regression import mean_squared_error as mean_squared_error
from kerasish.losses.regression import (
    mean_squared_logarithmic_error as mean_squared_logarithmic_error,
)
from kerasish.metrics.accuracy import Accuracy as Accuracy
from kerasish.metrics.accuracy import BinaryAccuracy as BinaryAccuracy
from kerasish.metrics.accuracy import CategoricalAccuracy as CategoricalAccuracy
from kerasish.metrics.accuracy import SparseCategoricalAccuracy as SparseCategoricalAccuracy
from kerasish.metrics.accuracy import SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy
from kerasish.metrics.accuracy import TopKCategoricalAccuracy as TopKCategoricalAccuracy
from kerasish.metrics.accuracy import binary_accuracy as binary_accuracy
from kerasish.metrics.accuracy import categorical_accuracy as categorical_accuracy
from kerasish.metrics.accuracy import sparse_categorical_accuracy as sparse_categorical_accuracy
from kerasish.metrics.accuracy import (
    sparse_top_k_categorical_accuracy as sparse_top_k_categorical_accuracy,
)
from kerasish.metrics.accuracy import top_k_categorical_accuracy as top_k_categorical_accuracy
from kerasish.metrics.confusion import FalseNegatives as FalseNegatives
from kerasish.metrics.confusion import FalsePositives as FalsePositives
from kerasish.metrics.confusion import Precision as Precision
from kerasish.metrics.confusion import Recall as Recall
from kerasish.metrics.confusion import TrueNegatives as TrueNegatives
from kerasish.metrics.confusion import TruePositives as TruePositives
from kerasish.metrics.correlation import ConcordanceCorrelation as ConcordanceCorrelation
from kerasish.metrics.correlation import PearsonCorrelation as PearsonCorrelation
from kerasish.metrics.correlation import concordance_correlation as concordance_correlation
from kerasish.metrics.correlation import pearson_correlation as pearson_correlation
from kerasish.metrics.curve import AUC as AUC
from kerasish.metrics.curve import PrecisionAtRecall as PrecisionAtRecall
from kerasish.metrics.curve import RecallAtPrecision as RecallAtPrecision
from kerasish.metrics.curve import SensitivityAtSpecificity as SensitivityAtSpecificity
from kerasish.metrics.curve import SpecificityAtSensitivity as SpecificityAtSensitivity
from kerasish.metrics.f_score import F1Score as F1Score
from kerasish.metrics.f_score import FBetaScore as FBetaScore
from kerasish.metrics.iou import BinaryIoU as BinaryIoU
from kerasish.metrics.iou import IoU as IoU
from kerasish.metrics.iou import MeanIoU as MeanIoU
from kerasish.metrics.iou import OneHotIoU as OneHotIoU
from kerasish.metrics.iou import OneHotMeanIoU as OneHotMeanIoU
from kerasish.metrics.margin import CategoricalHinge as CategoricalHinge
from kerasish.metrics.margin import Hinge as Hinge
from kerasish.metrics.margin import SquaredHinge as SquaredHinge
from kerasish.metrics.metric import Metric as Metric
from kerasish.metrics.probabilistic import BinaryCrossentropy as BinaryCrossentropy
from kerasish.metrics.probabilistic import CategoricalCrossentropy as CategoricalCrossentropy
from kerasish.metrics.probabilistic import KLDivergence as KLDivergence
from kerasish.metrics.probabilistic import Poisson as Poisson
from kerasish.metrics.probabilistic import (
    SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
)
from kerasish.metrics.r2 import R2Score as R2Score
from kerasish.metrics.reduction import Mean as Mean
from kerasish.metrics.reduction import MeanMetricWrapper as MeanMetricWrapper
from kerasish.metrics.reduction import Sum as Sum
from kerasish.metrics.regression import CosineSimilarity as CosineSimilarity
from kerasish.metrics.regression import LogCoshError as LogCoshError
from kerasish.metrics.regression import MeanAbsoluteError as MeanAbsoluteError
from kerasish.metrics.regression import MeanAbsolutePercentageError as MeanAbsolutePercentageError
from kerasish.metrics.regression import MeanSquaredError as MeanSquaredError
from kerasish.metrics.regression import MeanSquaredLogarithmicError as MeanSquaredLogarithmicError
from kerasish.metrics.regression import RootMeanSquaredError as RootMeanSquaredError
from kerasish.metrics.scorer import SklearnScorer as SklearnScorer
from kerasish.naming import to_snake_case
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config, MetricLike, Structure

_OWN = {n: x for n, x in registry.own_objects(__name__).items() if x is not SklearnScorer}
_SHORT: dict[str, Any] = {
    "bce": BinaryCrossentropy,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "mse": MeanSquaredError,
    "msle": MeanSquaredLogarithmicError,
}

# A name in snake case is its class's: `get("binary_accuracy")` gives a metric, not a function.
registry.add_builtins(
    "keras.metrics",
    {
        **_OWN,
        **{to_snake_case(name): x for name, x in _OWN.items() if isinstance(x, type)},
        **_SHORT,
        **{name.upper(): x for name, x in _SHORT.items()},
    },
)


def serialize(metric: MetricLike) -> dict[str, Any]:
    """Return a metric as what JSON can hold.

    Args:
        metric: a metric.

    Example:
        >>> from kerasish import metrics
        >>> metrics.serialize(metrics.MeanSquaredError())["class_name"]
        'MeanSquaredError'
    """
    return registry.serialize_keras_object(metric)


@hides_frames
def deserialize(config: Config | str, custom_objects: Mapping[str, Any] | None = None) -> Structure:
    """Return the metric for a name or for what `serialize` returned.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> from kerasish import metrics
        >>> metric = metrics.MeanSquaredError(name="error")
        >>> metrics.deserialize(metrics.serialize(metric)).name
        'error'
    """
    return deserialize_of(config, "keras.metrics", "metric", custom_objects)


@hides_frames
def get(identifier: MetricLike | None) -> Loss | Metric | Callable[..., Any]:
    """Return the metric for a name, config, class or function; None for None.

    Args:
        identifier: a name, config, class, function or object; None gives None.

    Raises:
        UnknownNameError: the name is not known; the message lists the nearest ones.

    Example:
        >>> get("binary_accuracy")
        <BinaryAccuracy name=binary_accuracy>
    """
    return get_by_name(identifier, "keras.metrics", "metric")
