"""Engines that run what `ops` describes, found by name.

`register(name, factory)` adds one; packages may also name one in the entry-point group
`kerasish.backends`. A backend is made when it is first asked for.
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

# A backend is named by its class, or by where that is found: what it needs is imported on use.
_factories: dict[str, Callable[[], Backend] | str] = {
    "eager": "kerasish.backends.eager:make",
    "static": "kerasish.backends.static:Static",
}
_instances: dict[str, Backend] = {}
_guard = threading.RLock()


def register(name: str, factory: Callable[[], Backend]) -> None:
    """Make a backend known by name; `factory()` makes it when it is first asked for.

    Args:
        name: what `kerasish.config.set_backend` takes. A backend of that name is replaced.
        factory: a function without arguments, or the class.
    """
    with _guard:
        _factories[name] = factory
        _instances.pop(name, None)
    note_change()


def unregister(name: str) -> None:
    """Forget a backend that was registered by name.

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
    """Return the names of the backends that can be asked for."""
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
    from importlib.metadata import entry_points  # it takes longer to import than to ask

    return entry_points(group="kerasish.backends")


def choose(name: str | None = None) -> Backend:
    """Return the backend called `name`, or the one that the settings name, or the default.

    It is the one for the current device; where it has none for that, the eager engine has.
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


# Single ops outside of any step are applied at once, whatever the backend for steps is.
set_default_engine(lambda: get("eager"))
