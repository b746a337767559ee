"""Classes and functions of kerasish that files may name, by Keras's public modules."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from kerasish.first_use import ModulePlace, find


class Builtins(MutableMapping[str, Any]):
    """Values by name. One given as a `ModulePlace` is imported when it is first asked for.

    Args:
        values: name -> value; None: none yet.
        module: adds names when it is imported, which the first look at the names does; "": none.

    Example:
        >>> known = Builtins({"floor": ModulePlace("math:floor")})
        >>> known["floor"](2.5)
        2
    """

    def __init__(self, values: Mapping[str, Any] | None = None, module: str = "") -> None:
        self._values: dict[str, Any] = {**(values or {})}
        self._module = module

    def _complete(self) -> dict[str, Any]:
        """Return the values, after the import of the module that adds some."""
        if self._module:
            find(self._module)
            self._module = ""
        return self._values

    def __getitem__(self, name: str) -> Any:
        """Return the value of a name."""
        value = self._complete()[name]
        if type(value) is ModulePlace:
            self._values[name] = value = find(value)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        """Make a name known by its value, or by the place of that."""
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        """Remove a name."""
        del self._values[name]

    def __contains__(self, name: object) -> bool:
        """Return whether a name is known; no value is imported."""
        return name in self._complete()

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._complete())

    def __len__(self) -> int:
        """Return how many names there are."""
        return len(self._complete())


# Public module ("keras.layers") -> its names, in the order in which all modules are looked through.
# The module of kerasish that adds names when it is imported is called the same, or is the engine.
_OF_ENGINE = ("keras", "kerasish", "keras.ops", "keras.models")
BUILTINS = {
    name: Builtins(module=f"kerasish.{'engine' if name in _OF_ENGINE else name.partition('.')[2]}")
    for name in (
        "keras.activations", "keras.constraints", "keras", "keras.dtype_policies",
        "keras.initializers", "keras.regularizers", "keras.random", "keras.losses",
        "keras.metrics", "keras.layers", "kerasish", "keras.ops", "keras.quantizers",
        "keras.optimizers.schedules", "keras.optimizers", "keras.models",
    )
}  # fmt: skip
# Class or function, or its place -> (public module, name).
_PUBLIC: dict[Any, tuple[str, str]] = {}


def add_builtins(module: str, objects: Mapping[str, Any]) -> None:
    """Make classes and functions, or their places, known under Keras's public module name."""
    known = BUILTINS.setdefault(module, Builtins())
    for name, value in objects.items():
        known[name] = value
        if isinstance(value, (type, types.FunctionType, ModulePlace)):
            place = _PUBLIC.setdefault(value, (module, name))
            if place[0] == module and name == value.__name__:  # aliases give way to it
                _PUBLIC[value] = (module, name)


def own_objects(package: str) -> dict[str, Any]:
    """Return name -> value of the public classes and functions of a package that are its own.

    Example:
        >>> from kerasish import losses
        >>> own_objects("kerasish.losses")["Hinge"] is losses.Hinge
        True
    """
    return {
        name: value
        for name, value in vars(sys.modules[package]).items()
        if name[0] != "_" and f"{getattr(value, '__module__', '')}.".startswith(f"{package}.")
    }


def public_name(value: Any) -> tuple[str, str] | None:
    """Return (public module, name) of a class or function of kerasish; None: it is no such."""
    place = _PUBLIC.get(f"{value.__module__}:{value.__qualname__}")
    here = place is not None and BUILTINS[place[0]][place[1]] is value
    return place if here else _PUBLIC.get(value)
