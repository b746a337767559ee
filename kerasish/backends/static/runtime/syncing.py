"""Values of variables copied into their buffers, and the memory that this frees."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from typing import Any

from kerasish.tensor import Variable

LEAST = 1 << 25  # freed bytes from which a search for unused pages pays


def sync_to_buffers(variables: Iterable[Variable]) -> None:
    """Copy the values of variables that are not in their buffers yet.

    This frees the initial values. They were between other blocks, so the C library's allocator
    would keep their memory, and the process would hold its weights twice. So unused pages are
    returned to the system.
    """
    freed = 0
    for v in variables:
        if not v.in_buffer:
            v.sync_to_buffer()
            freed += v.buffer.array.nbytes if v.buffer.writes == 1 else 0
    trim = _trim() if freed >= LEAST else None
    if trim is not None:
        trim(0)


@functools.cache
def _trim() -> Any:
    """Return glibc's `malloc_trim`; None if the C library has none."""
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # this system has no handle of all libraries
        return None
