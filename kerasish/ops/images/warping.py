"""Pictures read at computed places: coordinates, affine and perspective maps, elastic ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish import config
from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.arithmetic import (
    absolute,
    add,
    floor,
    floor_divide,
    maximum,
    minimum,
    mod,
    multiply,
    rint,
    sign,
    subtract,
)
from kerasish.ops.basic.comparison import greater_equal, less, logical_and, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, ones_like
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.movement import broadcast_to, reshape
from kerasish.ops.basic.reshaping import expand_dims
from kerasish.ops.basic.selection import get_item
from kerasish.ops.images.filtering import gaussian_blur, to_channels_last
from kerasish.ops.op import function
from kerasish.ops.random import normal
from kerasish.ops.shapes import agree
from kerasish.typing import AnyTensor, SeedLike, Shape, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["affine_transform", "elastic_transform", "map_coordinates", "perspective_transform"]

FILL_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


def _mirrored(index: Tensor, size: int) -> Tensor:
    span = max(size - 1, 1)
    return absolute(subtract(mod(add(index, span), 2 * span), span)) if size > 1 else index * 0


def _inside(index: Tensor, size: int, fill_mode: str) -> Tensor:
    """Return the integer `index` moved into [0, size) as the mode says."""
    if fill_mode == "wrap":
        return mod(index, size)
    if fill_mode == "mirror":
        return _mirrored(index, size)
    if fill_mode == "reflect":
        return floor_divide(_mirrored(add(multiply(index, 2), 1), 2 * size + 1), 2)
    return minimum(maximum(index, 0), size - 1)


def _away(x: AnyTensor) -> Tensor:
    """Return x rounded, halves away from 0."""
    return multiply(sign(x), floor(add(absolute(x), 0.5)))


def _corners(coordinate: AnyTensor, order: int) -> list[tuple[Any, Any]]:
    """Return the (whole index, weight) pairs that a coordinate is read at."""
    if order == 0:
        return [(cast(_away(coordinate), "int32"), ones_like(coordinate))]
    low = floor(coordinate)
    share = subtract(coordinate, low)
    index = cast(low, "int32")
    return [(index, subtract(1, share)), (add(index, 1), share)]


@function
def map_coordinates(
    inputs: TensorLike,
    coordinates: TensorLike,
    order: int,
    fill_mode: str = "constant",
    fill_value: float = 0,
) -> Tensor:
    """Return what `inputs` is at real-valued coordinates.

    Args:
        inputs: shape (sizes of n axes).
        coordinates: shape (n, ...): for each place of the result, where to read.
        order: 0 takes the nearest element, 1 interpolates linearly.
        fill_mode: outside: "constant", "nearest", "wrap", "mirror" or "reflect".
        fill_value: what is outside with "constant".

    Example:
        >>> map_coordinates([0.0, 10.0], [[0.25]], order=1).tolist()
        [2.5]
    """
    x = as_tensor(inputs)
    points = as_float(coordinates)
    if order not in (0, 1):
        raise ValueError(f"map_coordinates: order must be 0 or 1, got {order!r}.")
    if fill_mode not in FILL_MODES:
        raise ValueError(f"map_coordinates: fill_mode must be one of {FILL_MODES}.")
    if points.shape[0] != len(x.shape) or len(points.shape) < 2:
        raise ShapeError(
            f"map_coordinates: {len(x.shape)} axes ask for coordinates of shape "
            f"({len(x.shape)}, ...), got {points.shape}."
        )
    results: list[tuple[list[Any], Any, Any]] = [([], None, None)]
    for axis, size in enumerate(x.shape):
        more = []
        for index, weight in _corners(get_item(points, axis), order):
            known = logical_and(greater_equal(index, 0), less(index, size))
            safe = _inside(index, size, fill_mode)
            for places, total, valid in results:
                both = known if valid is None else logical_and(valid, known)
                product = weight if total is None else multiply(total, weight)
                more.append(([*places, safe], product, both))
        results = more
    flat, dtype = reshape(x, (-1,)), _place_dtype(x.shape)
    y: Any = None
    for places, weight, valid in results:
        place: Any = 0
        for index, size in zip(places, x.shape):
            place = add(multiply(place, size), cast(index, dtype))
        part = cast(take_rows(flat, place), weight.dtype)
        if fill_mode == "constant":
            part = select(valid, part, fill_value)
        y = multiply(part, weight) if y is None else add(y, multiply(part, weight))
    if dtypes.is_inexact(x.dtype):
        return cast(y, x.dtype)
    return cast(rint(y), x.dtype)


def _place_dtype(shape: Sequence[int | None]) -> str:
    """Return the dtype of places among this many elements; None: few enough."""
    return "int64" if math.prod(size or 1 for size in shape) >= 2**31 else "int32"


_ORDERS = {"nearest": 0, "bilinear": 1}


def _read(
    images: Tensor,
    rows: Tensor,
    columns: Tensor,
    interpolation: str,
    fill_mode: str,
    fill_value: float,
) -> Tensor:
    """Return pictures (n, h, w, c) read at the rows and columns (n, h', w') for all channels."""
    n, height, width, channels = images.shape
    # One table of pixels and one index per place: engines read rows of a table natively.
    pixels = reshape(images, (n * height * width, channels))
    dtype = _place_dtype((n, height, width))
    first = reshape(multiply(arange(n, dtype=dtype), height * width), (n, 1, 1))
    shape = (n, *rows.shape[1:])
    rows, columns = (broadcast_to(v, shape) for v in (rows, columns))
    y: Any = None
    for r, r_weight in _corners(rows, _ORDERS[interpolation]):
        for c, c_weight in _corners(columns, _ORDERS[interpolation]):
            at_row, at_column = _inside(r, height, fill_mode), _inside(c, width, fill_mode)
            row = add(first, multiply(cast(at_row, dtype), width))
            place = add(row, cast(at_column, dtype))
            part = as_float(take_rows(pixels, place))
            if fill_mode == "constant":
                down = logical_and(greater_equal(r, 0), less(r, height))
                across = logical_and(greater_equal(c, 0), less(c, width))
                part = select(expand_dims(logical_and(down, across), -1), part, fill_value)
            weight = expand_dims(multiply(r_weight, c_weight), -1)
            part = multiply(part, cast(weight, part.dtype))
            y = part if y is None else add(y, part)
    y = y if dtypes.is_inexact(images.dtype) else rint(y)
    return cast(y, images.dtype)


def _grid(x: Tensor) -> tuple[Any, Any]:
    height, width = x.shape[1:3]
    rows = reshape(arange(height, dtype=float), (1, height, 1))
    columns = reshape(arange(width, dtype=float), (1, 1, width))
    return rows, columns


def _check(interpolation: str, fill_mode: str, what: str) -> None:
    if interpolation not in _ORDERS:
        raise ValueError(
            f"{what}: interpolation must be one of {sorted(_ORDERS)}, got {interpolation!r}."
        )
    if fill_mode not in FILL_MODES:
        raise ValueError(f"{what}: fill_mode must be one of {FILL_MODES}, got {fill_mode!r}.")


@function
def affine_transform(
    images: TensorLike,
    transform: TensorLike,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Tensor:
    """Return pictures whose pixel (x, y) is the old one at (a0 x + a1 y + a2, b0 x + b1 y + b2).

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        transform: a0, a1, a2, b0, b1, b2, 0, 0, shape (8,) or (n, 8).
        interpolation: "nearest" or "bilinear".
        fill_mode: outside: "constant", "nearest", "wrap", "mirror" or "reflect".
        fill_value: what is outside with "constant".
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> from kerasish import ops
        >>> same = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
        >>> affine_transform(ops.ones((4, 4, 3)), ops.convert_to_tensor(same)).shape
        (4, 4, 3)
    """
    _check(interpolation, fill_mode, "affine_transform")
    x, back = to_channels_last(as_tensor(images), data_format, "affine_transform")
    maps = as_float(transform)
    if len(maps.shape) not in (1, 2) or not agree(maps.shape[-1], 8):
        raise ShapeError(
            f"affine_transform: the transform must have the shape (8,) or (n, 8), got {maps.shape}."
        )
    maps = expand_dims(maps, 0) if len(maps.shape) == 1 else maps
    rows, columns = _grid(x)
    a0, a1, a2, b0, b1, b2 = (reshape(get_item(maps, (..., i)), (-1, 1, 1)) for i in range(6))
    across = add(add(multiply(a0, columns), multiply(a1, rows)), a2)
    down = add(add(multiply(b0, columns), multiply(b1, rows)), b2)
    shape = x.shape[:3]
    down, across = broadcast_to(down, shape), broadcast_to(across, shape)
    return back(_read(x, down, across, interpolation, fill_mode, fill_value))


Matrix = list[list[Any]]


def _from_square(points: AnyTensor) -> Matrix:
    """Return the map that takes the corners of the unit square to four points (n, 4, 2).

    Source: Heckbert, Fundamentals of Texture Mapping and Image Warping, 1989, section 2.2.3.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = (
        (get_item(points, (..., i, 0)), get_item(points, (..., i, 1))) for i in (0, 1, 3, 2)
    )
    dx1, dx2, sx = x1 - x2, x3 - x2, x0 - x1 + x2 - x3
    dy1, dy2, sy = y1 - y2, y3 - y2, y0 - y1 + y2 - y3
    area = dx1 * dy2 - dx2 * dy1
    g, h = (sx * dy2 - dx2 * sy) / area, (dx1 * sy - sx * dy1) / area
    return [
        [x1 - x0 + g * x1, x3 - x0 + h * x3, x0],
        [y1 - y0 + g * y1, y3 - y0 + h * y3, y0],
        [g, h, ones_like(g)],
    ]


def _adjugate(m: Matrix) -> Matrix:
    """Return the inverse of a 3 x 3 matrix but for a factor, which a perspective does not see."""
    (a, b, c), (d, e, f), (g, h, i) = m
    return [
        [e * i - f * h, c * h - b * i, b * f - c * e],
        [f * g - d * i, a * i - c * g, c * d - a * f],
        [d * h - e * g, b * g - a * h, a * e - b * d],
    ]


def perspective_matrix(start_points: TensorLike, end_points: TensorLike) -> Matrix:
    """Return the 3 x 3 map, but for a factor, that takes four points (n, 4, 2) to four others.

    The points are in the order of `perspective_transform`: two above, two below.
    """
    start, end = _from_square(as_float(start_points)), _from_square(as_float(end_points))
    return _product(end, _adjugate(start))


def _product(a: Matrix, b: Matrix) -> Matrix:
    return [[sum(a[i][k] * b[k][j] for k in range(3)) for j in range(3)] for i in range(3)]


@function
def perspective_transform(
    images: TensorLike,
    start_points: TensorLike,
    end_points: TensorLike,
    interpolation: str = "bilinear",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Tensor:
    """Return pictures seen from elsewhere: what was at the start points is at the end points.

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        start_points: four (x, y), shape (4, 2) or (n, 4, 2); no three on one line.
        end_points: where they go, in the same shape.
        interpolation: "nearest" or "bilinear".
        fill_value: what is outside the picture.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> from kerasish import ops
        >>> corners = ops.convert_to_tensor([[[0.0, 0.0], [0.0, 3.0], [3.0, 0.0], [3.0, 3.0]]])
        >>> perspective_transform(ops.ones((1, 4, 4, 3)), corners, corners).shape
        (1, 4, 4, 3)
    """
    _check(interpolation, "constant", "perspective_transform")
    x, back = to_channels_last(as_tensor(images), data_format, "perspective_transform")
    start, end = as_float(start_points), as_float(end_points)
    if start.shape != end.shape or start.shape[-2:] != (4, 2):
        raise ShapeError(
            "perspective_transform: the points must have the shape (4, 2) or (n, 4, 2), got "
            f"{start.shape} and {end.shape}."
        )
    inverse = perspective_matrix(end, start)
    m = [[reshape(entry, (-1, 1, 1)) for entry in row] for row in inverse]
    rows, columns = _grid(x)
    across, down, depth = (a * columns + b * rows + c for a, b, c in m)
    shape = x.shape[:3]
    rows, columns = broadcast_to(down / depth, shape), broadcast_to(across / depth, shape)
    return back(_read(x, rows, columns, interpolation, "constant", fill_value))


def _state(seed: Any) -> Tensor:
    """Return the state of random numbers for a seed: a number, a generator of states, or None."""
    if hasattr(seed, "next"):
        return seed.next()
    number = config.next_seed() if seed is None else int(seed)
    return cast(as_tensor([number, 0]), "uint32")


@function
def elastic_transform(
    images: TensorLike,
    alpha: float = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    seed: SeedLike | None = None,
    data_format: str | None = None,
) -> Tensor:
    """Return pictures whose pixels are moved by smooth random distances.

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        alpha: factor of the distances, in pixels.
        sigma: how smooth they are: the width of the blur, in pixels.
        interpolation: "nearest" or "bilinear".
        fill_mode: outside: "constant", "nearest", "wrap", "mirror" or "reflect".
        fill_value: what is outside with "constant".
        seed: a number or a seed generator; None: another one each time.
        data_format: "channels_last" or "channels_first"; None: the default.

    Source: Simard, Steinkraus & Platt, ICDAR 2003.

    Example:
        >>> from kerasish import ops
        >>> elastic_transform(ops.ones((1, 4, 4, 3)), seed=0).shape
        (1, 4, 4, 3)
    """
    _check(interpolation, fill_mode, "elastic_transform")
    x, back = to_channels_last(as_tensor(images), data_format, "elastic_transform")
    moves = smooth_moves(_state(seed), x.shape[:3], alpha, sigma, int(6 * sigma) | 1)
    return back(_displaced(x, moves, interpolation, fill_mode, fill_value))


def smooth_moves(
    state: AnyTensor, shape: Shape, alpha: TensorLike, sigma: AnyTensor, size: int
) -> Tensor:
    """Return random distances (down, across), shape (n, h, w, 2), that vary smoothly.

    Args:
        state: of the random numbers.
        shape: (n, h, w).
        alpha: their factor, in pixels.
        sigma: how smooth they are: the width of the blur, in pixels.
        size: of the blur's filter, in pixels.
    """
    moves = multiply(normal(state, (*shape, 2), 0.0, 1.0, "float32"), sigma)
    return multiply(gaussian_blur(moves, (size, size), (sigma, sigma), "channels_last"), alpha)


def _displaced(
    x: Tensor, moves: Tensor, interpolation: str, fill_mode: str, fill_value: float
) -> Tensor:
    rows, columns = _grid(x)
    down, across = add(rows, get_item(moves, (..., 0))), add(columns, get_item(moves, (..., 1)))
    return _read(x, down, across, interpolation, fill_mode, fill_value)


@function
def displace(
    images: TensorLike,
    moves: TensorLike,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> Tensor:
    """Return pictures whose pixel (row, column) is read at (row, column) + its move.

    Args:
        images: shape (n, h, w, c), (h, w, c), or channels first.
        moves: distances down and across in pixels, shape (n, h, w, 2).
        interpolation: "nearest" or "bilinear".
        fill_mode: outside: "constant", "nearest", "wrap", "mirror" or "reflect".
        fill_value: what is outside with "constant".
        data_format: "channels_last" or "channels_first"; None: the default.
    """
    _check(interpolation, fill_mode, "displace")
    x, back = to_channels_last(as_tensor(images), data_format, "displace")
    return back(_displaced(x, as_float(moves), interpolation, fill_mode, fill_value))
