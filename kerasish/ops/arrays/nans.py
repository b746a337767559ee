"""Reductions that pass over NaN, composed of ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.ops import dtypes
from kerasish.ops.arrays.statistics import check_method, interpolated, to_last
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.arithmetic import divide, maximum, multiply, square, subtract
from kerasish.ops.basic.comparison import equal, isnan, logical_not, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import full
from kerasish.ops.basic.exponentials import sqrt
from kerasish.ops.basic.reduce import argmax, argmin, reduce_all, reduce_prod, reduce_sum
from kerasish.ops.basic.reshaping import expand_dims
from kerasish.ops.basic.selection import sort, take_along_axis
from kerasish.ops.basic.statistics import cumprod, cumsum, max, min
from kerasish.ops.op import function
from kerasish.ops.shapes import normalize_axes
from kerasish.typing import Array, Axis, DTypeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian",
    "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
]  # fmt: skip


def _filled(x: TensorLike, value: float) -> Tensor:
    """Return x with `value` in place of NaN."""
    x = as_tensor(x)
    return select(isnan(x), value, x) if dtypes.is_float(x.dtype) else x


def _none_left(x: Tensor, axis: Axis | None, keepdims: bool) -> Tensor:
    return reduce_all(isnan(x), axis, keepdims)


@function
def nansum(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the sum over `axis`, NaN counting as 0.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nansum([1.0, float("nan")]).tolist()
        1.0
    """
    return reduce_sum(_filled(x, 0), axis, keepdims)


@function
def nanprod(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the product over `axis`, NaN counting as 1.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanprod([1.0, float("nan")]).tolist()
        1.0
    """
    return reduce_prod(_filled(x, 1), axis, keepdims)


@function
def nancumsum(x: TensorLike, axis: Axis | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return the sums up to each place along `axis`, NaN counting as 0.

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last; None: all, flattened.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> nancumsum([1.0, float("nan"), 2.0]).tolist()
        [1.0, 1.0, 3.0]
    """
    return cumsum(_filled(x, 0), axis, dtype)


@function
def nancumprod(x: TensorLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return the products up to each place along `axis`, NaN counting as 1.

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last; None: all, flattened.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> nancumprod([1.0, float("nan"), 2.0]).tolist()
        [1.0, 1.0, 2.0]
    """
    return cumprod(_filled(x, 1), axis, dtype)


def _extreme(
    x: Array, axis: Any, keepdims: bool, filler: float, reduce: Callable[..., Any],
    none: float = math.nan,
) -> Tensor:  # fmt: skip
    """Return `reduce` of the numbers; `none` where there are none."""
    x = as_tensor(x)
    if not dtypes.is_float(x.dtype):
        return reduce(x, axis, keepdims)
    result = reduce(_filled(x, filler), axis, keepdims)
    return select(_none_left(x, axis, keepdims), none, result)


@function
def nanmax(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the largest element over `axis` that is a number, NaN if there is none.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanmax([1.0, float("nan")]).tolist()
        1.0
    """
    return _extreme(x, axis, keepdims, -math.inf, max)


@function
def nanmin(
    x: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> Tensor:
    """Return the smallest element over `axis` that is a number, NaN if there is none.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanmin([1.0, float("nan")]).tolist()
        1.0
    """
    return _extreme(x, axis, keepdims, math.inf, min)


@function
def nanargmax(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return where the largest number over `axis` is, -1 if there is none.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanargmax([1.0, 3.0, float("nan")]).tolist()
        1
    """
    return _extreme(x, axis, keepdims, -math.inf, argmax, -1)


@function
def nanargmin(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return where the smallest number over `axis` is, -1 if there is none.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanargmin([1.0, 3.0, float("nan")]).tolist()
        0
    """
    return _extreme(x, axis, keepdims, math.inf, argmin, -1)


def _count(x: Tensor, axis: Axis | None, keepdims: bool) -> Tensor:
    return reduce_sum(cast(logical_not(isnan(x)), x.dtype), axis, keepdims)


@function
def nanmean(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the mean of the numbers over `axis`, NaN if there are none.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanmean([1.0, float("nan")]).tolist()
        1.0
    """
    x = as_float(x)
    return divide(nansum(x, axis, keepdims), _count(x, axis, keepdims))


@function
def nanvar(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the variance of the numbers over `axis`, NaN if there are none.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanvar([1.0, 3.0, float("nan")]).tolist()
        1.0
    """
    x = as_float(x)
    apart = select(isnan(x), 0, subtract(x, nanmean(x, axis, True)))
    return divide(reduce_sum(square(apart), axis, keepdims), _count(x, axis, keepdims))


@function
def nanstd(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the square root of the variance of the numbers over `axis`.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanstd([1.0, 3.0, float("nan")]).tolist()
        1.0
    """
    return sqrt(nanvar(x, axis, keepdims))


@function
def nanquantile(
    x: TensorLike,
    q: TensorLike,
    axis: Axis | None = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """Return the value below which the share q of the numbers over `axis` is.

    Args:
        x: the values; where all are NaN the result is NaN.
        q: a number in [0, 1], or several: they are first in the result's shape.
        axis: a number, several, or None for all.
        method: between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
        keepdims: whether the reduced axes stay, with size 1.

    Example:
        >>> nanquantile([1.0, 3.0, float("nan")], 0.5).tolist()
        2.0
    """
    check_method(method)
    x = as_float(x)
    q = cast(as_float(q), x.dtype)
    flat, axes = to_last(x, axis, "nanquantile")
    if flat.shape[-1] == 0:
        flat = full((*flat.shape[:-1], 1), math.nan, x.dtype)
    count = reduce_sum(cast(logical_not(isnan(flat)), x.dtype), -1)
    # NaN is sorted behind all numbers: each row has its numbers first.
    ordered = sort(select(isnan(flat), math.inf, flat), -1)
    lead = len(q.shape)
    for _ in range(len(count.shape)):
        q = expand_dims(q, -1)
    places = multiply(maximum(subtract(count, 1), 0), q)

    def pick(whole: TensorLike) -> Tensor:
        rows = expand_dims(cast(whole, "int32"), -1)
        spread = expand_dims(ordered, 0) if lead else ordered
        return take_along_axis(spread, rows, -1)[..., 0]

    result = interpolated(places, pick, method)
    result = select(equal(count, 0), math.nan, result)
    axes_kept = tuple(a + lead for a in normalize_axes(axes, len(x.shape), "nanquantile"))
    return expand_dims(result, axes_kept) if keepdims and axes else result


@function
def nanpercentile(
    x: TensorLike,
    q: float,
    axis: Axis | None = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """Return the quantile of q / 100 of the numbers over `axis`; see `nanquantile`.

    Args:
        x: tensor or array.
        q: percentages from 0 to 100: a number or several.
        axis: axis or axes over which it is taken; None: all.
        method: between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanpercentile([1.0, 3.0, float("nan")], 50).tolist()
        2.0
    """
    return nanquantile(x, divide(as_float(q), 100), axis, method, keepdims)


@function
def nanmedian(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the middle of the numbers over `axis`, or the mean of the two in the middle.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> nanmedian([1.0, 3.0, float("nan")]).tolist()
        2.0
    """
    return nanquantile(x, 0.5, axis, "linear", keepdims)
