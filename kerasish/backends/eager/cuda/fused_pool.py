"""Maximum pooling by oneDNN that keeps the places of the maxima for its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.backends.eager import onednn_pool
from kerasish.backends.eager.cuda.fused import Call, make_op
from kerasish.backends.eager.loop_elements import is_finite
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.pool import pool_max, pool_max_select
from kerasish.ops.basic.window import layout
from kerasish.tensor import recording
from kerasish.typing import Array, ArrayModule, IntOrTuple, TensorLike

Shape = tuple[int, ...]


def _kernel(
    xp: ArrayModule, x: Array, *, size: Shape, strides: Shape, padding: Any
) -> tuple[Array, Array]:
    """Return the largest element of each window, and its place in oneDNN's format."""
    settings = {"size": size, "strides": strides, "padding": padding}
    runner = onednn_pool.find_runner("max_and_places", x.shape, settings)
    assert runner is not None
    workspace = runner.steps[0].primitive.workspace
    assert workspace is not None
    y = empty(onednn_pool.result_shape(x.shape, **settings), FLOAT)
    places = empty((workspace.nbytes,), np.dtype("uint8"))
    runner.run(x=np.ascontiguousarray(x), y=y, workspace=places)
    return y, places


def _gradient_kernel(
    xp: ArrayModule, g: Array, x: Array, places: Array, *,
    size: Shape, strides: Shape, padding: Any,
) -> Array:  # fmt: skip
    settings = {"size": size, "strides": strides, "padding": padding}
    runner = onednn_pool.find_runner("gradient_at_places", x.shape, settings)
    assert runner is not None
    dx = empty(x.shape, FLOAT)
    runner.run(dy=np.ascontiguousarray(g), dx=dx, workspace=places)
    return dx


_GRADIENT = make_op(
    _gradient_kernel,
    lambda h, dx, g, x, places, **settings: (pool_max_select(h, x, **settings), None, None),
)
MAX_POOL = make_op(
    _kernel,
    lambda g, y, x, **settings: (_GRADIENT(g[0], x, y[1], **settings),),
    outputs=2,
    shown=1,
)


def fused_max_pool(
    inputs: TensorLike,
    pool_size: IntOrTuple,
    strides: IntOrTuple | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Call | None:
    """Return the fused op of `max_pool`: of finite float32, where a gradient may follow."""
    x = as_tensor(inputs)
    value = x.value
    if not (x.tracked and recording.on) or type(value) is not np.ndarray or value.ndim < 3:
        return None
    if value.dtype != FLOAT or value.size < onednn_pool.LEAST:
        return None
    if layout(data_format) != "channels_last" or not is_finite(value):
        return None
    given = {"size": pool_size, "strides": strides, "padding": padding}
    assert pool_max.canonical is not None
    settings = pool_max.canonical([value.shape], given)
    kinds = ("max_and_places", "gradient_at_places")
    runners = [onednn_pool.find_runner(kind, value.shape, settings) for kind in kinds]
    return None if None in runners else (MAX_POOL, [x], settings)
