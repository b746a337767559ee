"""Grids, sequences of numbers, and differences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops.basic.activation import as_float, meeting
from kerasish.ops.basic.arithmetic import add, divide, floor_divide, mod, multiply, subtract
from kerasish.ops.basic.comparison import equal, not_equal, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange
from kerasish.ops.basic.exponentials import exp, log, power
from kerasish.ops.basic.movement import broadcast_to, reshape, strided_slice
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.basic.reshaping import expand_dims, moveaxis, ravel
from kerasish.ops.basic.selection import get_item
from kerasish.ops.op import function
from kerasish.ops.shapes import broadcast_shapes, normalize_axis
from kerasish.typing import DTypeLike, Shape, Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "diff", "geomspace", "linspace", "logspace", "meshgrid", "trapezoid",
    "unravel_index", "vander",
]  # fmt: skip

# --- grids and sequences ----------------------------------------------------------------------


@function
def meshgrid(*x: Any, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of the grid spanned by vectors, one tensor for each of them.

    Args:
        x: the vectors.
        indexing: "xy" (the first two axes swapped, as for pictures) or "ij".

    Example:
        >>> [part.tolist() for part in meshgrid([1, 2, 3], [4, 5])]
        [[[1, 2, 3], [1, 2, 3]], [[4, 4, 4], [5, 5, 5]]]
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
        axis: the axis of the numbers in the result.

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

    Example:
        >>> [round(float(v), 3) for v in logspace(0.0, 2.0, 3)]
        [1.0, 10.0, 100.0]
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

    Example:
        >>> [round(float(v), 3) for v in geomspace(1.0, 100.0, 3)]
        [1.0, 10.0, 100.0]
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

    Example:
        >>> diff([1, 4, 9]).tolist(), diff([1, 4, 9], n=2).tolist()
        ([3, 5], [2])
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
        x: their positions; None: at distances dx.
        dx: the distance of neighbors, where x is None.
        axis: the axis of the integral.

    Example:
        >>> float(trapezoid([1.0, 2.0, 3.0], dx=2.0))
        8.0
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

    Example:
        >>> [part.tolist() for part in unravel_index([1, 5], (2, 3))]
        [[0, 1], [1, 2]]
    """
    rest = as_tensor(indices)
    total = math.prod(shape)
    rest = select(rest < 0, add(rest, total), rest)
    results = []
    for size in reversed(tuple(shape)):
        results.append(mod(rest, size))
        rest = floor_divide(rest, size)
    return tuple(reversed(results))
