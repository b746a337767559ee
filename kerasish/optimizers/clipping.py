"""Bounds on gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.ops.op import function
from kerasish.tensor import Tensor
from kerasish.typing import TensorLike


def clip_by_norm(x: TensorLike, limit: float) -> Tensor:
    """Return x * limit / max(|x|, limit): the norm is at most `limit`.

    Example:
        >>> [round(float(v), 2) for v in clip_by_norm([3.0, 4.0], 1.0)]
        [0.6, 0.8]
    """
    norm = ops.sqrt(ops.sum(ops.square(x)))
    return ops.divide(ops.multiply(x, limit), ops.maximum(norm, limit))


@function
def norm_factor(gradients: Sequence[Any], limit: float) -> Tensor:
    """Return limit / max(norm of all gradients together, limit), float32: at most 1.

    Example:
        >>> round(float(norm_factor([[3.0], [4.0]], 1.0)), 3)
        0.2
    """
    total: Any = None
    for g in gradients:
        part = ops.cast(ops.sum(ops.square(g)), "float32")
        total = part if total is None else ops.add(total, part)
    return ops.divide(limit, ops.maximum(ops.sqrt(total), limit))


def clip_by_global_norm(gradients: Sequence[Any], limit: float) -> list[Any]:
    """Return the gradients scaled alike so that their common norm is at most `limit`.

    Source: Pascanu, Mikolov & Bengio, On the difficulty of training recurrent neural networks,
        ICML 2013.
    """
    factor = norm_factor(gradients, limit)
    return [ops.multiply(g, ops.cast(factor, g.dtype)) for g in gradients]


def clip(
    gradients: Sequence[Tensor],
    norm: float | None,
    size: float | None,
    global_norm: float | None,
) -> list[Tensor]:
    """Return the gradients within the one bound that is given.

    Args:
        gradients: tensors.
        norm: the largest norm of each.
        size: the largest size of an element.
        global_norm: the largest norm of all together.
    """
    if norm is not None:
        return [clip_by_norm(g, norm) for g in gradients]
    if global_norm is not None:
        return clip_by_global_norm(gradients, global_norm)
    if size is not None:
        return [ops.clip(g, -size, size) for g in gradients]
    return list(gradients)
