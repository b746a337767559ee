"""Arrays joined, cut, turned, their diagonals, and products of all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kerasish.errors import ShapeError
from kerasish.ops.basic.arithmetic import add, multiply
from kerasish.ops.basic.comparison import equal, select
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.creation import arange, tri, unsized
from kerasish.ops.basic.movement import concatenate, reshape, strided_slice
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.basic.reshaping import expand_dims, flip, moveaxis, pad, ravel, swapaxes
from kerasish.ops.basic.reshaping import split as split_at
from kerasish.ops.op import function
from kerasish.ops.shapes import is_unknown, normalize_axis
from kerasish.typing import AnyTensor, Array, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "append", "array_split", "diag", "diagflat", "diagonal", "dsplit", "dstack", "fliplr",
    "flipud", "hsplit", "hstack", "kron", "outer", "rot90", "trace", "tril", "triu", "vsplit",
    "vstack",
]  # fmt: skip

# --- joining and splitting --------------------------------------------------------------------


@function
def append(x1: TensorLike, x2: TensorLike, axis: int | None = None) -> Tensor:
    """Return x2 behind x1 along `axis` (None: both flattened).

    Args:
        x1: tensor or array.
        x2: tensor or array of the same shape but for `axis`.
        axis: the axis to join along, negative from the last; None: both are flattened.

    Example:
        >>> append([1, 2], [3]).tolist()
        [1, 2, 3]
        >>> append([[1, 2]], [[3, 4]], axis=0).tolist()
        [[1, 2], [3, 4]]
    """
    if axis is None:
        return concatenate([ravel(x1), ravel(x2)], 0)
    return concatenate([x1, x2], axis)


def _at_least(x: AnyTensor, ndim: int) -> Tensor:
    x = as_tensor(x)
    missing = ndim - len(x.shape)
    return x if missing <= 0 else reshape(x, (1,) * missing + tuple(x.shape))


@function
def vstack(xs: Sequence[Array]) -> Tensor:
    """Return the tensors xs stacked as rows.

    Args:
        xs: tensors or arrays, of equal shapes but for the first axis; vectors are single rows.

    Example:
        >>> vstack([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
    """
    return concatenate([_at_least(x, 2) for x in xs], 0)


@function
def hstack(xs: Sequence[Array]) -> Tensor:
    """Return the tensors xs joined along the second axis, or the first where there is no second.

    Args:
        xs: tensors or arrays, of equal shapes but for that axis.

    Example:
        >>> hstack([[1, 2], [3]]).tolist()
        [1, 2, 3]
    """
    parts = [_at_least(x, 1) for x in xs]
    return concatenate(parts, 0 if len(parts[0].shape) == 1 else 1)


@function
def dstack(xs: Sequence[Array]) -> Tensor:
    """Return the tensors xs joined along the third axis.

    Args:
        xs: tensors or arrays, of equal shapes but for that axis.

    Example:
        >>> dstack([[1, 2], [3, 4]]).tolist()
        [[[1, 3], [2, 4]]]
    """
    parts = []
    for x in xs:
        x = _at_least(x, 2)
        parts.append(expand_dims(x, -1) if len(x.shape) == 2 else x)
    return concatenate(parts, 2)


@function
def array_split(x: TensorLike, indices_or_sections: int, axis: int = 0) -> list[Tensor]:
    """Return x cut along `axis` into sections whose sizes differ by 1 at most.

    Args:
        x: tensor or array.
        indices_or_sections: the number of parts, of which the first ones may be longer by 1, or the
            indices at which parts begin.
        axis: the axis to cut, negative from the last.

    Example:
        >>> [part.tolist() for part in array_split([1, 2, 3, 4, 5], 2)]
        [[1, 2, 3], [4, 5]]
    """
    x = as_tensor(x)
    if not isinstance(indices_or_sections, int):
        return split_at(x, indices_or_sections, axis)
    least, more = divmod(x.shape[axis], indices_or_sections)
    sizes = [least + 1] * more + [least] * (indices_or_sections - more)
    return split_at(x, [sum(sizes[:i]) for i in range(1, len(sizes))], axis)


@function
def hsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    """Return x cut along its second axis, or the first where there is no second.

    Args:
        x: tensor or array.
        indices_or_sections: the number of equal parts, or the indices at which parts begin.

    Example:
        >>> [part.tolist() for part in hsplit([[1, 2, 3], [4, 5, 6]], [1])]
        [[[1], [4]], [[2, 3], [5, 6]]]
    """
    x = as_tensor(x)
    return split_at(x, indices_or_sections, 0 if len(x.shape) == 1 else 1)


@function
def vsplit(x: TensorLike, indices_or_sections: int) -> list[Tensor]:
    """Return x cut along its first axis; it has two or more.

    Args:
        x: tensor or array of two axes or more.
        indices_or_sections: the number of equal parts, or the indices at which parts begin.

    Example:
        >>> [part.tolist() for part in vsplit([[1, 2], [3, 4]], 2)]
        [[[1, 2]], [[3, 4]]]
    """
    x = as_tensor(x)
    if len(x.shape) < 2:
        raise ShapeError(f"vsplit: expected 2 axes or more, got shape {x.shape}.")
    return split_at(x, indices_or_sections, 0)


@function
def dsplit(x: TensorLike, indices_or_sections: int) -> list[Tensor]:
    """Return x cut along its third axis.

    Args:
        x: tensor or array.
        indices_or_sections: the number of equal parts, or the indices at which parts begin.

    Example:
        >>> import numpy as np
        >>> [part.shape for part in dsplit(np.zeros((1, 2, 4)), 2)]
        [(1, 2, 2), (1, 2, 2)]
    """
    return split_at(x, indices_or_sections, 2)


# --- turning ------------------------------------------------------------------------------------


@function
def fliplr(x: TensorLike) -> Tensor:
    """Return x reversed along its second axis.

    Args:
        x: tensor or array.

    Example:
        >>> fliplr([[1, 2], [3, 4]]).tolist()
        [[2, 1], [4, 3]]
    """
    return flip(x, 1)


@function
def flipud(x: TensorLike) -> Tensor:
    """Return x reversed along its first axis.

    Args:
        x: tensor or array.

    Example:
        >>> flipud([[1, 2], [3, 4]]).tolist()
        [[3, 4], [1, 2]]
    """
    return flip(x, 0)


@function
def rot90(array: TensorLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Return the array turned k times by 90 degrees from the first axis of `axes` to the second.

    Args:
        array: tensor of two or more axes.
        k: number of quarter turns.
        axes: the two axes of the plane.

    Example:
        >>> rot90([[1, 2], [3, 4]]).tolist()
        [[2, 4], [1, 3]]
    """
    array = as_tensor(array)
    ndim = len(array.shape)
    if ndim < 2 or len(axes) != 2:
        raise ValueError(f"rot90: expected 2 axes of 2 or more, got axes={axes} for {ndim} axes.")
    a, b = (normalize_axis(axis, ndim, "rot90") for axis in axes)
    if a == b:
        raise ValueError(f"rot90: the axes must differ, got {axes}.")
    k %= 4
    if k == 2:
        return flip(array, (a, b))
    if k == 1:
        return swapaxes(flip(array, b), a, b)
    return flip(swapaxes(array, a, b), b) if k == 3 else array


# --- diagonals ----------------------------------------------------------------------------------


def _zero(x: Tensor) -> int:
    return False if x.dtype == "bool" else 0


def _matrices(x: AnyTensor, what: str) -> Tensor:
    x = as_tensor(x)
    if len(x.shape) < 2:
        raise ShapeError(f"{what}: expected 2 axes or more, got shape {x.shape}.")
    return x


@function
def tril(x: TensorLike, k: int = 0) -> Tensor:
    """Return x with zeros above the k-th diagonal of its last two axes.

    Args:
        x: tensor or array.
        k: the diagonal: 0 the main one, above it > 0, below it < 0.

    Example:
        >>> tril([[1, 2], [3, 4]]).tolist()
        [[1, 0], [3, 4]]
    """
    x = _matrices(x, "tril")
    return select(tri(x.shape[-2], x.shape[-1], k, "bool"), x, _zero(x))


@function
def triu(x: TensorLike, k: int = 0) -> Tensor:
    """Return x with zeros below the k-th diagonal of its last two axes.

    Args:
        x: tensor or array.
        k: the diagonal: 0 the main one, above it > 0, below it < 0.

    Example:
        >>> triu([[1, 2], [3, 4]]).tolist()
        [[1, 2], [0, 4]]
    """
    x = _matrices(x, "triu")
    return select(tri(x.shape[-2], x.shape[-1], k - 1, "bool"), _zero(x), x)


@function
def diagonal(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return the diagonal of two axes of x, `offset` places to the right, as the last axis.

    Args:
        x: tensor or array.
        offset: places above the main diagonal; negative: below it.
        axis1: the first of the two axes.
        axis2: the second of the two axes.

    Example:
        >>> diagonal([[1, 2], [3, 4]]).tolist()
        [1, 4]
    """
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    start = offset if offset >= 0 else -offset * columns
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    if is_unknown(rows) != is_unknown(columns):
        return unsized((*x.shape[:-2], None), x.dtype)
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    lead = [slice(None)] * (len(x.shape) - 2)
    stop = start + max(0, count - 1) * (columns + 1) + (1 if count else 0)
    return strided_slice(flat, [*lead, slice(start, stop, columns + 1)])


@function
def trace(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return the sum of the diagonal of two axes of x.

    Args:
        x: tensor or array.
        offset: places above the main diagonal; negative: below it.
        axis1: the first of the two axes.
        axis2: the second of the two axes.

    Example:
        >>> trace([[1, 2], [3, 4]]).tolist(), trace([[1, 2], [3, 4]], offset=1).tolist()
        (5, 2)
    """
    return reduce_sum(diagonal(x, offset, axis1, axis2), -1)


@function
def diag(x: TensorLike, k: int = 0) -> Tensor:
    """Return the k-th diagonal of a matrix, or the matrix with x on its k-th diagonal.

    Args:
        x: tensor or array.
        k: the diagonal: 0 the main one, above it > 0, below it < 0.

    Example:
        >>> diag([1, 2]).tolist()
        [[1, 0], [0, 2]]
    """
    x = as_tensor(x)
    if len(x.shape) == 2:
        return diagonal(x, k)
    if len(x.shape) != 1:
        raise ShapeError(f"diag: expected 1 or 2 axes, got shape {x.shape}.")
    n = x.shape[0] + abs(k)
    column = expand_dims(pad(x, ((max(-k, 0), max(k, 0)),)), -1)
    rows, columns = expand_dims(arange(n), -1), arange(n)
    return select(equal(add(rows, k), columns), column, _zero(x))


@function
def diagflat(x: TensorLike, k: int = 0) -> Tensor:
    """Return the matrix with the elements of x on its k-th diagonal.

    Args:
        x: tensor or array.
        k: the diagonal: 0 the main one, above it > 0, below it < 0.

    Example:
        >>> diagflat([1, 2]).tolist()
        [[1, 0], [0, 2]]
    """
    return diag(ravel(x), k)


# --- products of all pairs ------------------------------------------------------------------------


@function
def outer(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the products of each element of x1 (rows) and each of x2 (columns).

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> outer([1, 2], [3, 4, 5]).tolist()
        [[3, 4, 5], [6, 8, 10]]
    """
    return multiply(expand_dims(ravel(x1), -1), ravel(x2))


@function
def kron(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the Kronecker product: x2 laid out in blocks, each times an element of x1.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> kron([1, 2], [1, 1]).tolist()
        [1, 1, 2, 2]
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    ndim = max(len(x1.shape), len(x2.shape))
    a, b = _at_least(x1, ndim).shape, _at_least(x2, ndim).shape
    left = reshape(x1, tuple(n for size in a for n in (size, 1)))
    right = reshape(x2, tuple(n for size in b for n in (1, size)))
    return reshape(multiply(left, right), tuple(m * n for m, n in zip(a, b)))
