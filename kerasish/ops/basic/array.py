"""Everyday functions on tensors composed of ops: indexing, shapes, statistics (Keras's names)."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.creation import arange, ones_like, unsized, zeros_like
from kerasish.ops.basic.elementwise import (
    add,
    as_tensor,
    bitwise_not,
    cast,
    divide,
    equal,
    exp,
    isfinite,
    isnan,
    less,
    log,
    maximum,
    minimum,
    multiply,
    rint,
    select,
    sqrt,
    square,
    stop_gradient,
    subtract,
)
from kerasish.ops.basic.indexing import pick_along_axis, read_at, take_rows
from kerasish.ops.basic.movement import (
    broadcast_to,
    concatenate,
    constant_pad,
    flip_axes,
    pad_pairs,
    reshape,
    sizes,
    strided_slice,
    transpose,
)
from kerasish.ops.basic.reduce import (
    argsort,
    reduce_max,
    reduce_min,
    reduce_sum,
    reduced_shape,
    running_product,
    running_sum,
)
from kerasish.ops.op import agree, function, is_inferring, normalize_axes, normalize_axis

# --- indexing ---------------------------------------------------------------------------------


def _is_plain(part: Any) -> bool:
    return (
        part is None
        or part is Ellipsis
        or isinstance(part, (int, slice))
        and not isinstance(part, bool)
    )


@function
def get_item(x: Any, key: Any) -> Any:
    """Return x[key]: numbers, slices, None, Ellipsis, integer arrays, truth arrays.

    Example:
        >>> get_item(arange(6), slice(None, None, 2)).tolist()
        [0, 2, 4]
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [p.__index__() if _is_number(p) else p for p in parts]
    parts = _fill_ellipsis(parts, len(x.shape))
    if builtins.all(_is_plain(p) for p in parts):
        return _slice_plain(x, parts)
    return _pick(x, parts)


def _is_number(part: Any) -> bool:
    if isinstance(part, (bool, slice)) or part is None or part is Ellipsis:
        return False
    if hasattr(part, "shape"):
        # A scalar tensor of a trace stays an index tensor: it has no number yet.
        return part.shape == () and not hasattr(part, "maker") and "int" in str(part.dtype)
    return hasattr(part, "__index__")


def _width(part: Any) -> int:
    if part is None:
        return 0
    dtype = str(getattr(part, "dtype", ""))
    return len(part.shape) if "bool" in dtype else 1


def _fill_ellipsis(parts: list[Any], ndim: int) -> list[Any]:
    parts = [_listed(p) for p in parts]
    used = builtins.sum(_width(p) for p in parts if p is not Ellipsis)
    if used > ndim:
        raise IndexError(f"{used} indices for a tensor with {ndim} axes.")
    missing = [slice(None)] * (ndim - used)
    places = [i for i, p in enumerate(parts) if p is Ellipsis]
    if len(places) > 1:
        raise IndexError("An index may hold one '...' only.")
    if not places:
        return parts + missing
    return parts[: places[0]] + missing + parts[places[0] + 1 :]


def _listed(part: Any) -> Any:
    if isinstance(part, bool):
        raise IndexError("A single bool is no index here; use an array of them or ops.where.")
    if not isinstance(part, list):
        return part
    plain = builtins.all(isinstance(p, (bool, int, np.generic)) for p in part)
    # The places of True must be known while shapes are inferred.
    return np.asarray(part) if part and plain else as_tensor(part)


def _slice_plain(x: Any, parts: list[Any]) -> Any:
    slices, shape, axis = [], [], 0
    for p in parts:
        if p is None:
            shape.append(1)
            continue
        size = x.shape[axis]
        if isinstance(p, int):
            if size is not None and not -size <= p < size:
                raise IndexError(f"Index {p} is out of range for axis {axis} of size {size}.")
            p = p % size if size is not None else p
            slices.append(slice(p, p + 1 or None))
        else:
            slices.append(p)
            shape.append(len(range(*p.indices(size))))
        axis += 1
    whole = builtins.all(s == slice(None) for s in slices)
    y = x if whole else strided_slice(x, slices)
    return y if y.shape == tuple(shape) else reshape(y, tuple(shape))


def _pick(x: Any, parts: list[Any]) -> Any:
    """Index with arrays: slices first, then the picked axes moved to the front and read there."""
    expanded: list[Any] = []
    axis = 0
    for p in parts:
        if p is not None and "bool" in str(getattr(p, "dtype", "")):
            _check_mask(p.shape, x.shape[axis : axis + len(p.shape)], axis)
            expanded.extend(_nonzero(p))
        else:
            expanded.append(p)
        axis += _width(p)
    plain = [p if _is_plain(p) and not isinstance(p, int) else slice(None) for p in expanded]
    x = _slice_plain(x, plain)
    index_at = [i for i, p in enumerate(expanded) if not _is_plain(p) or isinstance(p, int)]
    arrays = [cast(expanded[i], "int32") for i in index_at]
    bound = [x.shape[i] for i in index_at]
    ndim = builtins.max(len(a.shape) for a in arrays)
    arrays = [select(less(a, 0), add(a, n), a) for a, n in zip(arrays, bound)]
    rest = [i for i in range(len(x.shape)) if i not in index_at]
    adjacent = index_at == list(range(index_at[0], index_at[-1] + 1))
    if len(arrays) == 1:
        return take_rows(x, arrays[0], index_at[0])
    joined = concatenate([expand_dims(a, -1) for a in _meet(arrays)], -1)
    y = read_at(transpose(x, (*index_at, *rest)), joined)
    if not adjacent or index_at[0] == 0:
        return y
    order = list(range(ndim, len(y.shape)))
    order[index_at[0] : index_at[0]] = range(ndim)
    return transpose(y, order)


def _check_mask(mask: Any, under: Any, axis: int) -> None:
    if not builtins.all(map(agree, mask, under)):
        raise IndexError(
            f"A mask of shape {tuple(mask)} does not fit the sizes {tuple(under)} from axis {axis}."
        )


def _meet(arrays: list[Any]) -> list[Any]:
    total = arrays[0]
    for a in arrays[1:]:
        total = add(multiply(total, 0), multiply(a, 0)) if total is not a else total
    return [add(a, multiply(total, 0)) for a in arrays]


def _nonzero(mask: Any) -> list[Any]:
    if not isinstance(mask, np.ndarray) and is_inferring(mask):
        return [unsized((None,), "int32") for _ in mask.shape]
    numbers = mask.numpy() if hasattr(mask, "numpy") else mask
    return [as_tensor(n.astype("int32")) for n in numbers.nonzero()]


@function
def take(x: Any, indices: Any, axis: Any = None) -> Any:
    """Return x's slices along `axis` at `indices` (None: of the flattened x).

    Example:
        >>> take(arange(5) * 10, [1, -1]).tolist()
        [10, 40]
    """
    if axis is None:
        return take_rows(reshape(x, (-1,)), indices, 0)
    return take_rows(x, indices, axis)


@function
def take_along_axis(x: Any, indices: Any, axis: Any = None) -> Any:
    """Return, for each place of `indices`, x's element at that index along `axis`."""
    if axis is None:
        return pick_along_axis(reshape(x, (-1,)), reshape(indices, (-1,)), 0)
    return pick_along_axis(x, indices, axis)


# --- shapes -----------------------------------------------------------------------------------


@function
def expand_dims(x: Any, axis: Any) -> Any:
    """Return x with an axis of size 1 at `axis` (a number or several).

    Example:
        >>> expand_dims(arange(3), 0).shape
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
def squeeze(x: Any, axis: Any = None) -> Any:
    """Return x without its axes of size 1 (or those named).

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
def ravel(x: Any) -> Any:
    """Return x's elements in one axis."""
    return reshape(x, (-1,))


@function
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Return x with two axes swapped."""
    x = as_tensor(x)
    order = list(range(len(x.shape)))
    a, b = (normalize_axis(a, len(order), "swapaxes") for a in (axis1, axis2))
    order[a], order[b] = b, a
    return transpose(x, order)


@function
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """Return x with the axes `source` moved to the places `destination`."""
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
def stack(x: Any, axis: int = 0) -> Any:
    """Return the tensors of the list x stacked along a new axis.

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
def unstack(x: Any, num: Any = None, axis: int = 0) -> Any:
    """Return the list of x's slices along `axis`."""
    x = as_tensor(x)
    axis = normalize_axis(axis, len(x.shape), "unstack")
    lead = (slice(None),) * axis
    return [get_item(x, (*lead, i)) for i in range(num or x.shape[axis])]


@function
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Return x cut along `axis` into equal sections (a number) or at places (a sequence).

    Example:
        >>> [p.tolist() for p in split(arange(5), [2, 4])]
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
def flip(x: Any, axis: Any = None) -> Any:
    """Return x reversed along `axis` (None: along all)."""
    x = as_tensor(x)
    return flip_axes(x, normalize_axes(axis, len(x.shape), "flip"))


@function
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """Return x with its elements moved `shift` places on along `axis`, round the end."""
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
def tile(x: Any, repeats: Any) -> Any:
    """Return x laid `repeats` times along each axis."""
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
def repeat(x: Any, repeats: Any, axis: Any = None) -> Any:
    """Return x with each element along `axis` repeated (by a number, or by one number each)."""
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
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    """Return x padded (before, after) along each axis.

    Args:
        mode: "constant" (with `constant_values`, 0 by default), "reflect", "symmetric", "edge"
            or "wrap".

    Example:
        >>> pad(arange(3), ((1, 2),), mode="reflect").tolist()
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


def shape(x: Any) -> tuple[Any, ...]:
    """Return x's shape as a tuple."""
    return tuple(as_tensor(x).shape) if not hasattr(x, "shape") else tuple(x.shape)


def ndim(x: Any) -> int:
    """Return the number of x's axes."""
    return len(shape(x))


def size(x: Any) -> Any:
    """Return the number of x's elements; of a symbolic tensor of unknown sizes, a symbolic one."""
    if None in shape(x):
        return reduce_sum(ones_like(x, "int32"))
    return math.prod(shape(x))


# --- statistics ---------------------------------------------------------------------------------


def _count(x: Any, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def _inexact(x: Any) -> Any:
    x = as_tensor(x)
    return x if dtypes.is_inexact(x.dtype) else cast(x, dtypes.to_inexact(x.dtype))


@function
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean over `axis` (None: all).

    Example:
        >>> float(mean([1, 2]))
        1.5
    """
    x = _inexact(x)
    axes = normalize_axes(axis, len(x.shape), "mean")
    return divide(reduce_sum(x, axes, keepdims), float(_count(x, axes)))


@function
def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean squared distance from the mean over `axis`."""
    x = _inexact(x)
    return mean(square(subtract(x, mean(x, axis, True))), axis, keepdims)


@function
def std(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the square root of the variance over `axis`."""
    return sqrt(var(x, axis, keepdims))


def _with_initial(reduced: Any, initial: Any, meet: Any) -> Any:
    return reduced if initial is None else meet(reduced, initial)


@function
def max(x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """Return the largest element over `axis`, at least `initial`."""
    return _extreme(x, axis, keepdims, initial, reduce_max, maximum)


@function
def min(x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """Return the smallest element over `axis`, at most `initial`."""
    return _extreme(x, axis, keepdims, initial, reduce_min, minimum)


@function
def amax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the largest element over `axis`."""
    return max(x, axis, keepdims)


@function
def amin(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the smallest element over `axis`."""
    return min(x, axis, keepdims)


def _extreme(x: Any, axis: Any, keepdims: bool, initial: Any, reduce: Any, meet: Any) -> Any:
    x = as_tensor(x)
    axes = normalize_axes(axis, len(x.shape), reduce.name)
    if initial is not None and 0 in [x.shape[a] for a in axes]:
        shape = reduced_shape(x.shape, axes, keepdims)
        return broadcast_to(cast(as_tensor(initial), x.dtype), shape)
    return _with_initial(reduce(x, axes, keepdims), initial, meet)


@function
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return log(sum(exp(x))) over `axis`, without overflow."""
    x = _inexact(x)
    axes = normalize_axes(axis, len(x.shape), "logsumexp")
    top = stop_gradient(reduce_max(x, axes, True))
    top = select(isfinite(top), top, zeros_like(top))
    y = add(log(reduce_sum(exp(subtract(x, top)), axes, True)), top)
    return y if keepdims else squeeze(y, axes)


@function
def cumsum(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Return the sums up to each place along `axis` (None: of the flattened x)."""
    x = as_tensor(x) if dtype is None else cast(x, dtype)
    return running_sum(reshape(x, (-1,)), 0) if axis is None else running_sum(x, axis)


@function
def cumprod(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Return the products up to each place along `axis` (None: of the flattened x)."""
    x = as_tensor(x) if dtype is None else cast(x, dtype)
    x = cast(x, "int32") if x.dtype == "bool" else x
    if axis is None:
        return running_product(reshape(x, (-1,)))
    return swapaxes(running_product(swapaxes(x, axis, -1)), axis, -1)


@function
def sort(x: Any, axis: int | None = -1) -> Any:
    """Return x sorted along `axis`, smallest first; None: all elements, in one row."""
    x = as_tensor(x)
    if axis is None:
        x, axis = ravel(x), 0
    return pick_along_axis(x, argsort(x, axis), axis)


@function
def top_k(x: Any, k: int, sorted: bool = True) -> Any:
    """Return (values, indices) of the k largest elements along the last axis, largest first.

    NaN counts as infinity, as `sort` puts it behind all numbers.
    """
    x = as_tensor(x)
    if k > x.shape[-1]:
        raise ShapeError(f"top_k: k={k} is larger than the last axis of shape {x.shape}.")
    if dtypes.is_float(x.dtype):
        key = select(isnan(x), -math.inf, multiply(x, -1))
    else:
        key = bitwise_not(x)  # as -x, but without overflow at the least number
    lead = [slice(None)] * (len(x.shape) - 1)
    order = strided_slice(argsort(key, -1), [*lead, slice(0, k)])
    return pick_along_axis(x, order, -1), order


# --- choosing -----------------------------------------------------------------------------------


@function
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """Return x1 where the condition holds, x2 elsewhere; alone: the places where it holds."""
    if x1 is None and x2 is None:
        return tuple(_nonzero(as_tensor(condition)))
    if x1 is None or x2 is None:
        raise ValueError("where: give both x1 and x2, or neither.")
    return select(condition, x1, x2)


@function
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """Return x held between x_min and x_max; the gradient flows where x lies between them.

    Args:
        x_min, x_max: numbers or tensors; None: x is not held on that side.

    Example:
        >>> clip([-1.0, 0.5, 9.0], 0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    x = as_tensor(x) if x_min is None else maximum(x, x_min)
    return x if x_max is None else minimum(x, x_max)


@function
def round(x: Any, decimals: int = 0) -> Any:
    """Return x rounded to `decimals` places, halves to even."""
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


@function
def one_hot(
    x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False
) -> Any:
    """Return 1 at the class x along a new `axis` of `num_classes`, 0 elsewhere.

    Example:
        >>> one_hot([0, 2], 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if sparse:
        raise ValueError("one_hot: sparse=True is not supported; the result is dense.")
    x = as_tensor(x)
    places = normalize_axis(axis, len(x.shape) + 1, "one_hot")
    span = reshape(arange(num_classes), [-1 if i == places else 1 for i in range(x.ndim + 1)])
    return cast(equal(expand_dims(cast(x, "int32"), places), span), dtypes.name_of(dtype))


__all__ = [
    "amax", "amin", "as_tensor", "clip", "cumprod", "cumsum", "expand_dims", "flip", "get_item",
    "logsumexp", "max", "mean", "min", "moveaxis", "ndim", "one_hot", "pad", "ravel", "repeat",
    "roll", "round", "shape", "size", "sizes", "sort", "split", "squeeze", "stack", "std",
    "swapaxes", "take", "take_along_axis", "tile", "top_k", "unstack", "var", "where",
]  # fmt: skip
