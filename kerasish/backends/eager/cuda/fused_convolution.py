"""Convolution + bias by cuDNN where it supports it, and relu of it; see `fused_functions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.backends.eager.cuda import blas, convolution, cudnn, cudnn_convolution
from kerasish.backends.eager.cuda.activation import bias_activation
from kerasish.backends.eager.cuda.fused import Call, device_of, fits, make_op
from kerasish.backends.eager.cuda.fused_affine import BIAS_GRADIENT, THROUGH_RELU
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec
from kerasish.typing import Array, ArrayModule, IntOrTuple

CONVOLUTION = REGISTRY["convolution"]


def _kernel(
    xp: ArrayModule, x: Array, kernel: Array, bias: Array, *, rectified: bool,
    strides: IntOrTuple, padding: Sequence[Any],
    dilation: IntOrTuple, groups: int,
) -> Array:  # fmt: skip
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    within = rectified and blas.RELU_IN_PASSING
    y = cudnn_convolution.biased_convolution(x, kernel, bias, rectified=within, **attrs)
    if y is not None:
        return y if within == rectified else bias_activation(y, None, "relu")
    y = convolution.convolution(x, kernel, **attrs)
    return bias_activation(y, bias, "relu" if rectified else "linear")


def _gradient(
    g: Array, y: Array, x: Array, kernel: Array, bias: Array, rectified: bool, **attrs: Any
) -> list[Any]:
    if rectified:
        g = THROUGH_RELU(g, y)
    by_data, by_kernel = CONVOLUTION.grad  # type: ignore[misc]
    return [
        by_data(g, y, x, kernel, **attrs) if x.tracked else None,
        by_kernel(g, y, x, kernel, **attrs) if kernel.tracked else None,
        BIAS_GRADIENT(g) if bias.tracked else None,
    ]


_BIASED = make_op(_kernel, _gradient)


def fused_biased_conv(
    inputs: Array, kernel: Array, bias: Array, strides: IntOrTuple = 1, padding: str = "valid",
    dilation_rate: IntOrTuple = 1, rectified: bool = False,
) -> Call | None:  # fmt: skip
    """Return the fused op of `biased_conv`."""
    if cudnn.usable() is None:
        return None
    x, kernel, bias = given = [as_tensor(v) for v in (inputs, kernel, bias)]
    if not fits(*given) or len({v.dtype for v in given}) != 1 or bias.shape != kernel.shape[-1:]:
        return None
    if not 3 <= len(x.shape) == len(kernel.shape) or x.shape[-1] % kernel.shape[-2]:
        return None
    attrs = {"strides": strides, "padding": padding, "dilation": dilation_rate}
    attrs["groups"] = x.shape[-1] // kernel.shape[-2]
    attrs = CONVOLUTION.canonical([x.shape, kernel.shape], attrs)  # type: ignore[misc]
    y = CONVOLUTION.shape(Spec(x.shape, x.dtype), Spec(kernel.shape, x.dtype), **attrs).shape
    within = rectified and blas.RELU_IN_PASSING
    request = cudnn_convolution.of_biased(x, kernel, y, within, attrs)
    if request is None or cudnn.planned(request, device_of(*given)) is None:
        return None
    return _BIASED, given, {"rectified": rectified, **attrs}
