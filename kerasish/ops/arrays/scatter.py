"""Slices at computed places, writes at given places, and sums over segments."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError, TraceError
from kerasish.ops import dtypes
from kerasish.ops.basic.arithmetic import add, divide, multiply
from kerasish.ops.basic.comparison import equal, greater_equal, less, logical_and, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, full, unsized
from kerasish.ops.basic.examples import integers
from kerasish.ops.basic.indexing import add_at, add_rows, read_at, take_rows, write_at
from kerasish.ops.basic.movement import (
    broadcast_to,
    constant_pad,
    flip_axes,
    reshape,
    sizes,
    strided_slice,
    transpose,
)
from kerasish.ops.basic.reduce import argsort
from kerasish.ops.basic.reshaping import expand_dims, stack
from kerasish.ops.basic.statistics import max
from kerasish.ops.op import function, is_inferring, op
from kerasish.ops.shapes import Spec, agree, is_unknown
from kerasish.typing import AnyTensor, Array, ArrayModule, Shape, ShapeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "scatter", "scatter_update", "segment_max", "segment_min", "segment_prod", "segment_sum",
    "slice", "slice_update",
]  # fmt: skip

# --- slices ---------------------------------------------------------------------------------


def _starts(inputs: Tensor, start_indices: AnyTensor, what: str) -> list[Any]:
    """Return the start for each axis: an int where it is known, else an integer tensor."""
    if hasattr(start_indices, "shape"):
        count = start_indices.shape[0]
        count = len(inputs.shape) if is_unknown(count) else count
        starts = [start_indices[i] for i in range(count)]
    else:
        starts = list(start_indices)
    if len(starts) != len(inputs.shape):
        raise ShapeError(f"{what}: {len(starts)} start indices for shape {inputs.shape}.")
    return [_number(s) for s in starts]


def _number(start: Any) -> TensorLike:
    if isinstance(start, int) or not hasattr(start, "maker"):
        return int(start)
    traced = type(start.value.dtype) is str
    return start if traced else int(start)


def _held(start: AnyTensor, size: int, length: int, what: str) -> TensorLike:
    """Return `start` (negative: from the end) moved so that `size` places fit into `length`."""
    last = length - size
    if last < 0 and not (is_unknown(size) or is_unknown(length)):
        raise ShapeError(f"{what}: {size} places do not fit into an axis of size {length}.")
    if isinstance(start, int):
        return builtins.min(builtins.max(start + length if start < 0 else start, 0), last)
    start = start if start.dtype in ("int64", "uint32", "uint64") else cast(start, "int32")
    start = select(less(start, 0), add(start, length), start)
    # Held in its own dtype: a large number must not lose its upper bits on the way to int32.
    start = select(less(start, 0), 0, select(less(start, last), start, last))
    return cast(start, "int32")


def _open_end(x: Tensor, axis: int) -> Any:
    """Return, for shape inference, x with an unknown size of `axis`."""
    if not is_inferring(x):
        raise TraceError("slice: a size of -1 needs a start that is known while a step is traced.")
    first = strided_slice(x, [builtins.slice(None)] * axis + [builtins.slice(0, 1)])
    return broadcast_to(first, tuple(None if i == axis else s for i, s in enumerate(x.shape)))


@function
def slice(inputs: TensorLike, start_indices: TensorLike, shape: ShapeLike) -> Tensor:
    """Return the part of `inputs` of the given shape that begins at `start_indices`.

    Args:
        inputs: a tensor.
        start_indices: one number for each axis; they may be computed by the graph. Negative ones
            count from the end; all are moved so that the part fits.
        shape: the sizes of the part; -1: up to the end.

    Example:
        >>> slice([[1, 2, 3], [4, 5, 6]], (0, 1), (2, 2)).tolist()
        [[2, 3], [5, 6]]
    """
    x = as_tensor(inputs)
    shape = shape.tolist() if hasattr(shape, "tolist") else shape
    starts, lengths = _starts(x, start_indices, "slice"), list(sizes(shape, "slice"))
    if len(lengths) != len(x.shape):
        raise ShapeError(f"slice: a size for each axis of {x.shape} was expected, got {shape}.")
    for axis, (start, size) in enumerate(zip(starts, lengths)):
        length = x.shape[axis]
        if size == -1 and not isinstance(start, int):
            x = _open_end(x, axis)
            continue
        if size == -1:
            size = builtins.max(length - (start + length if start < 0 else start), 0)
        start = _held(start, size, length, "slice")
        if isinstance(start, int):
            part = builtins.slice(start, start + size)
            x = strided_slice(x, [builtins.slice(None)] * axis + [part])
        else:
            x = take_rows(x, add(arange(size), start), axis)
    return x


@op(
    "indexing",
    lambda x, updates, starts: Spec(x.shape, x.dtype),
    lambda g, y, x, updates, starts: (
        write_slice(g, select(False, updates, 0), starts),
        strided_slice(g, [(s, s + n, 1) for s, n in zip(starts, updates.shape)]),
    ),
    "same",
    canonical=lambda shapes, attrs: {"starts": tuple(int(s) for s in attrs["starts"])},
    examples=[(((3, 4), (2, 2)), {"starts": (1, 2)}), (((4,), (0,)), {"starts": (1,)})],
)
def write_slice(xp: ArrayModule, x: Array, updates: Array, *, starts: Any) -> Array:
    """x with `updates` in place of its part that begins at `starts`."""
    y = xp.array(x)
    y[tuple(builtins.slice(s, s + n) for s, n in zip(starts, updates.shape))] = updates
    return y


@function
def slice_update(inputs: TensorLike, start_indices: TensorLike, updates: TensorLike) -> Tensor:
    """Return `inputs` with `updates` in place of its part that begins at `start_indices`.

    Args:
        inputs: tensor or array.
        start_indices: first index along each axis.
        updates: tensor of the size that is replaced.

    Example:
        >>> slice_update([0, 0, 0, 0], [1], [7, 8]).tolist()
        [0, 7, 8, 0]
    """
    x = as_tensor(inputs)
    updates = cast(as_tensor(updates), x.dtype)
    if len(updates.shape) != len(x.shape):
        raise ShapeError(f"slice_update: updates of shape {updates.shape} into {x.shape}.")
    starts = _starts(x, start_indices, "slice_update")
    starts = [
        _held(s, n, length, "slice_update") for s, n, length in zip(starts, updates.shape, x.shape)
    ]
    if all(isinstance(s, int) for s in starts):
        return write_slice(x, updates, tuple(starts))
    grid = []
    for axis, (start, size) in enumerate(zip(starts, updates.shape)):
        places = add(arange(size), start)
        column = [-1 if i == axis else 1 for i in range(len(x.shape))]
        grid.append(broadcast_to(reshape(places, column), updates.shape))
    return write_at(x, stack(grid, -1), updates)


# --- writes at places -------------------------------------------------------------------------


@function
def scatter(indices: TensorLike, values: TensorLike, shape: ShapeLike) -> Tensor:
    """Return zeros of `shape` to which `values` are added at `indices`.

    Args:
        indices: positions, shape (..., axes indexed).
        values: shape (..., *sizes of the axes that are not indexed).
        shape: the shape of the result.

    Example:
        >>> scatter([[0], [2], [2]], [1.0, 2.0, 3.0], (4,)).tolist()
        [1.0, 0.0, 5.0, 0.0]
    """
    return add_at(values, indices, sizes(shape, "scatter"))


def _others_at(indices: AnyTensor, updates: Tensor, shape: Shape) -> Tensor:
    """Return, for each update, the product of the other updates of its place.

    Products and no quotients, so that zero factors, infinite ones and second derivatives are right.
    """
    depth, count = indices.shape[-1], math.prod(indices.shape[:-1])
    if not math.prod(updates.shape):
        return updates
    keys: Any = 0
    for axis, size in enumerate(shape[:depth]):
        place = reshape(take_rows(indices, full((), axis, "int32"), -1), (count,))
        place = cast(place, "int64")
        keys = add(multiply(keys, size), select(less(place, 0), add(place, size), place))
    order = argsort(keys)  # updates of one place become neighbors
    keys = take_rows(keys, order)
    ordered = take_rows(reshape(updates, (count, -1)), order)
    left = _products_before(transpose(ordered, (1, 0)), keys)
    end = (1,)
    turned = flip_axes(transpose(ordered, (1, 0)), end)
    right = flip_axes(_products_before(turned, flip_axes(keys, (0,))), end)
    others = take_rows(transpose(multiply(left, right), (1, 0)), argsort(order))
    return reshape(others, updates.shape)


def _products_before(x: Tensor, keys: AnyTensor) -> Tensor:
    """Return the products of the elements before each one of x's last axis that have its key."""

    def of_same_key(x: AnyTensor, steps: int) -> Tensor:
        before = constant_pad(
            strided_slice(x, [builtins.slice(None), builtins.slice(0, count - steps)]),
            ((0, 0), (steps, 0)), 1.0,
        )  # fmt: skip
        earlier = constant_pad(
            strided_slice(keys, [builtins.slice(0, count - steps)]), ((steps, 0),), -1
        )
        return select(equal(keys, earlier), before, 1)

    count, steps = keys.shape[0], 1
    x = of_same_key(x, 1)
    while steps < count:  # by doubling: each round has the products of twice as many
        x = multiply(x, of_same_key(x, steps))
        steps *= 2
    return x


def _combine_grad(
    g: Tensor, y: Tensor, x: Tensor, indices: Any, updates: Any, how: Any
) -> tuple[Any, ...]:
    if how == "mul":
        factors = combine_at(full(x.shape, 1, x.dtype), indices, updates, how)
        shared = multiply(read_at(multiply(g, x), indices), _others_at(indices, updates, x.shape))
        return multiply(g, factors), None, shared
    hit = cast(equal(x, y), g.dtype)
    from_update = cast(equal(updates, read_at(y, indices)), g.dtype)
    # Those that reach the extreme share the gradient.
    shares = add(hit, add_at(from_update, indices, x.shape))
    share = divide(g, select(equal(shares, 0), 1, shares))
    return multiply(share, hit), None, multiply(read_at(share, indices), from_update)


def _multiply_at(xp: ArrayModule, y: Array, places: Array, updates: Array) -> Array:
    """Multiply y in place, for array modules whose multiply has no `at`: one rank at a time."""
    shape = y.shape[: len(places)]
    flat = xp.ravel_multi_index(places, shape, mode="wrap").ravel()
    rows = updates.reshape(flat.size, -1)
    target = y.reshape(math.prod(shape), -1)
    order = xp.argsort(flat, kind="stable")
    ordered = flat[order]
    # The how-manieth of its place each update is: equal ranks have places that all differ.
    rank = xp.arange(flat.size) - xp.searchsorted(ordered, ordered, side="left")
    for step in range(int(rank.max()) + 1 if flat.size else 0):
        now = order[rank == step]
        target[flat[now]] *= rows[now]
    return target.reshape(y.shape)


@op(
    "indexing",
    lambda x, indices, updates, how: Spec(x.shape, x.dtype),
    _combine_grad,
    canonical=lambda shapes, attrs: {"how": str(attrs["how"])},
    examples=[
        (((4, 2), integers(0, 4, 5, 1), (5, 2)), {"how": "max"}),
        (((4,), integers(0, 4, 5, 1), (5,)), {"how": "min"}),
        (((4,), integers(0, 4, 5, 1), (5,)), {"how": "mul"}),
    ],
)
def combine_at(xp: ArrayModule, x: Array, indices: Array, updates: Array, *, how: Any) -> Array:
    """x with max, min or product taken with `updates` at `indices`; those that meet all count."""
    y = xp.array(x)
    places = tuple(xp.moveaxis(indices, -1, 0))
    meet = {"max": xp.maximum, "min": xp.minimum, "mul": xp.multiply}[how]
    updates = xp.broadcast_to(updates, (*places[0].shape, *x.shape[len(places) :]))
    if how != "mul" or xp.__name__ == "numpy":
        meet.at(y, places, updates.astype(x.dtype))
        return y
    return _multiply_at(xp, y, places, updates)


@function
def scatter_update(
    inputs: TensorLike, indices: TensorLike, updates: TensorLike, reduction: str | None = None
) -> Tensor:
    """Return `inputs` with `updates` written at `indices`.

    Args:
        inputs: a tensor.
        indices: positions, shape (..., axes indexed).
        updates: shape (..., *sizes of the axes that are not indexed).
        reduction: None: they replace what is there; "add", "max", "min" or "mul": they are
            combined with it, those that meet at one place all together.

    Example:
        >>> scatter_update([0, 0, 0], [[1], [1]], [3, 4], "add").tolist()
        [0, 7, 0]
    """
    x = as_tensor(inputs)
    updates = cast(as_tensor(updates), x.dtype)
    if reduction is None:
        return write_at(x, indices, updates)
    if reduction == "add":
        return add(x, add_at(updates, indices, x.shape))
    if reduction not in ("max", "min", "mul"):
        raise ValueError(
            f"scatter_update: reduction must be None, 'add', 'max', 'min' or 'mul', got "
            f"{reduction!r}."
        )
    indices = as_tensor(indices)
    updates = broadcast_to(updates, (*indices.shape[:-1], *x.shape[indices.shape[-1] :]))
    return combine_at(x, indices, updates, reduction)


# --- segments ---------------------------------------------------------------------------------


def _segments(data: TensorLike, segment_ids: TensorLike, num_segments: Any) -> tuple[Any, Any, Any]:
    """Return (data, ids, count) with the ids that are out of range sent to an extra segment."""
    data, ids = as_tensor(data), cast(as_tensor(segment_ids), "int32")
    if len(ids.shape) != 1 or not data.shape or not agree(ids.shape[0], data.shape[0]):
        raise ShapeError(
            f"segment: ids must have the shape {data.shape[:1]} of data's first axis, got "
            f"{ids.shape}."
        )
    if num_segments is None and is_inferring(ids):
        return data, ids, None
    if num_segments is None:
        num_segments = builtins.max(max(ids).item() + 1, 0) if math.prod(ids.shape) else 0
    known = logical_and(greater_equal(ids, 0), less(ids, num_segments))
    return data, select(known, ids, num_segments), num_segments


@function
def segment_sum(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Return the sums of data's rows that have the same id (of truth values: whether any holds).

    Args:
        data: shape (n, ...).
        segment_ids: integers, shape (n,), in any order; rows with ids out of range count
            nowhere.
        num_segments: how many sums; None: the largest id + 1, which cannot be traced.
        sorted: accepted for compatibility with Keras.

    Example:
        >>> segment_sum([1, 2, 3], [0, 1, 1]).tolist()
        [1, 5]
    """
    data, ids, count = _segments(data, segment_ids, num_segments)
    if count is None:
        return unsized((None, *data.shape[1:]), data.dtype)
    if data.dtype == "bool":
        return segment_max(data, ids, count)
    return strided_slice(add_rows(data, ids, count + 1, 0), [builtins.slice(0, count)])


def _segment_extreme(
    data: AnyTensor, segment_ids: AnyTensor, num_segments: Any, how: str
) -> Tensor:
    data, ids, count = _segments(data, segment_ids, num_segments)
    if count is None:
        return unsized((None, *data.shape[1:]), data.dtype)
    low, high = dtypes.limits(data.dtype) or (0, 0)
    if dtypes.is_float(data.dtype):
        low, high = -math.inf, math.inf
    start = {"max": low, "min": high, "mul": 1}[how]
    first = full((count + 1, *data.shape[1:]), start, data.dtype)
    y = combine_at(first, expand_dims(ids, -1), data, how)
    return strided_slice(y, [builtins.slice(0, count)])


@function
def segment_max(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Return the largest of data's rows that have the same id; see `segment_sum`.

    An id that no row has gets the least value of the dtype (-inf of floats).

    Args:
        data: tensor whose first axis is divided into segments.
        segment_ids: the segment of each row, integers; negative ones count nowhere.
        num_segments: number of segments; None: the largest id plus 1.
        sorted: whether `segment_ids` never decrease; the result is the same.

    Example:
        >>> segment_max([1, 5, 2], [0, 0, 1]).tolist()
        [5, 2]
    """
    return _segment_extreme(data, segment_ids, num_segments, "max")


@function
def segment_min(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Return the smallest of data's rows that have the same id; see `segment_sum`.

    Args:
        data: tensor whose first axis is divided into segments.
        segment_ids: the segment of each row, integers; negative ones count nowhere.
        num_segments: number of segments; None: the largest id plus 1.
        sorted: whether `segment_ids` never decrease; the result is the same.

    Example:
        >>> segment_min([1, 5, 2], [0, 0, 1]).tolist()
        [1, 2]
    """
    return _segment_extreme(data, segment_ids, num_segments, "min")


@function
def segment_prod(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Return the product of data's rows that have the same id; see `segment_sum`.

    Args:
        data: tensor whose first axis is divided into segments.
        segment_ids: the segment of each row, integers; negative ones count nowhere.
        num_segments: number of segments; None: the largest id plus 1.
        sorted: whether `segment_ids` never decrease; the result is the same.

    Example:
        >>> segment_prod([1, 5, 2], [0, 0, 1]).tolist()
        [5, 2]
    """
    return _segment_extreme(data, segment_ids, num_segments, "mul")
