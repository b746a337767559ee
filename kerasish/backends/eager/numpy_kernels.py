"""NumPy kernels that are faster than the reference ones: op name -> kernel(*arrays, **attrs)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.backends.eager import (
    loop_elements,
    loop_random,
    loop_rows,
    numpy_random,
    numpy_recurrent,
    onednn_conv,
    onednn_pool,
    onednn_product,
)
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import LEAST
from kerasish.ops import dtypes
from kerasish.ops.basic.exponentials import power
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.op import REGISTRY
from kerasish.typing import Array

Kernel = Callable[..., Any]


def _relu(x: Array) -> Array:
    return np.maximum(x, x.dtype.type(0))


_FEW = 8  # rows of one index that are added one after the other, for all indices together


def _add_rows(x: Array, indices: Array, *, size: int, axis: int) -> Array:
    """Sum rows in the order of their indices, far faster than `np.add.at`."""
    count = indices.ndim
    order = (*range(axis, axis + count), *range(axis), *range(axis + count, x.ndim))
    rows = np.transpose(x, order)
    rest = rows.shape[count:]
    flat = np.ascontiguousarray(rows).reshape(indices.size, math.prod(rest))
    places = indices.reshape(-1)
    if places.size:
        places = np.where(places < 0, places + size, places)
        if places.min() < 0 or places.max() >= size:
            raise IndexError(f"index out of range for {size} rows")
    y = loop_rows.add_rows(places, flat, size)
    if y is None:
        y = empty((size, flat.shape[1]), x.dtype)
        y.fill(0)
        if places.size:
            _add_sorted(y, flat, places)
    return np.moveaxis(y.reshape(size, *rest), 0, axis)


def _add_sorted(y: Array, rows: Array, places: Array) -> None:
    """Write the sum of the rows of each place into y."""
    by_row = np.argsort(places, kind="stable")
    ordered = places[by_row]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    wide = dtypes.adding_dtype(dtypes.name_of(rows.dtype))
    counts = np.diff(starts, append=len(ordered))
    few = counts <= (_FEW if wide == rows.dtype else 0)
    for k in range(counts[few].max(initial=0)):
        given = starts[few & (counts > k)]
        if k:
            y[ordered[given]] += rows[by_row[given + k]]
        else:
            y[ordered[given]] = rows[by_row[given]]
    if not few.all():
        many = np.repeat(~few, counts)
        firsts = np.cumsum(counts[~few]) - counts[~few]
        sums = np.add.reduceat(rows[by_row[many]], firsts, axis=0, dtype=wide)
        y[ordered[starts[~few]]] = sums


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
    "take_rows": loop_rows.take_rows,
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
    # The bare ufunc saves a Python frame per op.
    KERNELS[_name] = _ufunc

for _name, _plain in KERNELS.items():
    # A loop has NumPy's bits here: they do not depend on an array's size.
    if REGISTRY[_name].exact:
        _by_loop = loop_elements.Unary if REGISTRY[_name].arity == 1 else loop_elements.Binary
        KERNELS[_name] = _by_loop(_name, _plain)
