"""Convolution: three ops that are each other's gradients, and Keras's functions composed of them.

With strides s, dilation d, padding (p, _), windows at k = 0..K-1 and results at i = 0..I-1:

    convolution                  y[i, o] = sum over k, c of x[i*s + k*d - p, c] * kernel[k, c, o]
    convolution_data_gradient    x[j, c] = sum over i, k with i*s + k*d - p = j of g[i, o] * kernel[k, c, o]
    convolution_kernel_gradient  kernel[k, c, o] = sum over i of x[i*s + k*d - p, c] * g[i, o]

All are linear in each of two of x, kernel and y: differentiating one gives the other two. Data
are stored as (n, *spatial, channels), kernels as (*window, channels / groups, results).
"""  # noqa: E501

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import rows
from kerasish.ops.basic.window import (
    padding_widths,
    per_axis,
    resolve_padding,
    window_counts,
    window_places,
)
from kerasish.ops.op import op
from kerasish.ops.shapes import Shape, Spec, agree
from kerasish.typing import Array, ArrayModule, IntOrTuple

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def accumulation_dtype(xp: ArrayModule, dtype: Array) -> Array:
    """Return the dtype in which products are summed: at least float32 for floats."""
    return xp.dtype("float32") if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def _padded(
    xp: ArrayModule,
    x: Array,
    counts: Array,
    window: Array,
    strides: Array,
    padding: Array,
    dilation: Array,
) -> Array:
    """Return x with zeros around it, long enough for every window."""
    widths = padding_widths(x.shape[1:-1], counts, window, strides, padding, dilation)
    return xp.pad(x, [(0, 0), *widths, (0, 0)])


def _by_group(xp: ArrayModule, x: Array, groups: Array) -> Array:
    """Return (..., groups * c) as (groups, places, c)."""
    return xp.moveaxis(x.reshape(-1, groups, x.shape[-1] // groups), 1, 0)


# --- shape rules ---------------------------------------------------------------------------------


def _settings(attrs: dict[str, Any], count: int, what: str) -> dict[str, Any]:
    return {
        "strides": per_axis(attrs["strides"], count, f"{what}: strides"),
        "dilation": per_axis(attrs["dilation"], count, f"{what}: dilation"),
        "groups": per_axis(attrs["groups"], 1, f"{what}: groups")[0],
    }


def _check_channels(x: Shape, kernel: Shape, groups: int) -> None:
    if len(x) < 3 or len(x) != len(kernel):
        raise ShapeError(
            "convolution: expected x (n, *spatial, channels) and kernel (*window, channels / "
            f"groups, results) with as many axes, got {x} and {kernel}."
        )
    if None not in (x[-1], kernel[-2]) and not agree(x[-1], kernel[-2] * groups):
        raise ShapeError(
            f"convolution: x of shape {x} has {x[-1]} channels, the kernel of shape {kernel} with "
            f"groups={groups} takes {kernel[-2] * groups}."
        )
    if kernel[-1] is not None and kernel[-1] % groups:
        raise ShapeError(
            f"convolution: {kernel[-1]} results are not cut into {groups} equal groups."
        )


def _convolution_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    x, kernel = shapes
    result = _settings(attrs, len(x) - 2, "convolution")
    _check_channels(x, kernel, result["groups"])
    result["padding"] = resolve_padding(
        attrs["padding"], x[1:-1], kernel[:-2], result["strides"], result["dilation"], "convolution"
    )
    return result


def _convolution_shape(
    x: Spec,
    kernel: Spec,
    strides: tuple[int, ...],
    padding: str | tuple[Any, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Spec:
    counts = window_counts(
        x.shape[1:-1], kernel.shape[:-2], strides, padding, dilation, "convolution"
    )
    return Spec((x.shape[0], *counts, kernel.shape[-1]), x.dtype)


def _convolution_by_x(g: Tensor, y: Tensor, x: Tensor, kernel: Any, **settings: Any) -> Any:
    return convolution_data_gradient(g, kernel, size=x.shape[1:-1], **settings)


def _convolution_by_kernel(g: Tensor, y: Tensor, x: Tensor, kernel: Any, **settings: Any) -> Any:
    return convolution_kernel_gradient(x, g, size=kernel.shape[:-2], **settings)


UNEVEN = ((1, 1), (0, 1))  # an example's padding


@op(
    "convolution",
    _convolution_shape,
    (_convolution_by_x, _convolution_by_kernel),
    "same",
    canonical=_convolution_canonical,
    examples=[
        (((2, 5, 3), (2, 3, 4)), {"padding": "causal", "dilation": 2}),
        (((1, 5, 4, 2), (3, 2, 2, 3)), {"padding": "same", "strides": (2, 1)}),
        (((2, 3, 3, 4), (2, 2, 2, 6)), {"groups": 2}),
        (((2, 3, 3, 3), (3, 3, 1, 6)), {"groups": 3, "padding": "same"}),
        (((1, 3, 2, 3, 1), (2, 2, 2, 1, 2)), {"strides": (1, 1, 2)}),
        (((2, 3, 3, 4), (1, 1, 4, 2)), {}),
    ],
    flops=lambda inputs, results: 2 * math.prod(results[0]) * math.prod(inputs[1][:-1]),
    epilogues=True,
    rows=rows.examples,
)
def convolution(
    xp: ArrayModule,
    x: Array,
    kernel: Array,
    *,
    strides: Any = 1,
    padding: Any = "valid",
    dilation: Any = 1,
    groups: Any = 1,
) -> Array:
    """y[i, o] = sum over k, c of x[i*s + k*d - p, c] * kernel[k, c, o] (no flip of the kernel).

    Args:
        strides, dilation: a number >= 1, or one for each spatial axis.
        padding: "valid", "same", "causal", or (before, after) for each spatial axis.
        groups: channels and results are cut into this many groups that do not see each other.

    Shape: (n, *spatial, c), (*window, c / groups, o) -> (n, *windows, o).
    """
    window = kernel.shape[:-2]
    counts = window_counts(x.shape[1:-1], window, strides, padding, dilation, "convolution")
    dtype = accumulation_dtype(xp, x.dtype)
    data = _padded(xp, x, counts, window, strides, padding, dilation).astype(dtype)
    weight = kernel.astype(dtype)
    results = kernel.shape[-1]
    y = xp.zeros((groups, x.shape[0] * _product(counts), results // groups), dtype)
    for position, places in window_places(window, counts, strides, dilation):
        part = xp.moveaxis(weight[position].reshape(-1, groups, results // groups), 1, 0)
        y = y + xp.matmul(_by_group(xp, data[places], groups), part)
    return xp.moveaxis(y, 0, 1).reshape(x.shape[0], *counts, results).astype(x.dtype)


def _product(numbers: Any) -> Any:
    total = 1
    for n in numbers:
        total *= n
    return total


# --- the gradient by the data ---------------------------------------------------------------------


def _sized(attrs: dict[str, Any], settings: dict[str, Any], what: str) -> dict[str, Any]:
    size = tuple(None if s is None else int(s) for s in attrs["size"])
    padding = resolve_padding(
        attrs["padding"], size, (1,) * len(size), settings["strides"], settings["dilation"], what
    )
    return {"size": size, **settings, "padding": padding}


def _data_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    g, kernel = shapes
    what = "convolution_data_gradient"
    result = _sized(attrs, _settings(attrs, len(g) - 2, what), what)
    if len(g) != len(kernel) or not agree(g[-1], kernel[-1]):
        raise ShapeError(
            f"{what}: expected g (n, *spatial, results) and kernel (*window, channels / groups, "
            f"results), got shapes {g} and {kernel}."
        )
    if None not in result["size"]:
        counts = window_counts(
            result["size"],
            kernel[:-2],
            result["strides"],
            result["padding"],
            result["dilation"],
            what,
        )
        if not all(map(agree, g[1:-1], counts)):
            raise ShapeError(
                f"{what}: data of the spatial sizes {result['size']} would have {counts} results, "
                f"g has the shape {g}."
            )
    return result


def _data_shape(g: Spec, kernel: Spec, size: Shape, groups: int, **_: Any) -> Spec:
    part = kernel.shape[-2]
    return Spec((g.shape[0], *size, None if part is None else part * groups), g.dtype)


def _data_grad(
    h: Tensor, y: Tensor, g: Tensor, kernel: Any, size: Any, **settings: Any
) -> tuple[Any, ...]:
    return (
        convolution(h, kernel, **settings),
        convolution_kernel_gradient(h, g, size=kernel.shape[:-2], **settings),
    )


@op(
    "convolution",
    _data_shape,
    _data_grad,
    "same",
    canonical=_data_canonical,
    examples=[
        (((2, 3, 4), (2, 3, 4)), {"size": (6,), "strides": 2, "padding": ((0, 0),)}),
        (((1, 3, 4, 3), (3, 2, 2, 3)), {"size": (5, 4), "strides": (2, 1), "padding": UNEVEN}),
        (((2, 2, 2, 6), (2, 2, 2, 6)), {"size": (3, 3), "groups": 2}),
        (((2, 3, 3, 3), (3, 3, 1, 3)), {"size": (3, 3), "groups": 3, "padding": ((1, 1), (1, 1))}),
    ],
    flops=lambda inputs, results: 2 * math.prod(inputs[0]) * math.prod(inputs[1][:-1]),
    rows=rows.examples,
)
def convolution_data_gradient(
    xp: ArrayModule,
    g: Array,
    kernel: Array,
    *,
    size: Sequence[Any],
    strides: Any = 1,
    padding: Any = "valid",
    dilation: Any = 1,
    groups: Any = 1,
) -> Array:
    """x[j, c] = sum over i, k with i*s + k*d - p = j of g[i, o] * kernel[k, c, o].

    The transpose of `convolution` in its data: its gradient, and Keras's conv_transpose.

    Args:
        size: the spatial sizes of the result.

    Shape: (n, *windows, o), (*window, c / groups, o) -> (n, *size, c).
    """
    window, counts, results = kernel.shape[:-2], g.shape[1:-1], g.shape[-1]
    channels = kernel.shape[-2] * groups
    dtype = accumulation_dtype(xp, g.dtype)
    rows, weight = _by_group(xp, g.astype(dtype), groups), kernel.astype(dtype)
    whole = [
        max(n + before, (count - 1) * s + (w - 1) * d + 1)
        for n, (before, _), count, w, s, d in zip(size, padding, counts, window, strides, dilation)
    ]
    x = xp.zeros((g.shape[0], *whole, channels), dtype)
    for position, places in window_places(window, counts, strides, dilation):
        part = xp.moveaxis(weight[position].reshape(-1, groups, results // groups), 1, 0)
        spread = xp.matmul(rows, xp.swapaxes(part, 1, 2))
        x[places] += xp.moveaxis(spread, 0, 1).reshape(g.shape[0], *counts, channels)
    inner = tuple(slice(before, before + n) for n, (before, _) in zip(size, padding))
    return x[(slice(None), *inner)].astype(g.dtype)


# --- the gradient by the kernel -------------------------------------------------------------------


def _kernel_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    x, g = shapes
    what = "convolution_kernel_gradient"
    if len(x) != len(g) or len(x) < 3:
        raise ShapeError(f"{what}: x and g must have as many axes, got shapes {x} and {g}.")
    settings = _settings(attrs, len(x) - 2, what)
    results = {"size": per_axis(attrs["size"], len(x) - 2, f"{what}: size"), **settings}
    results["padding"] = resolve_padding(
        attrs["padding"], x[1:-1], results["size"], results["strides"], results["dilation"], what
    )
    counts = window_counts(
        x[1:-1], results["size"], results["strides"], results["padding"], results["dilation"], what
    )
    if not all(map(agree, g[1:-1], counts)):
        raise ShapeError(
            f"{what}: x of shape {x} has {counts} windows of {results['size']}, g has the shape "
            f"{g}."
        )
    return results


def _kernel_shape(x: Spec, g: Spec, size: Shape, groups: int, **_: Any) -> Spec:
    channels = x.shape[-1]
    part = None if channels is None else channels // groups
    return Spec((*size, part, g.shape[-1]), x.dtype)


def _kernel_grad(
    h: Tensor, y: Tensor, x: Tensor, g: Tensor, size: Any, **settings: Any
) -> tuple[Any, ...]:
    return (
        convolution_data_gradient(g, h, size=x.shape[1:-1], **settings),
        convolution(x, h, **settings),
    )


@op(
    "convolution",
    _kernel_shape,
    _kernel_grad,
    "same",
    canonical=_kernel_canonical,
    examples=[
        (((2, 5, 3), (2, 3, 4)), {"size": (2,), "strides": 2, "padding": ((1, 0),)}),
        (((1, 5, 4, 2), (1, 3, 4, 3)), {"size": (3, 2), "strides": (2, 1), "padding": "same"}),
        (((2, 3, 3, 4), (2, 2, 2, 6)), {"size": (2, 2), "groups": 2}),
        (((2, 3, 3, 3), (2, 3, 3, 3)), {"size": (3, 3), "groups": 3, "padding": "same"}),
    ],
    flops=lambda inputs, results: 2 * math.prod(inputs[1]) * math.prod(results[0][:-1]),
)
def convolution_kernel_gradient(
    xp: ArrayModule,
    x: Array,
    g: Array,
    *,
    size: Sequence[int],
    strides: IntOrTuple = 1,
    padding: str = "valid",
    dilation: IntOrTuple = 1,
    groups: Any = 1,
) -> Array:
    """kernel[k, c, o] = sum over i of x[i*s + k*d - p, c] * g[i, o].

    The transpose of `convolution` in its kernel: its gradient.

    Args:
        size: the spatial sizes of the kernel.

    Shape: (n, *spatial, c), (n, *windows, o) -> (*size, c / groups, o).
    """
    counts, results = g.shape[1:-1], g.shape[-1]
    dtype = accumulation_dtype(xp, x.dtype)
    data = _padded(xp, x, counts, size, strides, padding, dilation).astype(dtype)
    rows = _by_group(xp, g.astype(dtype), groups)
    kernel = xp.zeros((*size, x.shape[-1] // groups, results), dtype)
    for position, places in window_places(size, counts, strides, dilation):
        columns = xp.swapaxes(_by_group(xp, data[places], groups), 1, 2)
        part = xp.matmul(columns, rows)
        kernel[position] = xp.moveaxis(part, 0, 1).reshape(-1, results)
    return kernel.astype(x.dtype)
