"""What is in force in a thread: who stands for variables, in which dtype they are read, names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Scope:
    """Stands between variables and their values: what a trace or a pure step reads and writes."""

    def read(self, variable: Any) -> Any:
        """Return the value that `variable` has here."""
        raise NotImplementedError(f"{type(self).__name__} reads no variables.")

    def write(self, variable: Any, value: Any) -> None:
        """Set the value that `variable` has here."""
        raise NotImplementedError(f"{type(self).__name__} writes no variables.")


class _Scopes(threading.local):
    top: Scope | None = None


_scopes = _Scopes()


@contextmanager
def using_scope(scope: Scope | None) -> Iterator[None]:
    """Let `scope` stand for all variables inside the `with` block, in this thread."""
    before, _scopes.top = _scopes.top, scope
    try:
        yield
    finally:
        _scopes.top = before


def current_scope() -> Scope | None:
    """Return the scope in charge in this thread, or None."""
    return _scopes.top


class _Autocast(threading.local):
    dtype: str | None = None


_autocast = _Autocast()


@contextmanager
def autocast(dtype: str | None) -> Iterator[None]:
    """Read floating variables as `dtype` inside the block (None: as they are)."""
    before, _autocast.dtype = _autocast.dtype, dtype
    try:
        yield
    finally:
        _autocast.dtype = before


def autocast_dtype() -> str | None:
    """Return the dtype of the innermost `autocast` block of this thread."""
    return _autocast.dtype


class _Names(threading.local):
    def __init__(self) -> None:
        self.stack: list[str] = []


_names = _Names()


@contextmanager
def name_scope(name: str, **kwargs: Any) -> Iterator[None]:
    """Put `name` before the paths of the variables made inside the block."""
    _names.stack.append(name)
    try:
        yield
    finally:
        _names.stack.pop()


def current_path() -> str:
    """Return the path of the name scopes in force, "" outside all."""
    return "/".join(_names.stack)
