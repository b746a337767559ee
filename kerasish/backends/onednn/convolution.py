"""Convolution in 1 to 3 dimensions and its gradients; the data gradient is the deconvolution.

Arrays outside are Keras's: x (n, *space, c), weights (*kernel, c / groups, filters), y (n, *space,
filters). Depthwise weights (*kernel, c, multiplier) are the same bytes as groups = c, filters =
c * multiplier. The fast kernels choose the layout of weights: "weights" (or "dweights") is in
`primitive.required` and reordered from (to) `plain_weights(...)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kerasish.backends.onednn import library as lib
from kerasish.backends.onednn.layout import (
    Ints,
    Layout,
    channels_last,
    check_dtype,
    check_sizes,
    contiguous_strides,
    open_layout,
    strided,
    vector,
)
from kerasish.backends.onednn.matmul import GRAIN, handles, post_arguments
from kerasish.backends.onednn.primitive import (
    Arguments,
    PostOps,
    Primitive,
    choose_threads,
    make,
    post_operations,
)


@dataclass(frozen=True)
class Geometry:
    """The sizes that all three primitives of one convolution share, and the output's size.

    Args:
        x_shape: (n, *space, c) of the convolution's input, 1 to 3 axes in space.
        filters: channels of its output.
        kernel: sizes of the kernel, one per axis of space.
        strides: steps between outputs; dilations: steps between the kernel's elements (1: dense).
        padding: (before, after) zeros per axis of space.
        groups: the number of groups that the channels are split into, each with its own filters.

    Example:
        >>> Geometry((8, 32, 32, 3), 16, (3, 3), padding=((1, 1), (1, 1))).y_shape
        (8, 32, 32, 16)
    """

    x_shape: Ints
    filters: int
    kernel: Ints
    strides: Ints = ()
    dilations: Ints = ()
    padding: tuple[tuple[int, int], ...] = ()
    groups: int = 1

    def __post_init__(self) -> None:
        where = f"convolution of {tuple(self.x_shape)} by {tuple(self.kernel)}"
        x = check_sizes("x_shape", self.x_shape, where)
        rank = len(x) - 2
        if not 1 <= rank <= 3:
            raise ValueError(f"{where}: expected x of 3 to 5 axes.")
        sizes = {
            "x_shape": x,
            "kernel": check_sizes("kernel", self.kernel, where),
            "strides": check_sizes("strides", self.strides or (1,) * rank, where),
            "dilations": check_sizes("dilations", self.dilations or (1,) * rank, where),
            "padding": tuple(
                check_sizes("padding", pair, where, low=0)
                for pair in self.padding or ((0, 0),) * rank
            ),
        }
        for name, value in sizes.items():
            object.__setattr__(self, name, value)
        lengths = [len(value) for name, value in sizes.items() if name != "x_shape"]
        if lengths != [rank] * 4 or any(len(pair) != 2 for pair in self.padding):
            raise ValueError(f"{where}: kernel, strides, dilations, padding need {rank} entries.")
        check_sizes("filters and groups", (self.filters, self.groups), where)
        if x[-1] % self.groups or self.filters % self.groups:
            raise ValueError(
                f"{where}: {x[-1]} channels and {self.filters} filters do not split into "
                f"{self.groups} groups."
            )
        if min(self.y_shape) < 1:
            raise ValueError(f"{where}: the kernel is larger than the padded input.")

    @property
    def y_shape(self) -> Ints:
        """(n, *space, filters) of the output."""
        space = (
            (size + before + after - ((kernel - 1) * dilation + 1)) // stride + 1
            for size, kernel, stride, dilation, (before, after) in zip(
                self.x_shape[1:-1],
                self.kernel,
                self.strides,
                self.dilations,
                self.padding,
                strict=True,
            )
        )
        return (self.x_shape[0], *space, self.filters)

    @property
    def weights_shape(self) -> Ints:
        """(*kernel, channels / groups, filters), Keras's order."""
        return (*self.kernel, self.x_shape[-1] // self.groups, self.filters)

    @property
    def flops(self) -> float:
        """Multiplications and additions of the forward pass, and of either gradient."""
        return 2.0 * math.prod((*self.y_shape, *self.weights_shape[:-1]))

    def _steps(self) -> tuple[Any, ...]:
        """Return strides, dilations (0: dense) and paddings as oneDNN's arguments."""
        before, after = zip(*self.padding, strict=True)
        dilations = [dilation - 1 for dilation in self.dilations]
        return tuple(lib.sizes(values) for values in (self.strides, dilations, before, after))


def plain_weights(geometry: Geometry, dtype: str = "float32") -> Layout:
    """Return the layout of Keras's weights, (*kernel, c / groups, filters) in C order."""
    *space, inputs, filters = geometry.weights_shape
    *steps, input_step, filter_step = contiguous_strides(geometry.weights_shape)
    if geometry.groups == 1:
        return strided((filters, inputs, *space), (filter_step, input_step, *steps), dtype)
    each = filters // geometry.groups
    dims = (geometry.groups, each, inputs, *space)
    return strided(dims, (each * filter_step, filter_step, input_step, *steps), dtype)


def _weights(geometry: Geometry, dtype: str) -> Layout:
    """Return the layout of weights, which the primitive chooses."""
    return open_layout(plain_weights(geometry, dtype).dims, dtype)


def _about(what: str, geometry: Geometry, dtype: str) -> str:
    grouped = f" in {geometry.groups} groups" if geometry.groups > 1 else ""
    return (
        f"{what} x{geometry.x_shape} weights{geometry.weights_shape}{grouped} -> "
        f"y{geometry.y_shape} {dtype}"
    )


def convolution(
    geometry: Geometry,
    *,
    dtype: str = "float32",
    bias: str | None = None,
    post: PostOps = (),
    threads: int | None = None,
) -> Primitive:
    """Return the primitive y = post(x * weights + bias).

    Arguments of the primitive: "x", "weights", "bias", "y", "post<i>", "scratchpad".

    Args:
        geometry: sizes, see Geometry.
        dtype: of x, weights and y.
        bias: None, or the dtype of a bias of `filters` elements.
        post: as for `matmul`; shapes of operands are in the order of y, (n, *space, filters).
        threads: as for `matmul`.

    Raises:
        ValueError, Unsupported: as for `matmul`.

    Source: Dumoulin & Visin, A guide to convolution arithmetic, 2016.
    """
    about = _about("convolution", geometry, dtype)
    rank = len(geometry.x_shape)
    operations = post_operations(post, geometry.y_shape, (0, rank - 1, *range(1, rank - 1)), about)
    for each in (dtype, bias or dtype):
        check_dtype(each, about)
    arguments = {
        "x": (lib.ARG_SRC, channels_last(geometry.x_shape, dtype)),
        "weights": (lib.ARG_WEIGHTS, _weights(geometry, dtype)),
        "y": (lib.ARG_DST, channels_last(geometry.y_shape, dtype)),
        **post_arguments(operations),
    }
    if bias:
        arguments["bias"] = (lib.ARG_BIAS, vector(geometry.filters, bias))

    def describe(attributes: int) -> int:
        given = handles(arguments, "x", "weights", "bias", "y")
        return _forward(geometry, given, attributes, about)

    return _make("convolution", geometry, about, arguments, describe, threads, operations)


def convolution_data_gradient(
    geometry: Geometry, *, dtype: str = "float32", threads: int | None = None
) -> Primitive:
    """Return the primitive dx = gradient of the convolution with respect to x.

    Arguments of the primitive: "dy", "weights", "dx", "scratchpad".

    This is also the transposed convolution: for Keras's Conv2DTranspose, whose kernel is
    (*kernel, filters, c), `geometry` is that of the convolution from ITS output (x_shape = its
    output's shape, `filters` = its input's channels); its input is "dy", its output "dx".

    Args and Raises: as for `convolution`.
    """
    about = _about("convolution's data gradient", geometry, dtype)
    check_dtype(dtype, about)
    arguments = {
        "dy": (lib.ARG_DIFF_DST, channels_last(geometry.y_shape, dtype)),
        "weights": (lib.ARG_WEIGHTS, _weights(geometry, dtype)),
        "dx": (lib.ARG_DIFF_SRC, channels_last(geometry.x_shape, dtype)),
    }

    def describe(attributes: int) -> int:
        given = handles(arguments, "dx", "weights", "dy")
        return _backward("data", geometry, dtype, given, attributes, about)

    return _make("convolution_data_gradient", geometry, about, arguments, describe, threads)


def convolution_weights_gradient(
    geometry: Geometry, *, dtype: str = "float32", threads: int | None = None
) -> Primitive:
    """Return the primitive dweights = gradient of the convolution with respect to weights.

    Arguments of the primitive: "x", "dy", "dweights", "scratchpad".

    Args and Raises: as for `convolution`.
    """
    about = _about("convolution's weights gradient", geometry, dtype)
    check_dtype(dtype, about)
    arguments = {
        "x": (lib.ARG_SRC, channels_last(geometry.x_shape, dtype)),
        "dy": (lib.ARG_DIFF_DST, channels_last(geometry.y_shape, dtype)),
        "dweights": (lib.ARG_DIFF_WEIGHTS, _weights(geometry, dtype)),
    }

    def describe(attributes: int) -> int:
        given = handles(arguments, "x", "dweights", "dbias", "dy")
        return _backward("weights", geometry, dtype, given, attributes, about)

    return _make("convolution_weights_gradient", geometry, about, arguments, describe, threads)


def _forward(geometry: Geometry, given: list[int | None], attributes: int, about: str) -> int:
    """Return a new descriptor of the convolution of x by weights and bias into y."""
    return lib.create(
        "convolution_forward_primitive_desc_create", lib.engine(), lib.FORWARD_TRAINING,
        lib.CONVOLUTION_DIRECT, *given, *geometry._steps(), attributes, about=about,
    )  # fmt: skip


def _backward(
    of: str, geometry: Geometry, dtype: str, given: list[int | None], attributes: int, about: str
) -> int:
    """Return a new descriptor of a gradient; oneDNN needs that of the forward pass for it."""
    x, y = (channels_last(shape, dtype) for shape in (geometry.x_shape, geometry.y_shape))
    weights = _weights(geometry, dtype)
    hint = _forward(geometry, [x.handle, weights.handle, None, y.handle], attributes, about)
    try:
        return lib.create(
            f"convolution_backward_{of}_primitive_desc_create", lib.engine(),
            lib.CONVOLUTION_DIRECT, *given, *geometry._steps(), hint, attributes, about=about,
        )  # fmt: skip
    finally:
        lib.call("primitive_desc_destroy", hint)


def _make(
    name: str,
    geometry: Geometry,
    about: str,
    arguments: Arguments,
    describe: Callable[[int], int],
    threads: int | None,
    operations: tuple[Any, ...] = (),
) -> Primitive:
    count = choose_threads(threads, geometry.flops, GRAIN)
    key = (name, geometry)
    return make(key, about, count, arguments, describe, operations, geometry.flops)
