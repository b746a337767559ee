"""Metrics: classes, functions, and the names that they go by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasish import registry
from kerasish.metrics.accuracy import Accuracy as Accuracy
from kerasish.metrics.accuracy import BinaryAccuracy as BinaryAccuracy
from kerasish.metrics.accuracy import CategoricalAccuracy as CategoricalAccuracy
from kerasish.metrics.accuracy import SparseCategoricalAccuracy as SparseCategoricalAccuracy
from kerasish.metrics.accuracy import SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy
from kerasish.metrics.accuracy import TopKCategoricalAccuracy as TopKCategoricalAccuracy
from kerasish.metrics.accuracy import accuracy as accuracy
from kerasish.metrics.accuracy import binary_accuracy as binary_accuracy
from kerasish.metrics.accuracy import categorical_accuracy as categorical_accuracy
from kerasish.metrics.accuracy import sparse_categorical_accuracy as sparse_categorical_accuracy
from kerasish.metrics.accuracy import (
    sparse_top_k_categorical_accuracy as sparse_top_k_categorical_accuracy,
)
from kerasish.metrics.accuracy import top_k_categorical_accuracy as top_k_categorical_accuracy
from kerasish.metrics.metric import Metric as Metric
from kerasish.metrics.reduction import Mean as Mean
from kerasish.metrics.reduction import MeanMetricWrapper as MeanMetricWrapper
from kerasish.metrics.reduction import Sum as Sum
from kerasish.naming import to_snake_case

_CLASSES = (
    Metric, Mean, MeanMetricWrapper, Sum,
    Accuracy, BinaryAccuracy, CategoricalAccuracy, SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy, TopKCategoricalAccuracy,
)  # fmt: skip

_SHORT: dict[str, Any] = {}

registry.add_builtins(
    "keras.metrics",
    {
        **{x.__name__: x for x in _CLASSES},
        **{to_snake_case(x.__name__): x for x in _CLASSES},
        **_SHORT,
        **{name.upper(): x for name, x in _SHORT.items()},
    },
)


def serialize(metric: Any) -> Any:
    """Return a metric as what JSON can hold."""
    return registry.serialize_keras_object(metric)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Return the metric for a name or for what `serialize` returned."""
    return registry.deserialize_keras_object(
        config,
        custom_objects,
        module_objects=registry.BUILTINS["keras.metrics"],
        printable_module_name="metric",
    )


def get(identifier: Any) -> Any:
    """Return the metric for a name, config, class or function; None for None.

    Raises:
        UnknownNameError: the name is not known; the message lists the nearest ones.

    Example:
        >>> get("binary_accuracy")
        <BinaryAccuracy name=binary_accuracy>
    """
    return registry.get_by_name(identifier, "keras.metrics", "metric")
