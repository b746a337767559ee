"""Pages of new memory, taken by a thread while Python prepares the program that writes there.

The system clears each page of new memory when it is first written. For a large model that takes a
third of the time of the first step, or more than the step itself on a virtual machine.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
import threading
from collections.abc import Sequence
from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.machine import guard_pages
from kerasish.typing import Array

LEAST = 1 << 24  # bytes in all that pay for a thread
MOST = 1 << 26  # bytes of an array; of a larger one, as of a table, a step may write a few rows
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14: takes pages and leaves what they hold


def prefault(arrays: Sequence[Array]) -> threading.Thread | None:
    """Let a thread take the pages of arrays, most of which will be written soon.

    Args:
        arrays: new ones. Their elements do not change, also if other code writes to them meanwhile.

    Returns:
        The thread; None where taking pages ahead is not possible, or does not pay.
    """
    advise = _madvise()
    if advise is None or native.get_threads() < 2 or guard_pages.mode():
        return None
    if sum(array.nbytes for array in arrays) < LEAST:
        return None
    thread = threading.Thread(
        target=_take, args=(advise, arrays), name="kerasish-prefault", daemon=True
    )
    thread.start()
    return thread


def _take(advise: Any, arrays: Sequence[Array]) -> None:
    size = mmap.PAGESIZE
    for array in arrays:
        first = -(-array.ctypes.data // size) * size
        end = (array.ctypes.data + array.nbytes) // size * size
        if end > first and advise(first, end - first, _POPULATE_WRITE):
            return  # an older system, or no memory: pages are taken when they are written


@functools.cache
def _madvise() -> Any:
    """Return the system's `madvise`; None where there is none that takes pages."""
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
