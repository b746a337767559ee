"""From the losses of single samples to one number: ranks, masks, weights, the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.losses.shares import current_shares
from kerasish.typing import AnyTensor, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

REDUCTIONS = ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none", None)
_MEANS = ("sum_over_batch_size", "mean")


def check_reduction(reduction: Any) -> str:
    """Return `reduction` if it is one of `REDUCTIONS`.

    Raises:
        UnknownNameError: it is not.
    """
    if reduction not in REDUCTIONS:
        raise UnknownNameError.of("reduction", reduction, [r for r in REDUCTIONS if r])
    return reduction


def align(x1: Tensor, x2: AnyTensor) -> tuple[Any, Any]:
    """Return two tensors whose ranks agree where a last axis of size 1 is all they differ by.

    A vector gains that axis, so that (n,) meets (n, 1) row by row; a longer one loses it.

    Example:
        >>> a, b = align(ops.ones((3,)), ops.ones((3, 1)))
        >>> a.shape, b.shape
        ((3, 1), (3, 1))
    """
    gap = len(x1.shape) - len(x2.shape)
    if gap == 1 and x1.shape[-1] == 1:
        return (x1, ops.expand_dims(x2, -1)) if len(x2.shape) == 1 else (ops.squeeze(x1, -1), x2)
    if gap == -1 and x2.shape[-1] == 1:
        return (ops.expand_dims(x1, -1), x2) if len(x1.shape) == 1 else (x1, ops.squeeze(x2, -1))
    return x1, x2


def broadcasts(left: Sequence[int], right: Sequence[int]) -> bool:
    """Return whether two shapes broadcast (an unknown size fits any)."""
    return all(a == b or 1 in (a, b) or None in (a, b) for a, b in zip(left[::-1], right[::-1]))


def spread(weights: AnyTensor, values: AnyTensor) -> Any:
    """Return `weights` with axes of size 1 added behind, so that one weight per row fits `values`.

    Raises:
        ShapeError: the weights do not broadcast to the values.
    """
    own, other = weights.shape, values.shape
    if 0 < len(own) < len(other) and all(
        a == b or a == 1 or None in (a, b) for a, b in zip(own, other)
    ):
        weights = ops.reshape(weights, (*own, *([1] * (len(other) - len(own)))))
    if not broadcasts(weights.shape, other):
        raise ShapeError(
            f"Sample weights (or a mask) of shape {own} do not fit values of shape {other}: "
            "expected one weight per sample, or one per value."
        )
    return weights


def masked_weights(
    sample_weight: AnyTensor | None, mask: Tensor | None, dtype: str, reduction: str
) -> Any:
    """Return the weights with 0 where the mask is False; None for neither.

    Where the reduction is a mean over all values, the rest is scaled up, so that it becomes the
    mean over the values that the mask leaves.
    """
    if sample_weight is not None:
        sample_weight = ops.convert_to_tensor(sample_weight, dtype)
    if mask is None:
        return sample_weight
    kept = ops.cast(ops.convert_to_tensor(mask), dtype)
    if reduction in _MEANS:
        kept = ops.multiply(kept, ops.divide_no_nan(1.0, _mean_of_mask(kept)))
    if sample_weight is None:
        return kept
    kept, sample_weight = align(kept, sample_weight)
    if len(kept.shape) < len(sample_weight.shape):
        return ops.multiply(sample_weight, spread(kept, sample_weight))
    return ops.multiply(spread(sample_weight, kept), kept)


def _mean_of_mask(kept: Tensor) -> Tensor:
    """Return the mean over the values of the batch, of which these may be a shard."""
    shares = current_shares()
    if shares is None:
        return ops.mean(kept)
    return ops.divide(shares.total(ops.sum(kept)), kept.size * shares.factor)


def _weighted_number(value: Tensor, weights: Tensor, reduction: str) -> Tensor:
    """Return one number of the whole batch, weighted: its weight is that of all the rows."""
    shares = current_shares()
    assert shares is not None
    if reduction == "mean_with_sample_weight":
        return value
    weight = shares.total(ops.sum(weights))
    if reduction == "sum":
        return ops.multiply(value, weight)
    return ops.multiply(value, ops.divide(weight, weights.size * shares.factor))


def reduce_losses(
    values: Tensor,
    sample_weight: TensorLike | None = None,
    mask: Tensor | None = None,
    reduction: str = "sum_over_batch_size",
) -> Tensor:
    """Return the values of a loss weighted, masked and reduced.

    Args:
        values: one loss per sample (or per step, per pixel).
        sample_weight: factors: one per value, or one per row; None: all 1.
        mask: where False, a value does not count.
        reduction: "sum"; "sum_over_batch_size" or "mean": the sum over the number of values;
            "mean_with_sample_weight": over the sum of the weights; "none" or None: the values.

    Raises:
        ShapeError: weights or mask do not fit the values.

    Example:
        >>> reduce_losses(ops.convert_to_tensor([1.0, 3.0]), [1.0, 0.0]).item()
        0.5
    """
    weights = masked_weights(sample_weight, mask, values.dtype, reduction)
    if weights is not None and not values.shape and weights.shape and current_shares():
        return _weighted_number(values, weights, reduction)
    if weights is not None:
        values, weights = align(values, weights)
        weights = spread(weights, values)
        values = ops.multiply(values, weights)
    if reduction in (None, "none") or not values.shape or values.shape == (0,):
        return values
    shares = current_shares()
    if reduction == "sum":
        whole = ops.sum(values)
        return whole if shares is None else ops.multiply(whole, shares.factor)
    if reduction == "mean_with_sample_weight" and weights is not None:
        divisor = ops.sum(weights)
        if shares is not None:
            divisor = ops.divide(shares.total(divisor), shares.factor)
        return ops.divide_no_nan(ops.sum(values), divisor)
    return ops.mean(values) if 0 not in values.shape else ops.sum(values)
