"""The names of a package and their values, those that are imported on first use included."""

from __future__ import annotations

import types
from typing import Any


def package_values(package: types.ModuleType) -> dict[str, Any]:
    """Return name -> value of all that a package names."""
    return {name: getattr(package, name) for name in dir(package)}
