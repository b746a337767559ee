"""Searching sorted sequences, sets, and positions of what is not zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.errors import ShapeError
from kerasish.ops import rows
from kerasish.ops.basic.comparison import equal, logical_not, not_equal
from kerasish.ops.basic.comparison import select as choose
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import unsized
from kerasish.ops.basic.reduce import argsort, reduce_any
from kerasish.ops.basic.reshaping import expand_dims, ravel
from kerasish.ops.basic.selection import where
from kerasish.ops.op import function, is_inferring, op
from kerasish.ops.shapes import Shape, Spec, normalize_axis
from kerasish.typing import Array, ArrayModule, Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["argpartition", "digitize", "isin", "nonzero", "searchsorted", "select", "unique"]


def _side(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    if attrs["side"] not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', got {attrs['side']!r}.")
    if len(shapes[0]) != 1:
        raise ShapeError(f"searchsorted: expected a sorted vector, got shape {shapes[0]}.")
    return {"side": attrs["side"]}


def _ordered(rng: Any) -> Array:
    return np.sort(rng.normal(size=5))


@op(
    "indexing",
    lambda sequence, values, side: Spec(values.shape, "int32"),
    None,
    "same",
    canonical=_side,
    examples=[((_ordered, (2, 3)), {}), ((_ordered, (4,)), {"side": "right"})],
    rows=rows.searchsorted,
)
def searchsorted(
    xp: ArrayModule, sorted_sequence: Array, values: Array, *, side: str = "left"
) -> Array:
    """The first places at which `values` keep the sorted sequence sorted, int32.

    Args:
        sorted_sequence: increasing numbers, along the last axis.
        values: the numbers to place.
        side: "left": the first suitable place; "right": the last.

    Example:
        >>> searchsorted([1.0, 2.0, 3.0], [2.5]).tolist()
        [2]
    """
    return xp.searchsorted(sorted_sequence, values, side=side).astype(xp.int32)


@function
def digitize(x: TensorLike, bins: TensorLike) -> Tensor:
    """Return the number of each element's bin: how many edges are <= x.

    Args:
        x: tensor or array.
        bins: the edges, increasing, of shape (m,).

    Example:
        >>> digitize([0.5, 2.5], [1.0, 2.0, 3.0]).tolist()
        [0, 2]
    """
    return searchsorted(bins, x, "right")


@function
def argpartition(x: TensorLike, kth: int, axis: int | None = -1) -> Tensor:
    """Return positions along `axis` that put the kth smallest element in its place.

    Args:
        x: tensor or array.
        kth: the position in sorted order that becomes right.
        axis: axis or axes; negative ones count from the last.

    Example:
        >>> argpartition([3.0, 1.0, 2.0], 1)[1].tolist()
        2
    """
    x = as_tensor(x)
    if axis is None:
        x, axis = ravel(x), 0
    if not -x.shape[axis] <= kth < x.shape[axis]:
        raise ValueError(f"argpartition: kth={kth} is out of range for size {x.shape[axis]}.")
    return argsort(x, axis)


@function
def isin(
    x1: TensorLike, x2: TensorLike, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Return whether each element of x1 is one of x2's (or is none of them).

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.
        assume_unique: accepted, and changes nothing.
        invert: whether to ask for elements that are not in x2.

    Example:
        >>> isin([1, 2, 3], [2, 4]).tolist()
        [False, True, False]
    """
    result = reduce_any(equal(expand_dims(as_tensor(x1), -1), ravel(x2)), -1)
    return logical_not(result) if invert else result


@function
def nonzero(x: TensorLike) -> tuple[Tensor, ...]:
    """Return, for each axis, the positions of the elements that are not 0.

    How many there are depends on the numbers, so this function cannot be traced.

    Args:
        x: tensor or array.

    Example:
        >>> [part.tolist() for part in nonzero([0, 3, 4])]
        [[1, 2]]
    """
    return where(not_equal(x, 0))


@function
def select_first(
    condlist: Sequence[Any], choicelist: Sequence[TensorLike], default: TensorLike = 0
) -> Tensor:
    """Return, place by place, the choice of the first condition that holds, else `default`.

    Args:
        condlist: truth values, a list.
        choicelist: results, one per condition.
        default: the result where no condition holds.

    Example:
        >>> select([[True, False]], [[1, 2]], 0).tolist()
        [1, 0]
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"select: expected as many choices as conditions, got {len(choicelist)} and "
            f"{len(condlist)}."
        )
    y: Any = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        y = choose(cast(as_tensor(condition), "bool"), choice, y)
    return y


@function
def unique(
    x: TensorLike,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: int | None = None,
) -> Structure:
    """Return the different elements of x in order; optionally where they are and how often.

    How many there are depends on the numbers, so this function cannot be traced.

    Args:
        x: the elements.
        sorted: accepted for compatibility; the result is sorted.
        return_index: whether to return the first place of each.
        return_inverse: whether to return which of them each element of x is.
        return_counts: whether to return how often each occurs.
        axis: compare slices along this axis; None: elements.
        size: cut or fill the result to this size; None: the actual number.
        fill_value: what fills it; None: the least element.

    Example:
        >>> unique([3, 1, 3]).tolist()
        [1, 3]
    """
    x = as_tensor(x)
    flags = (return_index, return_inverse, return_counts)
    if is_inferring(x):
        return _unique_specs(x, flags, axis, size)
    values, first, inverse, counts = np.unique(
        x.numpy(), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(x.shape if axis is None else (-1,))
    if size is not None:
        place = 0 if axis is None else axis
        if fill_value is None and not values.shape[place]:
            raise ValueError("unique: no elements, so a size needs a fill_value.")
        shape = [1 if i == place else s for i, s in enumerate(values.shape)]
        least = np.take(values, [0], axis=place) if fill_value is None else fill_value
        fill = np.broadcast_to(np.asarray(least, values.dtype), shape)
        values = _sized(values, size, fill, place)
        first = _sized(first, size, np.append(first, 0)[:1], 0)
        counts = _sized(counts, size, np.zeros(1, counts.dtype), 0)
    parts = (first, inverse, counts)
    more = [as_tensor(part.astype("int32")) for chosen, part in zip(flags, parts) if chosen]
    return (as_tensor(values), *more) if more else as_tensor(values)


def _unique_specs(x: Tensor, flags: tuple[bool, ...], axis: int | None, size: int | None) -> Any:
    """Return tensors without numbers of the shapes that `unique` gives."""
    if axis is not None:
        axis = normalize_axis(axis, len(x.shape), "unique")
    values = (size,) if axis is None else (*x.shape[:axis], size, *x.shape[axis + 1 :])
    inverse = x.shape if axis is None else (x.shape[axis],)
    shapes = ((size,), inverse, (size,))
    more = [unsized(shape, "int32") for chosen, shape in zip(flags, shapes) if chosen]
    result = unsized(values, x.dtype)
    return (result, *more) if more else result


def _sized(array: Array, size: int, fill: Array, axis: int) -> Array:
    have = array.shape[axis]
    if have >= size:
        return np.take(array, range(size), axis=axis)
    return np.concatenate([array, np.repeat(fill, size - have, axis=axis)], axis=axis)


# Second names, as Keras has them.
select = select_first
