"""Products of float32 matrices by oneDNN; by NumPy for other dtypes and for small ones.

oneDNN and the compiled loops use one pool of threads. NumPy's BLAS has a pool of its own: where the
two take turns, the threads of one wait in the way of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends import onednn
from kerasish.backends.eager.loop_elements import reduced
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT, LEAST, Loop, fits
from kerasish.backends.eager.onednn_runner import Runner, Step, find
from kerasish.backends.loops import LoopBuilder
from kerasish.ops.basic.product import matmul as reference
from kerasish.typing import Array

LEAST_WORK = 1 << 18  # multiplications, below which a call of oneDNN takes more than the product


def _strides(x: Array) -> tuple[int, ...] | None:
    """Return x's strides in elements, None where oneDNN is to get a copy in C order."""
    steps = tuple(s // 4 for s, n in zip(x.strides, x.shape))
    inner = [step for step, n in zip(steps[-2:], x.shape[-2:]) if n > 1]
    if inner and min(inner) != 1:
        return None
    used = [(step, n) for step, n in zip(steps, x.shape) if n > 1]
    extent = 1 + sum(step * (n - 1) for step, n in used)
    return steps if all(step > 0 for step, _ in used) and extent <= x.size else None


def _laid_out(x: Array) -> tuple[Array, tuple[int, ...]]:
    steps = _strides(x)
    if steps is None:
        x = np.ascontiguousarray(x)
        steps = tuple(s // 4 for s in x.strides)
    return x, steps


def _find(a: Array, a_steps: Any, b: Array, b_steps: Any, bias: bool, onto: bool) -> Runner | None:
    post = [("sum", 1.0)] if onto else []

    def make() -> Runner:
        product = onednn.matmul(
            a.shape, b.shape, a_strides=a_steps, b_strides=b_steps,
            bias="float32" if bias else None, post=post,
        )  # fmt: skip
        return Runner([Step(product)], {})

    return find(("product", a.shape, a_steps, b.shape, b_steps, bias, onto), make)


def _by_onednn(a: Array, b: Array, bias: Array | None, onto: Array | None) -> Array | None:
    """Return a @ b + bias + onto, or None where NumPy is to compute it."""
    if not (a.dtype.char == b.dtype.char == "f" and a.ndim >= 2 and b.ndim >= 2):
        return None
    if a.size * b.shape[-1] < LEAST_WORK or not b.size or a.shape[-1] != b.shape[-2]:
        return None
    (a, a_steps), (b, b_steps) = _laid_out(a), _laid_out(b)
    runner = _find(a, a_steps, b, b_steps, bias is not None, onto is not None)
    if runner is None:
        return None
    if onto is not None:
        y = empty(onto.shape, FLOAT)
        np.copyto(y, onto)
    elif a.ndim == b.ndim == 2:
        y = empty((len(a), b.shape[1]), FLOAT)
    else:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        y = empty((*lead, a.shape[-2], b.shape[-1]), FLOAT)
    given = {} if bias is None else {"bias": np.ascontiguousarray(bias)}
    runner.run(a=a, b=b, out=y, **given)
    return y


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


_RELU = Loop(_relu)


def affine(rows: Array, kernel: Array, bias: Array | None, kind: str | None) -> Array:
    """Return rows @ kernel + bias, and relu of it where `kind` is "relu".

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


def column_sums(g: Array) -> Array:
    """Return the sum of g over all axes but the last."""
    axes: Sequence[int] = tuple(range(g.ndim - 1))
    result = reduced(g, axes) if g.size >= LEAST else None
    return np.add.reduce(g, axis=axes) if result is None else result


KERNELS: dict[str, Any] = {"matmul": matmul}
