"""Targets and predictions as two tensors that fit, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.losses.reduction import align, broadcasts
from kerasish.ops import dtypes
from kerasish.typing import TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def as_float(x: TensorLike) -> Tensor:
    """Return `x` as a tensor of a floating dtype (that of `x`, or `floatx()`)."""
    x = ops.convert_to_tensor(x)
    return x if dtypes.is_inexact(x.dtype) else ops.cast(x, dtypes.to_inexact(x.dtype))


def pair(y_true: TensorLike, y_pred: TensorLike, what: str) -> tuple[Any, Any]:
    """Return targets and predictions as tensors of the predictions' dtype, ranks aligned.

    Args:
        what: the name of the loss or metric, for messages.

    Raises:
        ShapeError: they do not fit.
    """
    y_pred = as_float(y_pred)
    y_true = ops.convert_to_tensor(y_true, y_pred.dtype)
    true, pred = y_true.shape, y_pred.shape
    if true == pred:
        return y_true, y_pred
    y_true, y_pred = align(y_true, y_pred)
    if min(len(true), len(pred)) and (
        len(y_true.shape) != len(y_pred.shape) or not broadcasts(y_true.shape, y_pred.shape)
    ):
        raise ShapeError(f"{what}: targets of shape {true} do not fit predictions of shape {pred}.")
    return y_true, y_pred


def same_shape(y_true: TensorLike, y_pred: TensorLike, what: str) -> tuple[Any, Any]:
    """Return what `pair` does, where the two need no broadcasting (an unknown size fits any).

    Args:
        what: the name of the loss or metric, for messages.

    Raises:
        ShapeError: the shapes differ, other than by a last axis of size 1.
    """
    y_true, y_pred = pair(y_true, y_pred, what)
    true, pred = y_true.shape, y_pred.shape
    if len(true) != len(pred) or any(a != b for a, b in zip(true, pred) if None not in (a, b)):
        raise ShapeError(
            f"{what}: one target for each prediction was expected, got targets of shape {true} "
            f"for predictions of shape {pred}."
        )
    return y_true, y_pred
