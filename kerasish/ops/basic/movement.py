"""Ops that move elements: reshape, transpose, broadcast, slice, pad, join."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import rows
from kerasish.ops.op import op
from kerasish.ops.shapes import (
    Shape,
    Spec,
    Unknown,
    agree,
    broadcast_shapes,
    is_unknown,
    no_size,
    normalize_axis,
)
from kerasish.typing import AnyTensor, Array, ArrayModule, Axis, ShapeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["broadcast_to", "concatenate", "reshape", "transpose"]


def sizes(shape: ShapeLike, what: str) -> tuple[int, ...]:
    """Return a shape given as a number or a sequence as a tuple of ints (None stays)."""
    many = shape if isinstance(shape, (tuple, list)) else (shape,)
    try:
        return tuple(s if s is None or type(s) is Unknown else int(s) for s in many)  # type: ignore[misc]
    except TypeError:
        raise ShapeError(f"{what}: expected a shape of integers, got {shape!r}.") from None


# --- reshape --------------------------------------------------------------------------------


def _without_common(shape: Shape, new: Shape) -> tuple[list[Any], list[Any]]:
    """Return both without the unknown sizes that they share."""
    left, right = list(shape), list(new)
    for s in shape:
        if type(s) is Unknown and s in right:
            left.remove(s)
            right.remove(s)
    return left, right


def _fits(shape: Shape, new: Shape, open_at: int | None) -> bool:
    """Return whether elements of `shape` may fill `new`; the size at `open_at` is free."""
    rest = tuple(s for i, s in enumerate(new) if i != open_at)
    left, right = _without_common(shape, rest)
    known = [math.prod(s for s in part if not is_unknown(s)) for part in (left, right)]
    more_left, more_right = (any(map(is_unknown, part)) for part in (left, right))
    if more_left and more_right or 0 in known and (more_left or more_right):
        return True
    if more_left:
        return open_at is not None or not known[1] or bool(known[0] and known[1] % known[0] == 0)
    if more_right:
        return open_at is not None or not known[0] or bool(known[1] and known[0] % known[1] == 0)
    if open_at is None:
        return known[0] == known[1]
    return not known[0] if not known[1] else known[0] % known[1] == 0


def _reshape_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    shape, new = shapes[0], sizes(attrs["newshape"], "reshape")
    places = [i for i, s in enumerate(new) if s in (-1, None)]
    if len(places) > 1:
        raise ShapeError(f"reshape: only one size may be -1, got {new}.")
    if None in shape:
        return {"newshape": tuple(-1 if s is None else s for s in new)}
    place = places[0] if places else None
    if not _fits(shape, new, place):
        raise ShapeError(
            f"reshape: {math.prod(shape)!r} elements of shape {shape} do not fit into {new}."
        )
    if place is not None:
        left, right = _without_common(shape, new[:place] + new[place + 1 :])
        rest = math.prod(right)
        free = math.prod(left) // rest if rest else 0
        new = (*new[:place], free, *new[place + 1 :])
    return {"newshape": new}


def _reshape_shape(x: Spec, newshape: Shape) -> Spec:
    return Spec(tuple(None if s == -1 else s for s in newshape), x.dtype)


@op(
    "movement",
    _reshape_shape,
    lambda g, y, x, newshape: (reshape(g, x.shape),),
    canonical=_reshape_canonical,
    examples=[
        (((2, 6),), {"newshape": (3, -1)}),
        (((1,),), {"newshape": ()}),
        (((0, 3),), {"newshape": (3, 0)}),
    ],
    view=True,
    aliases=True,
    rows=rows.reshape,
)
def reshape(xp: ArrayModule, x: Array, *, newshape: Shape) -> Array:
    """The elements of x, in C order, in another shape; one size may be -1.

    Args:
        x: tensor or array.
        newshape: the new shape; one size may be -1.

    Example:
        >>> reshape([1, 2, 3, 4], (2, 2)).tolist()
        [[1, 2], [3, 4]]
    """
    return xp.reshape(x, newshape)


# --- transpose ------------------------------------------------------------------------------


def _transpose_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    ndim, axes = len(shapes[0]), attrs["axes"]
    if axes is None:
        return {"axes": tuple(range(ndim))[::-1]}
    axes = tuple(normalize_axis(a, ndim, "transpose") for a in axes)
    if sorted(axes) != list(range(ndim)):
        raise ShapeError(f"transpose: axes {attrs['axes']} are no order of {ndim} axes.")
    return {"axes": axes}


def _transpose_grad(g: Tensor, y: Tensor, x: Tensor, axes: Any) -> tuple[Any, ...]:
    inverse = tuple(axes.index(i) for i in range(len(axes)))
    return (transpose(g, inverse),)


@op(
    "movement",
    lambda x, axes: Spec(tuple(x.shape[a] for a in axes), x.dtype),
    _transpose_grad,
    canonical=_transpose_canonical,
    examples=[(((2, 3),), {}), (((2, 3, 4),), {"axes": (1, 2, 0)}), (((),), {})],
    aliases=True,
    rows=rows.transpose,
)
def transpose(xp: ArrayModule, x: Array, *, axes: Axis | None = None) -> Array:
    """x with its axes in another order (None: reversed).

    Args:
        x: tensor or array.
        axes: the order of the axes; None: reversed.

    Example:
        >>> transpose([[1, 2], [3, 4]]).tolist()
        [[1, 3], [2, 4]]
    """
    return xp.transpose(x, axes)


# --- broadcast ------------------------------------------------------------------------------


def _broadcast_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    shape = sizes(attrs["shape"], "broadcast_to")
    met = broadcast_shapes(shapes[0], shape, what="broadcast_to")
    if len(met) != len(shape) or not all(map(agree, met, shape)):
        raise ShapeError(f"broadcast_to: shape {shapes[0]} does not broadcast to {shape}.")
    return {"shape": shape}


@op(
    "movement",
    lambda x, shape: Spec(shape, x.dtype),
    lambda g, y, x, shape: (g,),
    canonical=_broadcast_canonical,
    examples=[
        (((3,),), {"shape": (2, 3)}),
        (((2, 1),), {"shape": (2, 4)}),
        (((),), {"shape": (0, 2)}),
    ],
    view=True,
    repeats=True,
    rows=rows.broadcast,
)
def broadcast_to(xp: ArrayModule, x: Array, *, shape: Shape) -> Array:
    """x repeated along axes of size 1 and new leading axes.

    Args:
        x: tensor or array.
        shape: shape of the result: integers.

    Example:
        >>> broadcast_to([1, 2], (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    if None in shape:
        raise no_size("broadcast_to", shape)
    return xp.broadcast_to(x, shape)


# --- slice ----------------------------------------------------------------------------------


def _slice_length(start: int, stop: int, step: int) -> int:
    return len(range(start, stop, step))


def _slice_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    shape, given = shapes[0], tuple(attrs["slices"])
    if len(given) > len(shape):
        raise ShapeError(f"slice: {len(given)} slices for the {len(shape)} axes of {shape}.")
    given += (slice(None),) * (len(shape) - len(given))
    results: list[Any] = []
    for s, size in zip(given, shape):
        s = s if isinstance(s, slice) else slice(*s)
        if size is None:
            results.append((s.start, s.stop, s.step))
            continue
        start, stop, step = s.indices(size)
        if not _slice_length(start, stop, step):
            results.append((0, 0, 1))
            continue
        # A stop of -1 (before the first element) would count from the end: None says it.
        results.append((start, None if stop < 0 else stop, step))
    return {"slices": tuple(results)}


def _slice_size(size: int | None, bounds: tuple[Any, Any, Any]) -> int | None:
    if size is None:
        return None
    return len(range(size)[slice(*bounds)])


def _slice_shape(x: Spec, slices: tuple[Any, ...]) -> Spec:
    return Spec(tuple(map(_slice_size, x.shape, slices)), x.dtype)


@op(
    "movement",
    _slice_shape,
    lambda g, y, x, slices: (unslice(g, x.shape, slices),),
    canonical=_slice_canonical,
    examples=[
        (((4, 5),), {"slices": (slice(1, 3), slice(None, None, 2))}),
        (((4,),), {"slices": (slice(None, None, -1),)}),
        (((4, 2),), {"slices": (slice(3, 1),)}),
    ],
    rows=rows.strided_slice,
)
def strided_slice(xp: ArrayModule, x: Array, *, slices: Any) -> Array:
    """The part of x at `slices`, one (start, stop, step) an axis."""
    return x[tuple(slice(*s) for s in slices)]


@op(
    "movement",
    lambda x, shape, slices: Spec(tuple(shape), x.dtype),
    lambda g, y, x, shape, slices: (strided_slice(g, slices),),
    canonical=lambda shapes, attrs: {
        "shape": tuple(attrs["shape"]),
        "slices": tuple(
            (s.start, s.stop, s.step) if isinstance(s, slice) else tuple(s) for s in attrs["slices"]
        ),
    },
    examples=[(((2, 3),), {"shape": (4, 5), "slices": ((1, 3, 1), (0, 5, 2))})],
)
def unslice(xp: ArrayModule, x: Array, *, shape: ShapeLike, slices: Any) -> Array:
    """Zeros of `shape` with x at `slices`: the transpose of `strided_slice`."""
    y = xp.zeros(shape, x.dtype)
    y[tuple(slice(*s) for s in slices)] = x
    return y


# --- pad ------------------------------------------------------------------------------------


def pad_pairs(ndim: int, width: int | Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Return a padding (a number, a pair, or a pair per axis) as (before, after) for each axis."""
    if isinstance(width, int):
        width = ((width, width),) * ndim
    width = tuple(tuple(w) if isinstance(w, (tuple, list)) else w for w in width)
    if len(width) == 2 and all(isinstance(w, int) for w in width):
        width = (width,) * ndim
    elif len(width) == 1 and ndim != 1:
        width = width * ndim
    pairs = tuple((int(a), int(b)) for a, b in ((w, w) if isinstance(w, int) else w for w in width))
    if len(pairs) != ndim or any(a < 0 or b < 0 for a, b in pairs):
        raise ShapeError(
            f"pad: expected one (before, after) >= 0 for each of {ndim} axes, got {width}."
        )
    return pairs


def _pad_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    pairs = pad_pairs(len(shapes[0]), attrs["pad_width"])
    return {"pad_width": pairs, "value": float(attrs["value"])}


def _pad_shape(x: Spec, pad_width: tuple[Any, ...], value: float) -> Spec:
    grown = (None if s is None else s + a + b for s, (a, b) in zip(x.shape, pad_width))
    return Spec(tuple(grown), x.dtype)


def _pad_grad(g: Tensor, y: Tensor, x: Tensor, pad_width: Any, value: Any) -> tuple[Any, ...]:
    return (strided_slice(g, [(a, a + s, 1) for s, (a, _) in zip(x.shape, pad_width)]),)


@op(
    "movement",
    _pad_shape,
    _pad_grad,
    canonical=_pad_canonical,
    examples=[
        (((2, 3),), {"pad_width": ((1, 0), (0, 2))}),
        (((0,),), {"pad_width": ((1, 1),), "value": 2.0}),
    ],
    rows=rows.constant_pad,
)
def constant_pad(xp: ArrayModule, x: Array, *, pad_width: Any, value: float = 0.0) -> Array:
    """x with `value` put (before, after) it along each axis."""
    return xp.pad(x, pad_width, mode="constant", constant_values=value)


# --- join -----------------------------------------------------------------------------------


def _concatenate_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    if not shapes:
        raise ShapeError("concatenate: expected at least one tensor, got none.")
    return {"axis": normalize_axis(attrs["axis"], len(shapes[0]), "concatenate")}


def _concatenate_shape(*xs: Spec, axis: int) -> Spec:
    first = xs[0].shape
    joined: list[Any] = list(first)
    for x in xs[1:]:
        if len(x.shape) != len(first):
            raise ShapeError(f"concatenate: shapes {first} and {x.shape} differ in rank.")
        for i, size in enumerate(x.shape):
            if i == axis:
                joined[i] = None if None in (joined[i], size) else joined[i] + size
            elif is_unknown(joined[i]):
                joined[i] = size
            elif not agree(size, joined[i]):
                raise ShapeError(
                    f"concatenate: shapes {[x.shape for x in xs]} may differ along axis {axis} "
                    f"only, but differ along axis {i}."
                )
    return Spec(tuple(joined), xs[0].dtype)


def _concatenate_grad(g: Any, y: Tensor, *xs: Any, axis: Any) -> Any:
    grads, start = [], 0
    for x in xs:
        stop = start + x.shape[axis]
        grads.append(strided_slice(g, [slice(None)] * axis + [slice(start, stop)]))
        start = stop
    return tuple(grads)


@op(
    "movement",
    _concatenate_shape,
    _concatenate_grad,
    "same",
    canonical=_concatenate_canonical,
    examples=[(((2, 3), (1, 3)), {}), (((2, 1), (2, 0), (2, 2)), {"axis": -1})],
    variadic=True,
    rows=rows.concatenate,
)
def concatenate(xp: ArrayModule, *xs: Any, axis: Axis = 0) -> Array:
    """The tensors xs joined along `axis`.

    Args:
        xs: a list of tensors.
        axis: axis or axes; negative ones count from the last.

    Example:
        >>> concatenate([[1, 2], [3]]).tolist()
        [1, 2, 3]
    """
    return xp.concatenate(xs, axis)


# --- composed -------------------------------------------------------------------------------


def expand_axes(x: AnyTensor, axes: tuple[int, ...]) -> Tensor:
    """Return x with axes of size 1 put back where a reduction over `axes` took them."""
    shape = list(x.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return reshape(x, tuple(shape))


def expand_axes_of(g: Any, x: TensorLike, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    """Return the gradient g of a reduction of x over `axis`, ready to broadcast against x."""
    return g if keepdims or not axis else expand_axes(g, axis)


def flip_axes(x: AnyTensor, axes: tuple[int, ...]) -> Tensor:
    """Return x reversed along `axes`."""
    steps = [slice(None, None, -1 if i in axes else 1) for i in range(len(x.shape))]
    return strided_slice(x, steps)


def move_last(x: AnyTensor, axes: tuple[int, ...]) -> Tensor:
    """Return x with `axes` moved to the end, in order."""
    ndim = len(x.shape)
    rest = [i for i in range(ndim) if i not in axes]
    return transpose(x, (*rest, *axes))
