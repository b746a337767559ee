"""Products of tensors that sum over axes: tensordot, dot, inner, vdot, cross; what Dense does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops.basic.arithmetic import add, multiply, subtract
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.movement import broadcast_to, reshape, transpose
from kerasish.ops.basic.nonlinearity import relu
from kerasish.ops.basic.product import matmul
from kerasish.ops.basic.reshaping import moveaxis, stack
from kerasish.ops.basic.selection import get_item
from kerasish.ops.op import function
from kerasish.ops.shapes import agree, broadcast_shapes, is_unknown, normalize_axis
from kerasish.typing import AnyTensor, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["cross", "dot", "inner", "tensordot", "vdot"]


def _axes(given: int | Sequence[int], ndim: int) -> list[int]:
    numbers = given if isinstance(given, (tuple, list)) else (given,)
    return [normalize_axis(a, ndim, "tensordot") for a in numbers]


def _count(sizes: list[Any]) -> int:
    """Return how many elements, or -1 (reshape's word) where a size is not known."""
    return -1 if None in sizes else math.prod(sizes)


@function
def affine(
    x: TensorLike, kernel: TensorLike, bias: TensorLike | None = None, rectified: bool = False
) -> Tensor:
    """Return x @ kernel + bias over the last axis of x; `rectified`: max(that, 0).

    Args:
        bias: shape (units,); None: 0.

    Shape: (..., inputs), (inputs, units) -> (..., units).

    Example:
        >>> affine([[1.0, 2.0]], [[1.0], [1.0]], [0.5]).tolist()
        [[3.5]]
    """
    y = matmul(x, kernel)
    if bias is not None:
        y = add(y, bias)
    return relu(y) if rectified else y


@function
def tensordot(x1: TensorLike, x2: TensorLike, axes: int | Sequence[Any] = 2) -> Tensor:
    """Return the sums of products over pairs of axes: a matrix product of reshaped tensors.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.
        axes: a number n: the last n of x1 with the first n of x2; or (axes of x1, axes of x2).

    Shape: (rest of x1's axes, rest of x2's axes).

    Example:
        >>> tensordot([[1, 2], [3, 4]], [[1, 0], [0, 1]]).tolist()
        5
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    m, n = len(x1.shape), len(x2.shape)
    if isinstance(axes, (tuple, list)):
        if len(axes) != 2:
            raise ShapeError(f"tensordot: axes are a number or a pair, got {axes!r}.")
        first, second = _axes(axes[0], m), _axes(axes[1], n)
    else:
        count = int(axes)  # type: ignore[arg-type]
        if not 0 <= count <= min(m, n):
            raise ShapeError(f"tensordot: {count} axes of tensors with {m} and {n} axes.")
        first, second = list(range(m - count, m)), list(range(count))
    pairs = [(x1.shape[a], x2.shape[b]) for a, b in zip(first, second)]
    if len(first) != len(second) or not all(agree(a, b) for a, b in pairs):
        raise ShapeError(
            f"tensordot: axes {first} of shape {x1.shape} and axes {second} of shape {x2.shape} "
            "must have the same sizes."
        )
    left = [a for a in range(m) if a not in first]
    right = [a for a in range(n) if a not in second]
    inner = _count([b if is_unknown(a) else a for a, b in pairs])
    outer_1, outer_2 = [x1.shape[a] for a in left], [x2.shape[a] for a in right]
    rows = reshape(transpose(x1, (*left, *first)), (_count(outer_1), inner))
    columns = reshape(transpose(x2, (*second, *right)), (inner, _count(outer_2)))
    return reshape(_in_own_dtype(rows, columns), (*outer_1, *outer_2))


def _in_own_dtype(x1: Tensor, x2: Tensor) -> Tensor:
    """Return the matrix product; of int8, unlike `matmul`, in int8."""
    y = matmul(x1, x2)
    return cast(y, "int8") if x1.dtype == x2.dtype == "int8" else y


@function
def dot(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return x1 * x2 for a number, else the sums over x1's last and x2's last but one axis.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> dot([1, 2], [3, 4]).tolist(), dot(2, [3, 4]).tolist()
        (11, [6, 8])
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    if not x1.shape or not x2.shape:
        return multiply(x1, x2)
    if len(x1.shape) <= 2 and len(x2.shape) <= 2:
        return _in_own_dtype(x1, x2)
    return tensordot(x1, x2, ([-1], [-2 if len(x2.shape) > 1 else -1]))


@function
def inner(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return x1 * x2 for a number, else the sums over both last axes.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> inner([1, 2], [[3, 4], [5, 6]]).tolist()
        [11, 17]
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    if not x1.shape or not x2.shape:
        return multiply(x1, x2)
    return tensordot(x1, x2, ([-1], [-1]))


@function
def vdot(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the sum of products of all elements.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> vdot([[1, 2], [3, 4]], [[1, 1], [1, 1]]).tolist()
        10
    """
    return _in_own_dtype(reshape(x1, (-1,)), reshape(x2, (-1,)))


@function
def cross(
    x1: TensorLike,
    x2: TensorLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Tensor:
    """Return the vector product along axes of size 3, or 2 (its third element is then 0).

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.
        axisa, axisb, axisc: the axis of the vectors in x1, in x2 and in the result.
        axis: overrides the three; None: the three hold.

    Example:
        >>> cross([1, 0, 0], [0, 1, 0]).tolist(), cross([1, 0], [0, 1]).tolist()
        ([0, 0, 1], 1)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = moveaxis(as_tensor(x1), axisa, -1), moveaxis(as_tensor(x2), axisb, -1)
    sizes = tuple(3 if is_unknown(v.shape[-1]) else v.shape[-1] for v in (a, b))
    if not set(sizes) <= {2, 3}:
        raise ShapeError(f"cross: vectors have 2 or 3 elements, got shapes {a.shape}, {b.shape}.")
    lead = broadcast_shapes(a.shape[:-1], b.shape[:-1], what="cross")
    a0, a1, b0, b1 = (get_item(v, (..., i)) for v in (a, b) for i in (0, 1))
    last = subtract(multiply(a0, b1), multiply(a1, b0))
    if sizes == (2, 2):
        return last
    first, second = _with_third(a, a0, a1, b, b0, b1)
    parts = [broadcast_to(part, lead) for part in (first, second, last)]
    return moveaxis(stack(parts, -1), -1, axisc)


def _with_third(
    a: Tensor, a0: AnyTensor, a1: AnyTensor, b: Tensor, b0: AnyTensor, b1: AnyTensor
) -> tuple[Any, Any]:
    """Return the first two elements of the vector product; a missing third one counts as 0."""
    if a.shape[-1] == 2:
        b2 = get_item(b, (..., 2))
        return multiply(a1, b2), multiply(multiply(a0, b2), -1)
    a2 = get_item(a, (..., 2))
    if b.shape[-1] == 2:
        return multiply(multiply(a2, b1), -1), multiply(a2, b0)
    b2 = get_item(b, (..., 2))
    return (
        subtract(multiply(a1, b2), multiply(a2, b1)),
        subtract(multiply(a2, b0), multiply(a0, b2)),
    )
