"""Attention heads of float32 by one compiled call forward, and one for the gradients."""

from __future__ import annotations

import numpy as np

from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT
from kerasish.backends.loops import AttentionHeads, compile_heads
from kerasish.backends.onednn.native import fork_safe_lock
from kerasish.typing import Array

LEAST = 4  # heads of all rows; fewer keep no threads busy
LARGEST = 1 << 16  # elements of the keys or the values of a head, which are packed in a cache
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


def computes(q: Array, k: Array, v: Array, masked: bool) -> bool:
    """Return whether `heads` and its gradient compute attention of these arrays."""
    arrays = (q, k, v)
    if any(type(x.dtype) is str or x.dtype != FLOAT for x in arrays):  # a string: of a trace
        return False
    if any(len(x.shape) != 4 or 0 in x.shape for x in arrays):
        return False
    (n, _, count, size), sources = q.shape, k.shape[1]
    if k.shape != (n, sources, count, size) or v.shape[:3] != (n, sources, count):
        return False
    if n * count < LEAST or sources * max(size, v.shape[3]) > LARGEST:
        return False
    return all(_find(backward, masked) is not None for backward in (False, True))


def heads(q: Array, k: Array, v: Array, mask: Array | None, scale: float) -> tuple[Array, ...]:
    """Return softmax(scale * q @ k^T, mask) @ v for each head, and each row's maximum and sum.

    Shape: (n, targets, heads, size), (n, sources, heads, size), (n, sources, heads, values)[,
    a mask of (n, heads, targets, sources)] -> (n, targets, heads, values), (n, heads, targets, 1)
    twice.
    """
    run = _find(False, mask is not None)
    assert run is not None
    n, targets, count, _ = q.shape
    out = empty((n, targets, count, v.shape[3]), FLOAT)
    maxima, sums = (np.empty((n, count, targets, 1), FLOAT) for _ in range(2))
    given = [*map(_heads, (q, k, v)), *_masks(mask, q, k)]
    run([*given, out.transpose(_HEADS_FIRST), maxima, sums], scale)
    return out, maxima, sums


def heads_gradient(
    g: Array, maxima: Array, sums: Array, q: Array, k: Array, v: Array, mask: Array | None,
    scale: float,
) -> tuple[Array, ...]:  # fmt: skip
    """Return the gradients of `heads` by q, k and v."""
    run = _find(True, mask is not None)
    assert run is not None
    results = [empty(x.shape, FLOAT) for x in (q, k, v)]
    given = [*map(_heads, (q, k, v)), maxima, sums, _heads(g), *_masks(mask, q, k)]
    run([*given, *(x.transpose(_HEADS_FIRST) for x in results)], scale)
    return tuple(results)
