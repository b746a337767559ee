"""The C library of the process: the addresses of its functions."""

from __future__ import annotations

import ctypes
import time
from typing import Any


def c_library() -> Any:
    """Return the library that has the functions of <math.h>."""
    for name in (None, "libm.so.6", "libSystem.dylib", "ucrtbase.dll"):
        try:
            library = ctypes.CDLL(name)
        except (OSError, TypeError):
            continue
        if hasattr(library, "lgamma"):
            return library
    raise OSError("no C library with the functions of <math.h> was found")


def clock_of(library: Any) -> int:
    """Return the address of clock_gettime; 0 if steps cannot be timed natively (Windows)."""
    if not hasattr(time, "CLOCK_MONOTONIC"):
        return 0
    for result in (library, ctypes.CDLL(None)):
        if hasattr(result, "clock_gettime"):
            return address_of(result, "clock_gettime")
    return 0


def address_of(library: Any, name: str) -> int:
    """Return the address of a function."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
