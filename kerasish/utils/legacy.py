"""Keras's `utils.legacy`: configs as Keras 2 wrote them, which KerasTuner still writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasish import registry


def serialize_keras_object(instance: Any) -> dict[str, Any] | str | None:
    """Return {"class_name": ..., "config": ...} of an object, or the name of a function.

    Args:
        instance: an object with `get_config`, a function or class with a name, or None.

    Returns:
        The dict, the name, or None.

    Raises:
        ValueError: the object has neither a config nor a name.

    Example:
        >>> from kerasish import regularizers
        >>> serialize_keras_object(regularizers.L2(0.5))
        {'class_name': 'L2', 'config': {'l2': 0.5}}
    """
    if instance is None:
        return None
    if hasattr(instance, "get_config"):
        name = registry.get_registered_name(type(instance))
        return {"class_name": name, "config": instance.get_config()}
    if hasattr(instance, "__name__"):
        return registry.get_registered_name(instance)
    raise ValueError(
        f"serialize_keras_object: expected an object with get_config(), or a function, got "
        f"{instance!r}."
    )


def deserialize_keras_object(
    identifier: Mapping[str, Any] | str | None,
    module_objects: Mapping[str, Any] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    printable_module_name: str = "object",
) -> Any:
    """Return the object that `serialize_keras_object` was given.

    Args:
        identifier: the dict, the name of a function, or None.
        module_objects: name -> class or function to look in.
        custom_objects: name -> class or function to look in first.
        printable_module_name: what messages call the kind of object.

    Returns:
        The object; None for None.

    Raises:
        ValueError: a name that is not known.

    Example:
        >>> from kerasish import regularizers
        >>> config = {"class_name": "L2", "config": {"l2": 0.5}}
        >>> deserialize_keras_object(config, {"L2": regularizers.L2}).l2
        0.5
    """
    if identifier is None:
        return None
    names = {**(module_objects or {}), **(custom_objects or {})}
    return registry.deserialize_keras_object(
        identifier if isinstance(identifier, str) else dict(identifier),
        custom_objects=names,
        module_objects=names,
        printable_module_name=printable_module_name,
    )
