"""Pooling in 1 to 3 dimensions, by maximum or mean, and its gradient; arrays (n, *space, c)."""

from __future__ import annotations

from typing import Any

from kerasish.backends.onednn import library as lib
from kerasish.backends.onednn.convolution import Geometry
from kerasish.backends.onednn.layout import Layout, channels_last, check_dtype
from kerasish.backends.onednn.primitive import Primitive, choose_threads, make

GRAIN = 64 * 1024.0  # elements of windows per thread
_KINDS = {"max": lib.POOLING_MAX, "average": lib.POOLING_AVERAGE}


def pooling_geometry(
    x_shape: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...] = (),
    padding: tuple[tuple[int, int], ...] = (),
) -> Geometry:
    """Return the Geometry of a pooling: that of a depthwise convolution; strides: the window."""
    channels = x_shape[-1]
    steps = tuple(strides) or tuple(window)
    return Geometry(
        tuple(x_shape), channels, tuple(window), steps, padding=tuple(padding), groups=channels
    )


def pool_forward(
    kind: str,
    geometry: Geometry,
    *,
    dtype: str = "float32",
    training: bool = False,
    threads: int | None = None,
) -> Primitive:
    """Return the primitive y = maximum or mean of x over each window.

    Arguments of the primitive: "x", "y", "workspace" (of `primitive.workspace`; only kind "max"
    with `training`, to be kept for `pool_backward`), "scratchpad".

    Args:
        kind: "max" (padding never wins) or "average" (padding does not count, as in Keras).
        geometry: of `pooling_geometry`; each padding smaller than the window.
        dtype: of x and y.
        training: whether `pool_backward` follows.
        threads: None chooses by the work.

    Raises:
        ValueError: sizes, kind or dtype do not fit.
        Unsupported: oneDNN does not support it on this processor.
    """
    code, about = _check(kind, geometry, dtype)
    x, y = (channels_last(shape, dtype) for shape in (geometry.x_shape, geometry.y_shape))
    propagation = lib.FORWARD_TRAINING if training else lib.FORWARD_INFERENCE

    def describe(attributes: int) -> int:
        return _forward(code, geometry, x, y, propagation, attributes, about)

    arguments = {"x": (lib.ARG_SRC, x), "y": (lib.ARG_DST, y)}
    key = ("pool_forward", kind, geometry, training)
    return make(key, about, _threads(threads, geometry), arguments, describe)


def pool_backward(
    kind: str, geometry: Geometry, *, dtype: str = "float32", threads: int | None = None
) -> Primitive:
    """Return the primitive dx = gradient of the pooling with respect to x.

    Arguments of the primitive: "dy", "dx" (overwritten), "workspace" (kind "max": the forward
    pass's), "scratchpad". Ties of a maximum: the first element of the window gets the gradient.

    Args and Raises: as for `pool_forward`.
    """
    code, about = _check(kind, geometry, dtype)
    about = f"gradient of {about}"
    dx, dy = (channels_last(shape, dtype) for shape in (geometry.x_shape, geometry.y_shape))

    def describe(attributes: int) -> int:
        hint = _forward(code, geometry, dx, dy, lib.FORWARD_TRAINING, attributes, about)
        try:
            return lib.create(
                "pooling_backward_primitive_desc_create", lib.engine(), code, dx.handle, dy.handle,
                *_sizes(geometry), hint, attributes, about=about,
            )  # fmt: skip
        finally:
            lib.call("primitive_desc_destroy", hint)

    arguments = {"dy": (lib.ARG_DIFF_DST, dy), "dx": (lib.ARG_DIFF_SRC, dx)}
    key = ("pool_backward", kind, geometry)
    return make(key, about, _threads(threads, geometry), arguments, describe)


def _check(kind: str, geometry: Geometry, dtype: str) -> tuple[int, str]:
    about = f"{kind} pooling of {geometry.x_shape} over {geometry.kernel} {dtype}"
    if kind not in _KINDS:
        raise ValueError(f"{about}: kind must be one of {sorted(_KINDS)}.")
    check_dtype(dtype, about)
    for (before, after), window in zip(geometry.padding, geometry.kernel, strict=True):
        if max(before, after) >= window and window > 1:
            raise ValueError(f"{about}: padding {before, after} must be smaller than the window.")
    if geometry.filters != geometry.x_shape[-1] or geometry.groups != geometry.filters:
        raise ValueError(f"{about}: create the geometry by pooling_geometry.")
    return _KINDS[kind], about


def _sizes(geometry: Geometry) -> list[Any]:
    """Return strides, window, dilations and paddings as oneDNN's arguments."""
    strides, dilations, before, after = geometry._steps()
    return [strides, lib.sizes(geometry.kernel), dilations, before, after]


def _forward(
    code: int, geometry: Geometry, x: Layout, y: Layout, kind: int, attributes: int, about: str
) -> int:
    return lib.create(
        "pooling_forward_primitive_desc_create", lib.engine(), kind, code, x.handle, y.handle,
        *_sizes(geometry), attributes, about=about,
    )  # fmt: skip


def _threads(threads: int | None, geometry: Geometry) -> int:
    return choose_threads(threads, geometry.flops / 2, GRAIN)
