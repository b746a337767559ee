"""Settings of a thread: what replaces variables, in which dtype they are read, names."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kerasish.overriding import override
from kerasish.reprs import arguments_repr

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.tensor import Tensor, Variable


class Scope:
    """The layer between variables and their values: what a trace or a pure step reads and writes.

    Attributes:
        outer: the scope in which this one was entered last, None outside all others.
        given: variable -> the value that it was given at first.
        written: variable -> the value assigned last.
        keeps_assignments: whether it keeps what is assigned to a variable that has a store, too.
    """

    outer: Scope | None = None
    given: dict[Variable, Tensor] = MappingProxyType({})  # type: ignore[assignment]  # no writes
    written: dict[Variable, Tensor] = MappingProxyType({})  # type: ignore[assignment]
    keeps_assignments = False

    def read(self, variable: Variable) -> Tensor:
        """Return the value that `variable` has here."""
        raise NotImplementedError(f"{type(self).__name__} reads no variables.")

    def write(self, variable: Variable, value: Tensor) -> None:
        """Set the value that `variable` has here."""
        raise NotImplementedError(f"{type(self).__name__} writes no variables.")

    def start_of(self, variable: Variable) -> Tensor | None:
        """Return the value that a variable starts from here; None: that of the scope around it."""
        return None


class _Scopes(threading.local):
    top: Scope | None = None


_scopes = _Scopes()


class using_scope(AbstractContextManager[None]):  # noqa: N801 (used as a function)
    """Let `scope` replace all variables inside the `with` block, in this thread."""

    __slots__ = ("_before", "_scope")

    def __init__(self, scope: Scope | None) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._before, scope = _scopes.top, self._scope
        if scope is not None and not _lies_in(scope, self._before):
            scope.outer = self._before
        _scopes.top = scope

    def __exit__(self, *error: object) -> None:
        _scopes.top = self._before


def _lies_in(scope: Scope, chain: Scope | None) -> bool:
    """Return whether `scope` is one of the nested scopes that end in `chain`."""
    while chain is not None:
        if chain is scope:
            return True
        chain = chain.outer
    return False


def current_scope() -> Scope | None:
    """Return the current scope of this thread, or None."""
    return _scopes.top


class _Autocast(threading.local):
    dtype: str | None = None


_autocast = _Autocast()


def autocast(dtype: str | None) -> AbstractContextManager[None]:
    """Read floating variables as `dtype` inside the block (None: as they are)."""
    return override(_autocast, "dtype", dtype)


def autocast_dtype() -> str | None:
    """Return the dtype of the innermost `autocast` block of this thread."""
    return _autocast.dtype


class _Names(threading.local):
    def __init__(self) -> None:
        self.stack: list[name_scope | calling] = []


_names = _Names()


class name_scope:  # noqa: N801 (Keras's name)
    """Puts `name` before the paths of the variables made inside the `with` block.

    Args:
        name: one part of a path, without "/".
        **kwargs: `caller`, who opens the scope; `deduplicate` (True), whether a scope that its
            caller opened already is not opened twice; `override_parent`, a path that
            replaces those of the outer scopes.

    Raises:
        ValueError: the name is no string, or has a "/".

    Example:
        >>> with name_scope("encoder"), name_scope("first", override_parent="decoder"):
        ...     current_path()
        'decoder/first'
    """

    __slots__ = ("caller", "deduplicate", "name", "override_parent", "_opened")

    def __init__(self, name: str, **kwargs: Any) -> None:
        if not isinstance(name, str) or "/" in name:
            raise ValueError(f"name_scope: a name is a string without '/', got {name!r}.")
        self.name = name
        self.caller = kwargs.pop("caller", None)
        self.deduplicate = kwargs.pop("deduplicate", True)
        self.override_parent = kwargs.pop("override_parent", None)
        if kwargs:
            raise TypeError(f"name_scope() got an unexpected argument {next(iter(kwargs))!r}.")
        self._opened: list[bool] = []

    def __enter__(self) -> Self:
        stack = _names.stack
        same = bool(
            self.deduplicate
            and self.caller is not None
            and stack
            and stack[-1].caller is self.caller
            and stack[-1].name == self.name
        )
        self._opened.append(not same)
        if not same:
            stack.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._opened.pop():
            _names.stack.pop()

    __repr__ = arguments_repr


class calling:  # noqa: N801 (used as a function)
    """`name_scope(name)` and `autocast(dtype)` in one: what each call of a layer enters.

    Args:
        name: the layer's name.
        dtype: that of `autocast`.

    Example:
        >>> with calling("encoder", "float16"):
        ...     current_path(), autocast_dtype()
        ('encoder', 'float16')
    """

    __slots__ = ("name", "_before", "_dtype")
    caller = override_parent = None

    def __init__(self, name: str, dtype: str | None) -> None:
        self.name, self._dtype = name, dtype

    def __enter__(self) -> None:
        _names.stack.append(self)
        self._before = _autocast.dtype
        _autocast.dtype = self._dtype

    def __exit__(self, *error: object) -> None:
        _names.stack.pop()
        _autocast.dtype = self._before


def current_path() -> str:
    """Return the path of the name scopes in force, "" outside all."""
    parts: list[str] = []
    for scope in _names.stack:
        if scope.override_parent is not None:
            parts = [part for part in scope.override_parent.split("/") if part]
        parts.append(scope.name)
    return "/".join(parts)
