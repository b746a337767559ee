"""Cross-entropies and the encodings of classes, composed of ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import config
from kerasish.errors import ShapeError
from kerasish.ops.basic.activation import as_float, log_softmax
from kerasish.ops.basic.arithmetic import add, divide, multiply, negative, square, subtract
from kerasish.ops.basic.comparison import equal, greater, isfinite, less, logical_and, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange
from kerasish.ops.basic.exponentials import log, log10
from kerasish.ops.basic.movement import reshape
from kerasish.ops.basic.nonlinearity import softplus
from kerasish.ops.basic.reduce import argmax, reduce_max, reduce_sum
from kerasish.ops.basic.reshaping import expand_dims, squeeze
from kerasish.ops.basic.selection import one_hot, take_along_axis
from kerasish.ops.basic.statistics import clip, mean
from kerasish.ops.op import function
from kerasish.ops.shapes import agree, normalize_axis
from kerasish.typing import DTypeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "binary_crossentropy", "categorical_crossentropy", "multi_hot", "psnr",
    "sparse_categorical_crossentropy",
]  # fmt: skip


def _like(target: TensorLike, output: TensorLike, what: str) -> tuple[Any, Any]:
    """Return both as float tensors whose shapes agree as far as they are known."""
    output = as_float(output)
    target = cast(as_tensor(target), output.dtype)
    left, right = target.shape, output.shape
    if len(left) != len(right) or not all(map(agree, left, right)):
        raise ShapeError(
            f"{what}: target and output must have the same shape, got {left} and {right}."
        )
    return target, output


def _log_probabilities(output: Tensor, from_logits: bool, axis: int) -> Tensor:
    if from_logits:
        return log_softmax(output, axis)
    shares = divide(output, reduce_sum(output, axis, True))
    return log(clip(shares, config.epsilon(), 1 - config.epsilon()))


@function
def binary_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False
) -> Tensor:
    """Return -(t * log(p) + (1 - t) * log(1 - p)) element by element.

    Args:
        target: t, in [0, 1].
        output: p in [0, 1], held `epsilon()` away from the ends; or log(p / (1 - p)).
        from_logits: whether `output` is the latter.

    Example:
        >>> binary_crossentropy([1.0], [0.0], from_logits=True).tolist()
        [0.6931471824645996]
    """
    target, output = _like(target, output, "binary_crossentropy")
    if from_logits:
        return subtract(softplus(output), multiply(output, target))
    p = clip(output, config.epsilon(), 1 - config.epsilon())
    hit = multiply(target, log(p))
    return negative(add(hit, multiply(subtract(1, target), log(subtract(1, p)))))


@function
def categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> Tensor:
    """Return -sum(t * log(p)) over `axis`.

    Args:
        target: t, one-hot or a distribution along `axis`.
        output: p (scaled to sum to 1, held `epsilon()` away from 0 and 1), or logits.
        from_logits: whether `output` is logits: p is their softmax then.
        axis: the axis of the classes.

    Shape: (..., classes), (..., classes) -> (...)

    Example:
        >>> categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]]).tolist()
        [0.6931471824645996]
    """
    target, output = _like(target, output, "categorical_crossentropy")
    axis = _class_axis(output, axis, "categorical_crossentropy")
    log_p = _log_probabilities(output, from_logits, axis)
    return negative(reduce_sum(multiply(target, log_p), axis))


@function
def class_hits(classes: TensorLike, scores: TensorLike) -> Tensor:
    """Return 1 where the first largest score is that of the class, else 0, in the default float.

    Shape: (...) int32, (..., classes) -> (...).

    Example:
        >>> class_hits(cast([1, 0], "int32"), [[0.2, 0.8], [0.2, 0.8]]).tolist()
        [1.0, 0.0]
    """
    return cast(equal(classes, argmax(scores, -1)), config.floatx())


def _class_axis(output: Tensor, axis: int, what: str) -> int:
    if not output.shape:
        raise ShapeError(f"{what}: output needs an axis of classes, got shape ().")
    return normalize_axis(axis, len(output.shape), what)


@function
def sparse_categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> Tensor:
    """Return -log(p[t]), t being the number of the class; 0 where t is no class.

    Args:
        target: t, integers in [0, classes); a last axis of size 1 is dropped.
        output: p (scaled to sum to 1, held `epsilon()` away from 0 and 1), or logits.
        from_logits: whether `output` is logits: p is their softmax then.
        axis: the axis of the classes.

    Shape: (...), (..., classes) -> (...)

    Example:
        >>> sparse_categorical_crossentropy([1], [[0.5, 0.5]]).tolist()
        [0.6931471824645996]
    """
    output = as_float(output)
    target = cast(as_tensor(target), "int32")
    axis = _class_axis(output, axis, "sparse_categorical_crossentropy")
    if len(target.shape) == len(output.shape) and target.shape[-1] == 1:
        target = squeeze(target, -1)
    expected = (*output.shape[:axis], *output.shape[axis + 1 :])
    if len(target.shape) != len(expected) or not all(map(agree, target.shape, expected)):
        raise ShapeError(
            f"sparse_categorical_crossentropy: an output of shape {output.shape} with classes on "
            f"axis {axis} asks for a target of shape {expected}, got {target.shape}."
        )
    log_p = _log_probabilities(output, from_logits, axis)
    column = [-1 if i == axis else 1 for i in range(len(output.shape))]
    hit = equal(expand_dims(target, axis), reshape(arange(output.shape[axis]), column))
    return reduce_sum(select(hit, negative(log_p), 0), axis)


@function
def multi_hot(
    inputs: TensorLike,
    num_classes: int | None = None,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    sparse: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Return 1 for each class that is among the numbers of a row of `inputs`, 0 elsewhere.

    Args:
        inputs: tensor or array.
        num_classes: number of classes, >= 1; None is an error.
        axis: axis or axes; negative ones count from the last.
        dtype: dtype of the result; None: chosen by the inputs.
        sparse: must be False: kerasish has no sparse tensors.

    Example:
        >>> multi_hot([0, 2], 4).tolist()
        [1.0, 0.0, 1.0, 0.0]
    """
    num_classes = kwargs.pop("num_tokens", num_classes)
    if kwargs or num_classes is None:
        raise TypeError(f"multi_hot: expected num_classes, got {num_classes} and {sorted(kwargs)}.")
    inputs = as_tensor(inputs)
    marks = one_hot(inputs, num_classes, axis, dtype, sparse)
    return reduce_max(marks, 1 if len(inputs.shape) > 1 else 0)


@function
def in_top_k(targets: TensorLike, predictions: TensorLike, k: int) -> Tensor:
    """Return whether the target class is among the k largest predictions of its row.

    Args:
        targets: class numbers, shape (n,).
        predictions: shape (n, classes).
        k: how many predictions count.

    Example:
        >>> in_top_k([0, 1], [[0.1, 0.9], [0.1, 0.9]], 1).tolist()
        [False, True]
    """
    predictions = as_float(predictions)
    targets = expand_dims(cast(as_tensor(targets), "int32"), -1)
    own = take_along_axis(predictions, targets, -1)
    better = reduce_sum(cast(greater(predictions, own), "int32"), -1)
    return logical_and(less(better, k), isfinite(squeeze(own, -1)))


@function
def psnr(x1: TensorLike, x2: TensorLike, max_val: float) -> Tensor:
    """Return 20 * log10(max_val) - 10 * log10(mean((x1 - x2)²)), in decibels.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.
        max_val: the largest possible value.

    Example:
        >>> float(psnr([0.0], [1.0], max_val=1.0))
        0.0
    """
    x1, x2 = _like(x1, x2, "psnr")
    mse = mean(square(subtract(x1, x2)))
    peak = square(cast(as_tensor(max_val), mse.dtype))
    return multiply(log10(divide(peak, mse)), 10)
