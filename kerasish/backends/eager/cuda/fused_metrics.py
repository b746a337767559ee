"""The sums of metrics and the mean by one kernel each; see `fused_functions`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish import config
from kerasish.backends.eager import numpy_metrics
from kerasish.backends.eager.cuda.arrays import compact, empty
from kerasish.backends.eager.cuda.fused import Call, again, fits, make_op
from kerasish.backends.eager.cuda.kernels import launch, launch_rows
from kerasish.ops.basic.arithmetic import divide
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.movement import broadcast_to, reshape
from kerasish.ops.shapes import normalize_axes
from kerasish.tensor import recording
from kerasish.typing import Array, ArrayModule, Axis

SOURCE = "softmax"
MOST_VALUES = 1 << 16  # that one block sums
MOST_CLASSES = 1 << 24  # a float represents their numbers exactly


def class_hits(classes: Any, x: Any) -> Any:
    """Return 1 if the first largest number of a row is that of its class, else 0.

    Shape: (...) int32, (..., n) -> (...) float32.
    """
    x, classes = compact(x), compact(classes)
    n = x.shape[-1]
    rows = x.size // n
    hits = empty(x.shape[:-1], np.float32)
    args = (x, classes, hits, np.int64(rows), np.int64(n))
    launch_rows(SOURCE, "class_hits", x.dtype, rows, n, *args)
    return hits


def running_sums(total: Any, count: Any, values: Any, factor: float, number: float) -> Any:
    """Return (total + sum(values) * factor, count + number); total and count are float32.

    Shape: (), (), (...) -> (), ().
    """
    values, sums = compact(values), [empty((), np.float32) for _ in range(2)]
    numbers = (np.int64(values.size), np.float32(factor), np.float32(number))
    args = (values, total, count, *sums, *numbers)
    launch(SOURCE, "running_sums", values.dtype, 1, (256,), *args)
    return tuple(sums)


def _hits_kernel(xp: ArrayModule, classes: Array, x: Array) -> Any:
    return (numpy_metrics.class_hits if xp is np else class_hits)(classes, x)


def _sums_kernel(
    xp: ArrayModule, total: Array, count: Array, values: Array, *, factor: float, number: float
) -> Any:
    sums: Any = numpy_metrics.running_sums if xp is np else running_sums
    return sums(total, count, values, factor, number)


def _mean_kernel(xp: ArrayModule, x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
    if xp is np:
        return numpy_metrics.mean(x, axes, keepdims)
    return xp.mean(x, axis=axes, keepdims=keepdims)


def _mean_rule(g: Array, y: Array, x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
    count = float(math.prod(x.shape[a] for a in axes))
    if math.prod(y.shape) == 1 and isinstance(g.value, (np.ndarray, np.generic)):
        return (_SHARES(g, shape=x.shape, count=count),)
    kept = tuple(1 if i in axes else s for i, s in enumerate(x.shape))
    if math.prod(y.shape) == 1:  # one number: its readers need no copies
        return (broadcast_to(reshape(divide(g, count), kept), x.shape),)
    return (_SHARES(g if keepdims else reshape(g, kept), shape=x.shape, count=count),)


def _shares_kernel(xp: ArrayModule, g: Array, *, shape: tuple[int, ...], count: float) -> Array:
    if xp is np:
        return numpy_metrics.shares(g, shape, count)
    return xp.divide(xp.broadcast_to(g, shape), np.float32(count), out=empty(shape, g.dtype))


def _shares_rule(h: Array, y: Array, g: Array, shape: tuple[int, ...], count: float) -> list[Any]:
    return again(lambda g: broadcast_to(divide(g, count), shape), [g], [h])


_HITS = make_op(_hits_kernel)
_SUMS = make_op(_sums_kernel, outputs=2)
# g / count, repeated: kernels read arrays without gaps, so it is written out once.
_SHARES = make_op(_shares_kernel, _shares_rule)
_MEAN = make_op(_mean_kernel, _mean_rule)


def fused_mean(x: Array, axis: Axis | None = None, keepdims: bool = False) -> Call | None:
    """Return the fused op of `mean`: of float32, which CuPy sums in float32."""
    x = as_tensor(x)
    if x.dtype != "float32" or not fits(x):
        return None
    return _MEAN, [x], {"axes": normalize_axes(axis, len(x.shape), "mean"), "keepdims": keepdims}


def fused_class_hits(classes: Array, scores: Array) -> Call | None:
    """Return the fused op of `class_hits`."""
    classes, x = as_tensor(classes), as_tensor(scores)
    known = classes.dtype == "int32" and fits(x) and config.floatx() == "float32"
    if not known or classes.shape != x.shape[:-1] or x.shape[-1] >= MOST_CLASSES:
        return None
    return _HITS, [classes, x], {}


def fused_running_sums(
    total: Array, count: Array, values: Array, factor: float, number: float
) -> Call | None:
    """Return the op that computes `running_sums` in one launch; None: too many for a block."""
    given = [as_tensor(v) for v in (total, count, values)]
    shapes = [v.value.shape for v in given]
    for v, shape in zip(given, shapes):
        if v.dtype != "float32" or 0 in shape:
            return None
    if recording.on and any(v.tracked for v in given):
        return None  # this kernel has no gradient
    if shapes[0] or shapes[1] or math.prod(shapes[2]) > MOST_VALUES:
        return None
    return _SUMS, given, {"factor": float(factor), "number": float(number)}
