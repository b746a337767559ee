"""How far distributions are from distributions: cross-entropies, divergence, Poisson."""

from __future__ import annotations

from kerasish import config, ops
from kerasish.losses.loss import LossFunction, PlainLoss
from kerasish.losses.pair import as_float, pair, same_shape
from kerasish.losses.targets import takes
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, DTypeLike, TensorLike


def smooth(y_true: TensorLike, label_smoothing: float, classes: int) -> AnyTensor:
    """Return the targets with the share `label_smoothing` spread evenly over `classes`."""
    if not label_smoothing:
        return y_true
    return ops.add(ops.multiply(y_true, 1.0 - label_smoothing), label_smoothing / classes)


def check_share(label_smoothing: float, what: str) -> float:
    """Return `label_smoothing` if it is in [0, 1]; else raise ValueError."""
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{what}: label_smoothing is a share in [0, 1], got {label_smoothing}.")
    return label_smoothing


@takes("binary")
def binary_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Return -mean(t * log(p) + (1 - t) * log(1 - p)) over `axis`.

    Args:
        y_true: t, in [0, 1].
        y_pred: p, in [0, 1]; or log(p / (1 - p)).
        from_logits: whether `y_pred` is the latter.
        label_smoothing: share s in [0, 1]: targets become t * (1 - s) + s / 2.
        axis: the axis of the mean.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> binary_crossentropy([[1.0]], [[0.0]], from_logits=True).tolist()
        [0.6931471824645996]
    """
    y_true, y_pred = same_shape(y_true, y_pred, "binary_crossentropy")
    y_true = smooth(y_true, label_smoothing, 2)
    return ops.mean(ops.binary_crossentropy(y_true, y_pred, from_logits), axis)


@takes("one-hot")
def categorical_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Return -sum(t * log(p)) over `axis`.

    Args:
        y_true: t, one-hot or a distribution.
        y_pred: p (scaled to sum to 1), or logits.
        from_logits: whether `y_pred` is logits.
        label_smoothing: share s in [0, 1]: targets become t * (1 - s) + s / k, k being the size
            of the last axis (as in Keras, whatever `axis` is).
        axis: the axis of the classes.

    Shape: (..., classes), (..., classes) -> (...)

    Example:
        >>> categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]]).tolist()
        [0.6931471824645996]
    """
    y_pred = as_float(y_pred)
    y_true = ops.convert_to_tensor(y_true, y_pred.dtype)
    y_true = smooth(y_true, label_smoothing, y_true.shape[-1] if y_true.shape else 1)
    return ops.categorical_crossentropy(y_true, y_pred, from_logits, axis)


@takes("classes")
def sparse_categorical_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> Tensor:
    """Return -log(p[t]), t being the number of the class.

    Args:
        y_true: t, integers in [0, classes).
        y_pred: p (scaled to sum to 1), or logits.
        from_logits: whether `y_pred` is logits.
        ignore_class: a number that marks targets that do not count (their loss is 0, and means
            leave them out); None: all count.
        axis: the axis of the classes.

    Shape: (...) or (..., 1), (..., classes) -> (...)

    Example:
        >>> sparse_categorical_crossentropy([1], [[0.5, 0.5]]).tolist()
        [0.6931471824645996]
    """
    y_true = ops.convert_to_tensor(y_true)
    if ignore_class is None:
        return ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits, axis)
    y_true = ops.cast(y_true, "int32")
    counts = ops.not_equal(y_true, ignore_class)
    classes = ops.where(counts, y_true, ops.zeros_like(y_true))
    values = ops.sparse_categorical_crossentropy(classes, y_pred, from_logits, axis)
    if counts.shape != values.shape:
        counts = ops.reshape(counts, values.shape)
    values = ops.where(counts, values, ops.zeros_like(values))
    values._keras_mask = counts
    return values


@takes("elements")
def kl_divergence(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return sum(t * log(t / p)) over the last axis.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Source: Kullback and Leibler, On information and sufficiency, 1951.

    Example:
        >>> kl_divergence([[0.5, 0.5]], [[0.5, 0.5]]).tolist()
        [0.0]
    """
    y_true, y_pred = pair(y_true, y_pred, "kl_divergence")
    t = ops.clip(y_true, config.epsilon(), 1.0)
    p = ops.clip(y_pred, config.epsilon(), 1.0)
    return ops.sum(ops.multiply(t, ops.log(ops.divide(t, p))), -1)


@takes("elements", lowest=0)
def poisson(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return mean(p - t * log(p)) over the last axis: p is the rate, t the count.

    Args:
        y_true: the targets.
        y_pred: the predictions, in the shape of the targets.

    Shape: (..., d), (..., d) -> (...)

    Example:
        >>> poisson([[0.0]], [[2.0]]).tolist()
        [2.0]
    """
    y_true, y_pred = pair(y_true, y_pred, "poisson")
    log_p = ops.log(ops.add(y_pred, config.epsilon()))
    return ops.mean(ops.subtract(y_pred, ops.multiply(y_true, log_p)), -1)


@takes("classes")
def categorical_generalized_cross_entropy(
    y_true: TensorLike, y_pred: TensorLike, q: float
) -> Tensor:
    """Return (1 - p[t]^q) / q: between cross-entropy (q -> 0) and absolute error (q = 1).

    Args:
        y_true: t, the numbers of the classes.
        y_pred: p, distributions.
        q: how little wrong labels count, 0 < q <= 1.

    Shape: (n,) or (n, 1), (n, classes) -> (n,)

    Source: Zhang and Sabuncu, Generalized cross entropy loss, 2018.

    Example:
        >>> categorical_generalized_cross_entropy([1], [[0.75, 0.25]], 0.5).tolist()
        [1.0]
    """
    y_pred = as_float(y_pred)
    y_true = ops.cast(ops.convert_to_tensor(y_true), "int32")
    if len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == 1:
        y_true = ops.squeeze(y_true, -1)
    marks = ops.one_hot(y_true, y_pred.shape[-1], dtype=y_pred.dtype)
    p = ops.sum(ops.multiply(marks, y_pred), -1)
    p = ops.maximum(p, config.epsilon() ** 2)  # the slope of p^q at 0 is infinite
    return ops.divide(ops.subtract(1.0, ops.power(p, q)), q)


class _SmoothedLoss(PlainLoss):
    """The loss of a function of probabilities or logits, and of targets that can be smoothed."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_share(label_smoothing, type(self).__name__)
        LossFunction.__init__(
            self, self._function, reduction, name, dtype,
            from_logits=from_logits, label_smoothing=label_smoothing, axis=axis,
        )  # fmt: skip


class BinaryCrossentropy(_SmoothedLoss):
    """-mean(t * log(p) + (1 - t) * log(1 - p)).

    Args:
        from_logits, label_smoothing, axis: see `binary_crossentropy`.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> BinaryCrossentropy(from_logits=True)([[1.0]], [[0.0]]).item()
        0.6931471824645996
    """

    _function = staticmethod(binary_crossentropy)


class CategoricalCrossentropy(_SmoothedLoss):
    """-sum(t * log(p)), t being one-hot.

    Args:
        from_logits, label_smoothing, axis: see `categorical_crossentropy`.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> CategoricalCrossentropy()([[0.0, 1.0]], [[0.5, 0.5]]).item()
        0.6931471824645996
    """

    _function = staticmethod(categorical_crossentropy)


class SparseCategoricalCrossentropy(LossFunction):
    """-log(p[t]), t being the number of the class.

    Args:
        from_logits, ignore_class, axis: see `sparse_categorical_crossentropy`.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> SparseCategoricalCrossentropy()([1], [[0.5, 0.5]]).item()
        0.6931471824645996
    """

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        axis: int = -1,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            sparse_categorical_crossentropy, reduction, name, dtype,
            from_logits=from_logits, ignore_class=ignore_class, axis=axis,
        )  # fmt: skip


class KLDivergence(PlainLoss):
    """sum(t * log(t / p)).

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> KLDivergence()([[0.5, 0.5]], [[0.5, 0.5]]).item()
        0.0
    """

    _function = staticmethod(kl_divergence)


class Poisson(PlainLoss):
    """The mean of p - t * log(p).

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Example:
        >>> Poisson()([[0.0]], [[2.0]]).item()
        2.0
    """

    _function = staticmethod(poisson)


class CategoricalGeneralizedCrossEntropy(LossFunction):
    """(1 - p[t]^q) / q, which wrong labels move less than cross-entropy.

    Args:
        q: 0 < q < 1; near 0 it is cross-entropy, at 1 it would be absolute error.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Source: Zhang and Sabuncu, Generalized cross entropy loss, 2018.

    Example:
        >>> CategoricalGeneralizedCrossEntropy()([1], [[0.75, 0.25]]).item()
        1.0
    """

    def __init__(
        self,
        q: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_generalized_cross_entropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        if not 0 < q < 1:
            raise ValueError(f"CategoricalGeneralizedCrossEntropy: q must be in (0, 1), got {q}.")
        super().__init__(categorical_generalized_cross_entropy, reduction, name, dtype, q=q)
