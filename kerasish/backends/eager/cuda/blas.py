"""Products of 16-bit matrices, float32 ones as TF32 where that is allowed, and stacks of matrices,
by cuBLASLt: summed in float32.

Other products use CuPy, which calls cuBLAS for two float32 matrices with the same speed and less
Python. In a stack, it copies each factor that is not stored row by row.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np

from kerasish import config
from kerasish.backends.eager.cuda.activation import bias_activation
from kerasish.backends.eager.cuda.arrays import (
    by_cupy,
    cast,
    compact,
    copy_into,
    cupy,
    empty,
)
from kerasish.backends.eager.cuda.cublaslt import (
    LibraryError,
    multiply,
    multiply_and_sum,
)
from kerasish.backends.eager.cuda.cublaslt import (
    library as library,
)
from kerasish.backends.eager.cuda.kernels import SCALARS
from kerasish.backends.eager.cuda.norm import column_sums
from kerasish.typing import Array

# Whether cuBLASLt and cuDNN apply relu. Theirs may return 0 for NaN, which hides it;
# tests/gpu/test_special_numbers.py checks this on a GPU. Until it is disproved, a separate kernel
# applies relu.
RELU_IN_PASSING = False


def _by_cupy(a: Array, b: Array) -> Array:
    """Return a @ b by CuPy; stacks of 16-bit matrices as float32, which it always supports."""
    if a.dtype.itemsize != 2 or max(a.ndim, b.ndim) <= 2:
        return by_cupy("matmul", a, b)
    xp = cupy()
    return xp.matmul(a.astype(xp.float32), b.astype(xp.float32)).astype(a.dtype)


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(f"{message} CuPy multiplies such matrices instead.", stacklevel=2)


def _here() -> Any:
    """Return cuBLASLt for CuPy's CUDA, or None; while planning, whether it is available."""
    return library(cupy().cuda.runtime.runtimeGetVersion() // 1000)


def _tf32(a: Array) -> bool:
    return a.dtype.name == "float32" and config.tf32()


def _wanted(a: Array, b: Array) -> bool:
    name = a.dtype.name
    if name not in SCALARS or a.dtype != b.dtype:
        return False
    if name != "float32" or config.tf32():
        return True
    # cuBLASLt takes one distance between matrices: CuPy repeats none where stacks broadcast.
    return max(a.ndim, b.ndim) > 2 and (b.ndim == 2 or a.shape[:-2] == b.shape[:-2])


def matmul(a: Any, b: Any) -> Any:
    """Return the matrix product over the last axis of a and the last but one of b."""
    if not _wanted(a, b):
        return _by_cupy(a, b)
    if min(a.ndim, b.ndim) < 2 or not a.size or not b.size:
        return _by_cupy(a, b)
    lib = _here()
    if lib is None:
        return _by_cupy(a, b)
    try:
        return _stacked(lib, a, b)
    except LibraryError as error:
        _warn_once(str(error))
        return _by_cupy(a, b)


def matrix_product(a: Any, b: Any) -> Any:
    """Return the product of two matrices of one dtype, in that dtype and C order."""
    return compact(cast(matmul(a, b), a.dtype))


def affine(rows: Any, kernel: Any, bias: Any, activation: str | None) -> Any:
    """Return activation(rows @ kernel + bias): by cuBLASLt if available; relu by a kernel.

    Args:
        rows, kernel: matrices of one dtype among SCALARS, not empty.
        bias: shape (columns of the kernel,), of the same dtype; None: 0.
        activation: None or "relu".
    """
    lib = _here()
    if lib is not None:
        within = activation if RELU_IN_PASSING else None
        try:
            y = multiply(lib, rows, kernel, bias, within, _tf32(rows))
            return y if within == activation else bias_activation(y, None, activation or "linear")
        except LibraryError as error:
            _warn_once(str(error))
    return bias_activation(matrix_product(rows, kernel), bias, activation or "linear")


def rows_gradient(g: Any, kernel: Any, onto: Any = None) -> Any:
    """Return g @ kernel^T + onto: by one call of cuBLASLt if available.

    Args:
        g, kernel: matrices of one dtype among SCALARS, not empty.
        onto: an array that is added, of the result's shape and dtype, or None.
    """
    lib = _here()
    if lib is not None:
        try:
            return multiply(lib, g, kernel.T, tf32=_tf32(g), onto=onto)
        except LibraryError as error:
            _warn_once(str(error))
    y = matrix_product(g, kernel.T)
    return y if onto is None else by_cupy("add", onto, y)


def kernel_gradient(rows: Any, g: Any) -> tuple[Any, Any]:
    """Return (rows^T @ g, the sums of g's columns): one call of cuBLASLt if available.

    Args:
        rows, g: matrices of one dtype among SCALARS, not empty.
    """
    lib = _here()
    if lib is not None:
        try:
            return multiply_and_sum(lib, rows.T, g, _tf32(rows))
        except LibraryError as error:
            _warn_once(str(error))
    return matrix_product(rows.T, g), cast(column_sums(g), g.dtype)


def _stacked(lib: bool, a: Array, b: Array) -> Array:
    tf32 = _tf32(a)
    if b.ndim == 2:
        # All rows at once.
        rows = a if a.ndim == 2 else compact(a).reshape(-1, a.shape[-1])
        y = multiply(lib, rows, b, tf32=tf32)
        return y.reshape(*a.shape[:-1], b.shape[-1])
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (x if x.shape[:-2] == lead else _spread(x, lead) for x in (a, b))
    return multiply(lib, left, right, tf32=tf32)


def _spread(x: Array, lead: tuple[int, ...]) -> Array:
    """Return matrices repeated so that there are `lead` of them."""
    spread = empty((*lead, *x.shape[-2:]), x.dtype)
    return copy_into(spread, x)


KERNELS: dict[str, Any] = {"matmul": matmul}
