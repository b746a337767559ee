"""Convolution: three ops that are each other's gradients, and Keras's functions composed of them.

With strides s, dilation d, padding (p, _), windows at k = 0..K-1 and results at i = 0..I-1:

    convolution                  y[i, o] = sum over k, c of x[i*s + k*d - p, c] * kernel[k, c, o]
    convolution_data_gradient    x[j, c] = sum over i, k with i*s + k*d - p = j of g[i, o] * kernel[k, c, o]
    convolution_kernel_gradient  kernel[k, c, o] = sum over i of x[i*s + k*d - p, c] * g[i, o]

All are linear in each of two of x, kernel and y: differentiating one gives the other two. Data
lies (n, *spatial, channels), kernels (*window, channels / groups, results).
"""  # noqa: E501

from __future__ import annotations

import itertools
import math
from typing import Any

from kerasish.errors import ShapeError, UnknownNameError
from kerasish.ops.basic.elementwise import add, as_tensor, relu
from kerasish.ops.basic.movement import reshape
from kerasish.ops.basic.window import (
    channels_back,
    channels_to_last,
    layout,
    per_axis,
    resolve_padding,
    window_counts,
)
from kerasish.ops.op import Shape, Spec, agree, function, op

# --- the reference kernels -----------------------------------------------------------------------


def accumulation_dtype(xp: Any, dtype: Any) -> Any:
    """Return the dtype in which products are summed: at least float32 for floats."""
    return xp.dtype("float32") if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def _padded(xp, x, counts, window, strides, padding, dilation):
    """Return x with zeros round it, long enough for every window."""
    width = [(0, 0)]
    for size, count, w, s, (before, _), d in zip(
        x.shape[1:-1], counts, window, strides, padding, dilation
    ):
        end = (count - 1) * s + (w - 1) * d + 1
        width.append((before, max(end - before - size, 0)))
    return xp.pad(x, [*width, (0, 0)])


def _taps(window, counts, strides, dilation):
    """Yield (position in the window, slices of the padded data that meet it)."""
    for position in itertools.product(*map(range, window)):
        places = [
            slice(k * d, k * d + (count - 1) * s + 1, s)
            for k, count, s, d in zip(position, counts, strides, dilation)
        ]
        yield position, (slice(None), *places)


def _by_group(xp, x, groups):
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
    made = _settings(attrs, len(x) - 2, "convolution")
    _check_channels(x, kernel, made["groups"])
    made["padding"] = resolve_padding(
        attrs["padding"], x[1:-1], kernel[:-2], made["strides"], made["dilation"], "convolution"
    )
    return made


def _convolution_shape(
    x: Spec, kernel: Spec, strides: Any, padding: Any, dilation: Any, groups: int
) -> Spec:
    counts = window_counts(
        x.shape[1:-1], kernel.shape[:-2], strides, padding, dilation, "convolution"
    )
    return Spec((x.shape[0], *counts, kernel.shape[-1]), x.dtype)


def _convolution_by_x(g, y, x, kernel, **settings):
    return convolution_data_gradient(g, kernel, size=x.shape[1:-1], **settings)


def _convolution_by_kernel(g, y, x, kernel, **settings):
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
)
def convolution(xp, x, kernel, *, strides=1, padding="valid", dilation=1, groups=1):
    """y[i, o] = sum over k, c of x[i*s + k*d - p, c] * kernel[k, c, o] (no flip of the kernel).

    Args:
        strides, dilation: a number >= 1, or one for each spatial axis.
        padding: "valid", "same", "causal", or (before, after) for each spatial axis.
        groups: channels and results are cut into so many groups that do not see each other.

    Shape: (n, *spatial, c), (*window, c / groups, o) -> (n, *windows, o).
    """
    window = kernel.shape[:-2]
    counts = window_counts(x.shape[1:-1], window, strides, padding, dilation, "convolution")
    dtype = accumulation_dtype(xp, x.dtype)
    data = _padded(xp, x, counts, window, strides, padding, dilation).astype(dtype)
    weight = kernel.astype(dtype)
    results = kernel.shape[-1]
    y = xp.zeros((groups, x.shape[0] * _product(counts), results // groups), dtype)
    for position, places in _taps(window, counts, strides, dilation):
        part = xp.moveaxis(weight[position].reshape(-1, groups, results // groups), 1, 0)
        y = y + xp.matmul(_by_group(xp, data[places], groups), part)
    return xp.moveaxis(y, 0, 1).reshape(x.shape[0], *counts, results).astype(x.dtype)


def _product(numbers):
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
    made = _sized(attrs, _settings(attrs, len(g) - 2, what), what)
    if len(g) != len(kernel) or not agree(g[-1], kernel[-1]):
        raise ShapeError(
            f"{what}: expected g (n, *spatial, results) and kernel (*window, channels / groups, "
            f"results), got shapes {g} and {kernel}."
        )
    if None not in made["size"]:
        counts = window_counts(
            made["size"], kernel[:-2], made["strides"], made["padding"], made["dilation"], what
        )
        if not all(map(agree, g[1:-1], counts)):
            raise ShapeError(
                f"{what}: data of the spatial sizes {made['size']} would have {counts} results, g "
                f"has the shape {g}."
            )
    return made


def _data_shape(g: Spec, kernel: Spec, size: Shape, groups: int, **_: Any) -> Spec:
    part = kernel.shape[-2]
    return Spec((g.shape[0], *size, None if part is None else part * groups), g.dtype)


def _data_grad(h, y, g, kernel, size, **settings):
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
)
def convolution_data_gradient(
    xp, g, kernel, *, size, strides=1, padding="valid", dilation=1, groups=1
):
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
    for position, places in _taps(window, counts, strides, dilation):
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
    made = {"size": per_axis(attrs["size"], len(x) - 2, f"{what}: size"), **settings}
    made["padding"] = resolve_padding(
        attrs["padding"], x[1:-1], made["size"], made["strides"], made["dilation"], what
    )
    counts = window_counts(
        x[1:-1], made["size"], made["strides"], made["padding"], made["dilation"], what
    )
    if not all(map(agree, g[1:-1], counts)):
        raise ShapeError(
            f"{what}: x of shape {x} has {counts} windows of {made['size']}, g has the shape {g}."
        )
    return made


def _kernel_shape(x: Spec, g: Spec, size: Shape, groups: int, **_: Any) -> Spec:
    channels = x.shape[-1]
    part = None if channels is None else channels // groups
    return Spec((*size, part, g.shape[-1]), x.dtype)


def _kernel_grad(h, y, x, g, size, **settings):
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
)
def convolution_kernel_gradient(
    xp, x, g, *, size, strides=1, padding="valid", dilation=1, groups=1
):
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
    for position, places in _taps(size, counts, strides, dilation):
        columns = xp.swapaxes(_by_group(xp, data[places], groups), 1, 2)
        part = xp.matmul(columns, rows)
        kernel[position] = xp.moveaxis(part, 0, 1).reshape(-1, results)
    return kernel.astype(x.dtype)


# --- Keras's functions ---------------------------------------------------------------------------


def _data_and_layout(inputs: Any, data_format: str | None, what: str) -> tuple[Any, str]:
    inputs, data_format = as_tensor(inputs), layout(data_format)
    if not 3 <= len(inputs.shape) <= 5:
        raise ShapeError(
            f"{what}: expected inputs of 3 to 5 axes (batch, 1 to 3 spatial axes, channels), got "
            f"shape {inputs.shape}."
        )
    return channels_to_last(inputs, data_format), data_format


@function
def conv(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Return the convolution of `inputs` with `kernel` over 1, 2 or 3 spatial axes.

    Args:
        kernel: (*window, channels / groups, results); the groups follow from the channels.
        padding: "valid", "same" or "causal".

    Example:
        >>> conv([[[1.0], [2.0], [3.0]]], [[[1.0]], [[10.0]]]).tolist()
        [[[21.0], [32.0]]]
    """
    x, data_format = _data_and_layout(inputs, data_format, "conv")
    kernel = as_tensor(kernel)
    channels = x.shape[-1]
    if channels is None or len(kernel.shape) < 3 or channels % kernel.shape[-2]:
        raise ShapeError(
            f"conv: the inputs' channels ({channels}) must be a multiple of the kernel's last size "
            f"but one, got a kernel of shape {kernel.shape}."
        )
    groups = channels // kernel.shape[-2]
    y = convolution(x, kernel, strides, padding, dilation_rate, groups)
    return channels_back(y, data_format)


@function
def biased_conv(
    inputs: Any,
    kernel: Any,
    bias: Any,
    strides: Any = 1,
    padding: Any = "valid",
    dilation_rate: Any = 1,
    rectified: bool = False,
) -> Any:
    """Return conv + bias, the channels being last; `rectified`: max(that, 0).

    Args:
        bias: shape (results,).

    Example:
        >>> biased_conv([[[1.0], [2.0]]], [[[1.0]]], [-1.5], rectified=True).tolist()
        [[[0.0], [0.5]]]
    """
    y = add(conv(inputs, kernel, strides, padding, "channels_last", dilation_rate), bias)
    return relu(y) if rectified else y


@function
def depthwise_conv(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Return the convolution of every channel with its own filters.

    Args:
        kernel: (*window, channels, multiplier): the results of channel c are at
            c * multiplier, c * multiplier + 1, ...

    Example:
        >>> depthwise_conv([[[1.0, 2.0]]], [[[1.0, 3.0], [1.0, 3.0]]]).tolist()
        [[[1.0, 3.0, 2.0, 6.0]]]
    """
    x, data_format = _data_and_layout(inputs, data_format, "depthwise_conv")
    kernel = as_tensor(kernel)
    *window, channels, multiplier = kernel.shape
    if not agree(x.shape[-1], channels):
        raise ShapeError(
            f"depthwise_conv: the kernel of shape {kernel.shape} is for {channels} channels, the "
            f"inputs have {x.shape[-1]}."
        )
    kernel = reshape(kernel, (*window, 1, channels * multiplier))
    y = convolution(x, kernel, strides, padding, dilation_rate, channels)
    return channels_back(y, data_format)


@function
def separable_conv(
    inputs: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: Any = 1,
    padding: Any = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Return conv(depthwise_conv(inputs, depthwise_kernel), pointwise_kernel)."""
    y = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return conv(y, pointwise_kernel, 1, "valid", data_format)


def transpose_geometry(
    size: int | None, window: int, stride: int, dilation: int, padding: str, extra: int | None
) -> tuple[int | None, tuple[int, int]]:
    """Return (size, padding) of a transposed convolution's result along one axis.

    Args:
        size: the input's size, None if not known.
        extra: Keras's output_padding, or None: "same" then gives size * stride, "valid" all that
            a window touches and at least size * stride.
    """
    span = dilation * (window - 1) + 1
    # How much longer the result is than (size - 1) * stride: the same for every size.
    if padding == "valid":
        beyond = max(span, stride) if extra is None else span + extra
    else:
        beyond = stride if extra is None else span - 2 * (span // 2) + extra
    before = max(span - beyond, 0) // 2 if padding == "same" else 0
    after = span - beyond - before
    if -stride < after < 0:
        after = 0  # The last places meet no window: the count of windows is the same.
    made = None if size is None else (size - 1) * stride + beyond
    return made, (before, after)


@function
def conv_transpose(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "valid",
    output_padding: Any = None,
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Return the transposed convolution: what a `conv` with this kernel turns into `inputs`.

    Args:
        kernel: (*window, results, channels).
        padding: "valid" or "same".
        output_padding: how many places the result gets beyond the smallest size, or None.

    Example:
        >>> conv_transpose([[[1.0], [2.0]]], [[[1.0]], [[10.0]]]).tolist()
        [[[1.0], [12.0], [20.0]]]
    """
    x, data_format = _data_and_layout(inputs, data_format, "conv_transpose")
    kernel = as_tensor(kernel)
    count = len(x.shape) - 2
    if padding not in ("valid", "same"):
        raise UnknownNameError.of("padding of conv_transpose", padding, ("valid", "same"))
    strides = per_axis(strides, count, "conv_transpose: strides")
    dilation = per_axis(dilation_rate, count, "conv_transpose: dilation_rate")
    extra: tuple[Any, ...] = (None,) * count
    if output_padding is not None:
        extra = per_axis(output_padding, count, "conv_transpose: output_padding", 0)
    axes = [
        transpose_geometry(n, w, s, d, padding, e)
        for n, w, s, d, e in zip(x.shape[1:-1], kernel.shape, strides, dilation, extra)
    ]
    size, pairs = tuple(a[0] for a in axes), tuple(a[1] for a in axes)
    y = convolution_data_gradient(x, kernel, size, strides, pairs, dilation, 1)
    return channels_back(y, data_format)


__all__ = [
    "conv", "conv_transpose", "convolution", "convolution_data_gradient",
    "convolution_kernel_gradient", "depthwise_conv", "separable_conv", "transpose_geometry",
]  # fmt: skip
