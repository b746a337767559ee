"""Softmax and cross-entropies of rows of logits, and their gradients.

`kerasish.ops` composes these of ops; the engine of a GPU calls them by `fused_functions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import cast, compact, empty
from kerasish.backends.eager.cuda.kernels import check, launch_rows, packed
from kerasish.typing import Array

if TYPE_CHECKING:
    pass

SOURCE = "softmax"


def _rows(x: Array) -> tuple[int, int]:
    n = x.shape[-1]
    return (x.size // n if n else 0), n


def _sizes(x: Array) -> tuple[Any, Any]:
    rows, n = _rows(x)
    return np.int64(rows), np.int64(n)


def softmax(x: Any, logarithm: bool = False) -> Any:
    """Return softmax(x) along the last axis, or its logarithm.

    Shape: (..., n) -> (..., n).
    """
    check("softmax", x)
    x = compact(x)
    y = empty(x.shape, x.dtype)
    together = packed(x.shape[-1], x, y)
    args = (x, y, *_sizes(x), np.int32(logarithm), together)
    launch_rows(SOURCE, "softmax", x.dtype, *_rows(x), *args)
    return y


def softmax_gradient(g: Any, y: Any, logarithm: bool = False) -> Any:
    """Return the gradient by x of y = softmax(x, logarithm), given that of y."""
    check("softmax_gradient", g, y)
    g, y = compact(g), compact(y)
    dx = empty(y.shape, y.dtype)
    args = (g, y, dx, *_sizes(y), np.int32(logarithm), packed(y.shape[-1], g, y, dx))
    launch_rows(SOURCE, "softmax_gradient", y.dtype, *_rows(y), *args)
    return dx


def class_loss(classes: Any, logits: Any) -> tuple[Any, Any]:
    """Return (-log softmax(logits)[class], log(sum(exp(logits)))); a loss of 0 for no class.

    Shape: (...) int32, (..., n) -> (...), (...) float32.
    """
    check("class_loss", logits)
    x = compact(logits)
    classes = compact(cast(classes, np.int32))
    loss, log_sums = empty(x.shape[:-1], x.dtype), empty(x.shape[:-1], np.float32)
    args = (x, classes, loss, log_sums, *_sizes(x), packed(x.shape[-1], x))
    launch_rows(SOURCE, "class_loss", x.dtype, *_rows(x), *args)
    return loss, log_sums


def class_loss_gradient(g: Any, classes: Any, logits: Any, log_sums: Any) -> Any:
    """Return the gradient by the logits, given that of the loss; `log_sums` is its other result.

    Shape: (...), (...) int32, (..., n), (...) float32 -> (..., n).
    """
    check("class_loss_gradient", g, logits)
    x = compact(logits)
    classes = compact(cast(classes, np.int32))
    dx = empty(x.shape, x.dtype)
    # The incoming gradient is often one number for all rows: it need not be repeated.
    same = g.size > 1 and not any(g.strides)
    g = g.reshape(-1)[:1] if same else compact(g)
    sizes = (*_sizes(x), np.int64(not same))
    args = (g, x, classes, log_sums, dx, *sizes, packed(x.shape[-1], x, dx))
    launch_rows(SOURCE, "class_loss_gradient", x.dtype, *_rows(x), *args)
    return dx


def target_loss(target: Any, logits: Any) -> tuple[Any, Any, Any]:
    """Return (-sum(target * log_softmax(logits)), log(sum(exp(logits))), sum(target)).

    Shape: (..., n), (..., n) -> (...), (...) float32, (...) float32.
    """
    check("target_loss", target, logits)
    t, x = compact(target), compact(logits)
    outer = x.shape[:-1]
    loss = empty(outer, x.dtype)
    log_sums, weight = empty(outer, np.float32), empty(outer, np.float32)
    args = (t, x, loss, log_sums, weight, *_sizes(x), packed(x.shape[-1], t, x))
    launch_rows(SOURCE, "target_loss", x.dtype, *_rows(x), *args)
    return loss, log_sums, weight


def target_loss_gradient(g: Any, target: Any, logits: Any, log_sums: Any, weight: Any) -> Any:
    """Return the gradient by the logits, given that of the loss and its other results."""
    check("target_loss_gradient", g, target, logits)
    t, x = compact(target), compact(logits)
    dx = empty(x.shape, x.dtype)
    together = packed(x.shape[-1], t, x, dx)
    args = (compact(g), t, x, log_sums, weight, dx, *_sizes(x), together)
    launch_rows(SOURCE, "target_loss_gradient", x.dtype, *_rows(x), *args)
    return dx
