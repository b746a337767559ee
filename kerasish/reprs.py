"""What `repr` shows of objects: the class, and the arguments that were given, in a few words."""

from __future__ import annotations

import inspect
import reprlib
from typing import Any

_SHOWN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_missing = object()
_PACKAGE = __name__.partition(".")[0]


class _Short(reprlib.Repr):
    """Built-in values as they are, long ones cut; of all others, the class: no code of the user's
    runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 6

    def repr_instance(self, x: object, level: int) -> str:
        if isinstance(x, (int, float, complex, bytes)):
            return self.repr_str(repr(x), level) if len(repr(x)) > 60 else repr(x)
        if inspect.isroutine(x) or inspect.isclass(x):
            return str(getattr(x, "__name__", type(x).__name__))
        shape = getattr(type(x), "shape", None)
        if shape is not None and hasattr(x, "dtype"):
            return f"<{type(x).__name__} shape={tuple(x.shape)}, dtype={x.dtype}>"  # type: ignore[attr-defined]
        if type(x).__module__.partition(".")[0] == _PACKAGE:
            return repr(x)
        return f"<{type(x).__name__}>"


_short = _Short()


def shown(value: object) -> str:
    """Return a value in a few words.

    Example:
        >>> shown(0.5), shown("text"), shown(list(range(100))), shown(len), shown(object())
        ('0.5', "'text'", '[0, 1, 2, 3, 4, 5, ...]', 'len', '<object>')
    """
    if value is None or isinstance(value, bool):
        return repr(value)
    return _short.repr(value)


def given_arguments(thing: Any) -> dict[str, str]:
    """Return name -> text of those arguments of an object's constructor that are not the defaults.

    An argument is looked for among the object's own attributes, under its name or that name behind
    an underscore. Names that are made automatically are left out.

    Args:
        thing: any object.
    """
    own = dict(getattr(thing, "__dict__", {}))
    for name in getattr(type(thing), "__slots__", ()):
        own[name] = getattr(thing, name, _missing)
    results = {}
    for name, default in _parameters(type(thing)):
        value = own.get(name, own.get(f"_{name}", _missing))
        automatic = name == "name" and default is None
        if value is not _missing and not automatic and not _is_default(value, default):
            results[name] = shown(value)
    return results


def _is_default(value: object, default: object) -> bool:
    if value is default:
        return True
    if default is None:
        return type(value) in (set, dict, list, tuple) and not value
    plain = type(value) in (bool, int, float, str, tuple)
    return plain and type(value) is type(default) and value == default


def arguments_repr(self: object) -> str:
    """Return the class and the arguments that `given_arguments` gives: for `__repr__` of a class.

    Example:
        >>> class Scale:
        ...     def __init__(self, factor, offset=0.0):
        ...         self.factor, self._offset = factor, offset
        ...     __repr__ = arguments_repr
        >>> Scale(2.0), Scale(2.0, 1.0)
        (Scale(factor=2.0), Scale(factor=2.0, offset=1.0))
    """
    given = ", ".join(f"{name}={text}" for name, text in given_arguments(self).items())
    return f"{type(self).__name__}({given})"


def _parameters(cls: Any) -> tuple[tuple[str, Any], ...]:
    """Return (name, default) of a constructor's arguments."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return tuple((p.name, p.default) for p in parameters if p.kind in _SHOWN)
