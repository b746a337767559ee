"""Averages, quantiles, counts and correlations, composed of ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import DTypeError, ShapeError
from kerasish.ops import dtypes
from kerasish.ops.arrays.grids import linspace
from kerasish.ops.arrays.searching import searchsorted
from kerasish.ops.basic.activation import as_float, meeting
from kerasish.ops.basic.arithmetic import add, ceil, divide, floor, minimum, multiply, subtract
from kerasish.ops.basic.comparison import isnan, logical_and, not_equal, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, full, full_like, ones_like, unsized
from kerasish.ops.basic.exponentials import sqrt
from kerasish.ops.basic.indexing import add_rows, take_rows
from kerasish.ops.basic.movement import reshape
from kerasish.ops.basic.product import matmul
from kerasish.ops.basic.reduce import reduce_any, reduce_prod, reduce_sum
from kerasish.ops.basic.reshaping import expand_dims, flip, moveaxis, pad, ravel, squeeze
from kerasish.ops.basic.selection import sort
from kerasish.ops.basic.statistics import max, mean, min
from kerasish.ops.op import function, is_inferring
from kerasish.ops.shapes import agree, normalize_axes
from kerasish.typing import AnyTensor, Axis, DTypeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "average", "bincount", "corrcoef", "correlate", "count_nonzero", "histogram", "median",
    "percentile", "prod", "ptp", "quantile",
]  # fmt: skip


@function
def prod(
    x: TensorLike, axis: Axis | None = None, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Tensor:
    """Return the product over `axis` (None: all).

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> prod([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [5.0, 6.0]
    """
    return reduce_prod(x if dtype is None else cast(as_tensor(x), dtype), axis, keepdims)


@function
def ptp(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the largest element less the smallest one over `axis`.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> float(ptp([1.0, 5.0]))
        4.0
    """
    return subtract(max(x, axis, keepdims), min(x, axis, keepdims))


@function
def count_nonzero(x: TensorLike, axis: Axis | None = None) -> Tensor:
    """Return how many elements over `axis` are not 0, int32.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.

    Example:
        >>> int(count_nonzero([0, 1, 2]))
        2
    """
    return reduce_sum(cast(not_equal(x, 0), "int32"), axis)


@function
def average(x: TensorLike, axis: Axis | None = None, weights: TensorLike | None = None) -> Tensor:
    """Return sum(weights * x) / sum(weights) over `axis`.

    Args:
        x: the values.
        axis: a number, several, or None for all.
        weights: of x's shape, or one for each place along `axis`; None: all equal.

    Example:
        >>> float(average([1.0, 3.0], weights=[3.0, 1.0]))
        1.5
    """
    if weights is None:
        return mean(as_float(x), axis)
    values, w = meeting(x, weights)
    if len(w.shape) != len(values.shape) or not all(map(agree, w.shape, values.shape)):
        axes = normalize_axes(axis, len(values.shape), "average")
        over = [values.shape[a] for a in axes]
        if len(w.shape) != len(over) or not all(map(agree, w.shape, over)):
            raise ShapeError(
                f"average: weights of shape {w.shape} fit neither x's shape {values.shape} nor "
                f"its axis {axis}."
            )
        w = reshape(w, tuple(s if i in axes else 1 for i, s in enumerate(values.shape)))
    total = reduce_sum(multiply(ones_like(values), w), axis)
    return divide(reduce_sum(multiply(values, w), axis), total)


# --- quantiles ------------------------------------------------------------------------------------

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def to_last(
    x: AnyTensor, axis: int | Sequence[int] | None, what: str
) -> tuple[Any, tuple[int, ...]]:
    """Return (x with `axis` flattened into one last axis, the axes as numbers)."""
    axes = normalize_axes(axis, len(x.shape), what)
    rest = [s for i, s in enumerate(x.shape) if i not in axes]
    moved = moveaxis(x, axes, tuple(range(-len(axes), 0))) if axes else x
    return reshape(moved, (*rest, math.prod(x.shape[a] for a in axes))), axes


def interpolated(places: TensorLike, pick: Callable[..., Any], method: str) -> Tensor:
    """Return the values at the fractional `places`, from `pick(integer places)`."""
    if method == "lower":
        return pick(floor(places))
    if method == "higher":
        return pick(ceil(places))
    if method == "nearest":
        # Half way between two, the lower one is taken.
        return pick(ceil(subtract(places, 0.5)))
    low, high = floor(places), ceil(places)
    share = subtract(places, low)
    if method == "midpoint":
        share = select(share > 0, 0.5, share)
    below = pick(low)
    return add(below, multiply(subtract(pick(high), below), share))


def check_method(method: str) -> None:
    """Raise unless `method` is a way to interpolate."""
    if method not in METHODS:
        raise ValueError(f"quantile: method must be one of {METHODS}, got {method!r}.")


@function
def quantile(
    x: TensorLike,
    q: TensorLike,
    axis: Axis | None = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """Return the value below which the share q of the elements over `axis` is.

    Args:
        x: the values; a NaN makes the result NaN.
        q: a number in [0, 1], or several: they are first in the result's shape.
        axis: a number, several, or None for all.
        method: between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
        keepdims: whether the reduced axes stay, with size 1.

    Example:
        >>> quantile([1.0, 2.0, 3.0], 0.25).tolist()
        1.5
    """
    check_method(method)
    x = as_float(x)
    q = cast(as_float(q), x.dtype)
    flat, axes = to_last(x, axis, "quantile")
    if flat.shape[-1] == 0:
        flat = full((*flat.shape[:-1], 1), math.nan, x.dtype)
    ordered = sort(flat, -1)
    places = multiply(q, float(flat.shape[-1] - 1))
    last = len(flat.shape) - 1

    def pick(whole: TensorLike) -> Tensor:
        return take_rows(ordered, cast(whole, "int32"), last)

    # What is picked has one more axis, the last one, with an entry per share.
    shares = len(q.shape)
    result = interpolated(places, pick, method)
    result = moveaxis(result, -1, 0) if shares else result
    odd = reduce_any(isnan(flat), -1)
    return _kept(select(odd, full_like(result, math.nan), result), x, axes, keepdims, shares)


def _kept(y: Tensor, x: Tensor, axes: tuple[int, ...], keepdims: bool, lead: int) -> Tensor:
    return expand_dims(y, tuple(a + lead for a in axes)) if keepdims and axes else y


@function
def percentile(
    x: TensorLike,
    q: float,
    axis: Axis | None = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """Return the quantile of q / 100; see `quantile`.

    Args:
        x: tensor or array.
        q: percentages from 0 to 100: a number or several.
        axis: axis or axes over which it is taken; None: all.
        method: between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> percentile([1.0, 2.0, 3.0], 50).tolist()
        2.0
    """
    return quantile(x, divide(as_float(q), 100), axis, method, keepdims)


@function
def median(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the middle element over `axis`, or the mean of the two in the middle.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> median([[1.0, 5.0, 9.0], [3.0, 2.0, 7.0]], axis=1).tolist()
        [5.0, 3.0]
    """
    return quantile(x, 0.5, axis, "linear", keepdims)


# --- counts ---------------------------------------------------------------------------------------


@function
def bincount(
    x: TensorLike, weights: TensorLike | None = None, minlength: int = 0, sparse: bool = False
) -> Tensor:
    """Return how often (or with what weight) each integer occurs in each row of x.

    The width of the result is max(x) + 1, at least `minlength`: it depends on numbers, so this
    function cannot be traced.

    Args:
        x: tensor or array.
        weights: what each element counts, in the shape of x; None: 1.
        minlength: the least number of bins, >= 0.
        sparse: must be False: kerasish has no sparse tensors.

    Example:
        >>> bincount([1, 1, 3]).tolist()
        [0, 2, 0, 1]
    """
    if sparse:
        raise ValueError("bincount: sparse=True is not supported; the result is dense.")
    x = as_tensor(x)
    if dtypes.is_inexact(x.dtype):
        raise DTypeError(f"bincount: integers were expected, got {x.dtype}.")
    x = cast(x, "int32")
    weights = ones_like(x) if weights is None else as_tensor(weights)
    if is_inferring(x):
        return unsized((*x.shape[:-1], None), weights.dtype)
    size = minlength
    if math.prod(x.shape):
        if min(x).item() < 0:
            raise ValueError(f"bincount: numbers >= 0 were expected, got {min(x).item()}.")
        top = int(max(x).item()) + 1
        size = top if top > minlength else minlength
    if len(x.shape) == 1:
        return add_rows(weights, x, size, 0)
    rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
    places = add(reshape(x, (rows, columns)), expand_dims(multiply(arange(rows), size), -1))
    flat = add_rows(ravel(weights), ravel(places), rows * size, 0)
    return reshape(flat, (*x.shape[:-1], size))


@function
def histogram(
    x: TensorLike, bins: int = 10, range: Sequence[int] | None = None
) -> tuple[Tensor, ...]:
    """Return (how many elements are in each bin, the edges of the bins).

    The counts have the dtype of x where that is a float, as in Keras, and int32 otherwise.

    Args:
        x: the values.
        bins: how many bins of equal width.
        range: (least, largest); None: those of x.

    Example:
        >>> [part.tolist() for part in histogram([1.0, 2.0, 2.5], bins=2)]
        [[1.0, 2.0], [1.0, 1.75, 2.5]]
    """
    if not isinstance(bins, int) or bins < 1:
        raise ValueError(f"histogram: bins must be an integer >= 1, got {bins!r}.")
    if range is not None and (len(range) != 2 or range[1] < range[0]):
        raise ValueError(f"histogram: range must be (least, largest), got {range}.")
    given = as_tensor(x)
    x = ravel(as_float(given))
    low, high = (min(x), max(x)) if range is None else (as_float(range[0]), as_float(range[1]))
    flat = cast(subtract(high, low) == 0, x.dtype)
    low, high = subtract(low, multiply(flat, 0.5)), add(high, multiply(flat, 0.5))
    edges = linspace(low, high, bins + 1)
    inside = logical_and(x >= low, x <= high)
    place = minimum(subtract(searchsorted(edges, x, "right"), 1), bins - 1)
    place = select(inside, place, bins)
    counts = add_rows(cast(inside, "int32"), place, bins + 1, 0)
    counts = counts[:bins]
    return cast(counts, x.dtype) if given.dtype == x.dtype else counts, cast(edges, x.dtype)


# --- correlation ----------------------------------------------------------------------------------


@function
def corrcoef(x: TensorLike) -> Tensor:
    """Return the correlation coefficients of the rows of x, in [-1, 1].

    Args:
        x: tensor or array.

    Example:
        >>> corrcoef([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    x = as_float(x)
    x = expand_dims(x, 0) if len(x.shape) < 2 else x
    centered = subtract(x, mean(x, 1, True))
    products = matmul(centered, centered.T)
    size = sqrt(reduce_sum(multiply(centered, centered), 1))
    y = divide(divide(products, expand_dims(size, 1)), size)
    return squeeze(y) if y.shape == (1, 1) else y


@function
def correlate(x1: TensorLike, x2: TensorLike, mode: str = "valid") -> Tensor:
    """Return the sums of x1[k + n] * x2[n] over n, for each shift k.

    Args:
        x1: a vector.
        x2: a vector.
        mode: "valid" (where both overlap wholly), "same" (as long as the longer) or "full".

    Example:
        >>> correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).tolist()
        [3.5]
    """
    x1, x2 = meeting(x1, x2)
    if len(x1.shape) != 1 or len(x2.shape) != 1:
        raise ShapeError(f"correlate: expected two vectors, got {x1.shape} and {x2.shape}.")
    if x1.shape[0] < x2.shape[0]:
        return flip(correlate(x2, x1, mode))
    n, m = x1.shape[0], x2.shape[0]
    before = {"valid": 0, "same": m // 2, "full": m - 1}
    if mode not in before:
        raise ValueError(f"correlate: mode must be one of {list(before)}, got {mode!r}.")
    length = {"valid": n - m + 1, "same": n, "full": n + m - 1}[mode]
    padded = pad(x1, ((before[mode], m - 1),))
    places = add(expand_dims(arange(length), -1), arange(m))
    return matmul(take_rows(padded, places, 0), x2)
