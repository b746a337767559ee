"""Convolution with a bias and relu, and its gradients, by cuDNN; None where it has no plan.

Data has its channels last. cuDNN expects kernels (results, *window, channels): kernels are copied
to that order, and gradients back from it. One spatial axis becomes two, one of size 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish import config
from kerasish.backends.eager.cuda import cudnn
from kerasish.backends.eager.cuda.arrays import compact, copy_into, empty
from kerasish.ops.basic.window import window_counts
from kerasish.typing import Array, IntOrTuple

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

DATA, WEIGHTS, RESULT, BIAS = 1, 2, 3, 4  # the numbers of a graph's tensors


class Convolution(NamedTuple):
    """The key of a plan of a convolution; sizes with the channels before the window."""

    kind: str  # "forward", "data" or "kernel"
    dtype: str
    tf32: bool
    data: tuple[int, ...]
    weights: tuple[int, ...]
    result: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    biased: bool = False
    rectified: bool = False

    def draw(self, lib: Any, graph: Any) -> None:
        """Put the tensors and the convolution into the graph."""
        kind = getattr(lib.data_type, cudnn.TYPES[self.dtype])
        one_each = (1, self.weights[0], *[1] * (len(self.data) - 2))
        sizes = {DATA: self.data, WEIGHTS: self.weights, RESULT: self.result, BIAS: one_each}

        def given(number: int) -> Any:
            dim, stride = list(sizes[number]), channels_last(sizes[number])
            return graph.tensor(dim=dim, stride=stride, data_type=kind, uid=number)

        options = {
            "pre_padding": list(self.before), "post_padding": list(self.after),
            "stride": list(self.strides), "dilation": list(self.dilation),
        }  # fmt: skip
        if self.kind == "forward":
            result, number = graph.conv_fprop(given(DATA), given(WEIGHTS), **options), RESULT
        elif self.kind == "data":
            result, number = graph.conv_dgrad(given(RESULT), given(WEIGHTS), **options), DATA
        else:
            result, number = graph.conv_wgrad(given(DATA), given(RESULT), **options), WEIGHTS
        if self.biased:
            result = graph.bias(result.set_data_type(lib.data_type.FLOAT), given(BIAS))
        if self.rectified:
            result = graph.relu(result.set_data_type(lib.data_type.FLOAT))
        result.set_uid(number).set_output(True).set_data_type(kind)
        result.set_dim(list(sizes[number])).set_stride(channels_last(sizes[number]))


def channels_last(sizes: tuple[int, ...]) -> list[int]:
    """Return the strides of (n, channels, *spatial) with the channels last in memory."""
    channels, spatial = sizes[1], sizes[2:]
    inner = [channels * math.prod(spatial[i + 1 :]) for i in range(len(spatial))]
    return [channels * math.prod(spatial), 1, *inner]


def _request(
    kind: str, like: Array | Tensor, data: tuple[int, ...], kernel: tuple[int, ...],
    results: tuple[int, ...],
    strides: Any, padding: Sequence[Any], dilation: Any,
) -> Convolution | None:  # fmt: skip
    """Return the request for the shapes of our ops; None: cuDNN does not support it."""
    if not 3 <= len(data) <= 5 or 0 in data + kernel + results:
        return None
    dtype = like.dtype if isinstance(like.dtype, str) else like.dtype.name
    if dtype not in cudnn.TYPES or min(min(pair) for pair in padding) < 0:
        return None
    lifted = (1,) if len(data) == 3 else ()
    turned = [(s[0], s[-1], *lifted, *s[1:-1]) for s in (data, results)]
    weights = (kernel[-1], kernel[-2], *lifted, *kernel[:-2])
    before, after = (tuple(pair[i] for pair in padding) for i in (0, 1))
    none = (0,) * len(lifted)
    tf32 = dtype == "float32" and config.tf32()
    return Convolution(
        kind, dtype, tf32, turned[0], weights, turned[1], (*lifted, *strides),
        none + before, none + after, (*lifted, *dilation),
    )  # fmt: skip


def _run(
    request: Convolution | None, like: Array, given: Mapping[int, tuple[Callable[..., Array], Any]],
    target: int, shape: tuple[Any, ...],
) -> Any:  # fmt: skip
    """Return the array that cuDNN computes, or None where it computes none.

    Args:
        like: an array on the device, of the result's dtype.
        given: role -> (function that converts the array's layout for cuDNN, the array).
        target: the role of the result.
        shape: its shape.
    """
    plan = None if request is None else cudnn.planned(request, like.device.id)
    if plan is None:
        return None
    result = empty(shape, like.dtype)
    arrays = {role: lay_out(array) for role, (lay_out, array) in given.items()}
    return result if cudnn.ran(plan, {**arrays, target: result}) else None


def _turned(kernel: Array) -> Any:
    """Return a kernel (*window, channels, results) copied as (results, *window, channels)."""
    last = kernel.ndim - 1
    turned = kernel.transpose(last, *range(last))
    return copy_into(empty(turned.shape, kernel.dtype), turned)


def convolution(
    x: Array,
    kernel: Array,
    *,
    strides: tuple[int, ...],
    padding: Any,
    dilation: tuple[int, ...],
    groups: int,
) -> Any:
    """Return the convolution of x with the kernel, or None."""
    window = kernel.shape[:-2]
    counts = window_counts(x.shape[1:-1], window, strides, padding, dilation, "convolution")
    shape = (x.shape[0], *counts, kernel.shape[-1])
    request = _request("forward", x, x.shape, kernel.shape, shape, strides, padding, dilation)
    given = {DATA: (compact, x), WEIGHTS: (_turned, kernel)}
    return _run(request, x, given, RESULT, shape)


def of_biased(
    x: Array, kernel: Array, y: tuple[int, ...], rectified: bool, attrs: dict[str, Any]
) -> Any:
    """Return the request for relu(convolution + bias), given arrays or tensors; or None.

    Args:
        y: the result's shape.
        attrs: strides, padding and dilation, resolved.
    """
    windows = (attrs["strides"], attrs["padding"], attrs["dilation"])
    request = _request("forward", x, tuple(x.shape), tuple(kernel.shape), y, *windows)
    return None if request is None else request._replace(biased=True, rectified=rectified)


def biased_convolution(x: Any, kernel: Any, bias: Any, *, rectified: bool, **attrs: Any) -> Any:
    """Return convolution + bias, relu of it if `rectified`; or None.

    Args:
        bias: shape (results,).
        attrs: those of `convolution`.
    """
    windows = (attrs["strides"], attrs["padding"], attrs["dilation"])
    counts = window_counts(x.shape[1:-1], kernel.shape[:-2], *windows, "convolution")
    shape = (x.shape[0], *counts, kernel.shape[-1])
    request = of_biased(x, kernel, shape, rectified, attrs)
    given = {DATA: (compact, x), WEIGHTS: (_turned, kernel), BIAS: (compact, bias)}
    return _run(request, x, given, RESULT, shape)


def convolution_data_gradient(
    g: Array,
    kernel: Array,
    *,
    size: Sequence[Any],
    strides: IntOrTuple,
    padding: Sequence[Any],
    dilation: IntOrTuple,
    groups: int,
) -> Any:
    """Return the gradient of a convolution by its data, given that of its result; or None."""
    shape = (g.shape[0], *size, kernel.shape[-2] * groups)
    request = _request("data", g, shape, kernel.shape, g.shape, strides, padding, dilation)
    given = {RESULT: (compact, g), WEIGHTS: (_turned, kernel)}
    return _run(request, g, given, DATA, shape)


def convolution_kernel_gradient(
    x: Array,
    g: Array,
    *,
    size: Sequence[Any],
    strides: IntOrTuple,
    padding: Sequence[Any],
    dilation: IntOrTuple,
    groups: int,
) -> Any:
    """Return the gradient of a convolution by its kernel, given that of its result; or None."""
    channels, results = x.shape[-1] // groups, g.shape[-1]
    shape = (*size, channels, results)
    request = _request("kernel", x, x.shape, shape, g.shape, strides, padding, dilation)
    given = {DATA: (compact, x), RESULT: (compact, g)}
    turned = _run(request, x, given, WEIGHTS, (results, *size, channels))
    if turned is None:
        return None
    return copy_into(empty(shape, x.dtype), turned.transpose(*range(1, len(shape)), 0))
