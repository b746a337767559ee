"""Python values that a trace reads: attributes, globals, closures. A change makes the trace stale.

A compiled step runs no Python: what an attribute or a global held when the step was traced is built
into it. Objects whose attributes matter (layers, losses, metrics, optimizers) are `Watched` and say
with `note_use` that a trace uses them; `Guards` records what all of it held, and reports when it
differs.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import operator
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from kerasish.changes import note_change
from kerasish.tracebacks import ShortInitTracebacks
from kerasish.typing import Structure

OWN = __name__.partition(".")[0]
SMALL = 1024  # bytes: arrays up to this size are compared as byte strings, larger ones in parts
SHORT = 64  # elements: longer lists and dicts are guarded if they hold nothing but numbers
FOREIGN = (OWN, "numpy", "scipy", "sklearn", "builtins", "math", "functools", "typing")
UNBUILT = frozenset((  # what a training sets by itself, and what takes effect only by compile()
    "built", "trainable", "stop_training", "stop_evaluating", "stop_predicting", "history",
    "inbound_nodes",
))  # fmt: skip
_NUMBERS = (bool, int, float, complex, str, bytes, type(None))
_missing = object()


class _Changes:
    """How often attributes of watched objects have changed, in this process."""

    count = 0


class Watched(ShortInitTracebacks):
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
                note_change()
                return
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
        self._values: list[
            tuple[Callable[[], Any], Any, str, tuple[type, tuple[Any, ...]] | None]
        ] = []
        self._identities: list[tuple[Callable[[], Any], Any, str]] = []
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
        for read, before, what in self._identities:
            if read() is not before:
                return f"{what} has changed"
        for read, before, what, objects in self._values:
            value = read()
            if not _holds(value, objects) and _frozen(value) != before:
                return f"{what} has changed"
        return None

    def may_change_unnoticed(self) -> bool:
        """Return whether values may change without a new mark (`changes.note_change`)."""
        return bool(self._identities or self._values)

    def _add(self, thing: object) -> None:
        if isinstance(thing, types.MethodType):
            self._waiting += [thing.__self__, thing.__func__]
        elif isinstance(thing, types.FunctionType):
            if not _is_foreign(thing):
                self._add_function(thing)
        elif isinstance(thing, functools.partial):
            self._waiting.append(thing.func)
            self._add_given({**dict(enumerate(thing.args)), **thing.keywords})
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
        for name, value in list(own.items()):
            private = name.startswith("_") and not users  # our own bookkeeping
            if private or name in UNBUILT or not isinstance(value, (list, dict, np.ndarray)):
                continue
            if _frozen(value) is not _missing:
                what = f"{type(thing).__name__}.{name}"
                self._guard(functools.partial(own.get, name), what)
        for owner in users:
            self._waiting += vars(owner).values()

    def _add_function(self, function: types.FunctionType) -> None:
        code, spaces = function.__code__, function.__globals__
        for name in set(_names(code)) & spaces.keys():
            self._add_named(spaces[name], functools.partial(spaces.get, name, _missing), name, code)
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            read = functools.partial(getattr, cell, "cell_contents", _missing)
            self._add_named(value, read, name, code)
        given = inspect.signature(function).parameters.values()
        self._add_given({p.name: p.default for p in given if p.default is not p.empty})

    def _add_given(self, given: dict[Any, Any]) -> None:
        """Guard the contents of defaults, and of what a `functools.partial` gives."""
        for name, value in given.items():
            if isinstance(value, (list, dict, np.ndarray)) and _frozen(value) is not _missing:
                self._guard(functools.partial(given.get, name), f"the argument {name!r}")
        self._waiting += given.values()

    def _add_named(
        self, value: object, read: Callable[[], Any], name: str, code: types.CodeType
    ) -> None:
        """Guard a global or a variable of a closure, and the attributes of it that are read."""
        if _frozen(value) is not _missing:
            self._guard(read, f"the variable {name!r}")
            return
        if not isinstance(value, types.ModuleType) and name not in _stored(code):
            self._identities.append((read, value, f"the variable {name!r}"))
        if isinstance(value, (types.FunctionType, types.MethodType, functools.partial, Watched)):
            self._waiting.append(value)
        elif not _is_foreign(value) and hasattr(value, "__dict__"):
            for attribute in set(_names(code)) & vars(value).keys():
                held, what = vars(value)[attribute], f"the variable {name}.{attribute}"
                read = functools.partial(vars(value).get, attribute, _missing)
                if _frozen(held) is not _missing:
                    self._guard(read, what)
                elif callable(held) and attribute not in _stored(code):
                    self._identities.append((read, held, what))
                    self._waiting.append(held)

    def _guard(self, read: Callable[[], Any], what: str) -> None:
        value = read()
        self._values.append((read, _frozen(value, keep=True), what, _objects_in(value)))


def _objects_in(value: object) -> tuple[type, tuple[Any, ...]] | None:
    """Return the type of a plain value and the numbers that it holds; None: it holds others."""
    many = _many(value)
    return (type(value), many) if all(map(_is_number, many)) else None


def _many(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return (*value, *value.values())
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _holds(value: object, objects: tuple[type, tuple[Any, ...]] | None) -> bool:
    """Return whether a plain value holds the same objects as before: nothing has changed."""
    if objects is None or type(value) is not objects[0]:
        return False
    many = _many(value)
    return len(many) == len(objects[1]) and all(map(operator.is_, many, objects[1]))


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that a function, and the functions inside it, look up."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


def _stored(code: types.CodeType) -> set[str]:
    """Return the names that a function, or a function inside it, assigns: results, no settings."""
    stores = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")
    names = {i.argval for i in dis.get_instructions(code) if i.opname in stores}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names |= _stored(inner)
    return names


def _is_foreign(thing: object) -> bool:
    """Return whether a function, module or object belongs to a library."""
    if isinstance(thing, types.ModuleType):
        module = thing.__name__
    else:
        module = getattr(thing, "__module__", None) or type(thing).__module__
    return module.partition(".")[0] in FOREIGN


def _frozen(value: object, depth: int = 3, keep: bool = False) -> Structure:
    """Return what can be compared with a later state of a plain value, `_missing` for others.

    Args:
        value: what is held now.
        depth: how deep lists and dicts are followed.
        keep: whether the result is the earlier state, which must not change with the value.
    """
    if isinstance(value, _NUMBERS):
        return type(value), repr(value) if isinstance(value, (float, complex)) else value
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        if value.nbytes > SMALL:
            return _LargeArray(np.asarray(value), keep)
        return type(value), value.shape, value.dtype.str, value.tobytes()
    if not depth or not isinstance(value, (list, tuple, dict)):
        return _missing
    if len(value) > SHORT:
        many = (*value.keys(), *value.values()) if isinstance(value, dict) else tuple(value)
        return _Numbers(type(value), many) if all(map(_is_number, many)) else _missing
    if isinstance(value, dict):
        parts = tuple((k, _frozen(v, depth - 1, keep)) for k, v in value.items())
        return _missing if any(p is _missing for _, p in parts) else (type(value), parts)
    parts = tuple(_frozen(v, depth - 1, keep) for v in value)
    return _missing if any(p is _missing for p in parts) else (type(value), parts)


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBERS)


class _LargeArray:
    """The contents of an array: all of them are compared, without copies at every call.

    An array that owns its memory and is read-only (`array.flags.writeable = False`) is not
    compared while it stays so: nothing changes it.
    """

    def __init__(self, array: np.ndarray, keep: bool) -> None:
        self.array = array if not keep or _is_fixed(array) else array.copy()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LargeArray):
            return False
        a, b = self.array, other.array
        if a is b and _is_fixed(a):
            return True
        if a is b or a.shape != b.shape or a.dtype.str != b.dtype.str:
            return False
        left, right = _words(a), _words(b)
        parts = range(0, left.size, PART)
        return all(np.array_equal(left[i : i + PART], right[i : i + PART]) for i in parts)

    __hash__ = None  # type: ignore[assignment]


PART = 2**15  # words that are compared at once: they stay in the cache


def _is_fixed(array: np.ndarray) -> bool:
    return bool(array.flags.owndata and not array.flags.writeable)


def _words(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array as large integers: NaN equals itself, 0.0 is not -0.0."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat


class _Numbers:
    """The elements of a long list or dict."""

    def __init__(self, kind: type, many: tuple[Any, ...]) -> None:
        self.kind, self.many = kind, many

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Numbers) or self.kind is not other.kind:
            return False
        if len(self.many) != len(other.many):
            return False
        return all(map(_is_same, self.many, other.many))

    __hash__ = None  # type: ignore[assignment]
