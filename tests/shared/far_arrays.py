"""Arrays far larger than memory, for kernels that must count beyond 2^32 elements."""

from __future__ import annotations

import math
import mmap
import sys
from typing import Any

import numpy as np
from cuda_on_cpu import dtype_of, put

from kerasish.backends.eager.cuda import kernels

# Address space without memory behind it; 0x4000 on Linux, which Python 3.13 names.
_FREE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FREE
# Above 2^32, where positions without a sign end, too, and of whole rounds of the largest grid: the
# last block does the last elements, with one element for a thread and with packs of eight.
MANY = 2**32 + 8 * kernels.MOST_BLOCKS * kernels.THREADS


def far(*shape: int, dtype: str = "float16") -> Any:
    """Return zeros that no memory backs: pages exist where they are written."""
    kind = dtype_of(dtype)
    memory = mmap.mmap(-1, max(math.prod(shape) * kind.itemsize, 1), flags=_FLAGS)
    flat = np.frombuffer(memory, kind, math.prod(shape))
    return flat.reshape(shape).view(type(put(0.0)))


def far_like(shape: Any, dtype: Any = "float16") -> Any:
    """Return such zeros, in the place of CuPy's `empty`."""
    shape = (shape,) if isinstance(shape, (int, np.integer)) else shape
    return far(*map(int, shape), dtype=np.dtype(dtype).name)


def last(value: Any, *shape: int, dtype: str = "float16") -> Any:
    """Return zeros but for the last numbers: a number, or those of `value`."""
    array, numbers = far(*shape, dtype=dtype), np.atleast_1d(value)
    array.reshape(-1)[-numbers.size :] = numbers
    return array
