"""Pooling: the largest or the mean element of each window, and their gradients as ops.

Data are stored as (n, *spatial, channels). Places of the padding are never the largest, even
among -Inf, and do not count in the mean. NaN is larger than all numbers. The maximum is the first
one in C order of the window: the gradient goes to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import dtypes, rows
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.movement import transpose
from kerasish.ops.basic.product import matmul
from kerasish.ops.basic.reduce import reduce_max
from kerasish.ops.basic.window import (
    channels_back,
    channels_to_last,
    layout,
    per_axis,
    resolve_padding,
    window_counts,
    window_places,
)
from kerasish.ops.op import Op, function, op
from kerasish.ops.shapes import Shape, Spec
from kerasish.typing import Array, ArrayModule, IntOrTuple, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["adaptive_average_pool", "adaptive_max_pool", "average_pool", "max_pool"]


def _geometry(sizes: Shape, attrs: dict[str, Any], what: str) -> dict[str, Any]:
    count = len(sizes)
    if count < 1:
        raise ShapeError(f"{what}: expected x (n, *spatial, channels) with at least one such axis.")
    size = per_axis(attrs["size"], count, f"{what}: size")
    given = size if attrs["strides"] is None else attrs["strides"]
    strides = per_axis(given, count, f"{what}: strides")
    padding = resolve_padding(attrs["padding"], sizes, size, strides, (1,) * count, what)
    window_counts(sizes, size, strides, padding, (1,) * count, what)  # raises if none fits
    return {"size": size, "strides": strides, "padding": padding}


def _canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    return _geometry(shapes[0][1:-1], attrs, "pooling")


def _counts(x: Spec, size: tuple[Any, ...], strides: tuple[int, ...], padding: Any) -> Spec:
    counts = window_counts(x.shape[1:-1], size, strides, padding, (1,) * len(size), "pooling")
    return Spec((x.shape[0], *counts, x.shape[-1]), x.dtype)


def _windows(
    xp: ArrayModule, x: Array, size: Array, strides: Array, padding: Array, fill: Array
) -> Array:
    """Return (window places, n, *windows, channels): x's windows, `fill` in the padding."""
    counts = window_counts(x.shape[1:-1], size, strides, padding, (1,) * len(size), "pooling")
    data = xp.pad(x, [(0, 0), *padding, (0, 0)], constant_values=fill)
    return xp.stack([data[places] for places in _taps(size, counts, strides)])


def _taps(size: Any, counts: Any, strides: Any) -> list[Any]:
    """Return the slices of the padded data that meet each place of the window, in C order."""
    return [places for _, places in window_places(size, counts, strides, (1,) * len(size))]


def _lowest(xp: ArrayModule, dtype: Array) -> Array:
    if dtype.kind == "b":
        return False
    return xp.iinfo(dtype).min if dtype.kind in "iu" else -math.inf


def _spread(
    xp: Any, parts: Array, shape: Array, size: Array, strides: Array, padding: Array
) -> Array:
    """Return the sum of `parts`, one for each place of the window, each put where it belongs."""
    whole = [n + a + b for n, (a, b) in zip(shape[1:-1], padding)]
    x = xp.zeros((shape[0], *whole, shape[-1]), parts[0].dtype)
    counts = parts[0].shape[1:-1]
    for part, places in zip(parts, _taps(size, counts, strides)):
        x[places] += part
    return x[tuple(slice(a, a + n) for n, (a, _) in zip(shape, [(0, 0), *padding]))]


# --- the largest --------------------------------------------------------------------------------

EXAMPLES = [
    (((2, 5, 2),), {"size": 2}),
    (((1, 5, 4, 3),), {"size": (3, 2), "strides": (2, 1), "padding": "same"}),
    (((2, 4, 4, 1),), {"size": 2}),
    (((1, 3, 2, 3, 2),), {"size": 2, "strides": 1}),
]


@op(
    "pool",
    _counts,
    lambda g, y, x, **settings: (pool_max_gradient(g, x, **settings),),
    canonical=_canonical,
    examples=EXAMPLES,
    rows=rows.examples,
)
def pool_max(
    xp: ArrayModule,
    x: Array,
    *,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[Any] = "valid",
) -> Array:
    """The largest element of each window.

    Args:
        size: the window's sizes, a number or one for each spatial axis.
        strides: steps from window to window; None: `size`.
        padding: "valid", "same", or (before, after) for each spatial axis.

    Shape: (n, *spatial, c) -> (n, *windows, c).
    """
    return xp.max(_windows(xp, x, size, strides, padding, _lowest(xp, x.dtype)), axis=0)


def _paired_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    return _geometry(shapes[1][1:-1], attrs, "pooling")


def _first_largest(xp: ArrayModule, x: Array, size: Array, strides: Array, padding: Array) -> Array:
    """Return the place of each window's first largest element (or first NaN) inside x."""
    places = _windows(xp, x, size, strides, padding, _lowest(xp, x.dtype))
    inside = xp.ones((1, *x.shape[1:-1], 1), bool)
    inside = _windows(xp, inside, size, strides, padding, False)
    largest = (places == xp.max(places, axis=0)) | (places != places)
    return xp.argmax(largest & inside, axis=0)


@op(
    "pool",
    lambda g, x, **_: Spec(x.shape, g.dtype),
    lambda h, y, g, x, **settings: (pool_max_select(h, x, **settings), None),
    canonical=_paired_canonical,
    examples=[
        (((2, 2, 2), (2, 5, 2)), {"size": 2}),
        (((1, 3, 4, 3), (1, 5, 4, 3)), {"size": (3, 2), "strides": (2, 1), "padding": "same"}),
        (((2, 2, 2, 1), (2, 4, 4, 1)), {"size": 2}),
    ],
)
def pool_max_gradient(
    xp: ArrayModule,
    g: Array,
    x: Array,
    *,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[Any] = "valid",
) -> Array:
    """Zeros like x, to which each window's g is added at the window's first largest element.

    Shape: (n, *windows, c), (n, *spatial, c) -> (n, *spatial, c).
    """
    chosen = _first_largest(xp, x, size, strides, padding)
    zero = xp.zeros((), g.dtype)
    parts = [xp.where(chosen == k, g, zero) for k in range(math.prod(size))]
    return _spread(xp, parts, x.shape, size, strides, padding)


@op(
    "pool",
    lambda h, x, size, strides, padding: Spec(_counts(x, size, strides, padding).shape, h.dtype),
    lambda g, y, h, x, **settings: (pool_max_gradient(g, x, **settings), None),
    canonical=_paired_canonical,
    examples=[
        (((2, 5, 2), (2, 5, 2)), {"size": 2}),
        (((1, 5, 4, 3), (1, 5, 4, 3)), {"size": (3, 2), "strides": (2, 1), "padding": "same"}),
        (((2, 4, 4, 1), (2, 4, 4, 1)), {"size": 2}),
    ],
)
def pool_max_select(
    xp: ArrayModule,
    h: Array,
    x: Array,
    *,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[Any] = "valid",
) -> Array:
    """The element of h where x has the window's first largest element: the transpose of
    `pool_max_gradient`.

    Shape: (n, *spatial, c), (n, *spatial, c) -> (n, *windows, c).
    """
    chosen = _first_largest(xp, x, size, strides, padding)
    places = _windows(xp, h, size, strides, padding, 0)
    return xp.take_along_axis(places, chosen[None], axis=0)[0]


# --- the mean -----------------------------------------------------------------------------------


def shares(
    size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[Any],
    sizes: Sequence[int],
    counts: Sequence[int],
) -> list[list[int]]:
    """Return, for each spatial axis, how many places of x (not of its padding) each window has."""
    return [
        [min(i * s - before + w, n) - max(i * s - before, 0) for i in range(count)]
        for w, s, (before, _), n, count in zip(size, strides, padding, sizes, counts)
    ]


def _share(
    xp: ArrayModule,
    size: Array,
    strides: Array,
    padding: Array,
    sizes: Array,
    counts: Array,
    dtype: Array,
) -> Array:
    """Return 1 / (places of x in each window), to be broadcast along (n, *windows, channels)."""
    total = xp.ones((), dtype)
    for axis, numbers in enumerate(shares(size, strides, padding, sizes, counts)):
        shape = [1] * (len(counts) + 2)
        shape[axis + 1] = -1
        total = total * xp.asarray(numbers, dtype=dtype).reshape(shape)
    return 1 / total


@op(
    "pool",
    _counts,
    lambda g, y, x, **settings: (pool_average_gradient(g, sizes=x.shape[1:-1], **settings),),
    "float",
    canonical=_canonical,
    examples=EXAMPLES,
    rows=rows.examples,
)
def pool_average(
    xp: ArrayModule,
    x: Array,
    *,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[Any] = "valid",
) -> Array:
    """The mean of each window; places of the padding do not count.

    Args:
        size, strides, padding: see `pool_max`.

    Shape: (n, *spatial, c) -> (n, *windows, c).
    """
    wide = dtypes.adding_dtype(dtypes.name_of(x.dtype))
    total = xp.sum(_windows(xp, x, size, strides, padding, 0), axis=0, dtype=wide)
    share = _share(xp, size, strides, padding, x.shape[1:-1], total.shape[1:-1], wide)
    return (total * share).astype(x.dtype)


def _mean_gradient_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    sizes = tuple(int(s) for s in attrs["sizes"])
    result = _geometry(sizes, attrs, "pool_average_gradient")
    counts = window_counts(
        sizes, result["size"], result["strides"], result["padding"], (1,) * len(sizes), "pooling"
    )
    if any(a not in (None, b) for a, b in zip(shapes[0][1:-1], counts)):
        raise ShapeError(
            f"pool_average_gradient: data of the spatial sizes {sizes} has {counts} windows, g has "
            f"the shape {shapes[0]}."
        )
    return {"sizes": sizes, **result}


@op(
    "pool",
    lambda g, sizes, **_: Spec((g.shape[0], *sizes, g.shape[-1]), g.dtype),
    lambda h, y, g, sizes, **settings: (pool_average(h, **settings),),
    "float",
    canonical=_mean_gradient_canonical,
    examples=[
        (((2, 2, 2),), {"sizes": (5,), "size": 2}),
        (((1, 3, 4, 3),), {"sizes": (5, 4), "size": (3, 2), "strides": (2, 1), "padding": "same"}),
    ],
)
def pool_average_gradient(
    xp: ArrayModule,
    g: Array,
    *,
    sizes: Any,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[Any] = "valid",
) -> Array:
    """Each window's g in equal parts added to the places of the window.

    Args:
        sizes: the spatial sizes of the result.

    Shape: (n, *windows, c) -> (n, *sizes, c).
    """
    share = _share(xp, size, strides, padding, sizes, g.shape[1:-1], g.dtype)
    part = (g * share).astype(g.dtype)
    shape = (g.shape[0], *sizes, g.shape[-1])
    return _spread(xp, [part] * math.prod(size), shape, size, strides, padding)


# --- Keras's functions --------------------------------------------------------------------------


def _pooled(
    x: TensorLike,
    pooling: Op,
    size: Any,
    strides: IntOrTuple | None,
    padding: str,
    form: str | None,
) -> Tensor:
    form = layout(form)
    y = pooling(channels_to_last(as_tensor(x), form), size, strides, padding)
    return channels_back(y, form)


@function
def max_pool(
    inputs: TensorLike,
    pool_size: IntOrTuple,
    strides: IntOrTuple | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Tensor:
    """Return the largest element of each window of 1 to 3 spatial axes.

    Args:
        inputs: tensor of shape (n, *spatial, channels), or channels first.
        pool_size: size of the windows: a number, or one for each spatial axis.
        strides: steps from window to window: a number, or one for each spatial axis; None:
            pool_size.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> max_pool([[[1.0], [3.0], [2.0]]], 2, strides=1).tolist()
        [[[3.0], [3.0]]]
    """
    return _pooled(inputs, pool_max, pool_size, strides, padding, data_format)


@function
def average_pool(
    inputs: TensorLike,
    pool_size: int | Sequence[int],
    strides: IntOrTuple | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Tensor:
    """Return the mean of each window of 1 to 3 spatial axes; padding does not count.

    Args:
        inputs: tensor of shape (n, *spatial, channels), or channels first.
        pool_size: size of the windows: a number, or one for each spatial axis.
        strides: steps from window to window: a number, or one for each spatial axis; None:
            pool_size.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> average_pool([[[1.0], [3.0], [2.0]]], 2, padding="same").tolist()
        [[[2.0], [2.0]]]
    """
    return _pooled(inputs, pool_average, pool_size, strides, padding, data_format)


def _bins(size: int, count: int) -> list[tuple[int, int]]:
    """Return the (start, stop) of `count` bins that cover `size` places, as even as they can be."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive(
    x: TensorLike, output_size: Any, data_format: str | None, even: Op, uneven: Callable[..., Any]
) -> Tensor:
    form = layout(data_format)
    x = channels_to_last(as_tensor(x), form)
    sizes = x.shape[1:-1]
    if None in sizes:
        raise ShapeError(f"Adaptive pooling needs known spatial sizes, got shape {x.shape}.")
    counts = per_axis(output_size, len(sizes), "adaptive pooling: output_size")
    if all(n % count == 0 for n, count in zip(sizes, counts)):
        y = even(x, tuple(n // count for n, count in zip(sizes, counts)))
        return channels_back(y, form)
    for axis, (n, count) in enumerate(zip(sizes, counts), 1):
        if n != count:
            x = uneven(x, axis, _bins(n, count))
    return channels_back(x, form)


def _mean_of_bins(x: Tensor, axis: int, bins: list[tuple[int, int]]) -> Tensor:
    # Bins overlap where sizes are uneven: a product with the matrix of their shares.
    n = x.shape[axis]
    weights = [[1 / (b - a) if a <= j < b else 0.0 for a, b in bins] for j in range(n)]
    order = [i for i in range(len(x.shape)) if i != axis] + [axis]
    shares_of_bins = cast(as_tensor(weights), dtypes.to_inexact(x.dtype))
    y = matmul(transpose(x, order), shares_of_bins)
    return transpose(y, [order.index(i) for i in range(len(order))])


def _max_of_bins(x: Tensor, axis: int, bins: list[tuple[int, int]]) -> Tensor:
    longest = max(b - a for a, b in bins)
    places = [[min(a + k, b - 1) for k in range(longest)] for a, b in bins]
    return reduce_max(take_rows(x, places, axis), axis + 1)


@function
def adaptive_average_pool(
    inputs: TensorLike, output_size: int | Sequence[int], data_format: str | None = None
) -> Tensor:
    """Return the means of `output_size` bins: bin i of n places is floor(i n / m) to
    ceil((i + 1) n / m).

    Args:
        inputs: tensor of shape (n, *spatial, channels), or channels first.
        output_size: size of the result along the spatial axes: a number, or one for each.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> adaptive_average_pool([[[1.0], [2.0], [3.0]]], 2).tolist()
        [[[1.5], [2.5]]]
    """
    return _adaptive(inputs, output_size, data_format, pool_average, _mean_of_bins)


@function
def adaptive_max_pool(
    inputs: TensorLike, output_size: int | Sequence[int], data_format: str | None = None
) -> Tensor:
    """Return the largest elements of `output_size` bins; see `adaptive_average_pool`.

    Args:
        inputs: tensor of shape (n, *spatial, channels), or channels first.
        output_size: size of the result along the spatial axes: a number, or one for each.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> adaptive_max_pool([[[1.0], [2.0], [3.0]]], 2).tolist()
        [[[2.0], [3.0]]]
    """
    return _adaptive(inputs, output_size, data_format, pool_max, _max_of_bins)
