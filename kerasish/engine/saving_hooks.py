"""Where rooms above register what models call: the functions of `saving`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_functions: dict[str, Callable[..., Any]] = {}


def register_saving(**functions: Callable[..., Any]) -> None:
    """Make functions of the room `saving` known to models."""
    _functions.update(functions)


def saving(name: str) -> Callable[..., Any]:
    """Return a function of the room `saving`."""
    if name not in _functions:
        raise RuntimeError(f"{name}: import kerasish as a whole (`import kerasish`) first.")
    return _functions[name]
