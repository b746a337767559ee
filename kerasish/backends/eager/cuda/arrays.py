"""Arrays on the GPU: uninitialized memory, copies where layouts or dtypes differ."""

from __future__ import annotations

from typing import Any

from kerasish.ops.op import REGISTRY


def cupy() -> Any:
    """Return CuPy."""
    import cupy

    return cupy


def empty(shape: Any, dtype: Any) -> Any:
    """Return uninitialized memory from CuPy's pool."""
    return cupy().empty(shape, dtype)


def copy_into(to: Any, x: Any) -> Any:
    """Write x's numbers into `to`, of any dtype; return it."""
    to[...] = x
    return to


def filled(array: Any, value: Any) -> Any:
    """Write a number into all places of the array; return it."""
    array.fill(value)
    return array


def compact(x: Any) -> Any:
    """Return x, in C order without gaps."""
    return x if x.flags.c_contiguous else copy_into(empty(x.shape, x.dtype), x)


def cast(x: Any, dtype: Any) -> Any:
    """Return x as `dtype`, itself if it is that."""
    return x if x.dtype == dtype else copy_into(empty(x.shape, dtype), x)


def by_cupy(op: str, *arrays: Any, **attrs: Any) -> Any:
    """Return the result of the op's reference kernel with CuPy, in CuPy's memory."""
    return REGISTRY[op].kernel(cupy(), *arrays, **attrs)
