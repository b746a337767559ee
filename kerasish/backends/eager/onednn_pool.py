"""Pooling by oneDNN; by NumPy kernels for dtypes and numbers that oneDNN does not support.

oneDNN's maximum drops NaN and -inf, so it is used only for finite numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from kerasish.backends import onednn
from kerasish.backends.eager import numpy_pool
from kerasish.backends.eager.loop_elements import is_finite
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT
from kerasish.backends.eager.onednn_runner import PrimitiveRunner, PrimitiveStep, find
from kerasish.typing import Array

Shape = tuple[int, ...]

_NUMPY = numpy_pool.KERNELS


LEAST = 1 << 17  # elements, below which NumPy computes the largest of each window faster


@lru_cache(maxsize=1024)
def result_shape(x: Shape, size: Shape, strides: Shape, padding: Any) -> Shape:
    """Return the shape of a pooling's result for data of the shape x."""
    return onednn.pooling_geometry(x, size, strides, padding).y_shape


def find_runner(
    what: str, x: Shape, settings: dict[str, Any], y: Shape | None = None
) -> PrimitiveRunner | None:
    """Return the runner for a pooling from the shape x to y (None: computed from x)."""
    place = (settings["size"], settings["strides"], settings["padding"])

    def make() -> PrimitiveRunner | None:
        geometry = onednn.pooling_geometry(x, *place)
        return _runner(what, geometry) if y in (None, geometry.y_shape) else None

    return find((what, x, y, *place), make)


# Those that one primitive computes. The latter two keep, and read, the places of the maxima.
_MAKERS: dict[str, Callable[[onednn.Geometry], onednn.Primitive]] = {
    "pool_max": partial(onednn.pool_forward, "max"),
    "pool_average": partial(onednn.pool_forward, "average"),
    "pool_average_gradient": partial(onednn.pool_backward, "average"),
    "max_and_places": partial(onednn.pool_forward, "max", training=True),
    "gradient_at_places": partial(onednn.pool_backward, "max"),
}


def _runner(what: str, geometry: onednn.Geometry) -> PrimitiveRunner:
    if what in _MAKERS:
        return PrimitiveRunner([PrimitiveStep(_MAKERS[what](geometry))], {})
    # The gradient needs the places of the maxima, which the forward pass did not keep.
    forward = onednn.pool_forward("max", geometry, training=True)
    backward = onednn.pool_backward("max", geometry)
    assert forward.workspace is not None
    sizes = {"y": forward.arguments["y"].nbytes, "workspace": forward.workspace.nbytes}
    return PrimitiveRunner([PrimitiveStep(forward), PrimitiveStep(backward)], sizes)


def _is_single(*arrays: Array) -> bool:
    return all(a.dtype.char == "f" and a.size for a in arrays)


def pool_max(x: Array, **settings: Any) -> Array:
    """Return the largest element of each window."""
    runner = None
    if x.size >= LEAST and _is_single(x) and is_finite(x):
        runner = find_runner("pool_max", x.shape, settings)
    if runner is None:
        return _NUMPY["pool_max"](x, **settings)
    y = empty(result_shape(x.shape, **settings), FLOAT)
    runner.run(x=np.ascontiguousarray(x), y=y)
    return y


def pool_max_gradient(g: Array, x: Array, **settings: Any) -> Array:
    """Add each window's g at its first largest element."""
    runner = None
    if _is_single(g, x) and is_finite(x):
        runner = find_runner("pool_max_gradient", x.shape, settings, g.shape)
    if runner is None:
        return _NUMPY["pool_max_gradient"](g, x, **settings)
    dx = empty(x.shape, FLOAT)
    runner.run(x=np.ascontiguousarray(x), dy=np.ascontiguousarray(g), dx=dx)
    return dx


def pool_average(x: Array, **settings: Any) -> Array:
    """Return the mean of each window's places inside x."""
    runner = find_runner("pool_average", x.shape, settings) if _is_single(x) else None
    if runner is None:
        return _NUMPY["pool_average"](x, **settings)
    y = empty(result_shape(x.shape, **settings), FLOAT)
    runner.run(x=np.ascontiguousarray(x), y=y)
    return y


def pool_average_gradient(g: Array, *, sizes: Shape, **settings: Any) -> Array:
    """Add each window's g in equal parts to its places."""
    shape = (len(g), *sizes, g.shape[-1])
    runner = None
    if _is_single(g):
        runner = find_runner("pool_average_gradient", shape, settings, g.shape)
    if runner is None:
        return _NUMPY["pool_average_gradient"](g, sizes=sizes, **settings)
    dx = empty(shape, FLOAT)
    runner.run(dy=np.ascontiguousarray(g), dx=dx)
    return dx


KERNELS: dict[str, Any] = {
    **_NUMPY,
    **{f.__name__: f for f in (pool_max, pool_max_gradient, pool_average, pool_average_gradient)},
}
