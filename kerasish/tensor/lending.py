"""Arrays lent by the user are locked while a backward pass needs them.

A change in place then raises, instead of giving a wrong gradient.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

_locked: dict[int, int] = {}
_lock_guard = threading.Lock()


def _lock(maker: Any, array: Any) -> None:
    """Make the user's array read-only until `maker` is gone: a change in place then raises."""
    key = id(array)
    with _lock_guard:
        if key not in _locked:
            if not array.flags.writeable:
                return
            array.flags.writeable = False
        _locked[key] = _locked.get(key, 0) + 1
    weakref.finalize(maker, _unlock, key, array).atexit = False


def _unlock(key: int, array: Any) -> None:
    with _lock_guard:
        _locked[key] -= 1
        if not _locked[key]:
            del _locked[key]
            array.flags.writeable = True
