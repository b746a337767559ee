"""Ops that reduce or run along axes: sum, prod, max, any, argmax, cumsum, argsort."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import dtypes, rows
from kerasish.ops.basic.arithmetic import divide, multiply
from kerasish.ops.basic.comparison import equal
from kerasish.ops.basic.conversion import cast
from kerasish.ops.basic.examples import bools
from kerasish.ops.basic.movement import (
    broadcast_to,
    constant_pad,
    expand_axes_of,
    flip_axes,
    move_last,
    reshape,
    strided_slice,
    transpose,
)
from kerasish.ops.op import Op, op
from kerasish.ops.shapes import Shape, Spec, normalize_axes, normalize_axis
from kerasish.typing import AnyTensor, Array, ArrayModule, Axis

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["all", "any", "argmax", "argmin", "argsort", "sum"]

REDUCTIONS = [
    (((2, 3),), {}),
    (((2, 3, 2),), {"axis": 1}),
    (((2, 3, 2),), {"axis": (0, -1), "keepdims": True}),
    (((1,),), {"axis": 0}),
]


def _canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    axes = normalize_axes(attrs["axis"], len(shapes[0]), "axis")
    return {"axis": axes, "keepdims": bool(attrs["keepdims"])}


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """Return `shape` with `axes` reduced."""
    if keepdims:
        return tuple(1 if i in axes else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in axes)


def _reduced(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Spec:
    return Spec(reduced_shape(x.shape, axis, keepdims), x.dtype)


def _summed(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Spec:
    return Spec(reduced_shape(x.shape, axis, keepdims), sum_dtype(x.dtype))


def sum_dtype(dtype: str) -> str:
    """Return the dtype of a sum: small integers are summed in 32 bits."""
    if dtype in ("bool", "int8", "int16"):
        return "int32"
    return "uint32" if dtype in ("uint8", "uint16") else dtype


def _reduced_bool(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Spec:
    return Spec(reduced_shape(x.shape, axis, keepdims), "bool")


def _nonempty(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Spec:
    if builtins.any(x.shape[a] == 0 for a in axis):
        raise ShapeError(f"max and min of no elements: axis {axis} of shape {x.shape} is empty.")
    return _reduced(x, axis, keepdims)


def _sum_grad(g: Any, y: Tensor, x: AnyTensor, axis: Any, keepdims: Any) -> tuple[Any, ...]:
    return (broadcast_to(expand_axes_of(g, x, axis, keepdims), x.shape),)


@op(
    "reduce",
    _summed,
    _sum_grad,
    canonical=_canonical,
    examples=[*REDUCTIONS, (((0, 2),), {})],
    reduction="sum",
    rows=rows.reduce,
)
def reduce_sum(
    xp: ArrayModule, x: Array, *, axis: Axis | None = None, keepdims: bool = False
) -> Array:
    """The sum over `axis` (None: all).

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> sum([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [6.0, 5.0]
    """
    name = sum_dtype(dtypes.name_of(x.dtype))
    total = xp.sum(x, axis=axis, dtype=dtypes.adding_dtype(name), keepdims=keepdims)
    return total.astype(dtypes.array_dtype(name), copy=False)


def _extreme_grad(g: Any, y: AnyTensor, x: AnyTensor, axis: Any, keepdims: Any) -> tuple[Any, ...]:
    # Ties share the gradient.
    hit = cast(equal(x, expand_axes_of(y, x, axis, keepdims)), g.dtype)
    share = divide(expand_axes_of(g, x, axis, keepdims), reduce_sum(hit, axis, True))
    return (multiply(hit, share),)


def _extreme(reduction: str) -> Callable[[Callable[..., Any]], Op]:
    """Return the decorator of the kernel of "max" or "min"."""
    return op(
        "reduce", _nonempty, _extreme_grad, canonical=_canonical, examples=REDUCTIONS,
        reduction=reduction, rows=rows.reduce,
    )  # fmt: skip


@_extreme("max")
def reduce_max(
    xp: ArrayModule, x: Array, *, axis: Axis | None = None, keepdims: bool = False
) -> Array:
    """The largest element over `axis`; NaN if there is one."""
    return xp.max(x, axis=axis, keepdims=keepdims)


@_extreme("min")
def reduce_min(
    xp: ArrayModule, x: Array, *, axis: Axis | None = None, keepdims: bool = False
) -> Array:
    """The smallest element over `axis`; NaN if there is one."""
    return xp.min(x, axis=axis, keepdims=keepdims)


def _one_before(x: AnyTensor, steps: Any) -> Any:
    """Return x moved by `steps` along its last axis, ones coming in."""
    n, lead = x.shape[-1], len(x.shape) - 1
    rest = strided_slice(x, [slice(None)] * lead + [slice(0, n - steps)])
    return constant_pad(rest, ((0, 0),) * lead + ((steps, 0),), 1.0)


def running_product(x: Tensor) -> Tensor:
    """Return the products of x up to each place of its last axis, by doubling.

    Written in ops so that the gradient is right where x is zero, too.
    """
    steps = 1
    while steps < x.shape[-1]:
        x = multiply(x, _one_before(x, steps))
        steps *= 2
    return x


def _prod_grad(g: Any, y: Tensor, x: AnyTensor, axis: Any, keepdims: Any) -> tuple[Any, ...]:
    # The product of all the others: from the left times from the right.
    last = move_last(x, axis)
    n = 1
    for a in axis:
        n *= x.shape[a]
    if 0 in x.shape:
        return (multiply(x, 0),)
    flat = reshape(last, (*last.shape[: len(last.shape) - len(axis)], n))
    left = _one_before(running_product(flat), 1)
    end = (len(flat.shape) - 1,)
    right = flip_axes(_one_before(running_product(flip_axes(flat, end)), 1), end)
    others = reshape(multiply(left, right), last.shape)
    order = [*[i for i in range(len(x.shape)) if i not in axis], *axis]
    back = transpose(others, tuple(order.index(i) for i in range(len(order))))
    return (multiply(back, expand_axes_of(g, x, axis, keepdims)),)


@op(
    "reduce",
    _summed,
    _prod_grad,
    canonical=_canonical,
    examples=[*REDUCTIONS, (((0, 2),), {"axis": 0})],
    reduction="prod",
    rows=rows.reduce,
)
def reduce_prod(
    xp: ArrayModule, x: Array, *, axis: Axis | None = None, keepdims: bool = False
) -> Array:
    """The product over `axis` (None: all)."""
    name = sum_dtype(dtypes.name_of(x.dtype))
    total = xp.prod(x, axis=axis, dtype=dtypes.adding_dtype(name), keepdims=keepdims)
    return total.astype(dtypes.array_dtype(name), copy=False)


LOGIC = [((bools(),), {}), ((bools(2, 3, 2),), {"axis": 1, "keepdims": True})]


@op(
    "reduce",
    _reduced_bool,
    None,
    canonical=_canonical,
    examples=LOGIC,
    reduction="all",
    rows=rows.reduce,
)
def reduce_all(
    xp: ArrayModule, x: Array, *, axis: Axis | None = None, keepdims: bool = False
) -> Array:
    """Whether every element over `axis` is true.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> all([[True, False], [True, True]], axis=1).tolist()
        [False, True]
    """
    return xp.all(x, axis=axis, keepdims=keepdims)


@op(
    "reduce",
    _reduced_bool,
    None,
    canonical=_canonical,
    examples=LOGIC,
    reduction="any",
    rows=rows.reduce,
)
def reduce_any(
    xp: ArrayModule, x: Array, *, axis: Axis | None = None, keepdims: bool = False
) -> Array:
    """Whether some element over `axis` is true.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> any([[True, False], [False, False]], axis=1).tolist()
        [True, False]
    """
    return xp.any(x, axis=axis, keepdims=keepdims)


# --- positions ------------------------------------------------------------------------------


def _arg_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    axis = attrs["axis"]
    axis = None if axis is None else normalize_axis(axis, len(shapes[0]), "argmax")
    return {"axis": axis, "keepdims": bool(attrs["keepdims"])}


def _arg_shape(x: Spec, axis: int | None, keepdims: bool) -> Spec:
    axes = tuple(range(len(x.shape))) if axis is None else (axis,)
    if 0 in [x.shape[a] for a in axes]:
        raise ShapeError(f"argmax and argmin of no elements: shape {x.shape}, axis {axis}.")
    return Spec(reduced_shape(x.shape, axes, keepdims), "int32")


ARGS = [(((2, 3),), {}), (((2, 3, 2),), {"axis": 1}), (((2, 3),), {"axis": -1, "keepdims": True})]


@op(
    "reduce",
    _arg_shape,
    None,
    canonical=_arg_canonical,
    examples=ARGS,
    reduction="argmax",
    rows=rows.reduce,
)
def argmax(xp: ArrayModule, x: Array, *, axis: Axis | None = None, keepdims: bool = False) -> Array:
    """The first position of the largest element (axis None: in the flattened x), int32.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> argmax([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [1, 0]
    """
    return xp.argmax(x, axis=axis, keepdims=keepdims).astype(xp.int32)


@op(
    "reduce",
    _arg_shape,
    None,
    canonical=_arg_canonical,
    examples=ARGS,
    reduction="argmin",
    rows=rows.reduce,
)
def argmin(xp: ArrayModule, x: Array, *, axis: Axis | None = None, keepdims: bool = False) -> Array:
    """The first position of the smallest element (axis None: in the flattened x), int32.

    Args:
        x: tensor or array.
        axis: axis or axes over which it is taken; None: all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> argmin([[1.0, 5.0], [3.0, 2.0]], axis=1).tolist()
        [0, 1]
    """
    return xp.argmin(x, axis=axis, keepdims=keepdims).astype(xp.int32)


def _order_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    return attrs if attrs["axis"] is None else _along_canonical(shapes, attrs)


def _order_shape(x: Spec, axis: int | None) -> Spec:
    if axis is not None:
        return Spec(x.shape, "int32")
    return Spec((None if None in x.shape else math.prod(x.shape),), "int32")


def _along_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"axis": normalize_axis(attrs["axis"], len(shapes[0]), "axis")}


ALONG = [(((2, 3),), {}), (((3, 2),), {"axis": 0}), (((1,),), {}), (((2, 0),), {})]


@op(
    "reduce",
    _order_shape,
    None,
    canonical=_order_canonical,
    examples=[*ALONG, (((2, 3),), {"axis": None})],
    rows=rows.along,
)
def argsort(xp: ArrayModule, x: Array, *, axis: Axis = -1) -> Array:
    """The positions that sort x along `axis`, equal elements in their order, int32.

    None: the positions in the flattened x.

    Args:
        x: tensor or array.
        axis: axis or axes; None: of the flattened x.

    Example:
        >>> argsort([3.0, 1.0, 2.0]).tolist()
        [1, 2, 0]
    """
    if dtypes.name_of(x.dtype) == "bfloat16":  # NumPy does not sort its NaN
        x = x.astype(xp.float32)
    return xp.argsort(x, axis=axis, kind="stable").astype(xp.int32)


def _cumsum_grad(g: Any, y: Tensor, x: Tensor, axis: Any) -> tuple[Any, ...]:
    return (flip_axes(running_sum(flip_axes(g, (axis,)), axis), (axis,)),)


@op(
    "reduce",
    lambda x, axis: Spec(x.shape, "int32" if x.dtype == "bool" else x.dtype),
    _cumsum_grad,
    canonical=_along_canonical,
    examples=ALONG,
    rows=rows.along,
)
def running_sum(xp: ArrayModule, x: Array, *, axis: Axis = -1) -> Array:
    """The sums of x up to each place along `axis`."""
    name = "int32" if x.dtype == bool else dtypes.name_of(x.dtype)
    total = xp.cumsum(x, axis=axis, dtype=dtypes.adding_dtype(name))
    return total.astype(dtypes.array_dtype(name), copy=False)


# Second names, as Keras has them.
all = reduce_all
any = reduce_any
sum = reduce_sum
