"""Default constructor arguments for the layers made in a block."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from kerasish.engine.layer.layer import Layer
from kerasish.errors import UnknownNameError
from kerasish.tracebacks import hide_frames

_active: contextvars.ContextVar[tuple[tuple[type, dict[str, Any]], ...]] = contextvars.ContextVar(
    "defaults", default=()
)
_wrapped: set[type] = set()


@contextlib.contextmanager
def defaults(layers: type | Sequence[type], **arguments: Any) -> Iterator[None]:
    """Give the layers of some classes other default arguments, in a `with` block and its thread.

    Arguments that a constructor is given win over the defaults, those of an inner block over those
    of an outer one. Subclasses get defaults for the arguments that they leave to their parent's
    constructor. Layers read from files or configs are as they were saved.

    Args:
        layers: a layer class, or several.
        **arguments: constructor arguments of each of them. An object (an initializer, a
            regularizer) is shared by the layers.

    Returns:
        A context manager.

    Raises:
        TypeError: something is no layer class, or has no such argument.

    Source:
        `arg_scope` of TF-Slim.

    Example:
        >>> from kerasish import layers
        >>> with defaults([layers.Dense, layers.Conv2D], activation="relu"):
        ...     first, last = layers.Dense(8), layers.Dense(2, activation="softmax")
        >>> first.activation.__name__, last.activation.__name__
        ('relu', 'softmax')
    """
    kinds: list[Any] = list(layers) if isinstance(layers, (list, tuple)) else [layers]
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Layer)):
            raise TypeError(f"defaults: expected layer classes, got {kind!r}.")
        _check(kind, arguments)
    for kind in kinds:
        if kind not in _wrapped:
            _wrap(kind)
    token = _active.set((*_active.get(), *((kind, arguments) for kind in kinds)))
    try:
        yield
    finally:
        _active.reset(token)


def _check(kind: type, arguments: dict[str, Any]) -> None:
    known = _parameters(kind)
    names = [n for n, p in known.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    base = _parameters(Layer)
    names += [n for n, p in base.items() if p.kind is not p.VAR_KEYWORD and n not in names]
    for name in arguments:
        if name not in names:
            error = UnknownNameError.of(f"argument of {kind.__name__}", name, names)
            raise TypeError(f"defaults: {error}")


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    return dict(list(inspect.signature(kind.__init__).parameters.items())[1:])  # type: ignore[misc]


def _wrap(kind: Any) -> None:
    """Let a class's constructor ask for defaults, from now on."""
    original = kind.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        extra: dict[str, Any] = {}
        for owner, arguments in _active.get():
            if owner is kind:
                extra.update(arguments)
        if extra:
            given = _given(signature, self, args, kwargs)
            extra = {name: value for name, value in extra.items() if name not in given}
            kwargs = {**kwargs, **extra}
            if type(self).__init__ is construct:  # what configs are made of
                self.__dict__["_arguments"] = {**self.__dict__.get("_arguments", {}), **extra}
                own = self.__dict__.get("_own_arguments")
                if own is not None:
                    self.__dict__["_own_arguments"] = (own[0], {**own[1], **extra})
        try:
            original(self, *args, **kwargs)
        except Exception as error:
            hide_frames(error, keep_entry=False)
            raise

    kind.__init__ = construct
    _wrapped.add(kind)


def _given(
    signature: inspect.Signature, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> set[str]:
    """Return the names of the arguments that a constructor is given."""
    try:
        bound = signature.bind_partial(self, *args, **kwargs).arguments
    except TypeError:  # the constructor says what is wrong
        return {*kwargs}
    return {*bound, *kwargs}
