"""Functions of the package `saving`, which models call: `saving` registers them here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_functions: dict[str, Callable[..., Any]] = {}


def register_saving(**functions: Callable[..., Any]) -> None:
    """Make functions of the package `saving` known to models.

    Args:
        functions: by the name under which models ask for them.
    """
    _functions.update(functions)


def saving(name: str) -> Callable[..., Any]:
    """Return a function that the package `saving` has registered.

    Raises:
        RuntimeError: `saving` was not imported.
    """
    if name not in _functions:
        raise RuntimeError(f"{name}: import kerasish as a whole (`import kerasish`) first.")
    return _functions[name]
