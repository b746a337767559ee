"""Python functions that call themselves more deeply than Python's stack allows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")

MOST_FRAMES = 200_000
_STACK_BYTES = 512 * 2**20  # reserved, not used: pages are taken as the stack grows
_lock = threading.Lock()


def call_deep(function: Callable[[], R]) -> R:
    """Return the result of a function, from a separate thread with a stack for deep recursion.

    Args:
        function: what is called; thread-local states of the caller are not known there.

    Raises:
        RecursionError: it takes more than `MOST_FRAMES` nested calls.

    Example:
        >>> def depth(x):
        ...     return 1 + depth(x[0]) if x else 0
        >>> chain = []
        >>> for _ in range(5000):
        ...     chain = [chain]
        >>> call_deep(lambda: depth(chain))
        5000
    """
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(function())
        except BaseException as error:  # noqa: BLE001 (raised again below)
            errors.append(error)

    with _lock:
        limit = sys.getrecursionlimit()
        size = threading.stack_size(_STACK_BYTES)
        try:
            sys.setrecursionlimit(max(limit, MOST_FRAMES))
            thread = threading.Thread(target=run, name="kerasish-fold")
            thread.start()
            thread.join()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
    if errors:
        raise errors[0]
    value: R = result[0]
    return value
