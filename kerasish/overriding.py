"""Attributes that have another value inside a `with` block: settings of a thread, most of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def override(holder: object, name: str, value: Any) -> Iterator[None]:
    """Set an attribute inside the `with` block; it has its earlier value again after the block.

    Args:
        holder: the object, such as a `threading.local`.
        name: the attribute; it exists.
        value: what it is inside.

    Example:
        >>> import types
        >>> settings = types.SimpleNamespace(strict=False)
        >>> with override(settings, "strict", True):
        ...     settings.strict
        True
        >>> settings.strict
        False
    """
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)
