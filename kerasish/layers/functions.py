"""The functions of Lambda layers: how files name them, and which of them files may name."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from kerasish import registry
from kerasish.errors import UnknownNameError


def find_function(described: Any, module: Any, who: Any) -> Any:
    """Return the function that a Lambda's config names.

    Args:
        described: what the config says: a function, None, a name, or Keras's description of one.
        module: the module's name, in configs of the older format.
        who: the layer's name.

    Raises:
        ValueError: it is not known, or is code.
    """
    if described is None or callable(described):
        return described
    if isinstance(described, (list, tuple)):
        refuse_code(who)
    if isinstance(described, dict):
        if described.get("class_name") == "__lambda__":
            refuse_code(who)
        if described.get("class_name") != "function":
            return registry.deserialize_keras_object(described)
        described, module = described.get("config"), described.get("module")
    if not isinstance(described, str):
        raise ValueError(f'Lambda "{who}": expected a function\'s name, got {described!r}.')
    if registry.in_safe_mode() or registry.get_registered_object(described) is not None:
        return _known(described, module, who)
    return _imported(described, module, who)


def _known(name: str, module: Any, who: str | None) -> Callable[..., Any]:
    try:
        return registry.find_function(name, any_package=module in (None, "builtins"))
    except UnknownNameError as error:
        raise ValueError(
            f'Lambda "{who}" calls the function {name!r} of {module!r}, which is not known here '
            f"({error}). Register it, or pass custom_objects={{{name!r}: ...}}; safe_mode=False "
            "imports it from its module, if you trust the file."
        ) from error


def _imported(name: str, module: Any, who: Any) -> Callable[..., Any]:
    """Import a plain Python function; those of Python itself are no part of any model."""
    if not isinstance(module, str) or module in ("builtins", "__main__"):
        return _known(name, module, who)
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root == __name__.partition(".")[0]:
        raise ValueError(f'Lambda "{who}": {module}.{name} is no function of a model; refused.')
    try:
        result = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f'Lambda "{who}": the function {name!r} cannot be imported from {module!r} ({error}).'
        ) from error
    if not isinstance(result, types.FunctionType) or result.__module__ != module:
        raise ValueError(f'Lambda "{who}": {module}.{name} is no function of that module.')
    return result


def refuse_code(who: Any) -> NoReturn:
    """Raise: the config holds a function as byte code."""
    raise ValueError(
        f'Lambda "{who}" holds its function as byte code. kerasish runs no code from files, in '
        "safe mode or not. Give the function a name (def, not lambda), register it by "
        "@kerasish.saving.register_keras_serializable() and save the model again; or make the "
        "model in Python and load only its weights from this file."
    )
