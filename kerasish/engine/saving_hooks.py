"""Functions of the package `saving`, which models call: `saving` registers them here.

It is imported when a model first asks for one of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

SAVING = "kerasish.saving"  # the package that registers the functions

_functions: dict[str, Callable[..., Any]] = {}


def register_saving(**functions: Callable[..., Any]) -> None:
    """Make functions of the package `saving` known to models.

    Args:
        functions: by the name under which models ask for them.
    """
    _functions.update(functions)


def saving(name: str) -> Callable[..., Any]:
    """Return a function that the package `saving` has registered."""
    if name not in _functions:
        importlib.import_module(SAVING)
    return _functions[name]
