"""Stacking, splitting, diagonals, grids and sequences of numbers, composed of ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops.basic.activation import as_float, meeting
from kerasish.ops.basic.arithmetic import add, divide, floor_divide, mod, multiply, subtract
from kerasish.ops.basic.comparison import equal, not_equal, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, tri, unsized
from kerasish.ops.basic.exponentials import exp, log, power
from kerasish.ops.basic.movement import broadcast_to, concatenate, reshape, strided_slice
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.basic.reshaping import expand_dims, flip, moveaxis, pad, ravel, swapaxes
from kerasish.ops.basic.reshaping import split as split_at
from kerasish.ops.basic.selection import get_item
from kerasish.ops.op import function
from kerasish.ops.shapes import broadcast_shapes, is_unknown, normalize_axis
from kerasish.typing import AnyTensor, Array, DTypeLike, Shape, Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "append", "array_split", "diag", "diagflat", "diagonal", "diff", "dsplit", "dstack",
    "fliplr", "flipud", "geomspace", "hsplit", "hstack", "kron", "linspace", "logspace",
    "meshgrid", "outer", "rot90", "trace", "trapezoid", "tril", "triu", "unravel_index",
    "vander", "vsplit", "vstack",
]  # fmt: skip

# --- joining and splitting --------------------------------------------------------------------


@function
def append(x1: TensorLike, x2: TensorLike, axis: int | None = None) -> Tensor:
    """Return x2 behind x1 along `axis` (None: both flattened)."""
    if axis is None:
        return concatenate([ravel(x1), ravel(x2)], 0)
    return concatenate([x1, x2], axis)


def _at_least(x: AnyTensor, ndim: int) -> Tensor:
    x = as_tensor(x)
    missing = ndim - len(x.shape)
    return x if missing <= 0 else reshape(x, (1,) * missing + tuple(x.shape))


@function
def vstack(xs: Sequence[Array]) -> Tensor:
    """Return the tensors xs stacked as rows."""
    return concatenate([_at_least(x, 2) for x in xs], 0)


@function
def hstack(xs: Sequence[Array]) -> Tensor:
    """Return the tensors xs joined along the second axis, or the first where there is no second."""
    parts = [_at_least(x, 1) for x in xs]
    return concatenate(parts, 0 if len(parts[0].shape) == 1 else 1)


@function
def dstack(xs: Sequence[Array]) -> Tensor:
    """Return the tensors xs joined along the third axis."""
    parts = []
    for x in xs:
        x = _at_least(x, 2)
        parts.append(expand_dims(x, -1) if len(x.shape) == 2 else x)
    return concatenate(parts, 2)


@function
def array_split(x: TensorLike, indices_or_sections: int, axis: int = 0) -> list[Tensor]:
    """Return x cut along `axis` into sections whose sizes differ by 1 at most."""
    x = as_tensor(x)
    if not isinstance(indices_or_sections, int):
        return split_at(x, indices_or_sections, axis)
    least, more = divmod(x.shape[axis], indices_or_sections)
    sizes = [least + 1] * more + [least] * (indices_or_sections - more)
    return split_at(x, [sum(sizes[:i]) for i in range(1, len(sizes))], axis)


@function
def hsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    """Return x cut along its second axis, or the first where there is no second."""
    x = as_tensor(x)
    return split_at(x, indices_or_sections, 0 if len(x.shape) == 1 else 1)


@function
def vsplit(x: TensorLike, indices_or_sections: int) -> list[Tensor]:
    """Return x cut along its first axis; it has two or more."""
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
    """
    return split_at(x, indices_or_sections, 2)


# --- turning ------------------------------------------------------------------------------------


@function
def fliplr(x: TensorLike) -> Tensor:
    """Return x reversed along its second axis.

    Args:
        x: tensor or array.
    """
    return flip(x, 1)


@function
def flipud(x: TensorLike) -> Tensor:
    """Return x reversed along its first axis.

    Args:
        x: tensor or array.
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
    """
    x = _matrices(x, "tril")
    return select(tri(x.shape[-2], x.shape[-1], k, "bool"), x, _zero(x))


@function
def triu(x: TensorLike, k: int = 0) -> Tensor:
    """Return x with zeros below the k-th diagonal of its last two axes.

    Args:
        x: tensor or array.
        k: the diagonal: 0 the main one, above it > 0, below it < 0.
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
    """
    return diag(ravel(x), k)


# --- grids and sequences ----------------------------------------------------------------------


@function
def meshgrid(*x: Any, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of the grid spanned by vectors, one tensor for each of them.

    Args:
        x: the vectors.
        indexing: "xy" (the first two axes swapped, as for pictures) or "ij".
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}.")
    vectors = [ravel(v) for v in x]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(order)
    for vector, place in zip(vectors, order):
        shape[place] = vector.shape[0]
    return [
        broadcast_to(reshape(v, [-1 if i == p else 1 for i in range(len(order))]), tuple(shape))
        for v, p in zip(vectors, order)
    ]


@function
def linspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Structure:
    """Return `num` numbers from `start` to `stop` at equal distances along a new `axis`.

    Args:
        start: the first number, or a tensor of them.
        stop: the last one; with `endpoint=False` it is left out.
        num: how many.
        endpoint: whether `stop` is among them.
        retstep: whether to return (numbers, distance).
        dtype: None: the dtype of start and stop, at least the default float.
        axis: where the numbers lie in the result.

    Example:
        >>> linspace(0, 1, 3).tolist()
        [0.0, 0.5, 1.0]
    """
    start, stop = meeting(start, stop)
    parts = num - 1 if endpoint else num
    steps = divide(subtract(stop, start), float(max(parts, 1)))
    shape = broadcast_shapes(start.shape, stop.shape, what="linspace")
    count = reshape(arange(num, dtype=steps.dtype), (num,) + (1,) * len(shape))
    numbers = add(multiply(count, steps), start)
    if endpoint and num > 1:
        # Rounding must not miss the end.
        numbers = select(equal(count, num - 1), stop, numbers)
    if dtype is not None:
        numbers = cast(numbers, dtype)
    numbers = numbers if axis == 0 else moveaxis(numbers, 0, axis)
    return (numbers, steps) if retstep else numbers


@function
def logspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    base: int = 10,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Tensor:
    """Return `num` numbers from base ** start to base ** stop at equal ratios.

    Args:
        start: first number.
        stop: last number.
        num: how many numbers.
        endpoint: whether `stop` is the last number.
        base: the base, > 0.
        dtype: dtype of the result; None: chosen by the inputs.
        axis: axis or axes; negative ones count from the last.
    """
    exponents = linspace(start, stop, num, endpoint, False, None, axis)
    y = power(cast(as_tensor(base), exponents.dtype), exponents)
    return y if dtype is None else cast(y, dtype)


@function
def geomspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Tensor:
    """Return `num` numbers from `start` to `stop`, of the same sign, at equal ratios.

    Args:
        start: first number.
        stop: last number.
        num: how many numbers.
        endpoint: whether `stop` is the last number.
        dtype: dtype of the result; None: chosen by the inputs.
        axis: axis or axes; negative ones count from the last.
    """
    start, stop = meeting(start, stop)
    ratio = log(divide(stop, start))
    y = multiply(start, exp(linspace(multiply(ratio, 0), ratio, num, endpoint, False, None, axis)))
    return y if dtype is None else cast(y, dtype)


@function
def vander(x: TensorLike, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """Return the powers of x as columns, the highest first unless `increasing`.

    Args:
        x: tensor or array.
        N: number of columns; None: the size of x.
        increasing: whether the powers grow from left to right.

    Example:
        >>> vander([2, 3], 3).tolist()
        [[4, 2, 1], [9, 3, 1]]
    """
    x = as_tensor(x)
    if len(x.shape) != 1:
        raise ShapeError(f"vander: expected a vector, got shape {x.shape}.")
    count = x.shape[0] if N is None else N
    powers = arange(count) if increasing else arange(count - 1, -1, -1)
    return power(expand_dims(x, -1), cast(powers, x.dtype))


@function
def diff(a: TensorLike, n: int = 1, axis: int = -1) -> Tensor:
    """Return the differences of neighbors along `axis`, taken n times.

    Args:
        a: tensor or array.
        n: how often differences are taken, >= 0.
        axis: axis or axes; negative ones count from the last.
    """
    a = as_tensor(a)
    axis = normalize_axis(axis, len(a.shape), "diff")
    lead = [slice(None)] * axis
    less = not_equal if a.dtype == "bool" else subtract
    for _ in range(n):
        after = strided_slice(a, [*lead, slice(1, None)])
        a = less(after, strided_slice(a, [*lead, slice(0, max(a.shape[axis] - 1, 0))]))
    return a


@function
def trapezoid(
    y: TensorLike, x: TensorLike | None = None, dx: float = 1.0, axis: int = -1
) -> Tensor:
    """Return the integral of y along `axis` by the trapezoidal rule.

    Args:
        y: the values.
        x: where they lie; None: at distances dx.
        dx: the distance of neighbors, where x is None.
        axis: the axis of the integral.
    """
    y = moveaxis(as_float(y), axis, -1)
    heights = add(get_item(y, (..., slice(1, None))), get_item(y, (..., slice(None, -1))))
    if x is None:
        return multiply(reduce_sum(heights, -1), dx / 2)
    x = as_float(x)
    widths = diff(x) if len(x.shape) == 1 else diff(moveaxis(x, axis, -1))
    return multiply(reduce_sum(multiply(heights, widths), -1), 0.5)


@function
def unravel_index(indices: TensorLike, shape: Shape) -> tuple[Tensor, ...]:
    """Return the index along each axis of `shape` of positions in the flattened array.

    Args:
        indices: integers.
        shape: shape of the result: integers.
    """
    rest = as_tensor(indices)
    total = math.prod(shape)
    rest = select(rest < 0, add(rest, total), rest)
    results = []
    for size in reversed(tuple(shape)):
        results.append(mod(rest, size))
        rest = floor_divide(rest, size)
    return tuple(reversed(results))


# --- products of all pairs ------------------------------------------------------------------------


@function
def outer(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the products of each element of x1 (rows) and each of x2 (columns).

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.
    """
    return multiply(expand_dims(ravel(x1), -1), ravel(x2))


@function
def kron(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the Kronecker product: x2 laid out in blocks, each times an element of x1.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    ndim = max(len(x1.shape), len(x2.shape))
    a, b = _at_least(x1, ndim).shape, _at_least(x2, ndim).shape
    left = reshape(x1, tuple(n for size in a for n in (size, 1)))
    right = reshape(x2, tuple(n for size in b for n in (1, size)))
    return reshape(multiply(left, right), tuple(m * n for m, n in zip(a, b)))
