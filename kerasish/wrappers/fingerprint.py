"""The key of a fit: a hash of parameters and data that is the same in every process."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import types
from collections.abc import Mapping
from typing import Any

import joblib
import numpy as np

from kerasish.engine import Model
from kerasish.optimizers import Optimizer

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def fingerprint(value: object) -> str:
    """Return 40 hexadecimal digits that differ for different values.

    The hash of a function depends on its name, code, defaults and closure, and on the functions and
    constants of its module that it names; that of a class on its name and methods; that of an
    object with `get_config` on its class and config; that of a model on its config and weights;
    that of data on their numbers.

    Raises:
        TypeError: a value cannot be pickled; the message names it.

    Example:
        >>> fingerprint({"a": 1, "b": [2.0]}) == fingerprint({"b": [2.0], "a": 1})
        True
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
        False
    """
    return hashlib.sha1(repr(_describe(value, ())).encode()).hexdigest()


def _describe(value: object, seen: tuple[int, ...]) -> tuple[Any, ...]:
    """Return nested tuples of strings and numbers; `seen` has the enclosing objects, for cycles."""
    if isinstance(value, _PLAIN):
        return type(value).__name__, value
    if id(value) in seen:
        return ("again", seen.index(id(value)))
    within = (*seen, id(value))
    if isinstance(value, Mapping):
        pairs = [(_describe(k, within), _describe(v, within)) for k, v in value.items()]
        return "dict", sorted(pairs, key=repr)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_describe(v, within) for v in value]
    if isinstance(value, type):
        return _describe_class(value, within)
    if isinstance(value, types.MethodType):
        return "method", _describe(value.__func__, within)
    if isinstance(value, types.FunctionType):
        return _describe_function(value, within)
    if isinstance(value, Model):
        return _describe_model(value, within)
    if hasattr(value, "get_config") and not inspect.isclass(value):
        config = value.get_config()
        if isinstance(value, Optimizer):  # its name has a number, which no result depends on
            config = {k: v for k, v in config.items() if k != "name"}
        return _describe(type(value), within), _describe(config, within)
    try:
        return type(value).__name__, _digest(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        if not hasattr(value, "__dict__"):
            raise TypeError(
                f"memory: {value!r} has no fingerprint ({error}); give values that pickle."
            ) from error
    return _describe(type(value), within), _describe(vars(value), within)


def _digest(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.dtype != object:
        value = np.ascontiguousarray(value)  # the layout of the numbers does not matter
    return str(joblib.hash(value))


def _describe_class(kind: type, seen: tuple[int, ...]) -> tuple[Any, ...]:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.startswith("kerasish.") or kind.__module__ == "builtins":
        return "class", name
    methods = {k: v for k, v in vars(kind).items() if isinstance(v, types.FunctionType)}
    return "class", name, _describe(methods, seen)


def _describe_model(model: Model, seen: tuple[int, ...]) -> tuple[Any, ...]:
    settings = model.training_program.copy_arguments() if model.compiled else None
    config = model.get_config()
    return "model", _describe((config, settings, model.get_weights()), seen)


def _describe_function(function: types.FunctionType, seen: tuple[int, ...]) -> tuple[Any, ...]:
    name = f"{function.__module__}.{function.__qualname__}"
    closed = inspect.getclosurevars(function)
    own = {k: v for k, v in closed.globals.items() if _belongs_to(v, function)}
    other = _describe((closed.nonlocals, own), seen)
    given = _describe((function.__defaults__, function.__kwdefaults__), seen)
    return "function", name, _code(function.__code__), given, other


def _belongs_to(value: object, function: types.FunctionType) -> bool:
    if isinstance(value, (*_PLAIN, list, tuple, dict)):
        return True
    return getattr(value, "__module__", None) == function.__module__


def _code(code: types.CodeType) -> tuple[Any, ...]:
    constants = [_constant(c) for c in code.co_consts]
    return code.co_code.hex(), constants, code.co_names, code.co_varnames


def _constant(value: int | None) -> str:
    if isinstance(value, frozenset):  # its order differs between processes
        return sorted(map(repr, value))
    return _code(value) if isinstance(value, types.CodeType) else repr(value)
