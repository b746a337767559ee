"""Attention of any size and dtype by products: one launch moves heads, and one moves them back.

cuDNN supports 16-bit floats; see `fused_attention`. The rounding here is that of `attend`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish.backends.eager.cuda import blas, heads
from kerasish.backends.eager.cuda.fused import fits, make_op
from kerasish.ops.basic.product import matmul, swap_last
from kerasish.tensor import recording
from kerasish.typing import Array, ArrayModule


def _first_kernel(xp: ArrayModule, q: Array, k: Array, v: Array, *, scale: float) -> Any:
    return heads.heads_first([q, k, v], scale)


def _last_kernel(xp: ArrayModule, q: Array, k: Array, v: Array, *, scale: float) -> Any:
    return heads.steps_first([q, k, v], scale)


def _one_first_kernel(xp: ArrayModule, x: Array) -> Array:
    return heads.heads_first([x])[0]


def _one_last_kernel(xp: ArrayModule, x: Array) -> Array:
    return heads.steps_first([x])[0]


# Each moves gradients back by the other.
THREE_FIRST = make_op(
    _first_kernel, lambda g, y, q, k, v, scale: THREE_LAST(*g, scale=scale), outputs=3
)
THREE_LAST = make_op(
    _last_kernel, lambda g, y, q, k, v, scale: THREE_FIRST(*g, scale=scale), outputs=3
)
ONE_FIRST = make_op(_one_first_kernel, lambda g, y, x: (ONE_LAST(g),))
ONE_LAST = make_op(_one_last_kernel, lambda g, y, x: (ONE_FIRST(g),))


def _rows_by_rows_kernel(xp: ArrayModule, a: Array, b: Array) -> Array:
    return blas.matmul(a, b.swapaxes(-1, -2))


# a @ b^T. The gradient by b is stored row by row, like b.
ROWS_BY_ROWS = make_op(
    _rows_by_rows_kernel,
    lambda g, y, a, b: (matmul(g, b), matmul(swap_last(g), a)),
)


def attend_by_products(
    q: Any, k: Any, v: Any, mask: Any, weigh: Callable[..., Any], scale: float
) -> Any:
    """Return the result of `attend`, or None if its ops must compute it.

    Args:
        q, k, v: tensors.
        mask, weigh, scale: the arguments of `attend`.
    """
    if not fits(q, k, v) or len({x.dtype for x in (q, k, v)}) != 1:
        return None
    if any(len(x.shape) != 4 for x in (q, k, v)):
        return None
    joint = {(x.shape[0], x.shape[2]) for x in (q, k, v)}
    if len(joint) != 1 or q.shape[3] != k.shape[3] or k.shape[1] != v.shape[1]:
        return None
    tracked = {x.tracked for x in (q, k, v)}
    if recording.on and len(tracked) > 1:
        return None  # the gradients of all three are moved back together
    q, k, v = THREE_FIRST(q, k, v, scale=scale)
    return ONE_LAST(matmul(weigh(ROWS_BY_ROWS(q, k), mask), v))
