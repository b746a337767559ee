"""Matmul: C = post(A B + bias), in two dimensions or batched, transposed by strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerasish.backends.onednn import library as lib
from kerasish.backends.onednn.layout import (
    Ints,
    Layout,
    check_dtype,
    check_sizes,
    chosen_layout,
    contiguous_strides,
    strided,
)
from kerasish.backends.onednn.primitive import (
    Arguments,
    PostOps,
    Primitive,
    choose_threads,
    make,
    post_operations,
)

GRAIN = 500_000.0  # floating-point operations per thread (about 5 us of one core)


def matmul(
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    *,
    a_strides: Sequence[int] | None = None,
    b_strides: Sequence[int] | None = None,
    out_strides: Sequence[int] | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str = "float32",
    out_dtype: str | None = None,
    bias: str | None = None,
    post: PostOps = (),
    b_layout: str = "plain",
    threads: int | None = None,
) -> Primitive:
    """Return the primitive out = post(a @ b + bias).

    Arguments of the primitive: "a", "b", "bias", "out", "post0" (operand of the first post-op where
    that is a binary one), "scratchpad".

    Args:
        a_shape: (*batch, m, k) as the product sees it, whatever the strides.
        b_shape: (*batch, k, n); sizes of batch axes are equal or 1 in one of the two (broadcast);
            the shorter of both ranks is filled with leading ones.
        a_strides: elements (not bytes) from one index to the next, one per size; None: a is
            C-ordered.
        b_strides: the same of b.
        out_strides: the same of out, whose last axis must have stride 1.
        transpose_a: a is stored C-ordered as (*batch, k, m); instead of a_strides.
        transpose_b: b is stored C-ordered as (*batch, n, k); instead of b_strides.
        dtype: of a and b: "float32", "bfloat16" or "float16".
        out_dtype: of out; None: `dtype`. Sums are float32 inside.
        bias: None, or the dtype of a bias of n elements.
        post: operations on the result in their order: ("relu", slope), ("gelu_erf",),
            ("gelu_tanh",), ("tanh",), ("logistic",), ("swish", 1.0), ("elu", alpha),
            ("clip", low, high), ("linear", scale, shift), ...; ("sum", scale) adds scale times
            what `out` held; ("add" | "mul" | "sub" | "div" | "max" | "min", shape, dtype) with
            "post<i>", C-ordered and broadcast to out, i counting all post-ops.
        b_layout: "plain", or "any": b's layout is the primitive's choice, in `required["b"]`.
        threads: None chooses by the work: one thread per 500,000 operations at most.

    Raises:
        ValueError: shapes, strides or dtypes do not fit.
        Unsupported: not on this processor (bfloat16 without the instructions, ...).

    Example:
        >>> import numpy as np
        >>> a, b = np.ones((2, 3), "float32"), np.ones((3, 4), "float32")
        >>> out, bias = np.empty((2, 4), "float32"), np.full(4, -4, "float32")
        >>> product = matmul((2, 3), (3, 4), bias="float32", post=[("relu",)])
        >>> buffers = {"a": a, "b": b, "bias": bias, "out": out, **product.scratch()}
        >>> product.bind(buffers).execute()
        >>> float(out.max())
        0.0
    """
    about = f"matmul {tuple(a_shape)} @ {tuple(b_shape)} {dtype}"
    a_dims, b_dims, out_dims = _shapes(a_shape, b_shape, about)
    out_dtype = dtype if out_dtype is None else out_dtype
    a = _layout(a_dims, a_strides, transpose_a, dtype, "a", about)
    b = _layout(b_dims, b_strides, transpose_b, dtype, "b", about)
    out = _layout(out_dims, out_strides, False, out_dtype, "out", about)
    b = chosen_layout(b, dtype, b_layout, f"{about}: b_layout")
    operations = post_operations(post, out_dims, tuple(range(len(out_dims))), about)
    flops = 2.0 * a_dims[-1] * math.prod(out_dims)
    count = choose_threads(threads, flops, GRAIN)
    arguments = {"a": (lib.ARG_SRC, a), "b": (lib.ARG_WEIGHTS, b)}
    if bias is not None:
        arguments["bias"] = (lib.ARG_BIAS, _bias(bias, out_dims, about))
    arguments["out"] = (lib.ARG_DST, out)
    arguments.update(post_arguments(operations))

    def describe(attributes: int) -> int:
        given = handles(arguments, "a", "b", "bias", "out")
        return lib.create(
            "matmul_primitive_desc_create", lib.engine(), *given, attributes, about=about
        )

    return make(("matmul",), about, count, arguments, describe, operations, flops)


def handles(arguments: Arguments, *names: str) -> list[int | None]:
    """Return the handles of the arguments' layouts; None for those that there are not."""
    return [arguments[name][1].handle if name in arguments else None for name in names]


def post_arguments(operations: tuple[Any, ...]) -> dict[str, tuple[int, Layout]]:
    """Return name -> (oneDNN's argument, layout) of the operands of binary post-ops."""
    return {
        f"post{index}": (lib.ARG_POST_OP * (index + 1) | lib.ARG_SRC_1, strided(*operation[2:]))
        for index, operation in enumerate(operations)
        if operation[0] == "binary"
    }


def _shapes(a: Sequence[int], b: Sequence[int], about: str) -> tuple[Ints, Ints, Ints]:
    a, b = check_sizes("sizes of a", a, about), check_sizes("sizes of b", b, about)
    if min(len(a), len(b)) < 2 or max(len(a), len(b)) > lib.MAX_DIMENSIONS:
        raise ValueError(f"{about}: expected 2 to {lib.MAX_DIMENSIONS} axes in both.")
    if a[-1] != b[-2]:
        raise ValueError(f"{about}: a's last size {a[-1]} is not b's last but one {b[-2]}.")
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    batch = []
    for left, right in zip(a[:-2], b[:-2], strict=True):
        if left != right and 1 not in (left, right):
            raise ValueError(f"{about}: batch sizes {left} and {right} do not broadcast.")
        batch.append(max(left, right))
    return a, b, (*batch, a[-2], b[-1])


def _layout(
    dims: Ints, strides: Sequence[int] | None, transposed: bool, dtype: str, name: str, about: str
) -> Layout:
    check_dtype(dtype, about)
    if strides is None:
        if transposed:
            steps = contiguous_strides((*dims[:-2], dims[-1], dims[-2]))
            return strided(dims, (*steps[:-2], steps[-1], steps[-2]), dtype)
        return strided(dims, contiguous_strides(dims), dtype)
    if transposed:
        raise ValueError(f"{about}: give strides of {name} or transpose_{name}, not both.")
    steps = check_sizes(f"strides of {name}", strides, about, low=0)
    missing = len(dims) - len(steps)
    if missing < 0 or any(size != 1 for size in dims[:missing]):
        raise ValueError(f"{about}: {name} has {len(dims)} sizes, got strides {steps}.")
    return strided(dims, _with_plain_vectors(dims, (1,) * missing + steps), dtype)


def _with_plain_vectors(dims: Ints, steps: Ints) -> Ints:
    """Return the strides, those of a matrix of one row or column as in a C-ordered array.

    The stride of an axis of one element addresses nothing, but the product of bfloat16 refuses a
    small one when it runs.
    """
    *batch, row, column = steps
    column = 1 if dims[-1] == 1 else column
    row = column * dims[-1] if dims[-2] == 1 else row
    return (*batch, row, column)


def _bias(dtype: str, out_dims: Ints, about: str) -> Layout:
    check_dtype(dtype, about)
    ones = (1,) * (len(out_dims) - 1)
    return strided((*ones, out_dims[-1]), (*(out_dims[-1],) * len(ones), 1), dtype)
