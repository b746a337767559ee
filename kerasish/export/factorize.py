"""Factorizations of matrices as other ops, for runtimes that have no LAPACK.

Each step is written once, so matrices are small: up to `LARGEST` rows. A matrix without the result
(a singular one, one that is not positive definite) gives infinities or NaN, where LAPACK's callers
raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.ops.algebra import decomposition, solving
from kerasish.ops.op import Op
from kerasish.ops.shapes import broadcast_shapes

LARGEST = 32
Steps = Callable[..., Any]
EXPANSIONS: dict[Any, Steps] = {}


def expansion_of(op: Op, tensors: Sequence[Any]) -> Steps | None:
    """Return the function that computes an op by others; None where there is none."""
    steps = EXPANSIONS.get(op)
    if steps is None or any(not 0 < n <= LARGEST for n in tensors[0].shape[-2:]):
        return None
    return steps


def _expands(op: Any) -> Callable[[Steps], Steps]:
    def register(steps: Steps) -> Steps:
        def in_single(*tensors: Any, **attrs: Any) -> Any:
            dtype = tensors[0].dtype
            if dtype not in ("float16", "bfloat16"):
                return steps(*tensors, **attrs)
            results = steps(*(ops.cast(x, "float32") for x in tensors), **attrs)
            if not isinstance(results, tuple):
                return ops.cast(results, dtype)
            return tuple(ops.cast(y, dtype) if y.dtype == "float32" else y for y in results)

        EXPANSIONS[op] = in_single
        return steps

    return register


def _numbers(size: int) -> Any:
    """Return the numbers of rows, as a column."""
    return np.arange(size, dtype="int32")[:, None]


def _row(a: Any, chosen: Any) -> Any:
    """Return the one row of each matrix where `chosen`, a column, holds."""
    return ops.sum(ops.where(chosen, a, 0.0), axis=-2, keepdims=True)


def _pivoted(a: Any, k: int, column: Any) -> tuple[Any, Any, Any]:
    """Swap row k with the row from k on that has the largest element of a column.

    Returns:
        the matrices, row k of them, and the row's number before.
    """
    rows = _numbers(a.shape[-2])
    best = ops.argmax(ops.abs(column[..., k:]), axis=-1) + k
    chosen = ops.equal(rows, best[..., None, None])
    there = _row(a, chosen)
    swapped = ops.where(chosen, a[..., k : k + 1, :], a)
    return ops.where(rows == k, there, swapped), there, best


@_expands(decomposition.lu_factor)
def _lu_factor(a: Any) -> tuple[Any, Any]:
    rows, columns = _numbers(a.shape[-2]), np.arange(a.shape[-1])
    pivots = []
    for k in range(min(a.shape[-2:])):
        a, there, best = _pivoted(a, k, a[..., k])
        divisor = there[..., k : k + 1]
        divisor = ops.where(ops.equal(divisor, 0.0), 1.0, divisor)
        factor = a[..., k : k + 1] / divisor
        rest = ops.where(columns > k, a - factor * there, ops.where(columns == k, factor, a))
        a = ops.where(rows > k, rest, a)
        pivots.append(best)
    return a, ops.cast(ops.stack(pivots, axis=-1), "int32")


def _signed_diagonal(a: Any) -> tuple[Any, Any]:
    """Return the diagonal of U, and the sign of the permutation, with a last axis of 1."""
    both, pivots = _lu_factor(a)
    size = a.shape[-1]
    diagonal = ops.sum(ops.where(np.eye(size, dtype=bool), both, 0.0), axis=-1)
    moved = ops.not_equal(pivots, np.arange(size, dtype="int32"))
    sign = ops.prod(ops.where(moved, ops.cast(-1.0, a.dtype), 1.0), axis=-1)
    return diagonal, sign


@_expands(solving.det)
def _det(a: Any) -> Any:
    diagonal, sign = _signed_diagonal(a)
    return sign * ops.prod(diagonal, axis=-1)


@_expands(solving.slogdet)
def _slogdet(a: Any) -> tuple[Any, Any]:
    diagonal, sign = _signed_diagonal(a)
    return sign * ops.prod(ops.sign(diagonal), axis=-1), ops.sum(ops.log(ops.abs(diagonal)), -1)


@_expands(solving.solve_matrix)
def _solve(a: Any, b: Any) -> Any:
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2], what="solve")
    parts = [ops.broadcast_to(t, (*lead, *t.shape[-2:])) for t in (a, b)]
    return _eliminated(ops.concatenate(parts, axis=-1))


@_expands(solving.inv)
def _inv(a: Any) -> Any:
    identity = ops.broadcast_to(ops.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _eliminated(ops.concatenate([a, identity], axis=-1))


def _eliminated(both: Any) -> Any:
    """Return the solutions x of a x = b, by Gauss and Jordan's elimination.

    Args:
        both: matrices a, followed by the columns of b.
    """
    size = both.shape[-2]
    rows = _numbers(size)
    for k in range(size):
        both, there, _ = _pivoted(both, k, both[..., 0])
        # What has become a column of the identity is left out.
        factor, rest, there = both[..., :1], both[..., 1:], there[..., 1:] / there[..., :1]
        both = ops.where(rows == k, there, rest - factor * there)
    return both


@_expands(decomposition.cholesky_lower)
def _cholesky(a: Any) -> Any:
    a = (a + ops.swapaxes(a, -1, -2)) * 0.5
    rows, columns = _numbers(a.shape[-1]), []
    for k in range(a.shape[-1]):
        root = ops.sqrt(a[..., k : k + 1, k : k + 1])
        column = ops.where(rows < k, 0.0, a[..., k : k + 1] / root)
        a = a - column * ops.swapaxes(column, -1, -2)
        columns.append(column)
    return ops.concatenate(columns, axis=-1)


@_expands(decomposition.qr)
def _qr(a: Any, mode: str) -> tuple[Any, Any]:
    """Householder's reflections, with the signs of LAPACK."""
    m, n = a.shape[-2:]
    rows = _numbers(m)
    q = ops.broadcast_to(ops.eye(m, dtype=a.dtype), (*a.shape[:-2], m, m))
    for k in range(min(m - 1, n)):
        v = ops.where(rows < k, 0.0, a[..., k : k + 1])
        first = a[..., k : k + 1, k : k + 1]
        rest = ops.sum(ops.where(rows == k, 0.0, ops.square(v)), axis=-2, keepdims=True)
        length = ops.sqrt(ops.square(first) + rest)
        v = ops.where(rows == k, first + ops.where(first < 0, -length, length), v)
        total = ops.sum(ops.square(v), axis=-2, keepdims=True)
        plain = ops.equal(rest, 0.0)  # nothing to reflect
        scale = ops.where(plain, 0.0, 2.0 / ops.where(plain, 1.0, total))
        turned = ops.swapaxes(v, -1, -2)
        a = a - v * scale * ops.matmul(turned, a)
        q = q - ops.matmul(q, v) * (scale * turned)
    inner = m if mode == "complete" else min(m, n)
    return q[..., :inner], ops.where(rows > np.arange(n), 0.0, a)[..., :inner, :]
