"""Initializers of 4-bit integers and 8-bit floats, which no op here computes with.

They are weights that `DequantizeLinear` makes floats of: read as arrays of int8, uint8 or float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.typing import Array

_FLOATS = {
    "FLOAT8E4M3FN": "float8_e4m3fn", "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2", "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
_HALVES = {"INT4": "int8", "UINT4": "uint8"}
NARROW = frozenset([*_FLOATS, *_HALVES])


def bytes_of(word: str, count: int) -> int:
    """Return how many bytes store `count` elements of ONNX's dtype `word`."""
    return -(-count // 2) if word in _HALVES else count


def widened(word: str, stored: Array, shape: tuple[int, ...]) -> Array:
    """Return the numbers that bytes store.

    Args:
        word: ONNX's name of the dtype, one of `NARROW`.
        stored: uint8; of 4-bit integers two in each, the first in the low half.
        shape: of the result.
    """
    if word in _FLOATS:
        import ml_dtypes

        dtype: Any = getattr(ml_dtypes, _FLOATS[word])
        return stored.view(dtype).astype("float32").reshape(shape)
    both = np.stack([stored & 15, stored >> 4], axis=-1).reshape(-1)[: math.prod(shape)]
    signed = (both ^ 8).astype("int8") - np.int8(8) if word == "INT4" else both
    return signed.astype(_HALVES[word]).reshape(shape)
