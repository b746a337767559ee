"""The matrix product and its gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import rows
from kerasish.ops.basic.arithmetic import multiply
from kerasish.ops.basic.movement import expand_axes, reshape, transpose
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.op import op
from kerasish.ops.shapes import Spec, agree, broadcast_shapes
from kerasish.typing import AnyTensor, Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["matmul"]


def _matmul_shape(a: Spec, b: Spec) -> Spec:
    if not a.shape or not b.shape:
        raise ShapeError(f"matmul: both sides need an axis, got shapes {a.shape} and {b.shape}.")
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if not agree(left[-1], right[-2]):
        raise ShapeError(
            f"matmul: the last size of {a.shape} and the last but one of {b.shape} must be equal, "
            f"got {left[-1]} and {right[-2]}."
        )
    lead = broadcast_shapes(left[:-2], right[:-2], what="matmul")
    rows = (left[-2],) if len(a.shape) > 1 else ()
    columns = (right[-1],) if len(b.shape) > 1 else ()
    return Spec((*lead, *rows, *columns), a.dtype)


def swap_last(x: AnyTensor) -> Tensor:
    """Return x with its last two axes swapped."""
    n = len(x.shape)
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def _matmul_left(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Any:
    if len(a.shape) == 1 and len(b.shape) == 1:
        return multiply(g, b)
    if len(a.shape) == 1:
        g2 = expand_axes(g, (len(g.shape) - 1,))
        return reduce_sum(matmul(g2, swap_last(b)), len(g2.shape) - 2)
    if len(b.shape) == 1:
        return matmul(expand_axes(g, (len(g.shape),)), expand_axes(b, (0,)))
    return matmul(g, swap_last(b))


def _matmul_right(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Any:
    if len(a.shape) == 1 and len(b.shape) == 1:
        return multiply(g, a)
    if len(a.shape) == 1:
        return matmul(expand_axes(a, (1,)), expand_axes(g, (len(g.shape) - 1,)))
    if len(b.shape) == 1:
        both = matmul(swap_last(a), expand_axes(g, (len(g.shape),)))
        return reshape(both, both.shape[:-1])
    if len(b.shape) == 2 and len(a.shape) > 2:
        # All rows at once: one product instead of one for each leading index and a sum.
        rows = reshape(a, (-1, a.shape[-1]))
        return matmul(swap_last(rows), reshape(g, (-1, g.shape[-1])))
    return matmul(swap_last(a), g)


@op(
    "linalg",
    _matmul_shape,
    (_matmul_left, _matmul_right),
    "product",
    examples=[
        (((2, 3), (3, 4)), {}),
        (((5, 2, 3), (3, 4)), {}),
        (((2, 1, 2, 3), (5, 3, 1)), {}),
        (((3,), (3,)), {}),
        (((3,), (2, 3, 4)), {}),
        (((2, 4, 3), (3,)), {}),
        (((0, 3), (3, 2)), {}),
    ],
    flops=lambda inputs, results: 2 * math.prod(results[0]) * inputs[0][-1],
    epilogues=True,
    symbol="@",
    rows=rows.matmul,
)
def matmul(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The matrix product over the last axis of x1 and the last but one of x2; int8 gives int32.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
        [[11.0]]
    """
    y = xp.matmul(x1, x2)
    # NumPy multiplies bfloat16 matrices in float32 and leaves the product there.
    return y if y.dtype == x1.dtype else y.astype(x1.dtype)
