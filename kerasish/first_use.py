"""Names that a package imports when they are first asked for.

A package lists them twice: for type checkers, in an `if TYPE_CHECKING` block, and by module for
Python, which asks `__getattr__` for a name that the package does not have yet (PEP 562).
`tests/test_imports.py` compares both lists.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kerasish.overriding import no_collections


def find(place: str) -> Any:
    """Return what "module:name" names, or the module where there is no name.

    Example:
        >>> find("math:floor")(2.5)
        2
    """
    module, _, name = place.partition(":")
    with no_collections(lasting=module not in sys.modules):
        result = importlib.import_module(module)
    return getattr(result, name) if name else result


class ModulePlace(str):
    """Where a value is found: "module:name"."""

    __slots__ = ()

    @property
    def __name__(self) -> str:
        """The name of the value."""
        return self.rpartition(":")[2]


def import_on_first_use(
    package: str,
    names: Mapping[str, Collection[str]],
    otherwise: Callable[[str], Any] | None = None,
    **aliases: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    `from package import *` asks `__getattr__` for `__all__`, and imports everything.

    Args:
        package: its name.
        names: for each module, the public names that it defines; none: the module itself is the
            name. A module is named from inside the package, or, of another one, in full.
        otherwise: the `__getattr__` for all other names; None: they are errors.
        aliases: further names -> the listed name for the same value.

    Example:
        >>> get, names = import_on_first_use("kerasish.losses", {"focal": ()})
        >>> get("focal").__name__
        'kerasish.losses.focal'
    """
    places = places_of(package, names, **aliases)
    known = vars(sys.modules[package])

    def look_up(name: str) -> Any:
        if name == "__all__":
            return [n for n in list_names() if n[0] != "_"]
        if name not in places:
            if otherwise is not None:
                return otherwise(name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        known[name] = value = find(places[name])
        return value

    def list_names() -> list[str]:
        return sorted({*known, *places})

    return look_up, list_names


def places_of(
    package: str, names: Mapping[str, Collection[str]], **aliases: str
) -> dict[str, ModulePlace]:
    """Return name -> place for the names that `import_on_first_use` takes.

    Example:
        >>> places_of("kerasish.losses", {"focal": ("Focal",)})
        {'Focal': 'kerasish.losses.focal:Focal'}
    """
    root = f"{package.partition('.')[0]}."
    whole = {
        module: module if module.startswith(root) else f"{package}.{module}" for module in names
    }
    places = {
        name: ModulePlace(f"{whole[module]}:{name}" if inside else whole[module])
        for module, inside in names.items()
        for name in inside or (module,)
    }
    places.update((alias, places[name]) for alias, name in aliases.items())
    return places
