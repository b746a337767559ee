"""Numbers of all ranks together: the sum over the processes that train a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops.basic.examples import SINGLE
from kerasish.ops.op import op
from kerasish.ops.shapes import Spec, same
from kerasish.ranks import current_group
from kerasish.ranks.group import segments
from kerasish.typing import Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["all_gather", "all_sum"]


def _all_sum_grad(g: Tensor, y: Tensor, x: Any) -> tuple[Any, ...]:
    return (all_sum(g),)


@op(
    "communication",
    same,
    _all_sum_grad,
    examples=SINGLE,
    communicates="sum",
    flops=lambda inputs, results: 0,
)
def all_sum(xp: ArrayModule, x: Array) -> Array:
    """The sum of x over all ranks of the current group, the same bits on each; one process: x.

    All ranks call it in the same order, with arrays of the same shape and dtype. The summands are
    added in a fixed binary tree: (0 + 1) + (2 + 3), and so on. The gradient is `all_sum` of the
    gradient: the sum of the ranks' results depends on each rank's x.

    Args:
        x: this rank's summand.

    Shape: any -> same.

    Returns:
        The sum, on every rank.

    Example:
        >>> from kerasish import ops
        >>> ops.all_sum(ops.convert_to_tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    group = current_group()
    if group.size == 1:
        return x
    if hasattr(x, "get"):  # CuPy
        result = group.device_sum(x)
        return xp.asarray(group.sum(x.get())) if result is None else result
    return group.sum(x)


def _gather_shape(x: Spec, size: int) -> Spec:
    counts, _ = segments(size, current_group().size)
    own = counts[current_group().rank]
    if len(x.shape) != 1 or x.shape[0] not in (own, None):
        raise ShapeError(
            f"all_gather: of {size} elements this rank has a segment of shape ({own},), got "
            f"{x.shape}."
        )
    return Spec((size,), x.dtype)


def _gather_grad(g: Tensor, y: Tensor, x: Any, size: int) -> tuple[Any, ...]:
    counts, starts = segments(size, current_group().size)
    start = starts[current_group().rank]
    return (all_sum(g)[start : start + counts[current_group().rank]],)


@op(
    "communication",
    _gather_shape,
    _gather_grad,
    examples=[(((4,),), {"size": 4}), (((0,),), {"size": 0})],
    communicates="gather",
    flops=lambda inputs, results: 0,
)
def all_gather(xp: ArrayModule, x: Array, *, size: int) -> Array:
    """The array of `size` elements that consists of the ranks' segments; one process: x.

    Segments differ by one element at most: `ranks.group.segments` says how long each is.

    Args:
        x: this rank's segment.
        size: the number of elements of all segments together.

    Shape: (n,) -> (size,), where n is this rank's share of `size`.

    Returns:
        All segments in the order of the ranks, on every rank.

    Example:
        >>> from kerasish import ops
        >>> ops.all_gather(ops.convert_to_tensor([1.0, 2.0]), 2).tolist()
        [1.0, 2.0]
    """
    group = current_group()
    if group.size == 1:
        return x
    if hasattr(x, "get"):
        return xp.asarray(group.collect(x.get(), size))
    return group.collect(x, size)
