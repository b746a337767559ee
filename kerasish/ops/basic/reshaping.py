"""Axes and shapes: joining, splitting, repeating, padding (names as in Keras)."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.errors import ShapeError
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.creation import ones_like
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.movement import (
    broadcast_to,
    concatenate,
    constant_pad,
    flip_axes,
    pad_pairs,
    reshape,
    strided_slice,
    transpose,
)
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.op import function
from kerasish.ops.shapes import agree, normalize_axes, normalize_axis
from kerasish.typing import AnyTensor, Axis, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "expand_dims", "flip", "moveaxis", "ndim", "pad", "ravel", "repeat", "roll", "size",
    "split", "squeeze", "stack", "swapaxes", "tile",
]  # fmt: skip


@function
def expand_dims(x: TensorLike, axis: Axis) -> Tensor:
    """Return x with an axis of size 1 at `axis` (a number or several).

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last.

    Example:
        >>> expand_dims([0, 1, 2], 0).shape
        (1, 3)
    """
    x = as_tensor(x)
    many = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = normalize_axes(many, len(x.shape) + len(many), "expand_dims")
    shape = list(x.shape)
    for place in places:
        shape.insert(place, 1)
    return reshape(x, tuple(shape))


@function
def squeeze(x: TensorLike, axis: Axis | None = None) -> Tensor:
    """Return x without its axes of size 1 (or those named).

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last; None: all of size 1.

    Example:
        >>> squeeze([[1.0], [2.0]]).shape
        (2,)
    """
    x = as_tensor(x)
    if axis is None:
        axes = tuple(i for i, s in enumerate(x.shape) if s == 1)
    else:
        axes = normalize_axes(axis, len(x.shape), "squeeze")
    for a in axes:
        if not agree(x.shape[a], 1):
            raise ShapeError(f"squeeze: axis {a} of shape {x.shape} has size {x.shape[a]}, not 1.")
    return reshape(x, tuple(s for i, s in enumerate(x.shape) if i not in axes))


@function
def ravel(x: TensorLike) -> Tensor:
    """Return x's elements in one axis.

    Args:
        x: tensor or array.

    Example:
        >>> ravel([[1, 2], [3, 4]]).tolist()
        [1, 2, 3, 4]
    """
    return reshape(x, (-1,))


@function
def swapaxes(x: TensorLike, axis1: int, axis2: int) -> Tensor:
    """Return x with two axes swapped.

    Args:
        x: tensor or array.
        axis1: the first of the two axes.
        axis2: the second of the two axes.

    Example:
        >>> swapaxes([[1, 2], [3, 4]], 0, 1).tolist()
        [[1, 3], [2, 4]]
    """
    x = as_tensor(x)
    order = list(range(len(x.shape)))
    a, b = (normalize_axis(a, len(order), "swapaxes") for a in (axis1, axis2))
    order[a], order[b] = b, a
    return transpose(x, order)


@function
def moveaxis(
    x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]
) -> Tensor:
    """Return x with the axes `source` moved to the places `destination`.

    Args:
        x: tensor or array.
        source: axis or axes.
        destination: their new places.

    Example:
        >>> from kerasish import ops
        >>> moveaxis(ops.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    x = as_tensor(x)
    n = len(x.shape)
    pairs = [p if isinstance(p, (tuple, list)) else (p,) for p in (source, destination)]
    start, end = ([normalize_axis(a, n, "moveaxis") for a in p] for p in pairs)
    if len(start) != len(end):
        raise ShapeError(f"moveaxis: {len(start)} sources but {len(end)} destinations.")
    order = [i for i in range(n) if i not in start]
    for to, origin in sorted(zip(end, start)):
        order.insert(to, origin)
    return transpose(x, order)


@function
def stack(x: Sequence[Any], axis: int = 0) -> Tensor:
    """Return the tensors of the list x stacked along a new axis.

    Args:
        x: tensor or array.
        axis: axis or axes; negative ones count from the last.

    Example:
        >>> stack([[1, 2], [3, 4]], axis=1).tolist()
        [[1, 3], [2, 4]]
    """
    parts = [as_tensor(part) for part in x]
    first = parts[0].shape if parts else ()
    for part in parts:
        if len(part.shape) != len(first) or not all(map(agree, part.shape, first)):
            raise ShapeError(f"stack: shapes {[p.shape for p in parts]} must be equal.")
    return concatenate([expand_dims(part, axis) for part in parts], axis)


@function
def split(x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Return x cut along `axis` into equal sections (a number) or at places (a sequence).

    Args:
        x: tensor or array.
        indices_or_sections: the number of equal parts, or the indices at which parts begin.
        axis: axis or axes; negative ones count from the last.

    Example:
        >>> [p.tolist() for p in split([0, 1, 2, 3, 4], [2, 4])]
        [[0, 1], [2, 3], [4]]
    """
    x = as_tensor(x)
    axis = normalize_axis(axis, len(x.shape), "split")
    size = x.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0 or size % indices_or_sections:
            raise ShapeError(
                f"split: axis {axis} of size {size} is not cut into {indices_or_sections} equal "
                "sections."
            )
        step = size // indices_or_sections
        places = [i * step for i in range(1, indices_or_sections)]
    else:
        places = [int(i) for i in indices_or_sections]
    bounds = [0, *places, size]
    lead = [slice(None)] * axis
    return [strided_slice(x, [*lead, slice(a, b)]) for a, b in zip(bounds, bounds[1:])]


@function
def flip(x: TensorLike, axis: Axis | None = None) -> Tensor:
    """Return x reversed along `axis` (None: along all).

    Args:
        x: tensor or array.
        axis: axis or axes; None: of the flattened x.

    Example:
        >>> flip([1, 2, 3]).tolist()
        [3, 2, 1]
    """
    x = as_tensor(x)
    return flip_axes(x, normalize_axes(axis, len(x.shape), "flip"))


@function
def roll(x: TensorLike, shift: int | Sequence[int], axis: Axis | None = None) -> Tensor:
    """Return x with its elements moved `shift` places on along `axis`, round the end.

    Args:
        x: tensor or array.
        shift: a number of places, or one for each axis.
        axis: axis or axes; None: of the flattened x.

    Example:
        >>> roll([1, 2, 3], 1).tolist()
        [3, 1, 2]
    """
    x = as_tensor(x)
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, 0), x.shape)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    if len(shifts) != len(axes):
        shifts = tuple(shifts) * len(axes) if len(shifts) == 1 else shifts
        axes = tuple(axes) * len(shifts) if len(axes) == 1 else axes
    for s, a in zip(shifts, axes):
        a = normalize_axis(a, len(x.shape), "roll")
        s = s % x.shape[a] if x.shape[a] else 0
        if s:
            lead = [slice(None)] * a
            tail = strided_slice(x, [*lead, slice(x.shape[a] - s, None)])
            x = concatenate([tail, strided_slice(x, [*lead, slice(0, x.shape[a] - s)])], a)
    return x


@function
def tile(x: TensorLike, repeats: int | Sequence[int]) -> Tensor:
    """Return x laid `repeats` times along each axis.

    Args:
        x: tensor or array.
        repeats: how often along each axis.

    Example:
        >>> tile([1, 2], 2).tolist()
        [1, 2, 1, 2]
    """
    x = as_tensor(x)
    counts = [int(r) for r in (repeats if isinstance(repeats, (tuple, list)) else (repeats,))]
    ndim = builtins.max(len(counts), len(x.shape))
    counts = [1] * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - len(x.shape)) + tuple(x.shape)
    spread = tuple(n for s in shape for n in (1, s))
    wide = tuple(n for c, s in zip(counts, shape) for n in (c, s))
    final = tuple(c * s for c, s in zip(counts, shape))
    return reshape(broadcast_to(reshape(x, spread), wide), final)


@function
def repeat(
    x: TensorLike, repeats: int | Sequence[int] | AnyTensor, axis: Axis | None = None
) -> Tensor:
    """Return x with each element along `axis` repeated (by a number, or by one number each).

    Args:
        x: tensor or array.
        repeats: a number >= 0, or one for each element of the axis.
        axis: the axis; None: of the flattened x.

    Example:
        >>> repeat([1, 2], 2).tolist()
        [1, 1, 2, 2]
    """
    x = as_tensor(x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    axis = normalize_axis(axis, len(x.shape), "repeat")
    if isinstance(repeats, int):
        shape = x.shape
        wide = expand_dims(x, axis + 1)
        target = (*shape[: axis + 1], repeats, *shape[axis + 1 :])
        final = (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])
        return reshape(broadcast_to(wide, target), final)
    counts = repeats.tolist() if hasattr(repeats, "tolist") else list(repeats)
    if len(counts) == 1:
        return repeat(x, int(counts[0]), axis)
    if not agree(len(counts), x.shape[axis]):
        raise ShapeError(
            f"repeat: {len(counts)} numbers of repeats for axis {axis} of shape {x.shape}."
        )
    places = [i for i, count in enumerate(counts) for _ in range(int(count))]
    return take_rows(x, places, axis)


@function
def pad(
    x: TensorLike,
    pad_width: int | Sequence[Any],
    mode: str = "constant",
    constant_values: float | None = None,
) -> Tensor:
    """Return x padded (before, after) along each axis.

    Args:
        x: tensor or array.
        pad_width: (before, after) for each axis, or one pair for all, or one number.
        mode: "constant" (with `constant_values`, 0 by default), "reflect", "symmetric", "edge"
            or "wrap".
        constant_values: the number that fills, with mode "constant"; None: 0.

    Example:
        >>> pad([0, 1, 2], ((1, 2),), mode="reflect").tolist()
        [1, 0, 1, 2, 1, 0]
    """
    x = as_tensor(x)
    if not x.shape:
        return x
    if mode == "constant":
        return constant_pad(x, pad_width, 0.0 if constant_values is None else constant_values)
    if constant_values is not None:
        raise ValueError(f"pad: constant_values goes with mode='constant', not {mode!r}.")
    pairs = pad_pairs(len(x.shape), pad_width)
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            places = np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)
            x = take_rows(x, places.astype("int32"), axis)
    return x


def shape(x: TensorLike) -> tuple[Any, ...]:
    """Return x's shape as a tuple.

    Args:
        x: tensor or array.

    Example:
        >>> shape([[1, 2, 3]])
        (1, 3)
    """
    return tuple(as_tensor(x).shape) if not hasattr(x, "shape") else tuple(x.shape)


def ndim(x: TensorLike) -> int:
    """Return the number of x's axes.

    Args:
        x: tensor or array.

    Example:
        >>> ndim([[1, 2, 3]])
        2
    """
    return len(shape(x))


def size(x: TensorLike) -> Tensor:
    """Return the number of x's elements; of a symbolic tensor of unknown sizes, a symbolic one.

    Args:
        x: tensor or array.

    Example:
        >>> int(size([[1, 2, 3]]))
        3
    """
    if None in shape(x):
        return reduce_sum(ones_like(x, "int32"))
    return math.prod(shape(x))
