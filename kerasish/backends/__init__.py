"""Engines that run the ops of `kerasish.ops`, looked up by name.

`register(name, factory)` adds one; packages may also name one in the entry-point group
`kerasish.backends`. A backend is created when it is first requested.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kerasish import config
from kerasish.backends.backend import Backend as Backend
from kerasish.backends.backend import CompiledStep as CompiledStep
from kerasish.backends.backend import RowRun as RowRun
from kerasish.changes import note_change
from kerasish.devices import current as current_device
from kerasish.errors import UnknownNameError
from kerasish.first_use import find
from kerasish.ops.op import set_default_engine

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# A backend is given by its class or its import path: its dependencies are imported on use.
_factories: dict[str, Callable[[], Backend] | str] = {
    "eager": "kerasish.backends.eager:make",
    "static": "kerasish.backends.static:Static",
}
_instances: dict[str, Backend] = {}
_guard = threading.RLock()


def register(name: str, factory: Callable[[], Backend]) -> None:
    """Register a backend by name; `factory()` creates it when it is first requested.

    Args:
        name: the argument of `kerasish.config.set_backend`. A backend of that name is replaced.
        factory: a function without arguments, or the class.
    """
    with _guard:
        _factories[name] = factory
        _instances.pop(name, None)
    note_change()


def unregister(name: str) -> None:
    """Remove a backend that was registered by name.

    Raises:
        UnknownNameError: no backend of that name was registered.
    """
    with _guard:
        if name not in _factories:
            raise UnknownNameError.of("backend", name, sorted(_factories))
        del _factories[name]
        _instances.pop(name, None)
    note_change()


def names() -> list[str]:
    """Return the names of the available backends."""
    return sorted({*_factories, *(point.name for point in _of_others())})


def get(name: str) -> Backend:
    """Return the backend called `name`.

    Raises:
        UnknownNameError: no such backend.
    """
    instance = _instances.get(name)
    if instance is not None:
        return instance
    with _guard:
        if name not in _instances:
            _instances[name] = _find_factory(name)()
        return _instances[name]


def _find_factory(name: str) -> Callable[[], Any]:
    if name in _factories:
        result = _factories[name]
        if not isinstance(result, str):
            return result
        return find(result)
    for point in _of_others():
        if point.name == name:
            return point.load()
    raise UnknownNameError.of("backend", name, names())


def _of_others() -> Iterable[EntryPoint]:
    """Return the entry points of backends in other packages."""
    from importlib.metadata import entry_points  # its import takes longer than its use

    return entry_points(group="kerasish.backends")


def choose(name: str | None = None) -> Backend:
    """Return the backend called `name`, or the one that the settings name, or the default.

    It is the one for the current device; if it has none, that of the eager engine.
    """
    result, device = _named(name), current_device()
    return result.on(device) or get("eager").on(device) or result


def _named(name: str | None) -> Backend:
    wanted = name or config.backend()
    try:
        return get(wanted)
    except UnknownNameError as error:
        if wanted != os.environ.get("KERASISH_BACKEND"):
            raise
        raise UnknownNameError(
            f"The environment variable KERASISH_BACKEND={wanted!r} names no backend. Known: "
            f"{names()}."
        ) from error


# Single ops outside of any step are applied immediately, with any backend for steps.
set_default_engine(lambda: get("eager"))
