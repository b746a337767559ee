"""Products of float32 matrices by oneDNN; by NumPy for other dtypes and for small ones.

oneDNN and the compiled loops use one pool of threads. NumPy's BLAS has another pool: if calls of
the two alternate, waiting threads of one pool slow down the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends import onednn
from kerasish.backends.eager.loop_elements import reduced, through_relu
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT, LEAST, CompiledLoop, fits
from kerasish.backends.eager.onednn_runner import PrimitiveRunner, PrimitiveStep, find, threads_for
from kerasish.backends.loops import LoopBuilder
from kerasish.backends.onednn.layout import contiguous_strides
from kerasish.ops.basic.product import matmul as reference
from kerasish.typing import Array

_Layout = tuple[tuple[int, ...], tuple[int, ...]]

LEAST_WORK = 1 << 18  # multiplications, below which a call of oneDNN takes more than the product
FEWEST_ROWS = 4  # one row by (784, 512) takes 95 us by oneDNN, 25 by NumPy
# Multiplications of one product in a batch of them. NumPy multiplies 1,000 matrices of 8 x 8 in
# 70 us; oneDNN needs 90 to 140 us, and 600 us if its threads sleep.
LEAST_WORK_OF_ONE = 1 << 15
ALWAYS_WORK = 1 << 22  # multiplications in all, from which oneDNN also pays for small matrices


class _Plan(NamedTuple):
    """How oneDNN multiplies arrays of given shapes and strides.

    Attributes:
        copies: which of the two operands it gets as copies in C order.
        steps: the strides of both, in elements.
        shape: of the product.
    """

    copies: tuple[bool, bool]
    steps: tuple[tuple[int, ...], tuple[int, ...]]
    shape: tuple[int, ...]


@lru_cache(maxsize=4096)
def plan_of(a: _Layout, b: _Layout) -> _Plan | None:
    """Return the plan for operands of these (shape, strides), None if NumPy computes them."""
    m, n = a[0], b[0]
    if len(m) < 2 or len(n) < 2 or m[-1] != n[-2] or 0 in m or 0 in n:
        return None
    if math.prod(m) * n[-1] < LEAST_WORK or math.prod(m[:-1]) < FEWEST_ROWS:
        return None
    shape = (m[-2], n[-1])
    if len(m) > 2 or len(n) > 2:
        one = math.prod(shape) * m[-1]
        shape = (*np.broadcast_shapes(m[:-2], n[:-2]), *shape)
        if one < LEAST_WORK_OF_ONE and math.prod(shape) * m[-1] < ALWAYS_WORK:
            return None
    kept = [_strides(*layout) for layout in (a, b)]
    steps = [s or contiguous_strides(layout[0]) for s, layout in zip(kept, (a, b))]
    return _Plan((kept[0] is None, kept[1] is None), (steps[0], steps[1]), shape)


def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides in elements, None if oneDNN must get a copy in C order."""
    steps = tuple(s // 4 for s in strides)
    inner = [step for step, n in zip(steps[-2:], shape[-2:]) if n > 1]
    if inner and min(inner) != 1:
        return None
    used = [(step, n) for step, n in zip(steps, shape) if n > 1]
    extent = 1 + sum(step * (n - 1) for step, n in used)
    is_simple = all(step > 0 for step, _ in used) and extent <= math.prod(shape)
    return steps if is_simple else None


def _by_onednn(a: Array, b: Array, bias: Array | None, onto: Array | None) -> Array | None:
    """Return a @ b + bias + onto, or None if NumPy must compute it."""
    if not (a.dtype.char == b.dtype.char == "f"):
        return None
    if a.ndim == b.ndim == 2 and a.size * b.shape[1] < LEAST_WORK:
        return None  # the result of `plan_of`, computed faster
    plan = plan_of((a.shape, a.strides), (b.shape, b.strides))
    if plan is None:
        return None
    post = [] if onto is None else [("add", plan.shape)]

    def make() -> PrimitiveRunner:
        product = onednn.matmul(
            a.shape, b.shape, a_strides=plan.steps[0], b_strides=plan.steps[1],
            bias=None if bias is None else "float32", post=post,
            threads=threads_for(2.0 * math.prod(plan.shape) * a.shape[-1]),
        )  # fmt: skip
        return PrimitiveRunner([PrimitiveStep(product)], {})

    runner = find(("product", a.shape, b.shape, plan.steps, bias is None, onto is None), make)
    if runner is None:
        return None
    given = {
        "a": np.ascontiguousarray(a) if plan.copies[0] else a,
        "b": np.ascontiguousarray(b) if plan.copies[1] else b,
        "out": empty(plan.shape, FLOAT),
    }
    if onto is not None:
        given["post0"] = np.ascontiguousarray(onto)
    if bias is not None:
        given["bias"] = np.ascontiguousarray(bias)
    runner.run(**given)
    return given["out"]


def matmul(a: Array, b: Array) -> Array:
    """Return the product; see `kerasish.ops.matmul`."""
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous:
        # All rows at once.
        y = _by_onednn(a.reshape(-1, a.shape[-1]), b, None, None)
        y = None if y is None else y.reshape(*a.shape[:-1], b.shape[1])
    else:
        y = _by_onednn(a, b, None, None)
    if y is None:
        y = np.matmul(a, b)
        y = y if y.dtype == a.dtype else reference.kernel(np, a, b)
    return y


def _relu(k: LoopBuilder) -> None:
    x = k.input("float32")
    k.output(k.op("relu", x), in_place=x)


_RELU = CompiledLoop(_relu)


def affine(rows: Array, kernel: Array, bias: Array | None, kind: str | None) -> Array:
    """Return rows @ kernel + bias, and relu of it if `kind` is "relu".

    Shape: (rows, inputs), (inputs, units), (units) -> (rows, units).
    """
    y = _by_onednn(rows, kernel, bias, None)
    if y is None:
        y = rows @ kernel
        if bias is not None:
            np.add(y, bias, out=y)
    if kind == "relu":
        loop = _RELU.find() if y.size >= LEAST and fits(y) else None
        if loop is None:
            np.maximum(y, y.dtype.type(0), out=y)
        else:
            loop((y, y), 1, y.size)
    return y


def rows_gradient(g: Array, kernel: Array, before: Array | None) -> Array:
    """Return g @ kernel^T + before: the gradient by the rows of `affine`."""
    y = _by_onednn(g, kernel.T, None, before)
    if y is None:
        y = g @ kernel.T
        if before is not None:
            np.add(y, before, out=y)
    return y


def kernel_gradient(rows: Array, g: Array) -> tuple[Array, Array]:
    """Return (rows^T @ g, sums of g): the gradients of `affine` by kernel and bias."""
    y = _by_onednn(rows.T, g, None, None)
    return rows.T @ g if y is None else y, column_sums(g)


def gradients(g: Array, y: Array | None, x: Array, kernel: Array, by_x: bool) -> tuple[Array, ...]:
    """Return the gradients of `affine` by x (if `by_x`), by its kernel, and by its bias.

    Args:
        g: the incoming gradient of the result.
        y: the result of relu; None: without relu.
        x: the left factor, with any number of axes.
        kernel: the kernel.
        by_x: whether to compute the gradient by x.
    """
    g = g if y is None else through_relu(g, y)
    rows, arriving = np.ascontiguousarray(x), np.ascontiguousarray(g)
    if x.ndim == 2 and x.size * kernel.shape[1] < LEAST_WORK and g.size < LEAST:
        # The same as the functions below, faster.
        others = rows.T @ arriving, np.add.reduce(arriving)
        return (arriving @ kernel.T, *others) if by_x else others
    rows, arriving = (v.reshape(-1, v.shape[-1]) for v in (rows, arriving))
    dx = (rows_gradient(arriving, kernel, None).reshape(x.shape),) if by_x else ()
    return *dx, *kernel_gradient(rows, arriving)


def column_sums(g: Array) -> Array:
    """Return the sum of g over all axes but the last."""
    if g.size < LEAST and g.ndim == 2:
        return np.add.reduce(g)
    axes: Sequence[int] = tuple(range(g.ndim - 1))
    result = reduced(g, axes) if g.size >= LEAST else None
    return np.add.reduce(g, axis=axes) if result is None else result


KERNELS: dict[str, Any] = {"matmul": matmul}
