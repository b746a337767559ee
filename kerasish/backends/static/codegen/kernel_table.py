"""The table in the argument blocks of kernels: the addresses of functions that kernels call."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_table: contextvars.ContextVar[int] = contextvars.ContextVar("table", default=0)


@contextlib.contextmanager
def using_table(table: int) -> Iterator[None]:
    """Give another table to records that are created in the block, in this thread.

    Args:
        table: its address.
    """
    token = _table.set(table)
    try:
        yield
    finally:
        _table.reset(token)


def other_table() -> int:
    """Return the table of `using_table`; 0 outside of it."""
    return _table.get()
