"""Numbers of all ranks together: the sum over the processes that train a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.ops.basic.examples import SINGLE
from kerasish.ops.op import op
from kerasish.ops.shapes import same
from kerasish.ranks import current_group
from kerasish.typing import Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["all_sum"]


def _all_sum_grad(g: Tensor, y: Tensor, x: Any) -> tuple[Any, ...]:
    return (all_sum(g),)


@op(
    "communication",
    same,
    _all_sum_grad,
    examples=SINGLE,
    communicates=True,
    flops=lambda inputs, results: 0,
)
def all_sum(xp: ArrayModule, x: Array) -> Array:
    """The sum of x over all ranks of the current group, the same bits on each; alone: x.

    All ranks call it in the same order, with arrays of the same shape and dtype. The summands are
    added in a fixed binary tree: (0 + 1) + (2 + 3), and so on. The gradient is `all_sum` of the
    gradient: the sum of the ranks' results depends on each rank's x.

    Shape: any -> same.

    Example:
        >>> from kerasish import ops
        >>> ops.all_sum(ops.convert_to_tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    group = current_group()
    if group.size == 1:
        return x
    if hasattr(x, "get"):  # CuPy: MPI takes memory of the host
        return xp.asarray(group.sum(x.get()))
    return group.sum(x)
