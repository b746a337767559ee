"""Statistics over axes, running sums; numbers clipped and rounded (names as in Keras)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.ops import dtypes
from kerasish.ops.basic.arithmetic import (
    add,
    divide,
    maximum,
    minimum,
    multiply,
    rint,
    square,
    subtract,
)
from kerasish.ops.basic.comparison import isfinite, select
from kerasish.ops.basic.conversion import as_tensor, cast, stop_gradient
from kerasish.ops.basic.creation import zeros_like
from kerasish.ops.basic.exponentials import exp, log, sqrt
from kerasish.ops.basic.movement import broadcast_to, reshape
from kerasish.ops.basic.reduce import (
    reduce_max,
    reduce_min,
    reduce_sum,
    reduced_shape,
    running_product,
    running_sum,
)
from kerasish.ops.basic.reshaping import squeeze, swapaxes
from kerasish.ops.op import Op, function
from kerasish.ops.shapes import normalize_axes
from kerasish.typing import AnyTensor, Axis, DTypeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["amax", "amin", "clip", "cumprod", "cumsum", "max", "mean", "min", "round", "std", "var"]


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def _inexact(x: TensorLike) -> Tensor:
    x = as_tensor(x)
    return x if dtypes.is_inexact(x.dtype) else cast(x, dtypes.to_inexact(x.dtype))


@function
def mean(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the mean over `axis` (None: all).

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> float(mean([1, 2]))
        1.5
    """
    x = _inexact(x)
    axes = normalize_axes(axis, len(x.shape), "mean")
    return divide(reduce_sum(x, axes, keepdims), float(_count(x, axes)))


@function
def running_sums(
    total: TensorLike, count: TensorLike, values: TensorLike, factor: float, number: float
) -> tuple[Tensor, Tensor]:
    """Return (total + sum(values) * factor, count + number): what a mean over batches keeps.

    Example:
        >>> total, count = running_sums(1.0, 2.0, [3.0, 4.0], 10.0, 2)
        >>> float(total), float(count)
        (71.0, 4.0)
    """
    values = as_tensor(values)
    added = reduce_sum(values, tuple(range(len(values.shape)))) if values.shape else values
    added = added if factor == 1 else multiply(added, factor)
    return add(total, added), add(count, number)


@function
def var(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the mean squared distance from the mean over `axis`.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> var([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [4.0, 0.25]
    """
    x = _inexact(x)
    return mean(square(subtract(x, mean(x, axis, True))), axis, keepdims)


@function
def std(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the square root of the variance over `axis`.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> std([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [2.0, 0.5]
    """
    return sqrt(var(x, axis, keepdims))


def _with_initial(reduced: Tensor, initial: float | None, meet: Op) -> Tensor:
    return reduced if initial is None else meet(reduced, initial)


@function
def max(
    x: TensorLike, axis: Axis | None = None, keepdims: bool = False, initial: float | None = None
) -> Tensor:
    """Return the largest element over `axis`, at least `initial`.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.
        initial: a lower bound of the result; None: none.

    Example:
        >>> max([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [5.0, 3.0]
    """
    return _extreme(x, axis, keepdims, initial, reduce_max, maximum)


@function
def min(
    x: TensorLike, axis: Axis | None = None, keepdims: bool = False, initial: float | None = None
) -> Tensor:
    """Return the smallest element over `axis`, at most `initial`.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.
        initial: an upper bound of the result; None: none.

    Example:
        >>> min([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [1.0, 2.0]
    """
    return _extreme(x, axis, keepdims, initial, reduce_min, minimum)


@function
def amax(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the largest element over `axis`.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> amax([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [5.0, 3.0]
    """
    return max(x, axis, keepdims)


@function
def amin(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element over `axis`.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> amin([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [1.0, 2.0]
    """
    return min(x, axis, keepdims)


def _extreme(
    x: AnyTensor, axis: Any, keepdims: bool, initial: float | None, reduce: Any, meet: Op
) -> Any:
    x = as_tensor(x)
    axes = normalize_axes(axis, len(x.shape), reduce.name)
    if initial is not None and 0 in [x.shape[a] for a in axes]:
        shape = reduced_shape(x.shape, axes, keepdims)
        return broadcast_to(cast(as_tensor(initial), x.dtype), shape)
    return _with_initial(reduce(x, axes, keepdims), initial, meet)


@function
def logsumexp(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over `axis`, without overflow.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> float(logsumexp([0.0, 0.0]))
        0.6931...
    """
    x = _inexact(x)
    axes = normalize_axes(axis, len(x.shape), "logsumexp")
    top = stop_gradient(reduce_max(x, axes, True))
    top = select(isfinite(top), top, zeros_like(top))
    y = add(log(reduce_sum(exp(subtract(x, top)), axes, True)), top)
    return y if keepdims else squeeze(y, axes)


@function
def cumsum(x: TensorLike, axis: Axis | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return the sums up to each place along `axis` (None: of the flattened x).

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last; None: all, flattened.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> cumsum([1, 2, 3]).tolist()
        [1, 3, 6]
    """
    x = as_tensor(x) if dtype is None else cast(x, dtype)
    return running_sum(reshape(x, (-1,)), 0) if axis is None else running_sum(x, axis)


@function
def cumprod(x: TensorLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return the products up to each place along `axis` (None: of the flattened x).

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last; None: all, flattened.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> cumprod([1, 2, 3]).tolist()
        [1, 2, 6]
    """
    x = as_tensor(x) if dtype is None else cast(x, dtype)
    x = cast(x, "int32") if x.dtype == "bool" else x
    if axis is None:
        return running_product(reshape(x, (-1,)))
    return swapaxes(running_product(swapaxes(x, axis, -1)), axis, -1)


@function
def clip(x: TensorLike, x_min: float | None, x_max: float | None) -> Tensor:
    """Return x held between x_min and x_max; the gradient flows where x is between them.

    Args:
        x: tensor or array.
        x_min, x_max: numbers or tensors; None: x is not held on that side.

    Example:
        >>> clip([-1.0, 0.5, 9.0], 0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    x = as_tensor(x) if x_min is None else maximum(x, x_min)
    return x if x_max is None else minimum(x, x_max)


@function
def round(x: TensorLike, decimals: int = 0) -> Tensor:
    """Return x rounded to `decimals` places, halves to even.

    Args:
        x: tensor or array.
        decimals: places after the point; negative ones count before it.

    Example:
        >>> round([2.5, 3.5]).tolist()
        [2.0, 4.0]
    """
    x = as_tensor(x)
    whole = not dtypes.is_inexact(x.dtype)
    if decimals == 0 or (whole and decimals > 0):
        return x if whole else rint(x)
    # Powers of ten below 1 are not exact in binary: divide by those above instead.
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return divide(rint(multiply(x, scale)), scale)
    y = multiply(rint(divide(x, scale)), scale)
    return cast(y, x.dtype) if whole else y
