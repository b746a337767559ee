"""Attention heads of float32 by one compiled call forward, and one for the gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.backends.eager.cuda.fused import again, composition, make_op
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT
from kerasish.backends.loops import AttentionHeads, compile_heads
from kerasish.backends.onednn.native import fork_safe_lock
from kerasish.ops.basic.activation import softmax
from kerasish.ops.basic.comparison import select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.networks.attention import attend
from kerasish.typing import Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.backends.eager.cuda.fused import Call

LEAST = 4  # heads of all rows; fewer keep no threads busy
LARGEST = 1 << 16  # elements of the keys or the values of a head, which are packed in a cache
LOW = -1e9  # the logits that a mask excludes
_HEADS_FIRST = (0, 2, 1, 3)

_lock = fork_safe_lock(globals(), "_lock")
_compiled: dict[tuple[bool, bool], AttentionHeads | None] = {}


def _find(backward: bool, masked: bool) -> AttentionHeads | None:
    key = backward, masked
    if key not in _compiled:
        with _lock:
            if key not in _compiled:
                _compiled[key] = compile_heads(*key)
    return _compiled[key]


def _heads(x: Array) -> Array:
    """Return a view (batch, heads, rows, columns) of an array whose columns are adjacent."""
    if x.shape[3] > 1 and x.strides[3] != x.itemsize:
        x = np.ascontiguousarray(x)
    return x.transpose(_HEADS_FIRST)


def _masks(mask: Array | None, q: Array, k: Array) -> list[Array]:
    """Return the mask for all heads, in a list that may be empty."""
    if mask is None:
        return []
    full = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    rows = np.broadcast_to(mask, (*mask.shape[:-1], full[-1]))
    return [np.broadcast_to(np.ascontiguousarray(rows), full)]


def _kernel(
    xp: ArrayModule, q: Array, k: Array, v: Array, mask: Array = None, *, scale: float = 1.0
) -> tuple[Array, ...]:
    run = _find(False, mask is not None)
    assert run is not None
    n, targets, heads, _ = q.shape
    out = empty((n, targets, heads, v.shape[3]), FLOAT)
    maxima, sums = (np.empty((n, heads, targets, 1), FLOAT) for _ in range(2))
    given = [*map(_heads, (q, k, v)), *_masks(mask, q, k)]
    run([*given, out.transpose(_HEADS_FIRST), maxima, sums], scale)
    return out, maxima, sums


def _gradient_kernel(
    xp: ArrayModule, g: Array, maxima: Array, sums: Array, q: Array, k: Array, v: Array,
    mask: Array = None, *, scale: float = 1.0,
) -> tuple[Array, ...]:  # fmt: skip
    run = _find(True, mask is not None)
    assert run is not None
    results = [empty(x.shape, FLOAT) for x in (q, k, v)]
    given = [*map(_heads, (q, k, v)), maxima, sums, _heads(g), *_masks(mask, q, k)]
    run([*given, *(x.transpose(_HEADS_FIRST) for x in results)], scale)
    return tuple(results)


def _weigh(logits: Any, mask: Any) -> Any:
    if mask is None:
        return softmax(logits)
    low, zero = (cast(x, logits.dtype) for x in (LOW, 0.0))
    return select(mask, softmax(select(mask, logits, low)), zero)


def _again(
    h: Any, results: Any, g: Any, maxima: Any, sums: Any, q: Any, k: Any, v: Any, mask: Any = None,
    *, scale: float,
) -> tuple[Any, ...]:  # fmt: skip
    attending = composition(attend)

    def heads(q: Any, k: Any, v: Any) -> Any:
        return attending(q, k, v, mask, _weigh, scale=scale)

    def back(g: Any, *inputs: Any) -> tuple[Any, ...]:
        return tuple(again(heads, inputs, [g]))

    by_g, *slopes = again(back, [g, q, k, v], h)
    return (by_g, None, None, *slopes, None)


def _rule(
    g: Any, y: Any, q: Any, k: Any, v: Any, mask: Any = None, *, scale: float
) -> tuple[Any, ...]:
    more = () if mask is None else (mask,)
    return (*_GRADIENT(g[0], y[1], y[2], q, k, v, *more, scale=scale), None)


def _flops(by_keys: int, by_values: int, first: int) -> Callable[..., int]:
    """Return the function that counts the FLOPs of the products.

    Args:
        by_keys, by_values: the products with the sizes of keys, and of values.
        first: the position of q among the inputs.
    """

    def count(inputs: Any, results: Any) -> int:
        q, k, v = inputs[first : first + 3]
        heads: int = math.prod(q[:3]) * k[1]
        return 2 * heads * (by_keys * q[3] + by_values * v[3])

    return count


_GRADIENT = make_op(_gradient_kernel, _again, outputs=3, flops=_flops(3, 2, 3))
ATTENTION = make_op(_kernel, _rule, outputs=3, first_alone=True, flops=_flops(1, 1, 0))


def fused_attend(
    query: Any, key: Any, value: Any, mask: Any, weigh: Callable[..., Any], is_causal: bool = False,
    flash_attention: bool | None = None, scale: float = 1.0,
) -> Call | None:  # fmt: skip
    """Return the fused op of `attend`, `weigh` being softmax, or None if its ops compute it."""
    if flash_attention is False:
        return None
    given = [as_tensor(x) for x in (query, key, value)]
    q, k, v = values = [t.value for t in given]
    if any(type(x.dtype) is str or x.dtype != FLOAT for x in values):  # a string: of a trace
        return None
    if any(len(x.shape) != 4 or 0 in x.shape for x in values):
        return None
    n, targets, heads, size = q.shape
    sources = k.shape[1]
    if k.shape != (n, sources, heads, size) or v.shape[:3] != (n, sources, heads):
        return None
    if n * heads < LEAST or sources * max(size, v.shape[3]) > LARGEST:
        return None
    if mask is not None:
        mask = as_tensor(mask)
        if not _fits(mask, (n, heads, targets, sources)):
            return None
        given.append(mask)
    if any(_find(backward, mask is not None) is None for backward in (False, True)):
        return None
    return ATTENTION, given, {"scale": float(scale)}


def _fits(mask: Any, full: tuple[int, ...]) -> bool:
    """Return whether a mask is one of logits of this shape."""
    shape = mask.shape
    return (
        mask.dtype == "bool"
        and 0 < len(shape) <= 4
        and all(size in (1, whole) for size, whole in zip(shape[::-1], full[::-1]))
    )
