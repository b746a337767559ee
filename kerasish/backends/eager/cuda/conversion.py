"""Casts on the GPU: none if the dtype is already the requested one."""

from __future__ import annotations

from typing import Any

from kerasish.ops import dtypes
from kerasish.typing import DTypeLike


def cast(x: Any, *, dtype: DTypeLike) -> Any:
    """Return x as `dtype`: x itself, and no launch, if it is that."""
    wanted = dtypes.array_dtype(dtype)
    return x if x.dtype == wanted else x.astype(wanted)


KERNELS: dict[str, Any] = {"cast": cast}
