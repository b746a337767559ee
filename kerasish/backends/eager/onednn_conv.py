"""Convolution by oneDNN; by NumPy kernels for dtypes and sizes that oneDNN does not support."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.backends import onednn
from kerasish.backends.eager import numpy_conv
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT
from kerasish.backends.eager.onednn_runner import PrimitiveRunner, PrimitiveStep, find, threads_for
from kerasish.typing import Array

Shape = tuple[int, ...]

_NUMPY = numpy_conv.KERNELS
_MAKERS = {
    "convolution": onednn.convolution,
    "convolution_data_gradient": onednn.convolution_data_gradient,
    "convolution_kernel_gradient": onednn.convolution_weights_gradient,
}


def _runner(what: str, geometry: onednn.Geometry) -> PrimitiveRunner:
    """Return a new runner; weights are reordered to, or from, the layout that oneDNN expects."""
    primitive = _MAKERS[what](geometry, threads=threads_for(geometry.flops))
    plain = onednn.plain_weights(geometry)
    weights = "weights" if "weights" in primitive.arguments else "dweights"
    chosen = primitive.arguments[weights]
    if chosen == plain:
        return PrimitiveRunner([PrimitiveStep(primitive)], {})
    main = PrimitiveStep(primitive, **{weights: "chosen"})
    if weights == "weights":
        before = PrimitiveStep(onednn.reorder(plain, chosen), source=weights, destination="chosen")
        return PrimitiveRunner([before, main], {"chosen": chosen.nbytes})
    after = PrimitiveStep(onednn.reorder(chosen, plain), source="chosen", destination=weights)
    return PrimitiveRunner([main, after], {"chosen": chosen.nbytes})


def _find(
    what: str, a: Array, b: Array, x: Shape, kernel: Shape, y: Shape | None, settings: Any
) -> PrimitiveRunner | None:
    """Return the runner for arrays a and b, or None if NumPy's kernel must compute this.

    Args:
        x, kernel: shapes of the convolution's data and kernel.
        y: shape of its result, if given.
    """
    if not (a.dtype.char == b.dtype.char == "f" and a.size and b.size):
        return None
    place = (settings["strides"], settings["dilation"], settings["padding"], settings["groups"])

    def make() -> PrimitiveRunner | None:
        geometry = onednn.Geometry(x, kernel[-1], kernel[:-2], *place)
        return _runner(what, geometry) if y in (None, geometry.y_shape) else None

    return find((what, x, kernel, y, *place), make)


def convolution(x: Array, kernel: Array, **settings: Any) -> Array:
    """Return the convolution; see `kerasish.ops.conv`."""
    runner = _find("convolution", x, kernel, x.shape, kernel.shape, None, settings)
    if runner is None:
        return _NUMPY["convolution"](x, kernel, **settings)
    place = (settings["strides"], settings["padding"], settings["dilation"])
    counts = numpy_conv.window_counts(x, kernel.shape[:-2], *place)
    y = empty((len(x), *counts, kernel.shape[-1]), FLOAT)
    runner.run(x=np.ascontiguousarray(x), weights=np.ascontiguousarray(kernel), y=y)
    return y


def convolution_data_gradient(g: Array, kernel: Array, *, size: Shape, **settings: Any) -> Array:
    """Return the transpose of the convolution in its data; see `kerasish.ops.conv`."""
    what = "convolution_data_gradient"
    shape = (len(g), *size, kernel.shape[-2] * settings["groups"])
    runner = _find(what, g, kernel, shape, kernel.shape, g.shape, settings)
    if runner is None:
        return _NUMPY[what](g, kernel, size=size, **settings)
    x = empty(shape, FLOAT)
    runner.run(dy=np.ascontiguousarray(g), weights=np.ascontiguousarray(kernel), dx=x)
    return x


def convolution_kernel_gradient(x: Array, g: Array, *, size: Shape, **settings: Any) -> Array:
    """Return the transpose of the convolution in its kernel; see `kerasish.ops.conv`."""
    what = "convolution_kernel_gradient"
    shape = (*size, x.shape[-1] // settings["groups"], g.shape[-1])
    runner = _find(what, x, g, x.shape, shape, g.shape, settings)
    if runner is None:
        return _NUMPY[what](x, g, size=size, **settings)
    kernel = empty(shape, FLOAT)
    runner.run(x=np.ascontiguousarray(x), dy=np.ascontiguousarray(g), dweights=kernel)
    return kernel


KERNELS: dict[str, Any] = {
    f.__name__: f for f in (convolution, convolution_data_gradient, convolution_kernel_gradient)
}
