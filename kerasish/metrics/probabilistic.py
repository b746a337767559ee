"""Cross-entropies, divergence and Poisson loss as metrics."""

from __future__ import annotations

from kerasish.losses.probabilistic import (
    binary_crossentropy,
    categorical_crossentropy,
    kl_divergence,
    poisson,
    sparse_categorical_crossentropy,
)
from kerasish.metrics.reduction import MeanMetricWrapper, PlainMetric
from kerasish.typing import DTypeLike


class KLDivergence(PlainMetric):
    """The mean of sum(t * log(t / p)).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> KLDivergence()([[0.5, 0.5]], [[0.5, 0.5]]).item()
        0.0
    """

    direction = "down"
    _function = staticmethod(kl_divergence)


class Poisson(PlainMetric):
    """The mean of p - t * log(p).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> Poisson()([[0.0]], [[2.0]]).item()
        2.0
    """

    direction = "down"
    _function = staticmethod(poisson)


class BinaryCrossentropy(MeanMetricWrapper):
    """The mean of -(t * log(p) + (1 - t) * log(1 - p)).

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        from_logits, label_smoothing: see `losses.binary_crossentropy`.

    Example:
        >>> BinaryCrossentropy(from_logits=True)([[1.0]], [[0.0]]).item()
        0.6931471824645996
    """

    direction = "down"

    def __init__(
        self,
        name: str | None = "binary_crossentropy",
        dtype: DTypeLike | None = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
    ) -> None:
        super().__init__(
            binary_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
        )


class CategoricalCrossentropy(MeanMetricWrapper):
    """The mean of -sum(t * log(p)), t being one-hot.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        from_logits, label_smoothing, axis: see `losses.categorical_crossentropy`.

    Example:
        >>> CategoricalCrossentropy()([[0.0, 1.0]], [[0.5, 0.5]]).item()
        0.6931471824645996
    """

    direction = "down"

    def __init__(
        self,
        name: str | None = "categorical_crossentropy",
        dtype: DTypeLike | None = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
        axis: int = -1,
    ) -> None:
        super().__init__(
            categorical_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class SparseCategoricalCrossentropy(MeanMetricWrapper):
    """The mean of -log(p[t]), t being the number of the class.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.
        from_logits, ignore_class, axis: see `losses.sparse_categorical_crossentropy`; ignored
            targets count as samples without loss here.

    Example:
        >>> SparseCategoricalCrossentropy()([1], [[0.5, 0.5]]).item()
        0.6931471824645996
    """

    direction = "down"

    def __init__(
        self,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: DTypeLike | None = None,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
    ) -> None:
        super().__init__(
            sparse_categorical_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )
