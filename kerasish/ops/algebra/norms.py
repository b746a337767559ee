"""Norms of vectors and matrices, distances between rows, and the rank."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.algebra.decomposition import singular_values
from kerasish.ops.basic.arithmetic import absolute, multiply, square, subtract
from kerasish.ops.basic.comparison import equal, greater, not_equal
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.exponentials import power, sqrt
from kerasish.ops.basic.reduce import reduce_max, reduce_min, reduce_sum
from kerasish.ops.basic.reshaping import expand_dims, moveaxis
from kerasish.ops.basic.selection import where
from kerasish.ops.op import function
from kerasish.ops.shapes import agree, normalize_axes, normalize_axis
from kerasish.typing import Axis, ScalarLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["matrix_rank", "norm"]


@function
def norm(
    x: TensorLike, ord: str | float | None = None, axis: Axis | None = None, keepdims: bool = False
) -> Tensor:
    """Return a vector norm along one axis, or a matrix norm over two.

    Args:
        x: tensor or array.
        ord: of vectors: a number p, (sum |x|^p)^(1/p), with inf, -inf and 0 (how many are not
            zero) as limits; of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf. None: the root
            of the sum of squares.
        axis: a number, two numbers, or None: all of x.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> float(norm([3.0, 4.0])), float(norm([[1.0, -2.0], [3.0, 4.0]], ord=1))
        (5.0, 6.0)
    """
    x = as_tensor(x)
    x = x if dtypes.is_inexact(x.dtype) else cast(x, dtypes.to_inexact(x.dtype))
    ndim = len(x.shape)
    if axis is None and ord is not None and ndim not in (1, 2):
        raise ShapeError(f"norm: with ord={ord!r} and shape {x.shape}, say which axis or axes.")
    given = axis if isinstance(axis, (tuple, list)) or axis is None else (axis,)
    axes = tuple(normalize_axis(a, ndim, "norm") for a in (range(ndim) if given is None else given))
    normalize_axes(axes, ndim, "norm")  # raises where one is named twice
    if ord is None:
        return sqrt(reduce_sum(square(x), axes, keepdims))
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ShapeError(f"norm: a norm with ord has one axis or two, got {axis!r}.")
    y = _matrix_norm(moveaxis(x, axes, (-2, -1)), ord)
    return expand_dims(y, tuple(sorted(axes))) if keepdims else y


def _vector_norm(x: Tensor, ord: str | float, axis: int, keepdims: bool) -> Tensor:
    if isinstance(ord, str):
        raise ValueError(f"norm: ord {ord!r} is for matrices (two axes), not for vectors.")
    if ord == 0:
        return reduce_sum(cast(not_equal(x, 0), x.dtype), axis, keepdims)
    if ord == 1:
        return reduce_sum(absolute(x), axis, keepdims)
    if ord == 2:
        return sqrt(reduce_sum(square(x), axis, keepdims))
    if math.isinf(ord):
        return (reduce_max if ord > 0 else reduce_min)(absolute(x), axis, keepdims)
    total = reduce_sum(power(absolute(x), float(ord)), axis, keepdims)
    return power(total, 1.0 / ord)


def _matrix_norm(x: Tensor, ord: str | float) -> Tensor:
    if ord == "fro":
        return sqrt(reduce_sum(square(x), (-2, -1)))
    if ord == "nuc":
        return reduce_sum(singular_values(x), -1)
    if ord in (2, -2):
        return (reduce_max if ord > 0 else reduce_min)(singular_values(x), -1)
    if ord in (1, -1):
        return (reduce_max if ord > 0 else reduce_min)(reduce_sum(absolute(x), -2), -1)
    if ord in (math.inf, -math.inf):
        return (reduce_max if ord > 0 else reduce_min)(reduce_sum(absolute(x), -1), -1)
    raise ValueError(
        f"norm: ord of matrices is 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}."
    )


@function
def cdist(x: TensorLike, y: TensorLike) -> Tensor:
    """Return the Euclidean distances between the rows of x and those of y.

    Args:
        x: tensor or array.
        y: tensor or array.

    Shape: (..., n, d), (..., m, d) -> (..., n, m).

    Example:
        >>> cdist([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]).tolist()
        [[5.0, 1.0]]
    """
    x, y = as_tensor(x), as_tensor(y)
    if len(x.shape) < 2 or len(y.shape) < 2 or not agree(x.shape[-1], y.shape[-1]):
        raise ShapeError(f"cdist: expected rows of one length, got shapes {x.shape} and {y.shape}.")
    apart = reduce_sum(square(subtract(expand_dims(x, -2), expand_dims(y, -3))), -1)
    # No slope where two rows are one: the distance has a corner there.
    same = equal(apart, 0)
    return where(same, 0.0, sqrt(where(same, 1.0, apart)))


@function
def matrix_rank(x: TensorLike, tol: ScalarLike | None = None) -> Tensor:
    """Return how many singular values exceed `tol`, int32.

    Args:
        x: tensor or array.
        tol: None: the largest singular value * max(m, n) * the dtype's precision.

    Example:
        >>> int(matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
        1
    """
    x = as_tensor(x)
    if len(x.shape) < 2:
        # NumPy's convention: a vector has rank 1 unless it is zero.
        return reduce_max(cast(not_equal(x, 0), "int32"))
    values = singular_values(x)
    if tol is None:
        precision = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}
        eps = precision.get(values.dtype, 2.0**-7)
        tol = multiply(reduce_max(values, -1, True), max(x.shape[-2:]) * eps)
    return cast(reduce_sum(cast(greater(values, tol), "int32"), -1), "int32")
