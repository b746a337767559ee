"""How a file stores arrays: bytes in little-endian order, 4-bit integers two in a byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.ops import dtypes
from kerasish.typing import Array

HALVES = {"int4": (-8, 7), "uint4": (0, 15)}  # 4-bit dtypes -> their range


def name_of(array: Array) -> str:
    """Return the name of an array's dtype; "int4" and "uint4" are none that tensors have."""
    name = str(array.dtype)
    return name if name in HALVES else dtypes.name_of(array.dtype)


def halves(array: Array, name: str) -> Array:
    """Return whole numbers as an array of a 4-bit dtype.

    Args:
        array: numbers within the range of the dtype.
        name: of the dtype, one of `HALVES`.
    """
    import ml_dtypes

    return np.ascontiguousarray(array).astype(getattr(ml_dtypes, name))


def size_of(array: Array) -> int:
    """Return how many bytes a file stores."""
    return -(-array.size // 2) if name_of(array) in HALVES else array.nbytes


def content(array: Array) -> Array:
    """Return the bytes that a file stores, as one axis of uint8."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if name_of(array) in HALVES:
        whole = np.zeros(flat.size + flat.size % 2, "uint8")
        whole[: flat.size] = flat.astype("int8").view("uint8") & 15
        return whole[::2] | (whole[1::2] << 4)
    if flat.dtype.kind != "V" and flat.dtype.itemsize > 1:
        flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    return flat.view("uint8")


def code_of(onnx: Any, dtype: str) -> int | None:
    """Return ONNX's number of a dtype; None: it has no such dtype."""
    word = {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    code: int | None = getattr(onnx.TensorProto, word, None)
    return code


def tensor(onnx: Any, name: str, array: Array, numbers: bool = True) -> Any:
    """Return an array as a `TensorProto`.

    Args:
        onnx: the package.
        name: of the tensor.
        array: its numbers.
        numbers: whether the message holds them.
    """
    kind = code_of(onnx, name_of(array))
    result = onnx.TensorProto(name=name, data_type=kind, dims=array.shape)
    if numbers:
        result.raw_data = content(array).tobytes()
    return result
