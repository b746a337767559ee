"""Elements chosen by place, by condition or by rank (names as in Keras)."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.arithmetic import add, multiply
from kerasish.ops.basic.bits import bitwise_not
from kerasish.ops.basic.comparison import equal, isnan, less, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, unsized
from kerasish.ops.basic.indexing import pick_along_axis, read_at, take_rows
from kerasish.ops.basic.movement import concatenate, reshape, strided_slice, transpose
from kerasish.ops.basic.reduce import argsort
from kerasish.ops.basic.reshaping import expand_dims, ravel
from kerasish.ops.op import function, is_inferring
from kerasish.ops.shapes import Shape, agree, is_unknown, normalize_axis
from kerasish.typing import AnyTensor, Axis, DTypeLike, IndexLike, Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["get_item", "sort", "take", "take_along_axis", "where"]


def _is_plain(part: Any) -> bool:
    return (
        part is None
        or part is Ellipsis
        or isinstance(part, (int, slice))
        and not isinstance(part, bool)
    )


@function
def get_item(x: AnyTensor, key: IndexLike) -> Tensor:
    """Return x[key]: numbers, slices, None, Ellipsis, integer arrays, truth arrays.

    Args:
        x: tensor or array.
        key: an index as Python's x[key] takes it.

    Example:
        >>> get_item(arange(6), slice(None, None, 2)).tolist()
        [0, 2, 4]
    """
    parts: list[Any] = list(key) if isinstance(key, tuple) else [key]
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


def _listed(part: object) -> Any:
    if isinstance(part, bool):
        raise IndexError("A single bool is no index here; use an array of them or ops.where.")
    if not isinstance(part, list):
        return part
    plain = builtins.all(isinstance(p, (bool, int, np.generic)) for p in part)
    # The places of True must be known while shapes are inferred.
    return np.asarray(part) if part and plain else as_tensor(part)


def _slice_plain(x: AnyTensor, parts: list[Any]) -> Any:
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


def _pick(x: AnyTensor, parts: list[Any]) -> Tensor:
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


def _check_mask(mask: tuple[int, ...], under: tuple[int, ...], axis: int) -> None:
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
def take(x: TensorLike, indices: TensorLike, axis: Axis | None = None) -> Tensor:
    """Return x's slices along `axis` at `indices` (None: of the flattened x).

    Args:
        x: tensor or array.
        indices: integers from -size to size - 1, `size` being that of the axis.
        axis: axis or axes; negative ones count from the last; None: all, flattened.

    Raises:
        IndexError: an index is out of bounds; for a list or an array of indices into a symbolic
            tensor when the model is built, else when it runs.

    Example:
        >>> take(arange(5) * 10, [1, -1]).tolist()
        [10, 40]
    """
    if axis is None:
        return take_rows(reshape(x, (-1,)), indices, 0)
    if hasattr(x, "shape") and is_inferring(x):
        _check_bounds(x.shape, indices, axis)
    return take_rows(x, indices, axis)


def _check_bounds(shape: Shape, indices: TensorLike, axis: Axis) -> None:
    """Raise IndexError while a model is built, not when it runs, if the numbers are known."""
    if not isinstance(indices, (int, list, tuple, np.ndarray)):
        return
    size = shape[normalize_axis(axis, len(shape), "take")]
    numbers = np.asarray(indices)
    if is_unknown(size) or numbers.dtype.kind not in "iu":
        return
    wrong = numbers[(numbers < -size) | (numbers >= size)]
    if wrong.size:
        raise IndexError(
            f"take: the index {wrong.flat[0]} is out of bounds for axis {axis} of size {size} of "
            f"a tensor of shape {tuple(shape)}."
        )


@function
def take_along_axis(x: TensorLike, indices: TensorLike, axis: Axis | None = None) -> Tensor:
    """Return, for each place of `indices`, x's element at that index along `axis`.

    Args:
        x: tensor or array.
        indices: integers.
        axis: axis or axes; negative ones count from the last; None: all, flattened.

    Example:
        >>> take_along_axis([[3, 1]], [[1, 0]], axis=1).tolist()
        [[1, 3]]
    """
    if axis is None:
        return pick_along_axis(reshape(x, (-1,)), reshape(indices, (-1,)), 0)
    return pick_along_axis(x, indices, axis)


@function
def unstack(x: TensorLike, num: int | None = None, axis: int = 0) -> list[Tensor]:
    """Return the list of x's slices along `axis`.

    Args:
        x: tensor or array.
        num: size of the axis; None: read from the shape.
        axis: axis or axes; negative ones count from the last.

    Example:
        >>> [part.tolist() for part in unstack([[1, 2], [3, 4]])]
        [[1, 2], [3, 4]]
    """
    x = as_tensor(x)
    axis = normalize_axis(axis, len(x.shape), "unstack")
    lead = (slice(None),) * axis
    return [get_item(x, (*lead, i)) for i in range(num or x.shape[axis])]


@function
def sort(x: TensorLike, axis: int | None = -1) -> Tensor:
    """Return x sorted along `axis`, smallest first; None: all elements, in one row.

    Args:
        x: tensor or array.
        axis: axis or axes; None: of the flattened x.

    Example:
        >>> sort([3, 1, 2]).tolist()
        [1, 2, 3]
    """
    x = as_tensor(x)
    if axis is None:
        x, axis = ravel(x), 0
    return pick_along_axis(x, argsort(x, axis), axis)


@function
def top_k(x: TensorLike, k: int, sorted: bool = True) -> tuple[Tensor, ...]:
    """Return (values, indices) of the k largest elements along the last axis, largest first.

    NaN counts as infinity, as `sort` puts it behind all numbers.

    Args:
        x: tensor or array.
        k: number of elements, >= 1.
        sorted: whether the result is sorted.

    Example:
        >>> [part.tolist() for part in top_k([1.0, 5.0, 3.0], 2)]
        [[5.0, 3.0], [1, 2]]
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
def where(
    condition: TensorLike, x1: TensorLike | None = None, x2: TensorLike | None = None
) -> Structure:
    """Return x1 where the condition is true, x2 elsewhere; without them, the places that are true.

    Args:
        condition: truth values.
        x1: tensor or array; None, with x2: the places where the condition is true.
        x2: tensor or array; broadcasts with `x1`; None: see x1.

    Example:
        >>> where([True, False], [1, 2], [3, 4]).tolist()
        [1, 4]
    """
    if x1 is None and x2 is None:
        return tuple(_nonzero(as_tensor(condition)))
    if x1 is None or x2 is None:
        raise ValueError("where: give both x1 and x2, or neither.")
    return select(condition, x1, x2)


@function
def one_hot(
    x: TensorLike,
    num_classes: int,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    sparse: bool = False,
) -> Tensor:
    """Return 1 at the class x along a new `axis` of `num_classes`, 0 elsewhere.

    Args:
        x: tensor or array.
        num_classes: number of classes, >= 1.
        axis: axis or axes; negative ones count from the last.
        dtype: dtype of the result; None: chosen by the inputs.
        sparse: must be False: kerasish has no sparse tensors.

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
