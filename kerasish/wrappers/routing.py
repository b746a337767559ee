"""Routed parameters: `model__units`, `optimizer__learning_rate`, `callbacks__patience`..."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from kerasish.errors import UnknownNameError

DESTINATIONS = (
    "model", "optimizer", "loss", "metrics", "callbacks", "compile", "fit", "predict"
)  # fmt: skip


def named_parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or class that can be given by name."""
    parameters = inspect.signature(function).parameters
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {n: p for n, p in parameters.items() if p.kind in by_name and n != "self"}


def takes_any(function: Callable[..., Any]) -> bool:
    """Return whether a function has a `**kwargs`."""
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def goes_somewhere(name: str, builder: Any) -> bool:
    """Return whether a parameter has a known destination, or is one of the model function's."""
    destination, _, rest = name.partition("__")
    if rest and destination in DESTINATIONS:
        return True
    is_model = hasattr(builder, "fit") and not isinstance(builder, type)
    return callable(builder) and not is_model and takes(builder, name)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function can be given `name`."""
    return name in named_parameters(function) or takes_any(function)


def part(routed: dict[str, Any], destination: str) -> dict[str, Any]:
    """Return the parameters meant for a destination, its prefix taken off.

    Example:
        >>> part({"model__units": 3, "fit__batch_size": 8}, "model")
        {'units': 3}
    """
    prefix = f"{destination}__"
    return {k[len(prefix) :]: v for k, v in routed.items() if k.startswith(prefix)}


def check_names(given: Iterable[str], known: Iterable[str], destination: str, where: str) -> None:
    """Raise for the first name that the destination does not take, listing the nearest."""
    names = [f"{destination}__{name}" for name in known]
    for name in given:
        if name.split("__")[0] not in known:
            raise UnknownNameError.of(
                f"routed parameter of {where}", f"{destination}__{name}", names
            )


def make(value: Any, given: dict[str, Any], destination: str, find: Any) -> Any:
    """Return the object that `value` (name, class, config or object) and its parameters stand for.

    Args:
        value: a name known to `find`, a class, a config, or an object, which is copied.
        given: constructor arguments; `learning_rate__decay_rate` goes to a class given as
            `learning_rate`.
        find: turns a name or config into an object.
    """
    if isinstance(value, type):
        kind, known = value, {}
    else:
        made = copy.deepcopy(value) if _is_object(value) else find(value)
        if not given:
            return made
        kind = type(made)
        known = made.get_config() if hasattr(made, "get_config") else {}
        if not hasattr(kind, "from_config"):
            raise ValueError(
                f"{destination}__{next(iter(given))}: {value!r} is a function without settings."
            )
    parameters = named_parameters(kind)
    if not takes_any(kind) or kind.__module__.startswith("kerasish"):
        check_names(given, list(parameters), destination, kind.__name__)
    direct = {k: v for k, v in given.items() if "__" not in k}
    for name in {k.split("__")[0] for k in given if "__" in k}:
        inner = direct.get(name, known.get(name))
        direct[name] = make(inner, part(given, name), f"{destination}__{name}", _as_is)
    if known and not isinstance(value, type):
        return kind.from_config({**known, **direct})  # type: ignore[attr-defined]
    return kind(**direct)


def _is_object(value: Any) -> bool:
    return not isinstance(value, (str, dict)) and not inspect.isfunction(value)


def _as_is(value: Any) -> Any:
    return value


def make_callbacks(callbacks: Any, given: dict[str, Any]) -> list[Any]:
    """Return the callbacks of one fit, new objects each time.

    Args:
        callbacks: one callback or class, a list or a dict of them.
        given: `patience` for all that take it, `0__patience` or `name__patience` for one.

    Example:
        >>> from kerasish.callbacks import EarlyStopping
        >>> make_callbacks(EarlyStopping, {"patience": 3})[0].patience
        3
    """
    if callbacks is None:
        listed: dict[str, Any] = {}
    elif isinstance(callbacks, dict):
        listed = {str(k): v for k, v in callbacks.items()}
    elif isinstance(callbacks, (list, tuple)):
        listed = {str(i): v for i, v in enumerate(callbacks)}
    else:
        listed = {"0": callbacks}
    own: dict[str, dict[str, Any]] = {name: {} for name in listed}
    for name, value in given.items():
        first, _, rest = name.partition("__")
        if rest and first in own:
            own[first][rest] = value
            continue
        takers = [n for n, c in listed.items() if name in named_parameters(_class_of(c))]
        if not takers:
            known = {p for c in listed.values() for p in named_parameters(_class_of(c))}
            raise UnknownNameError.of(
                "routed parameter of the callbacks",
                f"callbacks__{name}",
                [f"callbacks__{n}" for n in (*known, *listed)],
            )
        for taker in takers:
            own[taker].setdefault(name, value)
    return [_make_callback(c, own[n]) for n, c in listed.items()]


def _class_of(callback: Any) -> Any:
    return callback if isinstance(callback, type) else type(callback)


def _make_callback(callback: Any, given: dict[str, Any]) -> Any:
    if isinstance(callback, type):
        check_names(given, list(named_parameters(callback)), "callbacks", callback.__name__)
        return callback(**given)
    made = copy.deepcopy(callback)
    for name, value in given.items():
        if not hasattr(made, name):
            raise UnknownNameError.of(
                f"setting of the callback {type(made).__name__}", name, vars(made)
            )
        setattr(made, name, value)
    return made
