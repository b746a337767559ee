"""Resize, Upsample, GridSample, AffineGrid."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.registry import (
    OnnxNode,
    axis_of,
    check_size,
    rank_of,
    reads,
    tensor,
)
from kerasish.ops import dtypes
from kerasish.ops.images.resizing import along_axis
from kerasish.typing import Structure


@reads("Upsample", constants=(1,))
def _upsample(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    given = n.known(1)
    scales = [float(s) for s in (n.attr("scales") if given is None else given.reshape(-1))]
    return _resized(n, x, list(range(rank_of(x))), None, scales, None, "asymmetric", "floor")


@reads("Resize", constants=(1, 2, 3))
def _resize(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    rank = rank_of(x)
    axes = [axis_of(a, rank) for a in n.attr("axes") or range(rank)]
    if n.opset < 11:
        scales = [float(s) for s in np.asarray(n.known(1)).reshape(-1)]
        return _resized(n, x, axes, None, scales, None, "asymmetric", "floor")
    roi, given, wanted = n.known(1), n.known(2), n.known(3)
    sizes: list[int] | None = None
    if wanted is not None and wanted.size:
        sizes = [int(s) for s in wanted.reshape(-1)]
        scales = [s / int(x.shape[a]) for a, s in zip(axes, sizes)]
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(scales) if policy == "not_larger" else max(scales)
            scales = [one] * len(axes)
            sizes = [math.floor(one * int(x.shape[a]) + 0.5) for a in axes]
    else:
        scales = [float(s) for s in np.asarray(given).reshape(-1)]
    return _resized(
        n, x, axes, sizes, scales, roi,
        n.attr("coordinate_transformation_mode", "half_pixel"),
        n.attr("nearest_mode", "round_prefer_floor"),
    )  # fmt: skip


def _resized(
    n: OnnxNode, x: Any, axes: list[int], sizes: list[int] | None, scales: list[float], roi: Any,
    transformation: str, nearest: str,
) -> Any:  # fmt: skip
    """Return x with each axis multiplied by the weights of its samples.

    Args:
        sizes: of the result; None: by the scales, rounded down.
    """
    dtype = x.dtype
    if sizes is None:
        sizes = [math.floor(int(x.shape[a]) * f) for a, f in zip(axes, scales)]
    y = x if dtype in ("float32", "float64") else ops.cast(x, "float32")
    check_size([s if i not in axes else sizes[axes.index(i)] for i, s in enumerate(x.shape)])
    mode = n.attr("mode", "nearest")
    outside: list[tuple[int, Any]] = []
    for i, (axis, size, scale) in enumerate(zip(axes, sizes, scales)):
        old = int(x.shape[axis])
        if size == old and scale == 1 and transformation != "tf_crop_and_resize":
            continue
        check_size([size, old])
        ends = (0.0, 1.0)
        if roi is not None and roi.size:
            ends = (float(roi[i]), float(roi[i + len(axes)]))
        at = _places(old, size, scale, transformation, ends)
        weights = _weights(n, at, old, scale, mode, nearest)
        if transformation == "tf_crop_and_resize":
            outside.append((axis, (at < 0) | (at > old - 1)))
        y = along_axis(y, weights.astype(str(y.dtype)), axis)
    for axis, beyond in outside:
        shape = [-1 if i == axis else 1 for i in range(rank_of(y))]
        y = ops.where(beyond.reshape(shape), n.attr("extrapolation_value", 0.0), y)
    if y.dtype == dtype:
        return y
    if dtypes.is_float(dtype):
        return ops.cast(y, dtype)
    low, high = dtypes.limits(dtype) or (0, 1)
    return ops.cast(ops.clip(ops.round(y), float(low), float(high)), dtype)


def _places(old: int, size: int, scale: float, kind: str, ends: tuple[float, float]) -> Any:
    """Return the positions of the samples between the old ones."""
    i = np.arange(size, dtype="float64")
    exact = scale * old
    if kind == "half_pixel":
        return (i + 0.5) / scale - 0.5
    if kind == "half_pixel_symmetric":
        adjust = size / exact
        return old / 2 * (1 - adjust) + (i + 0.5) / scale - 0.5
    if kind == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if exact > 1 else np.full(size, -0.5)
    if kind == "align_corners":
        return i * (old - 1) / (exact - 1) if exact > 1 else np.zeros(size)
    if kind == "asymmetric":
        return i / scale
    if kind == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if kind == "tf_crop_and_resize":
        start, end = ends
        if exact > 1:
            return start * (old - 1) + i * (end - start) * (old - 1) / (exact - 1)
        return np.full(size, 0.5 * (start + end) * (old - 1))
    raise ValueError(f"there is no coordinate_transformation_mode {kind!r}")


def _weights(n: OnnxNode, at: Any, old: int, scale: float, mode: str, nearest: str) -> Any:
    """Return the matrix (new size, old size) of an axis."""
    rows = np.arange(len(at))
    weights = np.zeros((len(at), old))
    if mode == "nearest":
        rounded = {
            "round_prefer_floor": lambda a: np.ceil(a - 0.5),
            "round_prefer_ceil": lambda a: np.floor(a + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }[nearest](at)
        weights[rows, np.clip(rounded, 0, old - 1).astype(int)] = 1
        return weights
    antialias = bool(n.attr("antialias", 0)) and scale < 1
    if mode == "linear":
        return _sampled(at, old, 1, lambda d: np.maximum(1 - d, 0), scale if antialias else 1, n)
    if mode == "cubic":
        a = n.attr("cubic_coeff_a", -0.75)
        return _sampled(at, old, 2, lambda d: _cubic(np, d, a), scale if antialias else 1, n)
    raise ValueError(f"there is no mode {mode!r}")


def _cubic(xp: Any, d: Any, a: float = -0.75) -> Any:
    """Return Keys's kernel, computed by NumPy or by `ops`.

    Source: Keys, IEEE Trans. ASSP 29, 1981.
    """
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    zero = xp.zeros_like(d)
    return xp.where(xp.less_equal(d, 1), near, xp.where(xp.less(d, 2), far, zero))


def _sampled(at: Any, old: int, radius: int, kernel: Any, scale: float, n: OnnxNode) -> Any:
    """Return the weights of a kernel around places; those beyond the edge go to the edge."""
    exclude = bool(n.attr("exclude_outside", 0))
    weights = np.zeros((len(at), old))
    if scale != 1:
        # The kernel is widened by 1 / scale, and its weights are scaled to sum to 1.
        reach = math.floor(-radius / scale) + 1, 2 - math.ceil(-radius / scale) - 1
    base = np.floor(at).astype(int)
    if scale != 1:
        steps = range(reach[0], reach[1] + 1)
    else:
        steps = range(1 - radius, radius + 1)
    taps = np.stack([base + s for s in steps], axis=-1)
    values = kernel(np.abs(taps - at[:, None]) * scale)
    inside = (taps >= 0) & (taps < old)
    if exclude:
        values = np.where(inside, values, 0)
    if exclude or scale != 1:
        values = values / values.sum(axis=-1, keepdims=True)
    np.add.at(weights, (np.arange(len(at))[:, None], np.clip(taps, 0, old - 1)), values)
    return weights


# --- grids --------------------------------------------------------------------------------------


@reads("AffineGrid", constants=(1,))
def _affine_grid(n: OnnxNode) -> Structure:
    theta = tensor(n.x)
    sizes = check_size(n.ints(1, "size") or [])[2:]
    align = n.attr("align_corners", 0)
    lines = [np.linspace(-1, 1, s) if align else (np.arange(s) * 2 + 1) / s - 1 for s in sizes]
    grids = np.meshgrid(*lines, indexing="ij")[::-1]
    points = np.stack([*grids, np.ones(sizes)], axis=-1).reshape(-1, len(sizes) + 1)
    moved = ops.matmul(points.astype(str(theta.dtype))[None], ops.transpose(theta, (0, 2, 1)))
    return ops.reshape(moved, (theta.shape[0], *sizes, len(sizes)))


@reads("GridSample")
def _grid_sample(n: OnnxNode) -> Structure:
    x, grid = tensor(n.x), tensor(n.need(1))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        n.attr("mode", "linear"), n.attr("mode", "linear")
    )
    padding, align = n.attr("padding_mode", "zeros"), bool(n.attr("align_corners", 0))
    sizes = [int(s) for s in x.shape[2:]]
    places = []
    for i, size in enumerate(sizes):
        g = grid[..., len(sizes) - 1 - i]
        half = (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2
        if mode != "cubic":
            half = _bounded(half, size, padding, align)
        places.append(half)
    if mode == "nearest":
        whole = [ops.round(p) for p in places]
        return _read(x, whole, sizes, padding, align)
    reach = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
    floors = [ops.floor(p) for p in places]
    total = None
    for steps in itertools.product(reach, repeat=len(sizes)):
        weight = None
        for p, low, step in zip(places, floors, steps):
            distance = ops.absolute(ops.subtract(p, ops.add(low, step)))
            part = 1 - distance if mode == "linear" else _cubic(ops, distance)
            weight = part if weight is None else weight * part
        read = _read(x, [low + s for low, s in zip(floors, steps)], sizes, padding, align)
        term = read * ops.expand_dims(weight, 1)
        total = term if total is None else total + term
    return total


def _bounded(p: Any, size: int, padding: str, align: bool) -> Any:
    if padding == "border":
        return ops.clip(p, 0, size - 1)
    if padding != "reflection":
        return p
    low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return ops.zeros_like(p)
    distance = ops.mod(ops.absolute(p - low), 2 * span)
    turned = ops.where(ops.greater(distance, span), 2 * span - distance, distance) + low
    return ops.clip(turned, 0, size - 1) if not align else turned


def _read(x: Any, places: list[Any], sizes: list[int], padding: str, align: bool) -> Any:
    """Return x's elements at whole places, (n, c, *grid); 0 beyond the edge, or the edge."""
    if padding == "reflection":
        places = [_bounded(p, s, padding, align) for p, s in zip(places, sizes)]
    inside = None
    flat: Any = 0
    for p, size in zip(places, sizes):
        own = ops.logical_and(ops.greater_equal(p, 0), ops.less_equal(p, size - 1))
        inside = own if inside is None else ops.logical_and(inside, own)
        flat = flat * size + ops.cast(ops.clip(p, 0, size - 1), "int32")
    batch, channels = x.shape[:2]
    rows = ops.reshape(x, (batch, channels, -1))
    index = ops.reshape(flat, (batch, 1, -1))
    index = ops.broadcast_to(index, (batch, channels, index.shape[-1]))
    y = ops.reshape(ops.take_along_axis(rows, index, axis=2), (batch, channels, *flat.shape[1:]))
    if padding != "zeros":
        return y
    return ops.where(ops.expand_dims(inside, 1), y, ops.zeros_like(y))
