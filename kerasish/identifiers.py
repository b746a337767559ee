"""What `get` and `deserialize` of the modules share: objects by name, config, class or instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasish.errors import UnknownNameError
from kerasish.registry import (
    BUILTINS,
    CustomObjectScope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_object,
)


def deserialize_of(
    config: Any, module: str, what: str, custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """Return what a serialized dict or a name of a public module describes; see `get_by_name`."""
    return deserialize_keras_object(
        config, custom_objects, module_objects=BUILTINS[module], printable_module_name=what
    )


def get_by_name(
    identifier: object, module: str, what: str, custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """Return what `get(identifier)` of a module gives: an instance or function, or None.

    Args:
        identifier: None, a name, a serialized dict, a class, or the object itself.
        module: the public module ("keras.losses") whose names count.
        what: what messages call the kind of object ("loss").
    """
    if identifier is None:
        return None
    if isinstance(identifier, Mapping):
        identifier = deserialize_of(identifier, module, what, custom_objects)
    elif isinstance(identifier, str):
        with CustomObjectScope(dict(custom_objects or {})):
            names = BUILTINS[module]
            result = get_registered_object(identifier, None, names)
            if result is None:
                raise UnknownNameError.of(what, identifier, [*names, *get_custom_objects()])
            identifier = result
    if isinstance(identifier, type):
        return identifier()
    if callable(identifier) or hasattr(identifier, "get_config"):
        return identifier
    raise ValueError(
        f"Expected a {what} by name, config, class or object, got {identifier!r} of type "
        f"{type(identifier).__name__}."
    )
