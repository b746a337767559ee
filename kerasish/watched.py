"""Python values that a trace reads: attributes, globals, closures. A change makes the trace stale.

A compiled step runs no Python: what an attribute or a global held when the step was traced is built
into it. Objects whose attributes matter (layers, losses, metrics, optimizers) are `Watched` and say
with `note_use` that a trace uses them; `Guards` knows what all of it held, and tells when it
differs.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from kerasish.typing import Structure

OWN = __name__.partition(".")[0]
SMALL = 1024  # bytes of an array that are all compared at every call
FOREIGN = (OWN, "numpy", "scipy", "sklearn", "builtins", "math", "functools", "typing")
UNBUILT = frozenset((  # what a training sets by itself, and what takes effect by compile() alone
    "built", "trainable", "stop_training", "stop_evaluating", "stop_predicting", "history",
))  # fmt: skip
_NUMBERS = (bool, int, float, complex, str, bytes, type(None))
_missing = object()


class _Changes:
    """How often attributes of watched objects have changed, in this process."""

    count = 0


class Watched:
    """A mixin: traces that use such an object are made again when an attribute of it changes."""

    def __setattr__(self, name: str, value: object) -> None:
        own = self.__dict__
        if "_trace_version" in own and not _uses.calling and name not in UNBUILT:
            before = own.get(name, _missing)
            private = name.startswith("_") and type(self).__module__.startswith(OWN)
            if before is not value and not private and not _is_same(before, value):
                own["_trace_version"] += 1
                _Changes.count += 1
        object.__setattr__(self, name, value)


def _is_same(a: object, b: object) -> bool:
    return type(a) is type(b) and isinstance(a, _NUMBERS) and repr(a) == repr(b)


class _Uses(threading.local):
    collected: dict[int, Any] | None = None
    calling = False  # what a layer's call assigns to its attributes is a result, not a setting


_uses = _Uses()


def set_calling(calling: bool) -> None:
    """Say whether a layer is being called in this thread."""
    _uses.calling = calling


def is_collecting() -> bool:
    """Return whether a trace collects what it uses in this thread."""
    return _uses.collected is not None


def note_use(thing: object) -> None:
    """Let a trace under way in this thread depend on an object or a function."""
    if _uses.collected is not None:
        _uses.collected[id(thing)] = thing


@contextlib.contextmanager
def collecting_uses() -> Iterator[dict[int, Any]]:
    """Return the dict in which `note_use` collects inside the block, by id; it keeps them alive."""
    before = _uses.collected
    _uses.collected = results = {}
    try:
        yield results
    finally:
        _uses.collected = before
        if before is not None:
            before.update(results)


class Guards:
    """What the Python values behind a trace held.

    Args:
        used: the objects and functions that the trace used.
    """

    def __init__(self, used: Iterable[Any]) -> None:
        self._versions: list[tuple[Any, int]] = []
        self._values: list[tuple[Callable[[], Any], Any, str]] = []
        self._waiting = list(used)
        seen: dict[int, Any] = {}
        while self._waiting:
            thing = self._waiting.pop()
            if id(thing) not in seen:
                seen[id(thing)] = thing  # kept, so that its id stays its own
                self._add(thing)
        self._count = _Changes.count

    def stale(self) -> str | None:
        """Return which value has changed since the trace, None if none has."""
        if self._count != _Changes.count:
            for thing, version in self._versions:
                if thing.__dict__["_trace_version"] != version:
                    name = thing.__dict__.get("name") or ""
                    return f"an attribute of {type(thing).__name__} {name!r} has changed"
            self._count = _Changes.count
        for read, before, what in self._values:
            if _frozen(read()) != before:
                return f"{what} has changed"
        return None

    def _add(self, thing: object) -> None:
        if isinstance(thing, types.MethodType):
            self._waiting += [thing.__self__, thing.__func__]
        elif isinstance(thing, types.FunctionType):
            if not _is_foreign(thing):
                self._add_function(thing)
        elif isinstance(thing, (list, tuple)):
            self._waiting += thing
        elif isinstance(thing, dict):
            self._waiting += thing.values()
        elif isinstance(thing, Watched):
            self._add_object(thing)

    def _add_object(self, thing: object) -> None:
        own = thing.__dict__
        self._versions.append((thing, own.setdefault("_trace_version", 0)))
        self._waiting += own.values()
        users = [c for c in type(thing).__mro__ if not c.__module__.startswith((OWN, "builtins"))]
        if not users:
            return
        for name, value in list(own.items()):
            if isinstance(value, (list, dict, np.ndarray)) and _frozen(value) is not _missing:
                what = f"{type(thing).__name__}.{name}"
                self._guard(functools.partial(own.get, name), what)
        for owner in users:
            self._waiting += vars(owner).values()

    def _add_function(self, function: types.FunctionType) -> None:
        names = set(_names(function.__code__))
        spaces = function.__globals__
        for name in names & spaces.keys():
            self._add_named(
                spaces[name], functools.partial(spaces.get, name, _missing), name, names
            )
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._add_named(value, functools.partial(getattr, cell, "cell_contents"), name, names)
        self._waiting += function.__defaults__ or ()

    def _add_named(
        self, value: object, read: Callable[[], Any], name: str, names: set[str]
    ) -> None:
        """Guard a global or a variable of a closure, or the attributes of it that are read."""
        if _frozen(value) is not _missing:
            self._guard(read, f"the variable {name!r}")
        elif isinstance(value, (types.FunctionType, Watched)):
            self._waiting.append(value)
        elif not _is_foreign(value) and hasattr(value, "__dict__"):
            for attribute in names & vars(value).keys():
                if _frozen(vars(value)[attribute]) is not _missing:
                    self._guard(
                        functools.partial(vars(value).get, attribute, _missing),
                        f"the variable {name}.{attribute}",
                    )

    def _guard(self, read: Callable[[], Any], what: str) -> None:
        self._values.append((read, _frozen(read()), what))


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that a function, and the functions inside it, look up."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


def _is_foreign(thing: object) -> bool:
    """Return whether a function, module or object belongs to a library."""
    if isinstance(thing, types.ModuleType):
        module = thing.__name__
    else:
        module = getattr(thing, "__module__", None) or type(thing).__module__
    return module.partition(".")[0] in FOREIGN


def _frozen(value: object, depth: int = 3) -> Structure:
    """Return what can be compared with a later state of a plain value, `_missing` for others."""
    if isinstance(value, _NUMBERS):
        return type(value), repr(value) if isinstance(value, (float, complex)) else value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        if value.nbytes > SMALL:  # evenly spaced elements stand for all: a call must stay cheap
            places = np.linspace(0, value.size - 1, SMALL // 8, dtype=np.intp)
            return value.shape, value.dtype.str, value.flat[places].tobytes()
        return value.shape, value.dtype.str, value.tobytes()
    if depth and isinstance(value, (list, tuple)) and len(value) <= 64:
        parts = tuple(_frozen(v, depth - 1) for v in value)
    elif depth and isinstance(value, dict) and len(value) <= 64:
        parts = tuple((k, _frozen(v, depth - 1)) for k, v in value.items())
        if any(p is _missing for _, p in parts):
            return _missing
    else:
        return _missing
    return _missing if any(p is _missing for p in parts) else (type(value), parts)
