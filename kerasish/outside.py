"""Values in the graph of another library, such as those that `tf.data.Dataset.map` passes on.

They have a shape and a dtype, and numbers only later, when that library runs its graph. An op or a
layer that meets one becomes a node of that graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kerasish.first_use import find

# Root module of a library -> what makes an object with `__kerasish_function__` of a value in its
# graph, and None of any other object; or where that is found, for what is imported on use.
makers: dict[str, Callable[[Any], Any] | str] = {
    "tensorflow": "kerasish.engine.layer.tensorflow_graph:value_in_graph",
}


def comes_from_outside(kind: type) -> bool:
    """Return whether a class belongs to a library that may have values in a graph."""
    return kind.__module__.partition(".")[0] in makers


def stand_in(value: Any) -> Any:
    """Return an object with `__kerasish_function__` for a value in another library's graph.

    Args:
        value: any object.

    Returns:
        The object; None where the value is something else.

    Example:
        >>> stand_in(1.0) is None
        True
    """
    make = makers.get(type(value).__module__.partition(".")[0])
    if make is None:
        return None
    return (find(make) if isinstance(make, str) else make)(value)


def first_stand_in(values: Iterable[Any]) -> Any:
    """Return the wrapper of the first value that is in another library's graph; else None."""
    return next((s for s in map(stand_in, values) if s is not None), None)
