"""Masks that were dropped on the way: who dropped one travels on with the data, to its readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish import tree
from kerasish.ops import dtypes
from kerasish.typing import Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.engine.layer.operation import KerasTensor


class LostMask(NamedTuple):
    """That the steps of a tensor had a mask once.

    Attributes:
        by: the layer or op that dropped it.
        ndim: the number of the mask's axes: the results that still have these have steps.
        certain: whether padded steps certainly count from there on; merges and ops of the user's
            may have had a reason.
    """

    by: str
    ndim: int
    certain: bool


def lost_mask_of(x: Structure) -> LostMask | None:
    """Return who dropped the mask of a tensor, or of one in a structure; None if no layer did."""
    if isinstance(x, (list, tuple)):
        return _most_certain(map(lost_mask_of, x))
    if isinstance(x, dict):
        return _most_certain(map(lost_mask_of, x.values()))
    return getattr(x, "dropped_mask", None)


def _most_certain(candidates: Iterable[LostMask | None]) -> LostMask | None:
    losses = [loss for loss in candidates if loss is not None]
    return next((loss for loss in losses if loss.certain), losses[0] if losses else None)


def pass_on(loss: LostMask, outputs: TensorLike, steps: tuple[Any, ...] | None = None) -> None:
    """Let results that have steps carry on who dropped their mask.

    Args:
        steps: the sizes of the axes that a mask has; where they are others now, so are the steps.
    """
    for t in tree.flatten(outputs):
        shape = getattr(t, "shape", ())
        if len(shape) <= loss.ndim or getattr(t, "_keras_mask", None) is not None:
            continue
        if steps is None or tuple(shape[: loss.ndim]) == steps[: loss.ndim]:
            t.dropped_mask = loss


def note_op(name: str, arguments: Sequence[Any], outputs: KerasTensor) -> None:
    """Record in an op's symbolic results whose mask they drop: ops carry none."""
    for t in tree.flatten(arguments):
        mask, loss = getattr(t, "_keras_mask", None), getattr(t, "dropped_mask", None)
        if mask is not None:
            loss = LostMask(f"the op {name}", len(mask.shape), False)
        if loss is not None:
            same = [o for o in tree.flatten(outputs) if _alike(o, t)]
            pass_on(loss, same, tuple(t.shape))


def _alike(result: KerasTensor, t: KerasTensor) -> bool:
    return len(result.shape) == len(t.shape) and dtypes.is_float(result.dtype)
