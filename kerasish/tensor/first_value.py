"""The first values of variables."""

from __future__ import annotations

import math

import numpy as np

from kerasish import config
from kerasish.devices import _State as _devices
from kerasish.errors import ShapeError, TraceError, at_user_line
from kerasish.ops import dtypes
from kerasish.tensor.tensor import Tensor, convert, is_traced, wrap
from kerasish.typing import Structure

LARGE = 1 << 14  # numbers


def first_value(initializer: Structure, shape: tuple[int, ...] | None, dtype: str | None) -> Tensor:
    """Return an initializer's value, or the value itself."""
    if callable(initializer) and not hasattr(initializer, "__array__"):
        if shape is None:
            raise ValueError("Variable: an initializer function needs a shape.")
        result = convert(initializer(tuple(shape), dtype=dtypes.name_of(dtype)))
        return convert(result, dtype or None)
    value = convert(initializer, dtype)
    if shape is not None and tuple(shape) != value.shape:
        raise ShapeError(f"Variable: shape {tuple(shape)} given, the value has {value.shape}.")
    if dtype is None and value.dtype == "float64" and not hasattr(initializer, "dtype"):
        value = convert(value, config.floatx())
    return value


def large_zeros(
    initializer: Structure, shape: tuple[int, ...] | None, dtype: str | None
) -> tuple[tuple[int, ...], str] | None:
    """Return shape and dtype of a large first value of zeros, which needs no memory at first.

    A compiled step creates its buffer, zeroed memory from the system; earlier reads return an
    array.
    """
    if not getattr(initializer, "gives_zeros", False) or _devices.accelerated:
        return None
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        return None  # the initializer raises the errors
    return (shape, dtypes.name_of(dtype)) if math.prod(shape) >= LARGE else None


def owned(tensor: Tensor, name: str) -> Tensor:
    """Return a tensor with unshared memory, for the variable of this name."""
    if is_traced(tensor):
        raise TraceError(
            f"Variable {name!r} is created while a step is traced{at_user_line()}; create it in "
            "build() or __init__()."
        )
    value = tensor.value
    if _devices.accelerated:
        value = Tensor(tensor).value  # on the current device
    if tensor.borrowed or not hasattr(value, "flags") or not value.flags.owndata:
        value = value.copy() if hasattr(value, "copy") else np.asarray(value)
    return wrap(np.asarray(value) if isinstance(value, np.generic) else value)
