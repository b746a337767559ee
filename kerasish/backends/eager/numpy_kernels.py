"""NumPy kernels that are faster than the reference ones: op name -> kernel(*arrays, **attrs)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.backends.eager import (
    loop_elements,
    loop_random,
    numpy_random,
    numpy_recurrent,
    onednn_conv,
    onednn_pool,
    onednn_product,
)
from kerasish.backends.eager.native_loops import LEAST
from kerasish.ops import dtypes
from kerasish.ops.basic.exponentials import power
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.typing import Array

Kernel = Callable[..., Any]


def _relu(x: Array) -> Array:
    return np.maximum(x, x.dtype.type(0))


def _add_rows(x: Array, indices: Array, *, size: int, axis: int) -> Array:
    """Sum rows by a sorted segment sum, far faster than `np.add.at`."""
    count = indices.ndim
    order = (*range(axis, axis + count), *range(axis), *range(axis + count, x.ndim))
    rows = np.transpose(x, order)
    rest = rows.shape[count:]
    flat = np.ascontiguousarray(rows).reshape(indices.size, math.prod(rest))
    wide = dtypes.adding_dtype(dtypes.name_of(x.dtype))
    y = np.zeros((size, flat.shape[1]), x.dtype)
    places = indices.reshape(-1)
    if places.size:
        places = np.where(places < 0, places + size, places)
        if places.min() < 0 or places.max() >= size:
            raise IndexError(f"index out of range for {size} rows")
        by_row = np.argsort(places, kind="stable")
        ordered = places[by_row]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        y[ordered[starts]] = np.add.reduceat(flat[by_row], starts, axis=0, dtype=wide)
    return np.moveaxis(y.reshape(size, *rest), 0, axis)


def _reduce_sum(x: Array, *, axis: Sequence[int], keepdims: bool) -> Array:
    if x.dtype.kind != "f" or x.itemsize < 4:
        return reduce_sum.kernel(np, x, axis=axis, keepdims=keepdims)
    if x.size >= LEAST and not keepdims:
        y = loop_elements.reduced(x, axis)
        if y is not None:
            return y
    return np.add.reduce(x, axis=axis, dtype=x.dtype, keepdims=keepdims)


def _reduce_max(x: Array, *, axis: Sequence[int], keepdims: bool) -> Array:
    if x.size >= LEAST:
        y = loop_elements.reduced(x, axis, largest=True)
        if y is not None:
            return y.reshape(*y.shape, *(1,) * len(axis)) if keepdims else y
    return np.maximum.reduce(x, axis=axis, keepdims=keepdims)


def _reshape(x: Array, *, newshape: tuple[int, ...]) -> Array:
    return x.reshape(newshape)


def _cast(x: Array, *, dtype: str) -> Array:
    return x.astype(dtypes.array_dtype(dtype), copy=False)


def _power(x1: Array, x2: Array) -> Array:
    return np.power(x1, x2) if x2.dtype.kind == "f" else power.kernel(np, x1, x2)


def _transpose(x: Array, *, axes: Sequence[int]) -> Array:
    return x.transpose(axes)


KERNELS: dict[str, Kernel] = {
    "reduce_sum": _reduce_sum,
    "reduce_max": _reduce_max,
    "power": _power,
    "cast": _cast,
    "reshape": _reshape,
    "transpose": _transpose,
    "relu": _relu,
    "add_rows": _add_rows,
    **onednn_conv.KERNELS,
    **onednn_pool.KERNELS,
    **onednn_product.KERNELS,
    **numpy_random.KERNELS,
    **loop_random.KERNELS,
    **numpy_recurrent.KERNELS,
}

for _name, _ufunc in {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.true_divide,
    "negative": np.negative, "exp": np.exp, "log": np.log, "tanh": np.tanh, "sqrt": np.sqrt,
    "square": np.square, "maximum": np.maximum, "minimum": np.minimum, "greater": np.greater,
    "less": np.less, "equal": np.equal, "select": np.where, "absolute": np.absolute,
    "sign": np.sign, "reciprocal": np.reciprocal,
}.items():  # fmt: skip
    # The bare ufunc saves a Python frame an op.
    KERNELS[_name] = _ufunc

for _name in loop_elements.UNARY:
    KERNELS[_name] = loop_elements.Unary(_name, KERNELS[_name])
for _name in loop_elements.BINARY:
    KERNELS[_name] = loop_elements.Binary(_name, KERNELS[_name])
