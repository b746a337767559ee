"""Names that a package imports when they are first asked for.

`import kerasish` takes a tenth of a second, because a program imports only what it names. Such
imports are in a `with` block of the package, where type checkers read them as any others:

    with imports_on_first_use(__name__):
        from kerasish.layers.core import Dense as Dense

Python asks `__getattr__` for a name that the package does not have yet (PEP 562).
"""

from __future__ import annotations

import builtins
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kerasish.overriding import no_collections

_lock = threading.Lock()  # of `builtins.__import__`


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
    """Where a value is found: "module:name", or "module"."""

    __slots__ = ()

    @property
    def __name__(self) -> str:
        """The name of the value."""
        return self.rpartition(":")[2]


class _LaterModule:
    """Stands for a module in `from module import name`: gives the places of its names."""

    def __init__(self, name: str, package: str) -> None:
        self._name, self._sign = name, "." if name == package else ":"

    def __getattr__(self, name: str) -> ModulePlace:
        return ModulePlace(f"{self._name}{self._sign}{name}")


@contextmanager
def imports_on_first_use(
    package: str, otherwise: Callable[[str], Any] | None = None
) -> Iterator[dict[str, ModulePlace]]:
    """Let the imports of a `with` block in a package happen when their names are first used.

    The block holds nothing but `from module import name`; `from package import name` stands for a
    module of the package. The package gets a `__getattr__` and a `__dir__`. `from package import *`
    asks `__getattr__` for `__all__`, and imports everything.

    Args:
        package: the package's `__name__`.
        otherwise: the `__getattr__` for all other names; None: they are errors.

    Returns:
        A dict that has, after the block, the place of each name.

    Example:
        >>> import kerasish
        >>> "Dense" in vars(kerasish.layers)["_PLACES"]
        True
    """
    known = vars(sys.modules[package])
    places: dict[str, ModulePlace] = {}

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

    def leave(name: str, globals: Any = None, *rest: Any, **options: Any) -> Any:
        if globals is known:
            return _LaterModule(name, package)
        return usual(name, globals, *rest, **options)

    with _lock:
        usual = builtins.__import__
        builtins.__import__ = leave
        try:
            yield places
        finally:
            builtins.__import__ = usual
    places.update((n, v) for n, v in known.items() if type(v) is ModulePlace)
    for name in places:
        del known[name]
    known.update(__getattr__=look_up, __dir__=list_names)
