"""Numbers of 4 bits, two in a byte: the first of a pair in the low half."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.networks.quantized import unpack
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import TensorLike

_DTYPES = ("int8", "uint8")


def _check(who: str, dtype: str) -> None:
    if dtype not in _DTYPES:
        raise ValueError(f"{who}: dtype is one of {_DTYPES}, got {dtype!r}.")


def pack_int4(
    arr: TensorLike, axis: int = 0, dtype: str = "int8"
) -> tuple[Tensor, tuple[int, ...], int]:
    """Return (packed, its shape, size of the axis before) with two numbers of 4 bits in each byte.

    Args:
        arr: tensor of `dtype` with numbers from -8 to 7 (int8), or 0 to 15 (uint8).
        axis: axis along which neighbors share a byte; a 0 is added where its size is odd.
        dtype: "int8" or "uint8".

    Raises:
        ValueError: another dtype is asked for.
        TypeError: `arr` has another dtype.

    Example:
        >>> packed, shape, size = pack_int4(np.int8([[-3, 7], [2, -8], [1, 0]]))
        >>> packed.tolist(), shape, size
        ([[45, -121], [1, 0]], (2, 2), 3)
    """
    _check("pack_int4", dtype)
    x: Any = as_tensor(arr)
    if x.dtype != dtype:
        raise TypeError(f"pack_int4: a tensor of {dtype} was expected, got {x.dtype}.")
    q = np.moveaxis(to_numpy(x), axis, 0).view(np.uint8)
    count = q.shape[0]
    low, high = q[::2] & 15, np.zeros_like(q[::2])
    high[: count // 2] = q[1::2] & 15
    packed = np.moveaxis((low | (high << 4)).view(dtype), 0, axis)
    packed = np.ascontiguousarray(packed)
    return as_tensor(packed), packed.shape, count


def unpack_int4(packed: TensorLike, orig_len: int, axis: int = 0, dtype: str = "int8") -> Tensor:
    """Return what `pack_int4` was given.

    Args:
        packed: int8 or uint8 tensor.
        orig_len: size of the axis before it was packed.
        axis: axis along which neighbors share a byte.
        dtype: "int8" for numbers from -8 to 7, "uint8" for 0 to 15.

    Raises:
        ValueError: another dtype is asked for.
        TypeError: `packed` has another dtype.

    Example:
        >>> unpack_int4(np.int8([[45, -121], [1, 0]]), 3).tolist()
        [[-3, 7], [2, -8], [1, 0]]
    """
    _check("unpack_int4", dtype)
    x = as_tensor(packed)
    if x.dtype not in _DTYPES:
        raise TypeError(f"unpack_int4: a tensor of int8 or uint8 was expected, got {x.dtype}.")
    moved = ops.moveaxis(x, axis, -1)
    return ops.moveaxis(ops.cast(unpack(moved, orig_len, 4, dtype == "int8"), dtype), -1, axis)
